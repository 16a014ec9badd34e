//! The meaning of each error: a text for every status that an operation can answer, with the codes of services 2 and 3.

use serde_json::Value;

use super::walk::Operation;
use crate::resource::NotShown;

/// A cause of an error: its stable code, and what happened and what to do.
type Cause = (&'static str, &'static str);

const MALFORMED: Cause = ("malformed", "The request cannot be parsed: correct its form.");
const INVALID: Cause = ("invalid_field", "A value breaks a rule; the message names the field.");
const KEY_REUSED: Cause =
    ("idempotency_key_reused", "The Idempotency-Key was used for another request: use a new one.");
const UNREADABLE: Cause = (
    "unreadable_history",
    "An event of the resource cannot be read by this version of the service: its health names the resource.",
);
const CONCURRENT: Cause =
    ("concurrent_changes", "Others change the same resource at this moment: send the request again.");
const UNDER_WAY: Cause =
    ("update_under_way", "An update is being applied or rolled back: wait until it ends.");
const TRANSITION: Cause = ("invalid_transition", "The state of the update does not allow it.");
const NAME_TAKEN: &str = "Another one has this name: choose another name.";
const LAST_ADMIN: Cause = ("last_admin", "The last admin can be neither deleted nor demoted.");
const URL_TAKEN: Cause = ("webhook_url_taken", "Another webhook has this url: change that one.");
const CONTACT_TAKEN: Cause = ("contact_name_taken", NAME_TAKEN);
const RULE_TAKEN: Cause = ("rule_name_taken", NAME_TAKEN);
const INSTANCE_TAKEN: Cause = ("instance_name_taken", NAME_TAKEN);
const SUPERSEDED: Cause = ("superseded", "A newer request of the same user has replaced this one.");
const WRONG_PHASE: Cause =
    ("wrong_phase", "The transfer has ended or is at another step, and does not take this now.");
const SHOWN: Cause = ("token_shown", "The token was created before, and its value is shown only once.");
const INVALID_PLUGIN: Cause = ("invalid_plugin", "What the plugin says of itself breaks a rule.");

/// The text of an error of `status`.
pub(super) fn text(operation: &Operation<'_>, status: &str) -> String {
    let causes = causes(operation, status);
    if operation.has_plain_errors() {
        return causes.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(" ");
    }
    causes.iter().map(|(code, text)| format!("`{code}`: {text}")).collect::<Vec<_>>().join(" ")
}

fn causes(operation: &Operation<'_>, status: &str) -> Vec<Cause> {
    let id = operation.id();
    match status {
        "400" => malformed(operation),
        "401" if id.ends_with("login") => {
            vec![("unauthenticated", "E-mail address, user name or password is wrong.")]
        }
        "401" => {
            vec![("unauthenticated", "The credential is missing, wrong, expired or revoked: log in again.")]
        }
        "403" => vec![("forbidden", "The caller's role does not allow it, or it is another user's.")],
        "404" if id.starts_with("sso_") => vec![("sso_disabled", "Single sign-on is not set up here.")],
        "404" if ["update_rule", "restore_rule"].contains(&id) => vec![
            ("not_found", missing(operation)),
            ("event_deleted", "The event that the rule watches was deleted: name another one."),
        ],
        "404" => vec![("not_found", missing(operation))],
        "408" => vec![("request_timeout", "The body arrived too slowly: send it again.")],
        "409" => conflicts(id),
        "412" => vec![(
            "version_mismatch",
            "The resource has changed since the version in If-Match: read it again and repeat the change.",
        )],
        "413" => vec![("too_large", "The body is larger than this route takes: send less.")],
        "415" if id == "prometheus_write" => vec![(
            "unsupported_type",
            "Only messages of remote write are taken, compressed by snappy; the detail names the types.",
        )],
        "415" => vec![(
            "unsupported_type",
            "Documents of this type are not read; GET /api/v1/formats lists those that are.",
        )],
        "416" if matches!(id, "upload_file" | "upload_content") => {
            vec![(
                "wrong_offset",
                "The part does not begin where the stored bytes end; the detail says how many are there. Begin at 0 to replace a \
                 complete file.",
            )]
        }
        "416" => vec![("range_not_satisfiable", "The range lies outside the file.")],
        "422" => invalid(operation),
        "429" => too_many(id),
        "500" if id == "upload_plugin_package" => vec![
            ("internal", "The service failed; its log has the reason under the request's id."),
            ("installation_failed", "The package could not be installed; the message says why."),
        ],
        "500" if shows_change(operation) => {
            let internal = ("internal", "The service failed; its log has the reason under the request's id.");
            let not_shown = |NotShown { code, detail }| (code, detail);
            let (resource, secret) = (not_shown(NotShown::RESOURCE), not_shown(NotShown::SECRET));
            match id {
                "create_api_token" | "create_token" => vec![internal, secret],
                "create_webhook" | "update_webhook" | "rotate_webhook_secret" => {
                    vec![internal, resource, secret]
                }
                _ => vec![internal, resource],
            }
        }
        "500" => vec![("internal", "The service failed; its log has the reason under the request's id.")],
        "503" => vec![(
            "unavailable",
            "A part that the request needs does not answer or is full: try again after Retry-After seconds.",
        )],
        "504" => {
            vec![("time_limit", "Reading the document took longer than is allowed: submit it as a job.")]
        }
        _ => Vec::new(),
    }
}

/// Operations that change nothing, or whose answers say only what the request and its write have given.
const READS_NOTHING: [&str; 24] = [
    "agent_acknowledge",
    "agent_connect",
    "agent_send",
    "api_login",
    "backtest_draft",
    "backtest_rule",
    "claim_plugin_instances",
    "create_datapoint",
    "create_datapoints",
    "datapoint_series",
    "dry_run_webhook",
    "extract",
    "extract_document",
    "extract_raw",
    "login",
    "logout",
    "query_databases_by_form",
    "redeliver_failed",
    "refresh",
    "sso_exchange",
    "test_agent",
    "upload_content",
    "upload_file",
    "upload_plugin_package",
];

/// Whether the operation changes something and answers with what it reads of it then.
fn shows_change(operation: &Operation<'_>) -> bool {
    let id = operation.id();
    // Other deletions leave nothing to show.
    let is_write = operation.method != "get" && operation.method != "delete" || id == "cancel_extraction_job";
    let is_read = !READS_NOTHING.contains(&id) && !id.starts_with("submit_");
    is_write && is_read && operation.shows_json()
}

fn malformed(operation: &Operation<'_>) -> Vec<Cause> {
    let mut causes = vec![MALFORMED];
    match operation.id() {
        "prometheus_write" => causes.push((
            "invalid_series",
            "Some series were refused, and the others written; the detail names the first of them and says why.",
        )),
        "prometheus_read" => causes.extend([
            (
                "too_many_samples",
                "The answer would be too large: ask for a shorter time, for fewer series, or for streamed chunks.",
            ),
            (
                "too_many_series",
                "The queries select too many series together: ask for fewer, or send fewer queries at once.",
            ),
        ]),
        "sso_exchange" => {
            causes.push(("invalid_code", "The code is unknown, used, older than 60 s or another browser's."));
        }
        "extract"
        | "extract_document"
        | "extract_raw"
        | "make_searchable_pdf"
        | "submit_document"
        | "submit_extraction_job"
        | "submit_extraction_jobs"
        | "upload_firmware"
        | "upload_plugin_package" => {
            causes.push(("empty_file", "The file has no bytes."));
        }
        _ => {}
    }
    if operation.has_plain_errors() {
        causes.push(INVALID);
    }
    causes
}

fn invalid(operation: &Operation<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !operation.has_plain_errors() {
        causes.push(INVALID);
    }
    if operation.method == "post" {
        causes.push(KEY_REUSED);
    }
    match operation.id() {
        "upload_plugin_package" => causes.extend([
            ("invalid_wheel", "The file is not a wheel that can be installed; the message says why."),
            ("missing_requirements", "The package needs others that are not installed here."),
            INVALID_PLUGIN,
            ("invalid_package", "The package offers too many plugins, none, or two with the same id."),
        ]),
        "upload_firmware" | "apply_firmware" => {
            causes.push(("checksum_mismatch", "The digest of the bundle is not file_hash_sha256."));
        }
        "extract"
        | "extract_document"
        | "extract_raw"
        | "make_searchable_pdf"
        | "submit_document"
        | "submit_extraction_job"
        | "submit_extraction_jobs" => causes.extend([
            ("wrong_engine", "The requested engine does not read this type: choose another one."),
            (
                "unsupported_language",
                "The language cannot be recognised here; the message lists those that can.",
            ),
            ("corrupt_file", "The document is damaged, or is not what it claims to be."),
            ("encrypted_file", "The document is encrypted: remove its password and send it again."),
            ("limit_exceeded", "The document needs more memory or pages than is allowed."),
            ("parser_failed", "The document made its parser fail: it is probably damaged."),
        ]),
        _ => {}
    }
    causes
}

fn too_many(id: &str) -> Vec<Cause> {
    let mut causes = vec![("rate_limited", "Too many requests: try again after Retry-After seconds.")];
    if id.starts_with("submit_") {
        causes
            .push(("anonymous_storage_full", "Callers without a login keep too much here: log in, or wait."));
    }
    causes
}

/// The reason of a 404, by the kind of resource.
fn missing(operation: &Operation<'_>) -> &'static str {
    match operation.tag() {
        "agents" => "There is no agent with this id.",
        "agent tokens" => "There is no agent token with this id.",
        "jobs" => "The caller has no job with this id.",
        "transfers" => "The caller has no transfer, or no job, with this id.",
        "files" => "The transfer, or the file in it, does not exist or does not concern this agent.",
        "users" => "There is no user with this id.",
        "auth" => "The user does not exist any more.",
        "API tokens" => "There is no API token with this id.",
        "events" => "There is no event with this id.",
        "datapoints" => "There is no datapoint, or no event, with this id.",
        "experiments" => "There is no experiment with this id.",
        "dashboards" => {
            "There is no such dashboard, no such widget on it, or no event that the widget names."
        }
        "logging" => "There is no log entry with this id.",
        "alarms" => "There is no alarm with this id.",
        "rules" => "There is no rule, or no event or contact that it names, with this id.",
        "webhooks" => {
            "There is no such webhook, or no such delivery of it, or no event or job that its filters name."
        }
        "firmware" => "There is no firmware update with this id.",
        "plugins" => "There is no such plugin, package, instance, channel mapping or event.",
        "extraction jobs" => "The caller has no extraction job with this id.",
        "documents" => "The caller keeps no document with this id.",
        "log" => "The log has nothing at this place.",
        _ => "There is nothing at this path.",
    }
}

fn conflicts(id: &str) -> Vec<Cause> {
    let mut causes: Vec<Cause> = match id {
        "delete_agent" => vec![("agent_in_use", "Jobs use the agent: change or delete them first.")],
        "download_file" => vec![WRONG_PHASE],
        "upload_file" => vec![
            WRONG_PHASE,
            ("superseded", "Another upload of this file took over."),
            ("single_file", "The transfer moves one file, and has another one already."),
            ("not_uploading", "The transfer takes no upload now."),
        ],
        "cancel_transfer" => vec![("transfer_finished", "The transfer has already ended.")],
        "delete_transfer" => {
            vec![("transfer_under_way", "The transfer has not ended: cancel it first.")]
        }
        "cancel_extraction_job" => {
            vec![("job_under_way", "With remove=true: the job has not ended: cancel it first, or wait.")]
        }
        "create_widget" => {
            vec![("dashboard_full", "The dashboard holds as many widgets as it can: use another one.")]
        }
        "create_event" | "update_event" => vec![("event_name_taken", NAME_TAKEN)],
        "create_experiment" => vec![
            ("experiment_name_taken", NAME_TAKEN),
            ("experiment_running", "Another experiment is running: stop it first."),
        ],
        "update_experiment" => vec![("experiment_name_taken", NAME_TAKEN)],
        "stop_experiment" => vec![("experiment_stopped", "The experiment has been stopped already.")],
        "submit_document" | "submit_extraction_job" | "submit_extraction_jobs" => vec![(
            "documents_full",
            "The texts that the caller keeps take all the room that they may: delete some documents, or leave keep out.",
        )],
        "delete_document" => vec![("job_under_way", "The job has not ended.")],
        "get_extraction_result" => {
            vec![("job_not_completed", "There is no text: the job has not completed.")]
        }
        "retry_extraction_job" => vec![
            ("job_under_way", "The job has not ended."),
            ("attempts_exhausted", "The job was tried as often as it can be: submit the document again."),
            ("input_removed", "The document of this job is not kept any more: submit it again."),
        ],
        "create_firmware" => vec![("firmware_exists", "There is an update with this version already.")],
        "upload_firmware" => vec![
            ("firmware_exists", "There is an update with this version already."),
            ("bundle_present", "This version has a bundle already: delete it first."),
            UNDER_WAY,
            TRANSITION,
        ],
        "delete_firmware" => {
            vec![
                ("firmware_running", "This version is running: apply another one, or roll it back."),
                UNDER_WAY,
            ]
        }
        "apply_firmware" => vec![
            UNDER_WAY,
            ("no_bundle", "This version has no bundle: upload one, or name a download_url."),
            ("bundle_present", "This version has a bundle: leave out download_url."),
            TRANSITION,
        ],
        "rollback_firmware" => vec![
            UNDER_WAY,
            ("firmware_not_running", "Only the running version can be rolled back."),
            ("rollback_failed", "The version before cannot be brought back; the message says why."),
            TRANSITION,
        ],
        "create_plugin_instance" | "update_plugin_instance" => vec![INSTANCE_TAKEN],
        "upload_plugin_package" => vec![
            ("package_installed", "A package with this name is installed: uninstall it first."),
            (
                "plugin_class_taken",
                "Another package offers a plugin with the same id: uninstall that one first.",
            ),
            ("plugin_built_in", "A plugin of the package has the id of a built-in one."),
        ],
        "create_channel_mapping" => vec![
            ("channel_mapped", "This channel of the instance is mapped already."),
            ("instance_full", "The instance has as many channels as it can have."),
        ],
        "claim_plugin_instances" => vec![(
            "controller_name_taken",
            "Another controller with this name runs: stop one of them, or give this one another name.",
        )],
        "create_contact" | "update_contact" => vec![CONTACT_TAKEN],
        "delete_contact" => {
            vec![("contact_in_use", "Rules notify the contact: take it out of them, or delete them, first.")]
        }
        "create_rule" | "update_rule" | "restore_rule" => vec![RULE_TAKEN],
        "acknowledge_alarm" | "unacknowledge_alarm" => {
            vec![("alarm_cleared", "The alarm has been cleared already.")]
        }
        "silence_rule" => vec![("rule_without_alarm", "The rule has no alarm: give it one first.")],
        "backtest_draft" | "backtest_rule" | "dry_run_webhook" => vec![SUPERSEDED],
        "create_api_token" | "create_token" => vec![SHOWN],
        "create_user" | "update_user" => vec![
            ("email_taken", "Another user has this e-mail address."),
            ("username_taken", "Another user has this user name."),
            LAST_ADMIN,
        ],
        "delete_user" => vec![LAST_ADMIN],
        "create_webhook" | "update_webhook" | "restore_webhook" => vec![URL_TAKEN],
        "redeliver" | "redeliver_failed" | "redeliver_message" => {
            vec![("delivery_pending", "The delivery is being attempted, or is due.")]
        }
        "replay_webhook" => vec![
            ("replay_running", "Past events are being delivered already: try again when they are."),
            ("webhook_disabled", "The webhook is disabled: enable it first."),
        ],
        "rotate_webhook_secret" => vec![(
            "rotation_running",
            "The secret before the present one still signs: rotate when that has passed, or with `keep_old_seconds` 0.",
        )],
        "test_webhook" => vec![("webhook_disabled", "The webhook is disabled: enable it first.")],
        _ => Vec::new(),
    };
    causes.extend([CONCURRENT, UNREADABLE]);
    causes
}

/// Writes the texts into the error answers of `operation`.
pub(super) fn describe(operation: &mut Operation<'_>) {
    let statuses: Vec<String> = operation.statuses();
    for status in statuses.iter().filter(|status| status.as_str() >= "400") {
        let text = text(operation, status);
        let answer = &mut operation.value["responses"][status];
        if !text.is_empty() {
            answer["description"] = Value::from(text);
        }
    }
}
