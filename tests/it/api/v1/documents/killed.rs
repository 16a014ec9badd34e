//! Worker processes that are killed amid writing and amid removing a kept text: another one does what is left.

use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_database::begin;
use sqlx::{PgConnection, Postgres, Transaction};

use super::{jobs::until_status, kept::DOCUMENTS, send};
use crate::harness::{WorkerProcess, World, eventually, seconds};

/// Keeps processes from writing to the index; readers are not held up.
async fn hold_index(world: &World) -> Transaction<'static, Postgres> {
    let mut transaction = begin(&world.servers.pool, "BEGIN").await.unwrap();
    let connection: &mut PgConnection = &mut transaction;
    sqlx::query("LOCK TABLE ops.indexed_documents IN SHARE MODE").execute(connection).await.unwrap();
    transaction
}

/// Waits until a process is in the middle of a change of the index.
async fn until_held_up(world: &World) {
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'ops.indexed_documents'::regclass)";
    let is_held_up = async || sqlx::query_scalar(waits).fetch_one(&world.servers.pool).await.unwrap();
    eventually(seconds(60), is_held_up).await;
}

async fn count(world: &World, table: &str) -> i64 {
    sqlx::query_scalar(&format!("SELECT count(*) FROM {table}")).fetch_one(&world.servers.pool).await.unwrap()
}

#[tokio::test]
async fn killed_workers_leave_no_half_index_and_no_text() {
    let world = World::without_workers(Clock::system(), |config| config.extraction.parsers = 1).await;
    let client = &world.admin;
    let submitted = send(client, &format!("{DOCUMENTS}?keep=true"), "a.txt", b"Weichenheizung").await;
    let id = submitted.expect(202)["job_id"].as_str().unwrap().to_owned();

    let held = hold_index(&world).await;
    let worker = WorkerProcess::start(&world);
    until_status(client, &id, "completed").await;
    until_held_up(&world).await;
    worker.kill();
    held.rollback().await.unwrap();
    let is_empty = async || {
        let waits: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'ops.indexed_documents'::regclass AND mode = 'RowExclusiveLock')",
        )
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
        !waits && count(&world, "ops.document_sections").await == 0
    };
    // The rows of the killed process are undone when the database notices that it is gone.
    eventually(seconds(60), is_empty).await;
    let listed = client.get(DOCUMENTS).await.expect(200);
    assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["searchable"]), (&json!(id), &json!(false)));

    let worker = WorkerProcess::start(&world);
    let is_searchable = |list: &Value| list["data"][0]["searchable"] == true;
    client.until(DOCUMENTS.to_owned(), is_searchable).await;
    assert_eq!(client.get(&format!("{DOCUMENTS}?q=Weichenheizung")).await.expect(200)["total"], 1);

    let held = hold_index(&world).await;
    client.delete(&format!("{DOCUMENTS}/{id}")).await.expect(200);
    until_held_up(&world).await;
    worker.kill();
    held.rollback().await.unwrap();
    assert_eq!(client.get(&format!("{DOCUMENTS}?q=Weichenheizung")).await.expect(200)["total"], 0);
    assert_eq!(world.count_events("extraction_result_expired").await, 0);

    let _worker = WorkerProcess::start(&world);
    eventually(seconds(60), async || world.count_events("extraction_result_expired").await == 1).await;
    for table in ["ops.document_sections", "ops.indexed_documents", "ops.extraction_cache"] {
        assert_eq!(count(&world, table).await, 0, "{table}");
    }
    assert_eq!(world.staged_files().await, Vec::<String>::new());
    world.finish().await;
}

#[tokio::test]
async fn killed_workers_leave_no_file_of_a_deleted_job() {
    let world = World::without_workers(Clock::system(), |config| config.extraction.parsers = 1).await;
    let client = &world.admin;
    let submitted = send(client, "/api/v1/jobs?keep_input=true", "a.txt", b"Weichenheizung").await;
    let job = format!("/api/v1/jobs/{}", submitted.expect(202)["job_id"].as_str().unwrap());
    let worker = WorkerProcess::start(&world);
    client.until(job.clone(), |job| job["status"] == "completed").await;

    let held = hold_index(&world).await;
    assert_eq!(client.delete(&format!("{job}?remove=true")).await.status, 204);
    // Its text is gone, and its document is not.
    until_held_up(&world).await;
    worker.kill();
    held.rollback().await.unwrap();
    assert_eq!(world.count_events("extraction_result_expired").await, 0);
    assert!(!world.staged_files().await.is_empty());
    client.get(&job).await.error(404);

    let _worker = WorkerProcess::start(&world);
    eventually(seconds(60), async || world.count_events("extraction_result_expired").await == 1).await;
    assert_eq!(count(&world, "ops.extraction_cache").await, 0);
    assert_eq!(world.staged_files().await, Vec::<String>::new());
    world.finish().await;
}
