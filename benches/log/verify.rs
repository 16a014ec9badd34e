//! The findings of `verify`, and its speed.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use rand::Rng;
use serde_json::{Value, json};
use signalbox_database::begin;
use signalbox_event_store::head_position;
use sqlx::{Executor, PgPool};

use crate::{report, system::Signalbox};

const TAMPERED: i32 = 3;

/// Verifies the log at `pool`, then changes it in three ways, one after the other, each of which has to be named.
pub async fn run(program: &Signalbox, pool: &PgPool) -> anyhow::Result<()> {
    let head = head_position(pool).await?;
    report::title(&format!("log: verify of {head} events"));
    let start = Instant::now();
    let (code, found) = verify(program)?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(code == Some(0) && found["verified"] == json!(head), "an untouched log is called {found}");
    report::figure("verified", head as f64 / seconds, "events/s");
    report::figure("in all", seconds, "s");
    // Four of them, of which the last three are in order.
    let mut places: Vec<i64> = (0..4).map(|_| rand::rng().random_range(1..head)).collect();
    places[1..].sort_unstable();
    let [flipped, deleted, first, second] = places[..] else { return Ok(()) };
    ensure!(first < second, "the two places happen to be one: run it again");
    let payload = flip(pool, flipped).await?;
    expect(program, "one bit flipped", &json!({"fault": "altered", "position": flipped}))?;
    set_payload(pool, flipped, &payload).await?;

    change(pool, &format!("CREATE TABLE gone AS SELECT * FROM events WHERE position = {deleted}")).await?;
    change(pool, &format!("DELETE FROM events WHERE position = {deleted}")).await?;
    expect(program, "one event deleted", &json!({"fault": "missing", "position": deleted}))?;
    change(pool, "INSERT INTO events SELECT * FROM gone; DROP TABLE gone").await?;

    swap(pool, first, second).await?;
    let fault = json!({"fault": "reordered", "position": first, "recorded_at": second});
    expect(program, "two events swapped", &fault)?;
    swap(pool, first, second).await?;
    let (code, found) = verify(program)?;
    ensure!(code == Some(0), "after all was put back: {found}");
    Ok(())
}

fn verify(program: &Signalbox) -> anyhow::Result<(Option<i32>, Value)> {
    let output = program.run(&["log", "verify", "--json"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code(), serde_json::from_slice(&output.stdout).with_context(|| said.into_owned())?))
}

fn expect(program: &Signalbox, what: &str, fault: &Value) -> anyhow::Result<()> {
    let start = Instant::now();
    let (code, found) = verify(program)?;
    ensure!(code == Some(TAMPERED) && found["fault"] == *fault, "{what}: {fault} was found as {found}");
    println!("  {what:<34} found in {:.1?} as {}", start.elapsed(), found["fault"]);
    Ok(())
}

/// As the database's ruler can: triggers do not fire.
async fn change(pool: &PgPool, statement: &str) -> anyhow::Result<()> {
    let mut transaction = begin(pool, "BEGIN").await?;
    transaction.execute("SET LOCAL session_replication_role = replica").await?;
    transaction.execute(statement).await?;
    Ok(transaction.commit().await?)
}

async fn swap(pool: &PgPool, one: i64, other: i64) -> anyhow::Result<()> {
    let moved = |from: i64, to: i64| format!("UPDATE events SET position = {to} WHERE position = {from}");
    let steps = [moved(one, -1), moved(other, one), moved(-1, other)];
    change(pool, &steps.join("; ")).await
}

/// Flips the lowest bit of a digit or letter in the payload at `position`; returns the payload as it was.
async fn flip(pool: &PgPool, position: i64) -> anyhow::Result<String> {
    let sql = "SELECT payload::text FROM events WHERE position = $1";
    let payload: String = sqlx::query_scalar(sql).bind(position).fetch_one(pool).await?;
    for place in (0..payload.len()).rev() {
        let mut bytes = payload.clone().into_bytes();
        bytes[place] ^= 1;
        let Ok(flipped) = String::from_utf8(bytes) else { continue };
        // It has to stay JSON, and may not be put in another order.
        if payload.as_bytes()[place].is_ascii_alphanumeric()
            && serde_json::from_str::<Value>(&flipped).is_ok()
            && set_payload(pool, position, &flipped).await.is_ok()
        {
            return Ok(payload);
        }
    }
    bail!("no bit of event {position} can be flipped")
}

async fn set_payload(pool: &PgPool, position: i64, payload: &str) -> anyhow::Result<()> {
    let mut transaction = begin(pool, "BEGIN").await?;
    transaction.execute("SET LOCAL session_replication_role = replica").await?;
    let sql = "UPDATE events SET payload = $2::jsonb WHERE position = $1 RETURNING payload::text";
    let update = sqlx::query_scalar(sql).bind(position).bind(payload);
    let changed: String = update.fetch_one(&mut *transaction).await?;
    ensure!(changed == payload, "{payload} became {changed}");
    Ok(transaction.commit().await?)
}
