//! A history in which every kind of thing happens, written by one task.

use signalbox_domain::{
    automation::{
        Acknowledged, Alarm, AlarmChanges, AlarmCommand, AlarmMark, AlarmReason, Condition, DatapointPlace,
        NewAlarm, NewRule, NotificationSpec, Operator, Reading, Rule, RuleAction, RuleChanges, RuleCommand,
        RuleSpec, Severity, Silence, StepKind,
    },
    identity::{
        ApiToken, ApiTokenCommand, NewApiToken, Role, Session, SessionCommand, User, UserChanges, UserCommand,
    },
    kernel::{ChannelId, UserId, WidgetId},
    monitoring::{
        Channel, ChannelCommand, Dashboard, DashboardCommand, Experiment, ExperimentCommand, LogEntry,
        LogEntryCommand, LogStatus, LogType, NewDashboard, NewExperiment, NewLogEntry, PlacedWidget,
        WidgetChanges, WidgetSpec, WidgetType,
    },
    transfer::{
        Agent, AgentCommand, AgentToken, AgentTokenCommand, Arrival, Job, JobCommand, JobSpec, NewAgentToken,
        NewTransfer, Transfer, TransferCommand, TransportMode,
    },
};
use uuid::Uuid;

use crate::world::{OWNER, Writer, digest, file, new_transfer, spec};

pub(crate) async fn users(writer: &Writer, number: i64) {
    let name = format!("user-{number}");
    let id = writer.user(number, &name, Role::Operator).await;
    let session = writer.clock.new_id();
    let expires_at = writer.clock.now();
    let start = || SessionCommand::Start { user: UserId(id), expires_at };
    writer.run::<Session>(session, start()).await;
    let new = NewApiToken {
        user: UserId(id),
        name: name.clone(),
        secret_sha256: digest(number as u8),
        expires_at: None,
        controller: None,
    };
    let create = || ApiTokenCommand::Create(new.clone());
    let (kept, revoked) = (writer.clock.new_id(), writer.clock.new_id());
    writer.run::<ApiToken>(kept, create()).await;
    writer.run::<ApiToken>(revoked, create()).await;
    writer.run::<ApiToken>(revoked, ApiTokenCommand::Revoke).await;
    let changes = UserChanges {
        username: Some(format!("renamed-{number}")),
        password_hash: Some("$argon2id$new".to_owned()),
        ..Default::default()
    };
    writer.run::<User>(id, UserCommand::Change(changes)).await;
    writer.run::<Session>(session, SessionCommand::Renew { expires_at }).await;
    if number % 2 == 0 {
        writer.run::<User>(id, UserCommand::Delete).await;
        // A login, and a new token, that were in progress when the user was deleted.
        writer.run::<Session>(writer.clock.new_id(), start()).await;
        writer.run::<ApiToken>(writer.clock.new_id(), create()).await;
    }
    writer.run::<Session>(session, SessionCommand::End).await;
}

pub(crate) async fn transfers(writer: &Writer, number: i64) {
    let (source, destination) = (writer.agent(number, "press").await, writer.agent(-number, "store").await);
    let spec = spec("nightly", source, destination);
    let connect = AgentCommand::Connect { session: Uuid::from_u128(9), transport: TransportMode::Websocket };
    writer.run::<Agent>(source.id.0, connect).await;
    token(writer, number, source).await;
    let job = writer.job(number, spec.clone()).await;
    let run = new_transfer(number, Some(job), &spec);
    let firing = NewTransfer { scheduled_for: Some(writer.clock.now()), ..run.clone() };
    move_file(writer, writer.transfer(firing).await, &spec).await;
    writer.transfer(run).await;
    writer.run::<Job>(job.id.0, JobCommand::Update(JobSpec { enabled: number % 3 == 0, ..spec })).await;
    if number % 2 == 0 {
        writer.run::<Job>(job.id.0, JobCommand::Delete).await;
        writer.run::<Agent>(source.id.0, AgentCommand::Delete).await;
    }
}

async fn token(writer: &Writer, number: i64, agent: signalbox_domain::transfer::AgentRef) {
    let new = NewAgentToken {
        number,
        name: "token".to_owned(),
        agent,
        description: None,
        secret_sha256: digest(number as u8),
        expires_at: None,
    };
    writer.run::<AgentToken>(writer.clock.new_id(), AgentTokenCommand::Create(new)).await;
}

/// A first attempt fails, a second one succeeds.
async fn move_file(writer: &Writer, id: Uuid, spec: &JobSpec) {
    let complete = |agent, sha256| TransferCommand::ReportComplete {
        agent,
        arrival: Arrival { sha256: Some(sha256), ..Default::default() },
    };
    for (name, reported) in [("wrong.csv", digest(1)), ("report.csv", digest(100))] {
        writer.run::<Transfer>(id, TransferCommand::Dispatch).await;
        writer.run::<Transfer>(id, TransferCommand::Stage { files: vec![file(name, 100)] }).await;
        writer.run::<Transfer>(id, complete(spec.source_agent.id, reported)).await;
    }
    writer
        .run::<Transfer>(
            id,
            TransferCommand::Progress {
                leg: signalbox_domain::transfer::Leg::Download,
                bytes: 50,
                total: None,
                attempt: None,
            },
        )
        .await;
    writer.run::<Transfer>(id, complete(spec.destination_agent.id, digest(100))).await;
}

/// A widget that shows `channel`.
pub(crate) fn gauge(channel: Option<Uuid>) -> WidgetSpec {
    WidgetSpec {
        kind: WidgetType::Gauge,
        title: "Boiler".to_owned(),
        channel: channel.map(ChannelId),
        x: 0,
        y: 0,
        w: 4,
        h: 3,
        config: None,
    }
}

pub(crate) async fn monitoring(writer: &Writer, number: i64) {
    let channels = [writer.channel(number, "boiler").await, writer.channel(-number, "kettle").await];
    dashboards(writer, channels).await;
    let experiment = writer.clock.new_id();
    let start = NewExperiment { owner: OWNER, name: format!("burn-in {number}") };
    writer.run::<Experiment>(experiment, ExperimentCommand::Start(start)).await;
    writer
        .run::<Experiment>(experiment, ExperimentCommand::Rename { name: format!("second {number}") })
        .await;
    let end = if number % 2 == 0 { ExperimentCommand::Delete } else { ExperimentCommand::Stop };
    writer.run::<Experiment>(experiment, end).await;
    let entry = writer.clock.new_id();
    let new = NewLogEntry {
        kind: LogType::Info,
        content: "warm".to_owned(),
        source: "boiler".to_owned(),
        user: (number % 2 == 0).then_some(OWNER),
    };
    writer.run::<LogEntry>(entry, LogEntryCommand::Write(new)).await;
    let change = LogEntryCommand::Change { status: Some(LogStatus::Read), content: Some("hot".to_owned()) };
    writer.run::<LogEntry>(entry, change).await;
}

/// Two dashboards: one is deleted, the other keeps one widget whose channel is deleted and one whose channel is not.
async fn dashboards(writer: &Writer, [gone, kept]: [Uuid; 2]) {
    for stays in [true, false] {
        let id = writer.clock.new_id();
        let new = NewDashboard { owner: OWNER, name: "Hall".to_owned(), is_global: stays };
        writer.run::<Dashboard>(id, DashboardCommand::Create(new)).await;
        let widgets = [gone, kept, gone].map(|channel| (WidgetId(writer.clock.new_id()), channel));
        for (widget, channel) in widgets {
            let add = DashboardCommand::AddWidget { widget, spec: gauge(Some(channel)) };
            writer.run::<Dashboard>(id, add).await;
        }
        let [(moved, _), (cleared, _), (removed, _)] = widgets;
        let changes = WidgetChanges { x: Some(5), ..Default::default() };
        writer.run::<Dashboard>(id, DashboardCommand::ChangeWidget { widget: moved, changes }).await;
        let changes = WidgetChanges { channel: Some(None), ..Default::default() };
        writer.run::<Dashboard>(id, DashboardCommand::ChangeWidget { widget: cleared, changes }).await;
        writer.run::<Dashboard>(id, DashboardCommand::RemoveWidget { widget: removed }).await;
        let back = [(moved, kept), (removed, gone)].map(|(widget, channel)| PlacedWidget {
            widget,
            added_at: 1,
            spec: gauge(Some(channel)),
        });
        let restore = |widgets: &[PlacedWidget]| DashboardCommand::Restore {
            name: "Old hall".to_owned(),
            is_global: stays,
            widgets: widgets.to_vec(),
        };
        writer.run::<Dashboard>(id, restore(&back)).await;
        writer.run::<Dashboard>(id, restore(&back[..1])).await;
        writer.run::<Dashboard>(id, restore(&back)).await;
        if !stays {
            writer.run::<Dashboard>(id, DashboardCommand::Delete).await;
        }
    }
    writer.run::<Channel>(gone, ChannelCommand::Delete { values: false }).await;
}

/// One that fires, is changed and fires again, gets an alarm, and may be gone in the end.
pub(crate) async fn rules(writer: &Writer, number: i64) {
    let channel = ChannelId(writer.channel(100 + number, "vat").await);
    let rule = writer.clock.new_id();
    let spec = RuleSpec {
        name: format!("hot {number}"),
        channel,
        condition: Condition { operator: Operator::Gt, threshold: 80.0, threshold_high: None },
        action: RuleAction::Log,
        cooldown_seconds: 0,
        enabled: true,
        alarm: None,
        notify: NotificationSpec::default(),
    };
    writer.run::<Rule>(rule, RuleCommand::Create(NewRule { owner: OWNER, spec, after: 3 })).await;
    judge(writer, rule, channel, 4).await;
    let disable = RuleChanges { enabled: Some(false), ..Default::default() };
    let enable = RuleChanges { enabled: Some(true), threshold_high: Some(Some(90.0)), ..Default::default() };
    for changes in [disable, enable] {
        writer.run::<Rule>(rule, RuleCommand::Change { changes, after: 6 }).await;
    }
    judge(writer, rule, channel, 7).await;
    let alarm = AlarmChanges { for_seconds: Some(Some(5)), ..Default::default() };
    let changes = RuleChanges { alarm, ..Default::default() };
    writer.run::<Rule>(rule, RuleCommand::Change { changes, after: 7 }).await;
    let silence = Silence { until: Some(writer.clock.now()), comment: None };
    writer.run::<Rule>(rule, RuleCommand::Silence(silence)).await;
    alarm_of(writer, rule, channel, number).await;
    if number % 2 == 0 {
        writer.run::<Rule>(rule, RuleCommand::Delete { after: 8 }).await;
    }
}

/// An alarm of `rule` that may be cleared in the end.
async fn alarm_of(writer: &Writer, rule: Uuid, channel: ChannelId, number: i64) {
    let (id, on) = (writer.clock.new_id(), writer.clock.now());
    let alarm = NewAlarm {
        rule_id: rule.into(),
        rule_name: "hot".to_owned(),
        channel_id: channel,
        channel_name: "vat".to_owned(),
        reason: AlarmReason::Condition,
        severity: Severity::Warning,
        condition: Condition { operator: Operator::Gt, threshold: 80.0, threshold_high: None },
        rate_window_seconds: None,
        started_on: on,
        value: Some(81.5),
    };
    let mark = |kind| AlarmMark { kind, on, value: Some(82.5), silenced: true };
    let record = |kind| AlarmCommand::Record { alarm: alarm.clone(), marks: vec![mark(kind)] };
    let seen = AlarmCommand::Acknowledge(Acknowledged { user: OWNER, comment: None, silenced: true });
    for command in [record(StepKind::Started), record(StepKind::Fired), seen, AlarmCommand::Announce] {
        writer.run::<Alarm>(id, command).await;
    }
    if number % 2 == 0 {
        writer.run::<Alarm>(id, record(StepKind::Cleared)).await;
    }
}

async fn judge(writer: &Writer, rule: Uuid, channel: ChannelId, position: i64) {
    let reading = |index| Reading {
        datapoint_id: format!("{position}-{index}"),
        place: DatapointPlace { position, index },
        channel_id: channel,
        channel_name: "vat".to_owned(),
        value: 79.5 + f64::from(index),
        device: "api".to_owned(),
        occurred_at: writer.clock.now(),
    };
    writer.run::<Rule>(rule, RuleCommand::Judge { readings: (0..3).map(reading).collect() }).await;
}
