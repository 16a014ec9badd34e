//! Functions of the database, each in a script of its own, which is applied again when it has changed.
//!
//! A script replaces its function and names its revision in its first line. The process that migrates applies the scripts that are
//! new or have changed, after the migrations, under their lock and in one transaction. A process of an earlier release, which has
//! lower revisions, changes nothing.

use signalbox_boxed::boxed;
use sqlx::{Connection, Executor, PgConnection};

/// A script that creates or replaces a function.
#[derive(Debug, Clone)]
pub struct SqlFunction {
    /// Name of the function, with its schema unless that is `public`.
    pub name: &'static str,
    /// The script.
    pub script: String,
}

impl SqlFunction {
    /// The revision that the script says it is.
    pub fn revision(&self) -> i32 {
        let first = self.script.lines().next().and_then(|line| line.strip_prefix("-- Revision "));
        first.and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

macro_rules! scripts {
    ($($name:literal,)+) => {
        [$(($name, include_str!(concat!("../functions/", $name, ".sql"))),)+]
    };
}

const SCRIPTS: [(&str, &str); 17] = scripts![
    "add_day",
    "append_datapoints",
    "append_events",
    "append_tombstone",
    "clear_datapoints",
    "count_added_chunks",
    "count_removed_chunks",
    "create_hours",
    "create_rollups",
    "create_series",
    "create_series_current",
    "drop_days",
    "forbid_change",
    "ops.cached_texts",
    "ops.claim_rule_shards",
    "ops.reserve_cells",
    "read.text_key",
];

/// All functions of this release.
pub fn sql_functions() -> Vec<SqlFunction> {
    SCRIPTS.iter().map(|(name, script)| SqlFunction { name, script: (*script).to_owned() }).collect()
}

/// The names of those of `functions` whose script has not been applied, and is not older than what was.
#[boxed]
pub(crate) async fn pending_functions(
    connection: &mut PgConnection,
    functions: &[SqlFunction],
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT f.name FROM unnest($1::text[], $2::int[], $3::text[]) AS f (name, revision, script)
           LEFT JOIN ops.sql_functions k ON k.name = f.name
          WHERE k.name IS NULL OR f.revision > k.revision
             OR f.revision = k.revision AND sha256(convert_to(f.script, 'UTF8')) <> k.checksum
          ORDER BY f.name",
    )
    .bind(functions.iter().map(|function| function.name).collect::<Vec<_>>())
    .bind(functions.iter().map(SqlFunction::revision).collect::<Vec<_>>())
    .bind(functions.iter().map(|function| function.script.as_str()).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
}

/// Applies those of `functions` that are pending.
#[boxed]
pub(crate) async fn apply_functions(
    connection: &mut PgConnection,
    functions: &[SqlFunction],
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Most scripts name no schema: with one that is named after the role, they would make a second function there.
    (&mut *transaction).execute("SET LOCAL search_path = public").await?;
    let pending = pending_functions(&mut transaction, functions).await?;
    for function in functions.iter().filter(|function| pending.iter().any(|name| name == function.name)) {
        (&mut *transaction).execute(function.script.as_str()).await?;
        sqlx::query(
            "INSERT INTO ops.sql_functions (name, revision, checksum)
             VALUES ($1, $2, sha256(convert_to($3, 'UTF8')))
                 ON CONFLICT (name) DO UPDATE
                SET revision = excluded.revision, checksum = excluded.checksum, applied_at = now()",
        )
        .bind(function.name)
        .bind(function.revision())
        .bind(&function.script)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_script_is_listed_and_replaces_the_function_that_it_is_named_after() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("functions");
        let files =
            fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let found: BTreeSet<_> =
            files.filter_map(|file| Some(file.strip_suffix(".sql")?.to_owned())).collect();
        let listed: BTreeSet<_> = sql_functions().iter().map(|function| function.name.to_owned()).collect();
        assert_eq!(found, listed);
        for function in sql_functions() {
            assert!(function.revision() > 0, "{} does not begin with -- Revision N", function.name);
            let replaces = format!("CREATE OR REPLACE FUNCTION {}(", function.name);
            assert_eq!(function.script.matches(&replaces).count(), 1, "{}", function.name);
        }
    }
}
