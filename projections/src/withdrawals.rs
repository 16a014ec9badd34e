//! Deletions that events cause, as statements: they run if such an event is set aside, so they need neither its payload decoded
//! nor the row that it could not be applied to. `{schema}` is the schema of the tables.
//!
//! `$1` is the aggregate's id, `$2` the event's position. Both occur in every statement, because PostgreSQL infers
//! the types of all parameters. If an event's payload matters and cannot be decoded, less is allowed rather than
//! more. A statement must not fail whatever the payload is, because the projection would not continue.

use std::{collections::BTreeMap, sync::LazyLock};

use signalbox_domain::{
    automation::{
        AlarmEventKind, ContactEventKind, DeliveryBatchEventKind, HealthEventKind, ReadingEventKind,
        RuleEventKind, WebhookEventKind,
    },
    catalog::{Context, Kind},
    extraction::ExtractionJobEventKind,
    fleet::{FirmwareEventKind, PluginInstanceEventKind, PluginPackageEventKind},
    identity::{ApiTokenEventKind, SessionEventKind, UserEventKind},
    monitoring::{ChannelEventKind, DashboardEventKind, ExperimentEventKind, LogEntryEventKind},
    transfer::{AgentEventKind, AgentTokenEventKind, JobEventKind, TransferEventKind},
};

use crate::automation::removed::REMOVE_FIRST;

/// Statements of one event.
type Statements = &'static [&'static str];

/// Those of events that have some, by their words.
static WITHDRAWALS: LazyLock<BTreeMap<&'static str, (Context, Statements)>> = LazyLock::new(|| {
    let every = Kind::all().map(|kind| (kind.word(), (kind.aggregate().context(), withdrawals(kind))));
    every.filter(|(_, (_, statements))| !statements.is_empty()).collect()
});

/// The statements of the event that is called `word`.
pub(crate) fn withdrawals_of(word: &str) -> Statements {
    WITHDRAWALS.get(word).map_or(&[], |(_, statements)| statements)
}

/// The words of those events of `context` that have statements.
pub fn withdrawing(context: Context) -> Vec<&'static str> {
    WITHDRAWALS.iter().filter(|(_, (of, _))| *of == context).map(|(word, _)| *word).collect()
}

/// A dashboard that is shown to its owner only from the event at `$2` on.
const KEEP_PRIVATE: &str = "UPDATE {schema}.dashboards d
    SET is_global = d.is_global AND coalesce(e.payload->>'is_global' = 'true', false)
   FROM events e WHERE d.id = $1 AND e.position = $2";

/// Statements that take away what events of `kind` take away. Caches of channels and rules reload rows with a newer position.
fn withdrawals(kind: Kind) -> Statements {
    match kind {
        Kind::Alarm(kind) => match kind {
            AlarmEventKind::AlarmStarted | AlarmEventKind::AlarmFired | AlarmEventKind::AlarmCleared | AlarmEventKind::AlarmAcknowledged | AlarmEventKind::AlarmUnacknowledged | AlarmEventKind::AlarmAnnounced => &[],
        },
        Kind::Contact(kind) => match kind {
            // Its old address gets nothing more.
            ContactEventKind::ContactUpdated => &["UPDATE {schema}.contacts SET is_reachable = false WHERE id = $1 AND $2::bigint > 0"],
            ContactEventKind::ContactDeleted => &[
            REMOVE_FIRST[0],
            REMOVE_FIRST[1],
            REMOVE_FIRST[2],
            "DELETE FROM {schema}.contacts WHERE id = $1 AND $2::bigint > 0",
        ],
            ContactEventKind::ContactCreated => &[],
        },
        Kind::DeliveryBatch(kind) => match kind {
            DeliveryBatchEventKind::DeliveriesQueued | DeliveryBatchEventKind::CallbackQueued | DeliveryBatchEventKind::MessageQueued | DeliveryBatchEventKind::AttemptsBegun | DeliveryBatchEventKind::AttemptsEnded | DeliveryBatchEventKind::DeliveriesRequeued => &[],
        },
        Kind::Health(kind) => match kind {
            HealthEventKind::HealthChanged => &[],
        },
        Kind::ReportedReading(kind) => match kind {
            ReadingEventKind::ReadingReported => &[],
        },
        Kind::Rule(kind) => match kind {
            RuleEventKind::RuleUpdated => &["UPDATE {schema}.rules r
              SET enabled = r.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false),
                  changed_at = e.position
             FROM events e WHERE r.id = $1 AND e.position = $2"],
            RuleEventKind::RuleDeleted => &["UPDATE {schema}.rules r SET enabled = false, deleted_at = e.recorded_at, changed_at = e.position
             FROM events e WHERE r.id = $1 AND e.position = $2"],
            RuleEventKind::RuleCreated | RuleEventKind::RuleTriggered | RuleEventKind::RuleSilenced => &[],
        },
        Kind::Webhook(kind) => match kind {
            // Its old address gets nothing more, and nothing is signed with its old secret or key.
            WebhookEventKind::WebhookUpdated => &["UPDATE {schema}.webhooks w
              SET enabled = w.enabled AND coalesce(
                      e.payload->'to'->>'enabled' = 'true' AND e.payload->'to'->>'url' = w.url, false)
                      AND e.payload->'to'->>'sealed_secret' IS NOT DISTINCT FROM w.sealed_secret
                      AND e.payload->'to'->'key'->>'sealed' IS NOT DISTINCT FROM w.sealed_key
             FROM events e WHERE w.id = $1 AND e.position = $2"],
            WebhookEventKind::WebhookDeleted => &[
            REMOVE_FIRST[0],
            REMOVE_FIRST[1],
            REMOVE_FIRST[2],
            "DELETE FROM {schema}.webhooks WHERE id = $1 AND $2::bigint > 0",
        ],
            WebhookEventKind::WebhookCreated | WebhookEventKind::WebhookReplayRequested | WebhookEventKind::WebhookReplayAdvanced => &[],
        },
        Kind::ExtractionJob(kind) => match kind {
            ExtractionJobEventKind::ExtractionDiscarded => &["UPDATE {schema}.extraction_jobs SET kept = false, discarded = true WHERE id = $1 AND $2::bigint > 0"],
            ExtractionJobEventKind::ExtractionDeleted => &["UPDATE {schema}.extraction_jobs
              SET kept = false, result_kept = false, discarded = true, deleted = true
            WHERE id = $1 AND $2::bigint > 0"],
            ExtractionJobEventKind::ExtractionSubmitted | ExtractionJobEventKind::ExtractionBegun | ExtractionJobEventKind::ExtractionAdvanced | ExtractionJobEventKind::ExtractionCompleted | ExtractionJobEventKind::ExtractionFailed | ExtractionJobEventKind::ExtractionReleased | ExtractionJobEventKind::ExtractionGivenBack | ExtractionJobEventKind::ExtractionCancelled | ExtractionJobEventKind::ExtractionRetried | ExtractionJobEventKind::ExtractionInputRemoved | ExtractionJobEventKind::ExtractionResultExpired => &[],
        },
        Kind::Firmware(kind) => match kind {
            FirmwareEventKind::FirmwareDeleted => &[
            "UPDATE {schema}.firmware_updates SET status = 'deleted', work = NULL WHERE id = $1 AND $2::bigint > 0",
        ],
            FirmwareEventKind::FirmwareCreated | FirmwareEventKind::FirmwareBundleAdded | FirmwareEventKind::FirmwareApplyRequested | FirmwareEventKind::FirmwareRollbackRequested | FirmwareEventKind::FirmwareClaimed | FirmwareEventKind::FirmwareDownloaded | FirmwareEventKind::FirmwareVerified | FirmwareEventKind::FirmwareCompleted | FirmwareEventKind::FirmwareFailed | FirmwareEventKind::FirmwareRolledBack | FirmwareEventKind::FirmwareRollbackFailed | FirmwareEventKind::FirmwareFilesRemoved => &[],
        },
        Kind::PluginInstance(kind) => match kind {
            PluginInstanceEventKind::PluginInstanceUpdated => &["UPDATE {schema}.plugin_instances i
              SET enabled = i.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false)
             FROM events e WHERE i.id = $1 AND e.position = $2"],
            PluginInstanceEventKind::PluginInstanceDeleted => &[
            "DELETE FROM {schema}.channel_mappings WHERE instance_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.plugin_instances WHERE id = $1 AND $2::bigint > 0",
        ],
            PluginInstanceEventKind::ChannelMappingRemoved => &["DELETE FROM {schema}.channel_mappings m USING events e
            WHERE m.instance_id = $1 AND e.position = $2 AND e.payload->>'mapping' = m.id::text"],
            PluginInstanceEventKind::PluginInstanceCreated | PluginInstanceEventKind::ChannelMapped | PluginInstanceEventKind::ChannelMappingUpdated | PluginInstanceEventKind::PluginInstanceReported => &[],
        },
        Kind::PluginPackage(kind) => match kind {
            PluginPackageEventKind::PluginPackageUninstalled => &["DELETE FROM {schema}.plugin_packages WHERE id = $1 AND $2::bigint > 0"],
            PluginPackageEventKind::PluginPackageInstalled => &[],
        },
        Kind::ApiToken(kind) => match kind {
            ApiTokenEventKind::ApiTokenRevoked => &["DELETE FROM {schema}.api_tokens WHERE id = $1 AND $2::bigint > 0"],
            ApiTokenEventKind::ApiTokenCreated | ApiTokenEventKind::ApiTokenControllerNoted => &[],
        },
        Kind::Session(kind) => match kind {
            SessionEventKind::SessionEnded => &["UPDATE {schema}.sessions s SET ended_at = e.recorded_at
             FROM events e WHERE s.id = $1 AND e.position = $2"],
            SessionEventKind::SessionStarted | SessionEventKind::SessionRenewed => &[],
        },
        Kind::User(kind) => match kind {
            UserEventKind::UserRoleChanged => &["UPDATE {schema}.users u
              SET role = CASE WHEN e.payload->>'to' IN ('admin', 'operator', 'viewer') THEN e.payload->>'to'
                              WHEN e.payload->>'to' = 'user' THEN 'operator' ELSE 'viewer' END
             FROM events e WHERE u.id = $1 AND e.position = $2"],
            // `!` is the digest of no password.
            UserEventKind::UserPasswordChanged => &["UPDATE {schema}.users u
              SET valid_after = e.position, password_hash = coalesce(e.payload->>'password_hash', '!')
             FROM events e WHERE u.id = $1 AND e.position = $2"],
            // The identity that was linked before must not log in any more.
            UserEventKind::UserIdentityLinked => &["UPDATE {schema}.users SET sso_provider = NULL, sso_issuer = NULL, sso_subject = NULL
            WHERE id = $1 AND $2::bigint > 0"],
            UserEventKind::UserIdentityRemoved => &["INSERT INTO {schema}.removed_identities (id, issuer, subject)
           SELECT id, sso_issuer, sso_subject FROM {schema}.users
            WHERE id = $1 AND sso_issuer IS NOT NULL AND $2::bigint > 0 ON CONFLICT DO NOTHING"],
            UserEventKind::UserDeleted => &[
            "INSERT INTO {schema}.removed_identities (id, issuer, subject)
             SELECT id, sso_issuer, sso_subject FROM {schema}.users
              WHERE id = $1 AND sso_issuer IS NOT NULL AND $2::bigint > 0 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.sessions WHERE user_id = $1 AND position < $2",
            "DELETE FROM {schema}.api_tokens WHERE user_id = $1 AND position < $2",
            "DELETE FROM {schema}.users WHERE id = $1 AND $2::bigint > 0",
        ],
            UserEventKind::UserCreated | UserEventKind::UserEmailChanged | UserEventKind::UserRenamed => &[],
        },
        Kind::Channel(kind) => match kind {
            ChannelEventKind::ChannelDeleted => &[
            "UPDATE {schema}.channels c SET deleted_at = e.recorded_at, position = e.position,
                    values_deleted = coalesce(e.payload->>'values' = 'true', false)
               FROM events e WHERE c.id = $1 AND e.position = $2",
            "UPDATE {schema}.widgets SET channel_id = NULL WHERE channel_id = $1 AND $2::bigint > 0",
        ],
            ChannelEventKind::ChannelValuesDeleted => &[
            "UPDATE {schema}.channels c SET values_deleted = true, position = e.position
               FROM events e WHERE c.id = $1 AND e.position = $2",
        ],
            ChannelEventKind::ChannelCreated | ChannelEventKind::ChannelUpdated => &[],
        },
        Kind::Dashboard(kind) => match kind {
            DashboardEventKind::DashboardUpdated => &[KEEP_PRIVATE],
            DashboardEventKind::DashboardDeleted => &[
            "DELETE FROM {schema}.widgets WHERE dashboard_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.dashboards WHERE id = $1 AND $2::bigint > 0",
        ],
            DashboardEventKind::WidgetRemoved => &["DELETE FROM {schema}.widgets w USING events e
            WHERE w.dashboard_id = $1 AND e.position = $2 AND e.payload->>'widget' = w.id::text"],
            DashboardEventKind::DashboardRestored => &[
            KEEP_PRIVATE,
            "DELETE FROM {schema}.widgets w USING events e
              WHERE w.dashboard_id = $1 AND e.position = $2 AND e.payload->'removed' ? w.id::text",
        ],
            DashboardEventKind::DashboardCreated | DashboardEventKind::WidgetAdded | DashboardEventKind::WidgetUpdated => &[],
        },
        Kind::Experiment(kind) => match kind {
            ExperimentEventKind::ExperimentDeleted => &["DELETE FROM {schema}.experiments WHERE id = $1 AND $2::bigint > 0"],
            ExperimentEventKind::ExperimentStarted | ExperimentEventKind::ExperimentRenamed | ExperimentEventKind::ExperimentStopped => &[],
        },
        Kind::LogEntry(kind) => match kind {
            LogEntryEventKind::LogEntryWritten | LogEntryEventKind::LogEntryMarked | LogEntryEventKind::LogEntryEdited => &[],
        },
        Kind::Agent(kind) => match kind {
            AgentEventKind::AgentDeleted => &[
            "INSERT INTO {schema}.removed_numbers (id, kind, number)
             SELECT id, 'agent', number FROM {schema}.agents WHERE id = $1 AND $2::bigint > 0
                 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.agent_tokens WHERE agent_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.agents WHERE id = $1 AND $2::bigint > 0",
        ],
            AgentEventKind::AgentCreated | AgentEventKind::AgentUpdated | AgentEventKind::AgentConnected | AgentEventKind::AgentDescribed | AgentEventKind::AgentWarningChanged | AgentEventKind::AgentDisconnected | AgentEventKind::AgentWentOffline => &[],
        },
        Kind::AgentToken(kind) => match kind {
            AgentTokenEventKind::AgentTokenRevoked => &["DELETE FROM {schema}.agent_tokens WHERE id = $1 AND $2::bigint > 0"],
            AgentTokenEventKind::AgentTokenCreated => &[],
        },
        Kind::Job(kind) => match kind {
            // `next_run` stays, because a change that leaves `enabled` as it was does not compute it again.
            JobEventKind::JobUpdated => &["UPDATE {schema}.jobs j
              SET enabled = j.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false)
             FROM events e WHERE j.id = $1 AND e.position = $2"],
            JobEventKind::JobDeleted => &[
            "INSERT INTO {schema}.removed_numbers (id, kind, number, owner_id)
             SELECT id, 'job', number, owner_id FROM {schema}.jobs WHERE id = $1 AND $2::bigint > 0
                 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.jobs WHERE id = $1 AND $2::bigint > 0",
        ],
            JobEventKind::JobCreated | JobEventKind::JobFiringSkipped => &[],
        },
        Kind::Transfer(kind) => match kind {
            TransferEventKind::TransferDeleted => &["UPDATE {schema}.transfers SET deleted = true WHERE id = $1 AND $2::bigint > 0"],
            TransferEventKind::TransferRequested | TransferEventKind::TransferDispatched | TransferEventKind::TransferProgressed | TransferEventKind::FilesStaged | TransferEventKind::TransferStaged | TransferEventKind::TransferRequeued | TransferEventKind::TransferCompleted | TransferEventKind::TransferFailed | TransferEventKind::TransferCancelled | TransferEventKind::LateReportReceived | TransferEventKind::StagedBytesDeleted => &[],
        },
    }
}
