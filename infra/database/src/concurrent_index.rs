//! Indexes that a migration makes outside of a transaction.
//!
//! When `CREATE INDEX CONCURRENTLY` is interrupted, PostgreSQL leaves an invalid index. When the process is stopped, PostgreSQL
//! often completes the index all the same, and the migration is not recorded. Either way the statement would fail for ever after,
//! because the index exists.

use signalbox_from_row::FromRow;
use sqlx::{PgConnection, migrate::Migration};

/// The index that a statement makes.
#[derive(Debug, PartialEq, Eq)]
struct ConcurrentIndex<'s> {
    name: &'s str,
    table: &'s str,
}

#[derive(Debug, FromRow)]
struct Left {
    /// With its schema, quoted.
    name: String,
    is_valid: bool,
}

/// Prepares the next attempt at `migration`: drops an invalid index that an earlier attempt left, and records the migration when
/// it left a valid one.
pub(crate) async fn resume(connection: &mut PgConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    let Some(index) = index_of(&migration.sql) else { return Ok(()) };
    let left: Option<Left> = sqlx::query_as(
        "SELECT format('%I.%I', n.nspname, c.relname) AS name, i.indisvalid AND i.indisready AS is_valid
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE i.indrelid = to_regclass($1) AND c.relname = $2",
    )
    .bind(index.table)
    .bind(index.name)
    .fetch_optional(&mut *connection)
    .await?;
    match left {
        None => Ok(()),
        Some(Left { is_valid: true, .. }) => record(connection, migration).await,
        Some(Left { name, .. }) => {
            tracing::warn!(name, "an index that was not completed is made anew");
            let drop = format!("DROP INDEX CONCURRENTLY {name}");
            sqlx::query(&drop).execute(connection).await.map(|_| ())
        }
    }
}

/// As sqlx does after it has applied a migration.
async fn record(connection: &mut PgConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES ($1, $2, true, $3, -1)",
    )
    .bind(migration.version)
    .bind(&*migration.description)
    .bind(&*migration.checksum)
    .execute(connection)
    .await?;
    Ok(())
}

/// The index that `sql` makes concurrently; `None` if it does something else.
fn index_of(sql: &str) -> Option<ConcurrentIndex<'_>> {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let words: Vec<_> = lines.flat_map(|line| line.split([' ', '\t', '(', ';'])).collect();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut next_is = |expected: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(expected));
    if !next_is("create") {
        return None;
    }
    let mut word = words.next()?;
    if word.eq_ignore_ascii_case("unique") {
        word = words.next()?;
    }
    if !word.eq_ignore_ascii_case("index") || !words.next()?.eq_ignore_ascii_case("concurrently") {
        return None;
    }
    let mut name = words.next()?;
    if name.eq_ignore_ascii_case("if") {
        name = words.nth(2)?;
    }
    let mut table = words.nth(1)?;
    if table.eq_ignore_ascii_case("only") {
        table = words.next()?;
    }
    Some(ConcurrentIndex { name, table })
}

/// Whether an attempt at `sql` after an interrupted one succeeds.
#[cfg(test)]
pub(crate) fn is_repeatable(sql: &str) -> bool {
    index_of(sql).is_some() || sql.to_lowercase().contains(" if exists ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_their_index_and_table() {
        let index = |name, table| Some(ConcurrentIndex { name, table });
        for (sql, expected) in [
            (
                "-- no-transaction\n-- Why.\nCREATE UNIQUE INDEX CONCURRENTLY a\n    ON read.files (x, y);",
                index("a", "read.files"),
            ),
            ("CREATE INDEX CONCURRENTLY IF NOT EXISTS a ON ONLY b(x)", index("a", "b")),
            ("create index concurrently a on b using gin (x)", index("a", "b")),
            ("CREATE INDEX a ON b (x)", None),
            ("DROP INDEX CONCURRENTLY IF EXISTS a", None),
        ] {
            assert_eq!(index_of(sql), expected, "{sql}");
        }
    }
}
