//! Values are judged before existence: a request that no resource could take is invalid, also for one that does not exist.

use signalbox_domain::kernel::{Decider, ErrorKind, Rejection};

use crate::problem::{Problem, ProblemKind};

/// The answer for a resource that was `missing`: that problem, unless an example of its kind, to which `commands` are
/// given one after the other, refuses one of them as invalid. The first command creates the example.
pub(crate) fn judged<D: Decider>(
    missing: Problem,
    commands: impl IntoIterator<Item = D::Command>,
) -> Problem {
    if missing.kind() != ProblemKind::NotFound {
        return missing;
    }
    invalid::<D>(commands).map_or(missing, Problem::from)
}

/// Why an example of its kind refuses one of `commands` as invalid, which are given to it one after the other: before other
/// resources are looked up that a request names.
pub(crate) fn invalid<D: Decider>(commands: impl IntoIterator<Item = D::Command>) -> Option<Rejection> {
    let mut example = D::default();
    for command in commands {
        match example.decide(command) {
            Ok(events) => events.into_iter().for_each(|event| example.evolve(event)),
            Err(rejection) => {
                return Some(rejection).filter(|rejection| rejection.kind == ErrorKind::Invalid);
            }
        }
    }
    None
}

/// Commands that make an example of each kind.
pub(crate) mod examples {
    use chrono::DateTime;
    use signalbox_domain::{
        automation::{
            AlarmCommand, AlarmReason, Condition, ContactCommand, ContactSpec, Destination, EventType,
            NewAlarm, NewContact, NewRule, NewWebhook, NotificationSpec, Operator, RetryPolicy, RuleAction,
            RuleCommand, RuleSpec, Severity, WebhookCommand, WebhookSpec,
        },
        fleet::{Direction, InstanceSpec, MappingSpec, NewInstance, PluginInstanceCommand, PluginRef},
        identity::{NewUser, Role, UserCommand},
        kernel::{AgentId, ChannelId, MappingId, RuleId, UserId, WidgetId},
        monitoring::{
            ChannelCommand, ChannelSpec, ChannelType, DashboardCommand, ExperimentCommand, LogEntryCommand,
            LogType, NewChannel, NewDashboard, NewExperiment, NewLogEntry, WidgetSpec, WidgetType,
        },
        transfer::{AgentCommand, AgentProfile, AgentRef, JobCommand, JobSpec, NewAgent, NewJob},
    };
    use uuid::Uuid;

    const OWNER: UserId = UserId(Uuid::nil());

    fn text() -> String {
        "example".to_owned()
    }

    pub(crate) fn channel() -> ChannelCommand {
        let kind = ChannelType::Sensor;
        ChannelCommand::Create(NewChannel { number: 1, owner: OWNER, spec: ChannelSpec::new(text(), kind) })
    }

    pub(crate) fn rule() -> RuleCommand {
        let condition = Condition { operator: Operator::Gt, threshold: 0.0, threshold_high: None };
        let spec = RuleSpec {
            name: text(),
            channel: ChannelId(Uuid::nil()),
            condition,
            action: RuleAction::Log,
            cooldown_seconds: 0,
            enabled: true,
            alarm: None,
            notify: NotificationSpec::default(),
        };
        RuleCommand::Create(NewRule { owner: OWNER, spec, after: 0 })
    }

    pub(crate) fn alarm() -> AlarmCommand {
        let alarm = NewAlarm {
            rule_id: RuleId(Uuid::nil()),
            rule_name: text(),
            channel_id: ChannelId(Uuid::nil()),
            channel_name: text(),
            reason: AlarmReason::Condition,
            severity: Severity::Warning,
            condition: Condition { operator: Operator::Gt, threshold: 0.0, threshold_high: None },
            rate_window_seconds: None,
            started_on: DateTime::UNIX_EPOCH,
            value: None,
        };
        AlarmCommand::Record { alarm, marks: Vec::new() }
    }

    pub(crate) fn webhook() -> WebhookCommand {
        let events = vec![EventType::SensorReading];
        let spec = WebhookSpec {
            url: "https://example.org".to_owned(),
            sealed_secret: None,
            key: None,
            previous: None,
            events,
            enabled: true,
            retry: RetryPolicy::Default,
            filters: Box::default(),
        };
        WebhookCommand::Create(NewWebhook { owner: OWNER, spec })
    }

    pub(crate) fn contact() -> ContactCommand {
        let destination = Destination::Email { address: "ops@example.org".to_owned() };
        let spec = ContactSpec { name: text(), destination, quiet_hours: None };
        ContactCommand::Create(NewContact { owner: OWNER, spec })
    }

    pub(crate) fn dashboard() -> DashboardCommand {
        DashboardCommand::Create(NewDashboard { owner: OWNER, name: text(), is_global: false })
    }

    /// A widget with key `widget` on an example of a dashboard.
    pub(crate) fn widget(widget: WidgetId) -> [DashboardCommand; 2] {
        let kind = WidgetType::Gauge;
        let spec = WidgetSpec { kind, title: text(), channel: None, x: 0, y: 0, w: 1, h: 1, config: None };
        [dashboard(), DashboardCommand::AddWidget { widget, spec }]
    }

    pub(crate) fn experiment() -> ExperimentCommand {
        ExperimentCommand::Start(NewExperiment { owner: OWNER, name: text() })
    }

    pub(crate) fn log_entry() -> LogEntryCommand {
        LogEntryCommand::Write(NewLogEntry {
            kind: LogType::Info,
            content: text(),
            source: text(),
            user: None,
        })
    }

    pub(crate) fn instance() -> PluginInstanceCommand {
        let spec = InstanceSpec { name: text(), demo_mode: true, enabled: true, config: None };
        let plugin = PluginRef { id: text(), is_built_in: true };
        PluginInstanceCommand::Create {
            new: NewInstance { owner: OWNER, plugin, spec },
            mappings: Default::default(),
        }
    }

    /// A mapping with key `mapping` of an example of an instance.
    pub(crate) fn mapping(mapping: MappingId) -> [PluginInstanceCommand; 2] {
        let spec = MappingSpec {
            channel_id: text(),
            channel_name: text(),
            direction: Direction::Input,
            unit: String::new(),
            event: None,
        };
        [instance(), PluginInstanceCommand::AddMapping { mapping, spec }]
    }

    pub(crate) fn user() -> UserCommand {
        let (email, password_hash) = ("example@example.org".to_owned(), text());
        UserCommand::Create(NewUser { number: 1, email, username: text(), role: Role::Viewer, password_hash })
    }

    pub(crate) fn agent() -> AgentCommand {
        let profile = AgentProfile { name: text(), ..AgentProfile::default() };
        AgentCommand::Create(NewAgent { number: 1, profile })
    }

    pub(crate) fn job_spec() -> JobSpec {
        let agent = AgentRef { id: AgentId(Uuid::nil()), number: 1 };
        JobSpec::new(text(), (agent, "/example"), (agent, "/example"))
    }

    pub(crate) fn job() -> JobCommand {
        JobCommand::Create(NewJob { number: 1, owner: OWNER, spec: job_spec() })
    }
}
