use chrono::NaiveDate;
use sqlx::PgConnection;

/// A table that is part of an archive.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// How its rows are ordered.
    pub(crate) order: &'static str,
    /// Whether there is a partition for each day.
    pub(crate) by_day: bool,
}

const fn table(name: &'static str, order: &'static str) -> Table {
    Table { name, order, by_day: false }
}

const fn by_day(name: &'static str, order: &'static str) -> Table {
    Table { name, order, by_day: true }
}

/// The log of events.
pub(crate) const EVENTS: &str = "events";
/// The log of datapoints.
pub(crate) const DATAPOINTS: &str = "datapoint_log";

/// Both logs, and the tables that cannot be derived from them. Read models, snapshots and the hash chain are derived.
/// Keys that sign logins are not exported, nor are first answers to requests and references into the blob store.
pub(crate) const TABLES: [Table; 25] = [
    table(EVENTS, "position"),
    by_day(DATAPOINTS, "position"),
    by_day("datapoint_batches", "day, batch_id"),
    by_day("datapoint_tombstones", "day, position, index"),
    table("log_head", "log"),
    table("datapoint_key", "one"),
    table("claims", "kind, key"),
    table("command_outcomes", "command_id"),
    table("ops.sealing_keys", "name"),
    table("ops.relay_checkpoint", "relay"),
    table("ops.rule_shards", "shard"),
    table("ops.alarm_progress", "one"),
    table("ops.alarm_judges", "rule_id"),
    table("ops.alarm_outbox", "generation, ordinal"),
    table("ops.notices", "contact_id, alarm_id, kind, number"),
    table("ops.notified_alarms", "alarm_id"),
    table("ops.contact_messages", "contact_id"),
    table("ops.message_outbox", "id"),
    table("ops.readings_wanted", "since"),
    table("ops.token_uses", "token_id"),
    table("ops.agent_presence", "agent_id"),
    table("ops.plugin_presence", "instance_id"),
    table("ops.recent_cells", "channels, slot, last_time, batch_id"),
    table("ops.kept_rollups", "channel, span, number, day"),
    table("ops.value_removals", "day"),
];

/// The numbers that clients see; they are carried as a table of name and value.
pub(crate) const SEQUENCES: &str = "sequences";

/// Names of the columns of `table`, in their order, and whether each holds JSON.
pub(crate) async fn columns(
    connection: &mut PgConnection,
    table: &str,
) -> Result<Vec<(String, bool)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT attname::text, atttypid IN ('json'::regtype, 'jsonb'::regtype) FROM pg_attribute
          WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    )
    .bind(table)
    .fetch_all(connection)
    .await
}

/// Days that `table` has partitions of.
pub(crate) async fn days(connection: &mut PgConnection, table: &str) -> Result<Vec<NaiveDate>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT to_date(right(c.relname, 8), 'YYYYMMDD') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = $1::regclass ORDER BY 1",
    )
    .bind(table)
    .fetch_all(connection)
    .await
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Tables that are derived, or of use to the processes of one system alone.
    const NOT_CARRIED: [&str; 30] = [
        "log_chain",
        "log_index",
        "log_index_progress",
        "ops.agent_requests",
        "ops.anonymous_jobs",
        "ops.datapoint_traces",
        "ops.document_sections",
        "ops.extraction_cache",
        "ops.fault_checks",
        "ops.fault_entries",
        "ops.faults",
        "ops.idempotent_requests",
        "ops.indexed_documents",
        "ops.keeping_jobs",
        "ops.login_codes",
        "ops.plugin_claims",
        "ops.recent_values",
        "ops.retention_runs",
        "ops.rule_evaluators",
        "ops.signing_keys",
        "ops.snapshot_holders",
        "ops.sql_functions",
        "ops.staged_files",
        "ops.sweep_clock",
        "ops.transfer_legs",
        "ops.unreadable_rows",
        "series.pack_progress",
        "series.packed_hours",
        "series.unpacked_hours",
        "snapshots",
    ];

    /// Read models, in `read`, are derived.
    #[test]
    fn every_table_of_the_migrations_is_carried_or_listed_as_not() {
        let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../database/migrations");
        let mut made = BTreeSet::new();
        for file in fs::read_dir(migrations).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let names = text.lines().filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split(' ').next());
            made.extend(names.filter(|name| !name.starts_with("read.")).map(str::to_owned));
        }
        let carried = TABLES.iter().map(|table| table.name);
        let decided = carried.chain(NOT_CARRIED);
        assert_eq!(decided.map(str::to_owned).collect::<BTreeSet<_>>(), made);
    }
}
