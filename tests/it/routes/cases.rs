//! Facts about routes beside their description: the callers, the subjects, and a body.

use serde_json::{Value, json};

use super::subjects::{Clients, Subjects};
use crate::harness::{Client, description};

/// The callers of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Everybody,
    AnyUser,
    Operator,
    Admin,
    Agent,
}

/// The resource that `{id}` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Nothing,
    Agent,
    Token,
    /// Seen by its owner alone.
    Job,
    /// Seen by its owner alone.
    Transfer,
    User,
    /// Deleted by its owner and by admins.
    ApiToken,
    Experiment,
    LogEntry,
    /// Changed by its owner alone.
    Dashboard,
    /// Changed by the dashboard's owner alone.
    Widget,
    Event,
    Rule,
    Alarm,
    Webhook,
    Delivery,
    Contact,
    Message,
    Datapoint,
    /// Seen by its owner alone.
    Extraction,
    /// Seen by its owner and by admins.
    Document,
    PluginInstance,
    ChannelMapping,
    /// None is installed.
    PluginPackage,
    Firmware,
    LogEvent,
    LogStream,
    /// None is there.
    Correlation,
    /// Seen by the transfer's agents alone.
    File,
}

impl Subject {
    /// Whether versions of it are kept that it can go back to.
    pub fn has_history(self) -> bool {
        matches!(self, Self::Dashboard | Self::Job | Self::Rule | Self::Webhook)
    }
}

/// A described operation with what a test has to know of it.
#[derive(Debug, Clone)]
pub struct Route {
    pub method: String,
    pub template: String,
    pub operation: &'static Value,
    pub access: Access,
    pub subject: Subject,
    pub body: Option<Value>,
}

fn case(operation_id: &str) -> (Access, Subject, Option<Value>) {
    use Access::{Admin, Agent, AnyUser, Everybody, Operator};
    use Subject::{
        Alarm, ApiToken, ChannelMapping, Contact, Dashboard, Datapoint, Delivery, Document, Event,
        Experiment, Extraction, File, Firmware, Job, LogEntry, LogEvent, LogStream, Message, Nothing,
        PluginInstance, PluginPackage, Rule, Token, Transfer, User, Webhook, Widget,
    };
    let credentials = || Some(json!({"email": "nobody@example.org", "password": "not the password"}));
    let job = || {
        Some(
            json!({"name": "j", "type": "push", "source_agent_id": 1, "destination_agent_id": 1, "source_path": "/a",
            "destination_path": "/b", "schedule": "0 0 1 1 1 *", "timezone": "UTC", "enabled": true,
            "retry": {"max_attempts": 3, "backoff_seconds": 5}, "overlap": "skip", "description": "d"}),
        )
    };
    let user = || {
        Some(
            json!({"email": "new@example.org", "username": "new", "password": "long enough", "role": "viewer"}),
        )
    };
    let event =
        || Some(json!({"name": "new", "type": "sensor", "unit": "V", "min_value": 0.5, "max_value": 9}));
    let widget = || {
        Some(
            json!({"widget_type": "gauge", "title": "t", "event_public_id": null, "x": 1, "y": 1, "w": 1, "h": 1,
            "config_json": "{}"}),
        )
    };
    let rule = |name: &str| {
        Some(json!({"name": name, "event_public_id": "unknown", "operator": "between", "threshold": 0.5,
            "threshold_high": 9, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded",
            "cooldown_seconds": 60, "enabled": true, "alarm": true, "for_seconds": 5, "keep_firing_seconds": 5,
            "clear_threshold": null, "no_data_seconds": 60, "rate_window_seconds": 60, "severity": "info", "contact_ids": [], "summary": "{channel} is {value}",
            "remind_seconds": null, "escalate_seconds": null, "escalation_contact_ids": []}))
    };
    let webhook = |name: &str| {
        Some(json!({"url": format!("https://example.org/{name}"), "secret": "a shared secret",
            "events": ["experiment.started"], "enabled": false, "retry": "standard", "signature": "v1a",
            "filters": {"channels": [], "labels": {"line": "1"}, "jobs": [1], "severity": ["critical"]}}))
    };
    let quiet_hours = || json!({"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin"});
    let restore = || Some(json!({"version": 1}));
    match operation_id {
        "api_health" | "health" | "api_v1_health" | "livez" | "readyz" | "info" => (Everybody, Nothing, None),
        "login" | "api_login" => (Everybody, Nothing, credentials()),
        "refresh" | "current_user" | "logout" | "me" | "follow_changes" => (AnyUser, Nothing, None),
        "change_password" => {
            (AnyUser, Nothing, Some(json!({"old_password": "not it", "new_password": "long enough"})))
        }
        "sso_config" | "sso_authorize" | "sso_callback" => (Everybody, Nothing, None),
        "sso_exchange" => (Everybody, Nothing, Some(json!({"code": "nobody's"}))),
        "list_users" => (Admin, Nothing, None),
        "create_user" => (Admin, Nothing, user()),
        "get_user" | "delete_user" => (Admin, User, None),
        "update_user" => (Admin, User, user()),
        "list_api_tokens" => (AnyUser, Nothing, None),
        "create_api_token" => {
            (AnyUser, Nothing, Some(json!({"name": "t", "expires_at": "2030-01-31T12:00:00Z"})))
        }
        "delete_api_token" => (AnyUser, ApiToken, None),
        "list_agents" | "list_tokens" | "list_jobs" | "list_transfers" => (AnyUser, Nothing, None),
        "get_agent" => (AnyUser, Subject::Agent, None),
        "create_agent" => (Admin, Nothing, Some(json!({"name": "a", "type": "server", "description": "d"}))),
        "update_agent" => {
            (Admin, Subject::Agent, Some(json!({"name": "a", "type": "client", "description": "d"})))
        }
        "delete_agent" | "test_agent" => (Admin, Subject::Agent, None),
        "create_token" => {
            (Admin, Nothing, Some(json!({"name": "t", "agent_id": 1, "description": "d", "expires_in": 1})))
        }
        "revoke_token" => (Admin, Token, None),
        "create_job" => (Operator, Nothing, job()),
        "get_job" | "job_history" => (AnyUser, Job, None),
        "restore_job" => (Operator, Job, restore()),
        "update_job" => (Operator, Job, job()),
        "delete_job" | "run_job" => (Operator, Job, None),
        "create_transfer" => (
            Operator,
            Nothing,
            Some(json!({"filename": "f", "size": 1, "source_path": "/a", "destination_path": "/b",
                "source_agent_id": 1, "destination_agent_id": 1})),
        ),
        "get_transfer" => (AnyUser, Transfer, None),
        "cancel_transfer" | "delete_transfer" => (Operator, Transfer, None),
        "list_events" => (AnyUser, Nothing, None),
        "ping" => (Everybody, Nothing, None),
        "prometheus_read" | "query_databases" | "query_databases_by_form" => (AnyUser, Nothing, None),
        "prometheus_write" | "write_lines" | "write_lines_v1" => (Operator, Nothing, None),
        "get_event" => (AnyUser, Event, None),
        "create_event" => (Operator, Nothing, event()),
        "update_event" => (Operator, Event, event()),
        "delete_event" => (Operator, Event, None),
        "list_webhooks" | "list_webhook_event_types" => (Admin, Nothing, None),
        "rotate_webhook_secret" => (Admin, Webhook, Some(json!({"keep_old_seconds": 60}))),
        "create_webhook" => (Admin, Nothing, webhook("new")),
        "update_webhook" => (Admin, Webhook, webhook("changed")),
        "webhook_history" => (Admin, Webhook, None),
        "restore_webhook" => (Admin, Webhook, restore()),
        "get_webhook" | "delete_webhook" | "list_deliveries" | "test_webhook" => (Admin, Webhook, None),
        "replay_webhook" | "dry_run_webhook" => {
            (Admin, Webhook, Some(json!({"from": "2026-03-01T10:00:00Z", "to": "2026-03-01T11:00:00Z"})))
        }
        "redeliver_failed" => (Admin, Webhook, Some(json!({"since": "2026-03-01T10:00:00Z"}))),
        "get_delivery" | "redeliver" => (Admin, Delivery, None),
        "list_contacts" => (Admin, Nothing, None),
        "create_contact" => (
            Admin,
            Nothing,
            Some(json!({"name": "new", "kind": "webhook", "url": "https://example.org/contact",
                "secret": "a shared secret", "quiet_hours": quiet_hours()})),
        ),
        "update_contact" => (
            Admin,
            Contact,
            Some(json!({"name": "changed", "url": "https://example.org/changed", "secret": null,
                "quiet_hours": quiet_hours()})),
        ),
        "get_contact" | "delete_contact" | "test_contact" | "list_messages" => (Admin, Contact, None),
        "get_message" | "redeliver_message" => (Admin, Message, None),
        "list_rules" => (Admin, Nothing, None),
        "create_rule" => (Admin, Nothing, rule("new")),
        "backtest_draft" => (
            Admin,
            Nothing,
            Some(
                json!({"rule": rule("draft"), "from": "2026-03-01T10:00:00Z", "to": "2026-03-02T10:00:00Z"}),
            ),
        ),
        "backtest_rule" => {
            (Admin, Rule, Some(json!({"from": "2026-03-01T10:00:00Z", "to": "2026-03-02T10:00:00Z"})))
        }
        "get_rule" | "delete_rule" | "rule_history" => (Admin, Rule, None),
        "restore_rule" => (Admin, Rule, restore()),
        "silence_rule" => (Operator, Rule, Some(json!({"until": null, "comment": "c"}))),
        "list_alarms" => (AnyUser, Nothing, None),
        "get_alarm" => (AnyUser, Alarm, None),
        "acknowledge_alarm" => (Operator, Alarm, Some(json!({"comment": "c"}))),
        "unacknowledge_alarm" => (Operator, Alarm, None),
        "update_rule" => (Admin, Rule, rule("changed")),
        "list_experiments" | "list_dashboards" | "list_log_entries" => (AnyUser, Nothing, None),
        "get_experiment" | "export_experiment" => (AnyUser, Experiment, None),
        "create_experiment" => (Operator, Nothing, Some(json!({"name": "new"}))),
        "update_experiment" => (Operator, Experiment, Some(json!({"name": "new"}))),
        "stop_experiment" | "delete_experiment" => (Operator, Experiment, None),
        "list_log" | "follow_log" | "get_log_chain" => (Admin, Nothing, None),
        "get_log_event" => (Admin, LogEvent, None),
        "metrics" => (Admin, Nothing, None),
        "get_log_correlation" => (Admin, Subject::Correlation, None),
        "get_log_stream" => (Admin, LogStream, None),
        "get_log_entry" => (AnyUser, LogEntry, None),
        "create_log_entry" => (
            Operator,
            Nothing,
            Some(json!({"content": "c", "type": "info", "logging_type": "info", "source": "s"})),
        ),
        "update_log_entry" => {
            (Operator, LogEntry, Some(json!({"content": "c", "status": "read", "status_type": "read"})))
        }
        "get_dashboard" | "dashboard_history" => (AnyUser, Dashboard, None),
        "restore_dashboard" => (Operator, Dashboard, restore()),
        "create_dashboard" => (Operator, Nothing, Some(json!({"name": "new", "is_global": false}))),
        "update_dashboard" => (Operator, Dashboard, Some(json!({"name": "new", "is_global": false}))),
        "delete_dashboard" => (Operator, Dashboard, None),
        "create_widget" => (Operator, Dashboard, widget()),
        "update_widget" => {
            let mut body = widget();
            // The type stays, and is not asked for.
            body.as_mut().unwrap().as_object_mut().unwrap().remove("widget_type");
            (Operator, Widget, body)
        }
        "delete_widget" => (Operator, Widget, None),
        "list_datapoints" | "latest_datapoints" | "export_datapoints" => (AnyUser, Nothing, None),
        "get_datapoint" => (AnyUser, Datapoint, None),
        "delete_datapoint" => (Operator, Datapoint, None),
        "create_datapoint" => (
            Operator,
            Nothing,
            Some(json!({"value": 1.5, "event_public_id": "unknown", "timestamp": "2026-03-01T10:00:00Z"})),
        ),
        "create_datapoints" => {
            (Operator, Nothing, Some(json!({"datapoints": [{"value": 1, "event_public_id": "unknown"}]})))
        }
        "datapoint_series" => (
            AnyUser,
            Nothing,
            Some(
                json!({"event_public_ids": ["unknown"], "minutes": 5, "max_points": 50, "aggregate": "avg"}),
            ),
        ),
        "list_plugin_classes" | "list_plugin_packages" | "list_plugin_instances" => (AnyUser, Nothing, None),
        "upload_plugin_package" => (Admin, Nothing, None),
        "uninstall_plugin_package" => (Admin, PluginPackage, None),
        "get_plugin_wheel" => (AnyUser, PluginPackage, None),
        "get_plugin_instance" | "list_channel_mappings" => (AnyUser, PluginInstance, None),
        "create_plugin_instance" => (
            Operator,
            Nothing,
            Some(
                json!({"plugin_id": "simulated", "instance_name": "new", "demo_mode": true, "enabled": true,
                "auto_create_events": false, "config_json": "{}"}),
            ),
        ),
        "update_plugin_instance" => (
            Operator,
            PluginInstance,
            Some(json!({"instance_name": "new", "demo_mode": true, "enabled": true, "config_json": "{}"})),
        ),
        "claim_plugin_instances" => {
            (Operator, Nothing, Some(json!({"controller": "cellar", "session": "one", "instances": []})))
        }
        "report_plugin_instance" => {
            (Operator, PluginInstance, Some(json!({"status": "error", "error_message": "no device"})))
        }
        "delete_plugin_instance" => (Operator, PluginInstance, None),
        "create_channel_mapping" => (
            Operator,
            PluginInstance,
            Some(json!({"channel_id": "c", "channel_name": "n", "direction": "input", "unit": "V",
                "event_public_id": null})),
        ),
        "update_channel_mapping" => (
            Operator,
            ChannelMapping,
            Some(json!({"channel_name": "n", "direction": "output", "unit": "V", "event_public_id": null})),
        ),
        "delete_channel_mapping" => (Operator, ChannelMapping, None),
        "list_firmware" | "check_firmware" | "upload_firmware" => (Admin, Nothing, None),
        "create_firmware" => (
            Admin,
            Nothing,
            Some(
                json!({"version": "9.9.9", "changelog": "c", "download_url": "https://example.org/f.tar.gz",
                "file_hash_sha256": "ab".repeat(32), "signature": null}),
            ),
        ),
        // Its body may be left out, and is tried elsewhere.
        "get_firmware" | "delete_firmware" | "apply_firmware" | "rollback_firmware" => {
            (Admin, Firmware, None)
        }
        "extract" | "extract_raw" | "extract_document" | "make_searchable_pdf" | "formats" => {
            (Everybody, Nothing, None)
        }
        "submit_extraction_job" | "submit_extraction_jobs" | "submit_document" => (Everybody, Nothing, None),
        "list_extraction_jobs" | "extraction_job_stats" => (Everybody, Nothing, None),
        "get_extraction_page"
        | "get_extraction_job"
        | "cancel_extraction_job"
        | "retry_extraction_job"
        | "get_extraction_result" => (Everybody, Extraction, None),
        "list_documents" => (AnyUser, Nothing, None),
        "delete_document" => (AnyUser, Document, None),
        "upload_content" => (Operator, Transfer, None),
        "upload_file" | "download_file" | "get_manifest" => (Agent, File, None),
        "agent_connect" => (Agent, Nothing, Some(json!({"system_info": {"hostname": "h"}}))),
        "agent_send" => (Agent, Nothing, Some(json!({"type": "heartbeat", "data": {}}))),
        "agent_acknowledge" => (Agent, Nothing, Some(json!({"message_ids": [1]}))),
        "agent_poll" => (Agent, Nothing, None),
        other => panic!("the route {other} has no case: say who may call it, on what, and with which body"),
    }
}

/// All described operations.
pub fn routes() -> Vec<Route> {
    let mut found = Vec::new();
    for (template, methods) in description()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let (access, subject, body) = case(operation["operationId"].as_str().unwrap());
            let (method, template) = (method.to_uppercase(), template.clone());
            found.push(Route { method, template, operation, access, subject, body });
        }
    }
    assert!(found.len() >= 40, "only {} routes are described", found.len());
    found
}

impl Route {
    /// The path on a resource that exists.
    pub fn path(&self, subjects: &Subjects) -> String {
        let id = match self.subject {
            Subject::Nothing => String::new(),
            Subject::Agent => subjects.agent.id.to_string(),
            Subject::Token => subjects.agent.token_id.to_string(),
            Subject::Job => subjects.job.to_string(),
            Subject::Transfer | Subject::File => subjects.transfer.to_string(),
            Subject::User => subjects.user.clone(),
            Subject::ApiToken => subjects.api_token.clone(),
            Subject::Event => subjects.event.clone(),
            Subject::Rule => subjects.rule.clone(),
            Subject::Alarm => subjects.alarm.to_string(),
            Subject::Webhook => subjects.webhook.clone(),
            Subject::Delivery => {
                let of_webhook = self.template.replace("{id}", &subjects.webhook);
                return of_webhook.replace("{did}", &subjects.delivery);
            }
            Subject::Contact => subjects.contact.clone(),
            Subject::Message => {
                let of_contact = self.template.replace("{id}", &subjects.contact);
                return of_contact.replace("{mid}", &subjects.message);
            }
            Subject::Experiment => subjects.experiment.clone(),
            Subject::LogEntry => subjects.log_entry.clone(),
            Subject::Dashboard => subjects.dashboard.clone(),
            Subject::Widget => {
                let of_dashboard = self.template.replace("{id}", &subjects.dashboard);
                return of_dashboard.replace("{wid}", &subjects.widget);
            }
            Subject::Datapoint => subjects.datapoint.clone(),
            Subject::Extraction => {
                return self.template.replace("{id}", &subjects.extraction.to_string()).replace("{n}", "1");
            }
            Subject::Document => subjects.document.to_string(),
            Subject::PluginInstance => subjects.plugin_instance.clone(),
            Subject::ChannelMapping => {
                let of_instance = self.template.replace("{public_id}", &subjects.plugin_instance);
                return of_instance.replace("{mapping_id}", &subjects.channel_mapping);
            }
            Subject::Firmware => subjects.firmware.clone(),
            Subject::LogEvent => "1".to_owned(),
            Subject::LogStream => {
                return self.template.replace("{type}", "channel").replace("{id}", &subjects.event);
            }
            Subject::PluginPackage | Subject::Correlation => {
                "018f0000-0000-7000-8000-000000000000".to_owned()
            }
        };
        self.path_with(&id)
    }

    pub fn path_with(&self, id: &str) -> String {
        let names = ["{id}", "{wid}", "{did}", "{mid}", "{public_id}", "{mapping_id}", "{type}", "{n}"];
        let path = names.iter().fold(self.template.clone(), |path, name| path.replace(name, id));
        // An endless stream is requested with an invalid parameter.
        let is_endless = ["/api/v1/log/stream", "/api/v1/live"].contains(&self.template.as_str());
        if is_endless { format!("{path}?after=never") } else { path }
    }

    /// Whether what is well-formed but wrong is answered by 422.
    pub fn is_v1(&self) -> bool {
        self.template.starts_with("/api/v1/")
    }

    pub fn invalid(&self) -> u16 {
        if self.is_v1() { 422 } else { 400 }
    }

    pub fn request(&self, client: &Client, path: &str) -> reqwest::RequestBuilder {
        let request = client.request(self.method.parse().unwrap(), path);
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// Id of the operation.
    pub fn id(&self) -> &str {
        self.operation["operationId"].as_str().unwrap()
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.template)
    }

    /// The credential of the least that may call it on a resource that is there.
    pub fn least<'a>(&self, clients: &'a Clients) -> &'a Client {
        match self.access {
            _ if matches!(
                self.subject,
                Subject::Job
                    | Subject::Transfer
                    | Subject::ApiToken
                    | Subject::Dashboard
                    | Subject::Widget
                    | Subject::Extraction
                    | Subject::Document
            ) =>
            {
                &clients.admin
            }
            Access::Everybody => &clients.anonymous,
            Access::AnyUser => &clients.viewer,
            Access::Operator => &clients.operator,
            Access::Admin => &clients.admin,
            Access::Agent => &clients.agent,
        }
    }
}
