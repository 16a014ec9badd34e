//! Deletions that events cause, as statements: they run if such an event is set aside (see
//! [`crate::Projection::WITHDRAWALS`]).
//!
//! `$1` is the aggregate's id, `$2` the event's position. Both occur in every statement, because PostgreSQL infers
//! the types of all parameters. If an event's payload matters and cannot be decoded, less is allowed rather than
//! more. A statement must not fail whatever the payload is, because the projection would not continue.

use crate::automation::removed::REMOVE_FIRST;

/// Statements by the word of the event.
pub(crate) type Withdrawals = &'static [(&'static str, &'static [&'static str])];

pub(crate) const IDENTITY: Withdrawals = &[
    (
        "user_deleted",
        &[
            "INSERT INTO {schema}.removed_identities (id, issuer, subject)
             SELECT id, sso_issuer, sso_subject FROM {schema}.users
              WHERE id = $1 AND sso_issuer IS NOT NULL AND $2::bigint > 0 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.sessions WHERE user_id = $1 AND position < $2",
            "DELETE FROM {schema}.api_tokens WHERE user_id = $1 AND position < $2",
            "DELETE FROM {schema}.users WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    (
        "user_identity_removed",
        &["INSERT INTO {schema}.removed_identities (id, issuer, subject)
           SELECT id, sso_issuer, sso_subject FROM {schema}.users
            WHERE id = $1 AND sso_issuer IS NOT NULL AND $2::bigint > 0 ON CONFLICT DO NOTHING"],
    ),
    // The identity that was linked before must not log in any more.
    (
        "user_identity_linked",
        &["UPDATE {schema}.users SET sso_provider = NULL, sso_issuer = NULL, sso_subject = NULL
            WHERE id = $1 AND $2::bigint > 0"],
    ),
    (
        "user_role_changed",
        &["UPDATE {schema}.users u
              SET role = CASE WHEN e.payload->>'to' IN ('admin', 'operator', 'viewer') THEN e.payload->>'to'
                              WHEN e.payload->>'to' = 'user' THEN 'operator' ELSE 'viewer' END
             FROM events e WHERE u.id = $1 AND e.position = $2"],
    ),
    // `!` is the digest of no password.
    (
        "user_password_changed",
        &["UPDATE {schema}.users u
              SET valid_after = e.position, password_hash = coalesce(e.payload->>'password_hash', '!')
             FROM events e WHERE u.id = $1 AND e.position = $2"],
    ),
    (
        "session_ended",
        &["UPDATE {schema}.sessions s SET ended_at = e.recorded_at
             FROM events e WHERE s.id = $1 AND e.position = $2"],
    ),
    ("api_token_revoked", &["DELETE FROM {schema}.api_tokens WHERE id = $1 AND $2::bigint > 0"]),
];

pub(crate) const TRANSFER: Withdrawals = &[
    ("agent_token_revoked", &["DELETE FROM {schema}.agent_tokens WHERE id = $1 AND $2::bigint > 0"]),
    (
        "agent_deleted",
        &[
            "INSERT INTO {schema}.removed_numbers (id, kind, number)
             SELECT id, 'agent', number FROM {schema}.agents WHERE id = $1 AND $2::bigint > 0
                 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.agent_tokens WHERE agent_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.agents WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    (
        "job_deleted",
        &[
            "INSERT INTO {schema}.removed_numbers (id, kind, number, owner_id)
             SELECT id, 'job', number, owner_id FROM {schema}.jobs WHERE id = $1 AND $2::bigint > 0
                 ON CONFLICT DO NOTHING",
            "DELETE FROM {schema}.jobs WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    // `next_run` stays, because a change that leaves `enabled` as it was does not compute it again.
    (
        "job_updated",
        &["UPDATE {schema}.jobs j
              SET enabled = j.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false)
             FROM events e WHERE j.id = $1 AND e.position = $2"],
    ),
];

// Caches of channels and rules reload rows with a newer position.
pub(crate) const MONITORING: Withdrawals = &[
    (
        "channel_deleted",
        &[
            "UPDATE {schema}.channels c SET deleted_at = e.recorded_at, position = e.position
               FROM events e WHERE c.id = $1 AND e.position = $2",
            "UPDATE {schema}.widgets SET channel_id = NULL WHERE channel_id = $1 AND $2::bigint > 0",
        ],
    ),
    ("experiment_deleted", &["DELETE FROM {schema}.experiments WHERE id = $1 AND $2::bigint > 0"]),
    (
        "dashboard_deleted",
        &[
            "DELETE FROM {schema}.widgets WHERE dashboard_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.dashboards WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    ("dashboard_updated", &[KEEP_PRIVATE]),
    (
        "dashboard_restored",
        &[
            KEEP_PRIVATE,
            "DELETE FROM {schema}.widgets w USING events e
              WHERE w.dashboard_id = $1 AND e.position = $2 AND e.payload->'removed' ? w.id::text",
        ],
    ),
    (
        "widget_removed",
        &["DELETE FROM {schema}.widgets w USING events e
            WHERE w.dashboard_id = $1 AND e.position = $2 AND e.payload->>'widget' = w.id::text"],
    ),
];

/// A dashboard that is shown to its owner only from the event at `$2` on.
const KEEP_PRIVATE: &str = "UPDATE {schema}.dashboards d
    SET is_global = d.is_global AND coalesce(e.payload->>'is_global' = 'true', false)
   FROM events e WHERE d.id = $1 AND e.position = $2";

pub(crate) const AUTOMATION: Withdrawals = &[
    (
        "rule_deleted",
        &["UPDATE {schema}.rules r SET enabled = false, deleted_at = e.recorded_at, changed_at = e.position
             FROM events e WHERE r.id = $1 AND e.position = $2"],
    ),
    (
        "rule_updated",
        &["UPDATE {schema}.rules r
              SET enabled = r.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false),
                  changed_at = e.position
             FROM events e WHERE r.id = $1 AND e.position = $2"],
    ),
    // Its old address gets nothing more.
    (
        "contact_updated",
        &["UPDATE {schema}.contacts SET is_reachable = false WHERE id = $1 AND $2::bigint > 0"],
    ),
    (
        "contact_deleted",
        &[
            REMOVE_FIRST[0],
            REMOVE_FIRST[1],
            REMOVE_FIRST[2],
            "DELETE FROM {schema}.contacts WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    // Its old address gets nothing more, and nothing is signed with its old secret or key.
    (
        "webhook_updated",
        &["UPDATE {schema}.webhooks w
              SET enabled = w.enabled AND coalesce(
                      e.payload->'to'->>'enabled' = 'true' AND e.payload->'to'->>'url' = w.url, false)
                      AND e.payload->'to'->>'sealed_secret' IS NOT DISTINCT FROM w.sealed_secret
                      AND e.payload->'to'->'key'->>'sealed' IS NOT DISTINCT FROM w.sealed_key
             FROM events e WHERE w.id = $1 AND e.position = $2"],
    ),
    (
        "webhook_deleted",
        &[
            REMOVE_FIRST[0],
            REMOVE_FIRST[1],
            REMOVE_FIRST[2],
            "DELETE FROM {schema}.webhooks WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
];

pub(crate) const FLEET: Withdrawals = &[
    (
        "plugin_package_uninstalled",
        &["DELETE FROM {schema}.plugin_packages WHERE id = $1 AND $2::bigint > 0"],
    ),
    (
        "plugin_instance_deleted",
        &[
            "DELETE FROM {schema}.channel_mappings WHERE instance_id = $1 AND $2::bigint > 0",
            "DELETE FROM {schema}.plugin_instances WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
    (
        "plugin_instance_updated",
        &["UPDATE {schema}.plugin_instances i
              SET enabled = i.enabled AND coalesce(e.payload->'to'->>'enabled' = 'true', false)
             FROM events e WHERE i.id = $1 AND e.position = $2"],
    ),
    (
        "channel_mapping_removed",
        &["DELETE FROM {schema}.channel_mappings m USING events e
            WHERE m.instance_id = $1 AND e.position = $2 AND e.payload->>'mapping' = m.id::text"],
    ),
    (
        "firmware_deleted",
        &[
            "UPDATE {schema}.firmware_updates SET status = 'deleted', work = NULL WHERE id = $1 AND $2::bigint > 0",
        ],
    ),
];

pub(crate) const EXTRACTION: Withdrawals = &[(
    "extraction_discarded",
    &["UPDATE {schema}.extraction_jobs SET kept = false, discarded = true WHERE id = $1 AND $2::bigint > 0"],
)];
