//! Migrations while other processes work.
//!
//! Statements that lock a large table while they read it must run concurrently: `CREATE INDEX CONCURRENTLY`, alone in
//! a file that starts with `-- no-transaction`. Such a statement waits for every older snapshot, so processes that
//! wait for their turn to migrate must not hold one: they poll for the lock. A test walks the migrations.
//!
//! A statement outside of a transaction can be interrupted, or its process stopped before sqlx has recorded it.
//! Before such a migration is applied, `concurrent_index.rs` removes or records the remains of an earlier attempt.
//! All others release a lock that they do not get within [`LOCK_WAIT`] and are repeated: readers and writers of that
//! table would queue behind them, for as long as a `pg_dump` takes.

use std::{collections::HashSet, sync::LazyLock, time::Duration};

use signalbox_boxed::boxed;
use sqlx::{
    PgConnection, PgPool,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};
use tokio::time::{Instant, sleep};

use crate::{
    Class, DatabaseError, SqlFunction, concurrent_index, connection_of, functions::apply_functions,
    is_lock_conflict,
};

/// Versions, descriptions and statements, in order.
const FILES: &[(i64, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// All migrations.
pub(crate) static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| Migrator {
    migrations: FILES
        .iter()
        .map(|(version, description, sql)| migration(*version, description, sql))
        .collect(),
    ..Migrator::DEFAULT
});

fn migration(version: i64, description: &'static str, sql: &'static str) -> Migration {
    let is_alone = sql.starts_with("-- no-transaction");
    Migration::new(version, description.into(), MigrationType::Simple, sql.into(), is_alone)
}

/// Key of the migration lock.
const LOCK: i64 = 0x5349_474e_414c_424f;
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long another process may migrate before this one gives up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time for which a migration waits for the lock of a table, delaying others.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How long a migration is repeated.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// Applies the migrations of `migrator` and then those of `functions` that are pending, one process after the other.
///
/// # Errors
/// [`DatabaseError`].
#[boxed]
pub async fn migrate_by(
    pool: &PgPool,
    migrator: &Migrator,
    functions: &[SqlFunction],
) -> Result<(), DatabaseError> {
    let mut connection = connection_of(pool, Class::Maintenance).await?;
    let migrated = migrate_alone(&mut connection, migrator, functions).await;
    // Ends the lock, too.
    let closed = sqlx::Connection::close(connection).await;
    migrated?;
    Ok(closed?)
}

async fn migrate_alone(
    connection: &mut PgConnection,
    migrator: &Migrator,
    functions: &[SqlFunction],
) -> Result<(), DatabaseError> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while !try_lock(connection).await? {
        if Instant::now() > deadline {
            return Err(DatabaseError::MigratedElsewhere);
        }
        sleep(LOCK_POLL_INTERVAL).await;
    }
    // An index of a large table takes as long as it takes.
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await?;
    connection.ensure_migrations_table().await?;
    let applied = connection.list_applied_migrations().await?;
    let applied: HashSet<_> = applied.into_iter().map(|migration| migration.version).collect();
    for migration in migrator.iter().filter(|migration| !applied.contains(&migration.version)) {
        let up_to_this =
            |other: &&Migration| applied.contains(&other.version) || other.version <= migration.version;
        let step = part_of(migrator, migrator.iter().filter(up_to_this).cloned().collect());
        apply(connection, &step, migration).await?;
    }
    // Also checks the applied migrations.
    part_of(migrator, migrator.iter().cloned().collect()).run_direct(&mut *connection).await?;
    if !functions.is_empty() {
        apply_functions(connection, functions).await?;
    }
    Ok(())
}

fn part_of(migrator: &Migrator, migrations: Vec<Migration>) -> Migrator {
    Migrator {
        migrations: migrations.into(),
        ignore_missing: migrator.ignore_missing,
        no_tx: migrator.no_tx,
        // sqlx waits for its lock in a statement, which holds a snapshot.
        locking: false,
    }
}

/// Applies `migration`, the one of `step` that is pending.
async fn apply(
    connection: &mut PgConnection,
    step: &Migrator,
    migration: &Migration,
) -> Result<(), DatabaseError> {
    let deadline = Instant::now() + ATTEMPTS_TIMEOUT;
    // Concurrent statements block neither readers nor writers, and have to wait for old snapshots.
    let lock_wait = if migration.no_tx { 0 } else { LOCK_WAIT.as_millis() };
    let set_lock_wait = format!("SET lock_timeout = {lock_wait}");
    loop {
        sqlx::query(&set_lock_wait).execute(&mut *connection).await?;
        if migration.no_tx {
            concurrent_index::resume(connection, migration).await?;
        }
        match step.run_direct(connection).await {
            Err(MigrateError::ExecuteMigration(error, version))
                if is_lock_conflict(&error) && Instant::now() < deadline =>
            {
                tracing::warn!(version, %error, "a migration waits for a table that is in use; it is tried again");
                sleep(LOCK_RETRY_INTERVAL).await;
            }
            applied => return Ok(applied?),
        }
    }
}

async fn try_lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(connection).await
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The newest migration before there was a rule.
    const BEFORE_THE_RULE: i64 = 24;
    /// Released before the rule covered tables of `ops` and `series`, and functions.
    const RELEASED: [i64; 2] = [34, 38];
    /// Tables that grow with use and hold millions of rows.
    const LARGE: [&str; 34] = [
        "ops.kept_rollups",
        "events",
        "command_outcomes",
        "snapshots",
        "log_index",
        "log_chain",
        "datapoint_log",
        "datapoint_batches",
        "datapoint_tombstones",
        "read.alarms",
        "read.readings",
        "read.sessions",
        "read.transfers",
        "read.transfer_files",
        "read.deliveries",
        "read.consignments",
        "read.log_entries",
        "read.extraction_jobs",
        "series.chunks",
        "series.hours",
        "series.latest",
        "series.current",
        "series.rollups",
        "series.packed_hours",
        "series.unpacked_hours",
        "ops.agent_requests",
        "ops.datapoint_traces",
        "ops.document_sections",
        "ops.extraction_cache",
        "ops.idempotent_requests",
        "ops.recent_cells",
        "ops.recent_values",
        "ops.staged_files",
        "ops.transfer_legs",
    ];

    /// Why `statement` locks or rewrites a large table for long, if it does.
    fn long_lock(statement: &str) -> Option<&'static str> {
        let words: Vec<_> = statement.split_whitespace().collect();
        let text = words.join(" ").to_lowercase();
        let after =
            |marker: &str| text.split(marker).nth(1).map(|rest| rest.trim_start_matches("only ").to_owned());
        let names = |rest: Option<String>| {
            rest.is_some_and(|rest| {
                let name = rest.split([' ', '(', ';']).next().unwrap_or_default().to_owned();
                LARGE.contains(&name.as_str())
            })
        };
        let is_index = text.starts_with("create index") || text.starts_with("create unique index");
        if is_index && names(after(" on ")) && !text.contains(" index concurrently ") {
            return Some(
                "an index has to be made concurrently, alone in a file that starts with -- no-transaction",
            );
        }
        if text.starts_with("alter table ") && names(after("alter table ")) {
            let sets_type = text.contains(" alter column ") && text.contains(" type ");
            let validates = (text.contains(" add constraint ") || text.contains(" add check "))
                && !text.contains("not valid");
            let drops = text.contains(" drop not null");
            let fills = text.contains(" not null") && !text.contains(" default ") && !drops;
            if sets_type || validates || fills || text.contains(" set not null") {
                return Some("the whole table is read or written under a lock");
            }
        }
        if text.starts_with("insert into ") && names(after(" from ")) {
            return Some("the whole table is read in a transaction that may hold locks");
        }
        let changes_rows =
            ["update ", "delete from "].iter().any(|word| text.starts_with(word) && names(after(word)));
        changes_rows.then_some("all rows are changed in one transaction")
    }

    /// Adds the functions that `sql` defines to `functions`, by name.
    fn define(functions: &mut HashMap<String, String>, sql: &str) {
        let parts: Vec<_> = sql.split("$$").collect();
        for pair in parts.chunks_exact(2) {
            let head = pair[0].to_lowercase();
            let Some((_, head)) = head.rsplit_once(" function ") else { continue };
            let name = head.split('(').next().unwrap_or_default().trim();
            functions.insert(name.to_owned(), pair[1].to_owned());
        }
    }

    /// The body of the functions that `statement` calls, on the tables of `series` where a schema is given.
    fn called(functions: &HashMap<String, String>, statement: &str) -> Vec<String> {
        let text = statement.to_lowercase();
        let Some(call) = text.strip_prefix("select ") else { return Vec::new() };
        let Some(body) = call.split('(').next().and_then(|name| functions.get(name.trim())) else {
            return Vec::new();
        };
        let body = without_comments(body);
        let body = body.replace("EXECUTE format(", "").replace("%I.", "series.").replace('\'', "");
        let begun = |part: &str| part.trim().trim_start_matches("BEGIN").trim().to_owned();
        body.split(';').map(begun).collect()
    }

    fn without_comments(sql: &str) -> String {
        let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Statements outside of functions; comments left out.
    fn statements(sql: &str) -> Vec<String> {
        let text = without_comments(sql);
        let outside: String = text.split("$$").step_by(2).collect::<Vec<_>>().join("''");
        outside.split(';').map(|statement| statement.trim().to_owned()).filter(|it| !it.is_empty()).collect()
    }

    #[test]
    fn migrations_lock_no_large_table_for_long() {
        let mut functions = HashMap::new();
        for migration in MIGRATOR.iter() {
            define(&mut functions, &migration.sql);
            if migration.version <= BEFORE_THE_RULE || RELEASED.contains(&migration.version) {
                continue;
            }
            let statements = statements(&migration.sql);
            let called: Vec<_> =
                statements.iter().flat_map(|statement| called(&functions, statement)).collect();
            let all = || called.iter().chain(&statements);
            // Tables created by the same migration, or by a function that it calls, are empty.
            let is_new = |statement: &String| {
                all().filter_map(|made| made.strip_prefix("CREATE TABLE ")).any(|made| {
                    made.split([' ', '('])
                        .next()
                        .is_some_and(|table| statement.contains(&format!(" {table} ")))
                })
            };
            for statement in all().filter(|it| !is_new(it)) {
                let why = long_lock(statement);
                assert_eq!(why, None, "{} {}: {statement}", migration.version, migration.description);
            }
            let is_concurrent =
                statements.iter().any(|statement| statement.to_lowercase().contains(" concurrently "));
            let is_alone = migration.no_tx && statements.len() == 1;
            assert!(!is_concurrent || is_alone, "{} is not alone or in a transaction", migration.version);
            let is_repeatable = !migration.no_tx || concurrent_index::is_repeatable(&migration.sql);
            assert!(is_repeatable, "{} fails when it was interrupted before", migration.version);
        }
    }

    #[test]
    fn what_functions_do_is_found() {
        let mut functions = HashMap::new();
        define(
            &mut functions,
            "CREATE FUNCTION fill(place text) RETURNS void LANGUAGE plpgsql AS $$
             BEGIN
                 EXECUTE format('CREATE INDEX a ON %I.chunks (x)', place);
                 EXECUTE format('INSERT INTO %I.hours SELECT hour FROM %I.chunks GROUP BY hour', place, place);
             END $$; SELECT 1;",
        );
        let long = called(&functions, "SELECT fill('series')").iter().filter_map(|it| long_lock(it)).count();
        assert_eq!(long, 2);
        assert_eq!(called(&functions, "SELECT 1"), Vec::<String>::new());
    }

    #[test]
    fn statements_that_lock_for_long_are_found() {
        for long in [
            "CREATE INDEX a ON events (x)",
            "CREATE UNIQUE INDEX a\n    ON read.deliveries (x)",
            "ALTER TABLE events ALTER COLUMN x TYPE text",
            "ALTER TABLE read.transfers ADD COLUMN x int NOT NULL",
            "ALTER TABLE events ADD CONSTRAINT a CHECK (x > 0)",
            "UPDATE read.deliveries SET x = 1",
            "UPDATE ops.idempotent_requests SET x = 1",
            "INSERT INTO small SELECT x FROM events GROUP BY x",
        ] {
            assert!(long_lock(long).is_some(), "{long}");
        }
        for short in [
            "CREATE INDEX CONCURRENTLY a ON events (x)",
            "CREATE INDEX a ON ops.small (x)",
            "ALTER TABLE events ADD COLUMN x int",
            "ALTER TABLE events ADD COLUMN x int NOT NULL DEFAULT 0",
            "ALTER TABLE events ADD CONSTRAINT a CHECK (x > 0) NOT VALID",
            "UPDATE ops.small SET x = 1",
        ] {
            assert_eq!(long_lock(short), None, "{short}");
        }
        assert_eq!(statements("-- a;b\nSELECT 1; DO $$ BEGIN; END $$;\n"), ["SELECT 1", "DO ''"]);
    }
}
