//! Functions of the database follow their scripts, in databases of any age.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::{env, fs, path::Path};

use signalbox_database::{SqlFunction, connect, migrate, migrate_by, pending, sql_functions};
use signalbox_test_support::fresh_database;
use sqlx::{Executor, PgPool, migrate::Migrator};

async fn migrations() -> Migrator {
    Migrator::new(Path::new("migrations")).await.unwrap()
}

/// The functions of the service, with their settings and bodies.
async fn definitions(pool: &PgPool) -> Vec<(String, String)> {
    sqlx::query_as(
        "SELECT CASE n.nspname WHEN 'public' THEN p.proname ELSE n.nspname || '.' || p.proname END,
                pg_get_functiondef(p.oid)
           FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
          WHERE n.nspname IN ('public', 'read', 'series', 'ops') ORDER BY 1, 2",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

async fn answer(pool: &PgPool) -> i32 {
    sqlx::query_scalar("SELECT answer()").fetch_one(pool).await.unwrap()
}

fn answering(revision: i32, number: i32) -> [SqlFunction; 1] {
    let script = format!(
        "-- Revision {revision}\nCREATE OR REPLACE FUNCTION answer() RETURNS int LANGUAGE sql AS $$ SELECT {number} $$;\n"
    );
    [SqlFunction { name: "answer", script }]
}

#[tokio::test]
async fn a_script_that_has_changed_is_applied_again_and_an_earlier_one_is_not() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let apply =
        async |function: [SqlFunction; 1]| migrate_by(&pool, &migrations().await, &function).await.unwrap();
    apply(answering(1, 1)).await;
    assert_eq!(answer(&pool).await, 1);
    apply(answering(1, 2)).await;
    assert_eq!(answer(&pool).await, 2);
    apply(answering(2, 3)).await;
    assert_eq!(answer(&pool).await, 3);
    // A process of the release before starts again beside the new one.
    apply(answering(1, 2)).await;
    assert_eq!(answer(&pool).await, 3);
    pool.execute("CREATE OR REPLACE FUNCTION answer() RETURNS int LANGUAGE sql AS $$ SELECT 0 $$")
        .await
        .unwrap();
    apply(answering(2, 3)).await;
    assert_eq!(answer(&pool).await, 0, "a script without changes is not applied");
}

#[tokio::test]
async fn scripts_are_applied_together_or_not_at_all() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let [good] = answering(1, 1);
    let bad = SqlFunction { name: "broken", script: "-- Revision 1\nCREATE FUNCTION".to_owned() };
    migrate_by(&pool, &migrations().await, &[good, bad]).await.unwrap_err();
    let made = "SELECT to_regproc('answer') IS NOT NULL OR EXISTS (SELECT FROM ops.sql_functions WHERE name = 'answer')";
    assert!(!sqlx::query_scalar::<_, bool>(made).fetch_one(&pool).await.unwrap());
}

#[tokio::test]
async fn an_old_database_gets_the_same_functions_as_a_new_one() {
    let url = fresh_database().await;
    let new = connect(&url, 2).await.unwrap();
    let name: String =
        sqlx::query_scalar("SELECT current_database() || '_old'").fetch_one(&new).await.unwrap();
    new.execute(format!("CREATE DATABASE {name}").as_str()).await.unwrap();
    let old_url = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
    let old = connect(&old_url, 2).await.unwrap();
    migrate_by(&old, &migrations().await, &[]).await.unwrap();
    assert_eq!(pending(&old).await.unwrap(), sql_functions().len());
    migrate(&old).await.unwrap();
    assert_eq!(pending(&old).await.unwrap(), 0);
    assert_eq!(definitions(&old).await, definitions(&new).await);
    let names: Vec<_> = definitions(&new).await.into_iter().map(|(name, _)| name).collect();
    let mut scripts: Vec<_> = sql_functions().iter().map(|function| function.name.to_owned()).collect();
    scripts.sort_unstable();
    assert_eq!(names, scripts, "each function has one script");
}

/// A rebuild of the release before lacks tables; swapped in, it would end every query of datapoints.
#[tokio::test]
async fn a_rebuild_that_the_release_before_has_begun_is_given_up() {
    let url = fresh_database().await;
    let other = connect(&url, 2).await.unwrap();
    let name: String =
        sqlx::query_scalar("SELECT current_database() || '_old'").fetch_one(&other).await.unwrap();
    other.execute(format!("CREATE DATABASE {name}").as_str()).await.unwrap();
    let pool = connect(&format!("{}/{name}", url.rsplit_once('/').unwrap().0), 2).await.unwrap();
    let begin = async || {
        pool.execute("SELECT create_series('read_rebuild_series'); SELECT create_series_current('read_rebuild_series')")
            .await
            .unwrap();
    };
    let has_begun = async || -> bool {
        let found = "SELECT to_regnamespace('read_rebuild_series') IS NOT NULL";
        sqlx::query_scalar(found).fetch_one(&pool).await.unwrap()
    };
    let before_packs = migrations().await.iter().filter(|step| step.version < 83).cloned().collect();
    let before = Migrator { migrations: before_packs, ignore_missing: true, ..Migrator::DEFAULT };
    migrate_by(&pool, &before, &[]).await.unwrap();
    begin().await;
    migrate_by(&pool, &migrations().await, &[]).await.unwrap();
    assert!(!has_begun().await);
    // With the function of before, which is replaced after the migrations.
    begin().await;
    migrate(&pool).await.unwrap();
    assert!(!has_begun().await);
    begin().await;
    pool.execute("SELECT FROM read_rebuild_series.packed_hours").await.unwrap();
}

/// A changed script with the old number would be undone by a process of the release before that starts once more.
#[tokio::test]
async fn a_changed_script_has_another_revision() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("functions/revisions");
    let mut listed = fs::read_to_string(&path).unwrap();
    for function in sql_functions() {
        let digest = "SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex')";
        let digest: String =
            sqlx::query_scalar(digest).bind(&function.script).fetch_one(&pool).await.unwrap();
        let revision = format!("{} {} ", function.name, function.revision());
        match listed.lines().find_map(|line| line.strip_prefix(&revision)) {
            Some(known) => assert_eq!(known, digest, "{} has changed: raise its revision", function.name),
            None if env::var_os("SIGNALBOX_WRITE_GOLDEN").is_some() => {
                listed.push_str(&format!("{revision}{digest}\n"));
            }
            None => panic!("{revision}is new: run the test with SIGNALBOX_WRITE_GOLDEN=1"),
        }
    }
    fs::write(path, listed).unwrap();
}
