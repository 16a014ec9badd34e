use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::ensure;
use async_nats::jetstream::Context;
use futures::TryStreamExt as _;
use sha2::{Digest, Sha256};
use sqlx::PgPool;

use crate::{
    system::{Servers, wait_until},
    work::{Progress, Work},
};

/// How long waiting work may take to be done once all transfers have ended.
const SETTLE: Duration = Duration::from_secs(60);

/// Each statement gives one sentence for each thing that is not as it should be.
const WRONG: [&str; 6] = [
    "SELECT format('transfer %s ended as %s: %s', number, status, error) FROM read.transfers WHERE status <> 'completed'",
    "SELECT format('transfer %s completed %s times', aggregate_id, count(*)) FROM events
      WHERE event_type = 'transfer_completed' GROUP BY aggregate_id HAVING count(*) <> 1",
    "SELECT format('%s happened to transfer %s', event_type, aggregate_id) FROM events
      WHERE event_type IN ('transfer_failed', 'transfer_cancelled')",
    "SELECT format('the log has %s events up to %s, its head is %s', count(*), max(e.position), h.position)
       FROM events e, log_head h WHERE h.log = 'events' GROUP BY h.position
     HAVING count(*) <> max(e.position) OR max(e.position) <> h.position",
    "SELECT format('event %s is poisonous for %s: %s', position, projection, error) FROM read.poisonous_events",
    "SELECT format('transfer %s has another digest in the log', t.number) FROM read.transfers t
       JOIN read.transfer_files f ON f.transfer_id = t.id WHERE f.sha256 <> t.sha256",
];

/// Each statement gives one sentence for each thing that waits to be done.
const WAITING: [&str; 3] = [
    "SELECT format('projection %s stands at %s, the log at %s', c.projection, c.position, h.position)
       FROM read.checkpoints c, log_head h WHERE h.log = 'events' AND c.position < h.position",
    "SELECT format('the relay stands at %s, the log at %s', r.position, h.position)
       FROM ops.relay_checkpoint r, log_head h WHERE h.log = 'events' AND r.position < h.position",
    "SELECT format('a transaction is open after: %s', query) FROM pg_stat_activity
      WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
];

/// Fails with what does not hold.
pub async fn all(servers: &Servers, pool: &PgPool, work: &Work) -> anyhow::Result<()> {
    let mut wrong = sentences(pool, &WRONG).await?;
    let transfers: i64 = sqlx::query_scalar(
        "SELECT count(DISTINCT aggregate_id) FROM events WHERE event_type = 'transfer_completed'",
    )
    .fetch_one(pool)
    .await?;
    if transfers as usize != work.count() {
        wrong.push(format!("{} transfers were asked for, {transfers} have completed", work.count()));
    }
    wrong.extend(wrong_files(work)?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_waits(servers, pool).await?;
    print_attempts(pool).await
}

/// Files that did not arrive as they were, and files that should not be there.
fn wrong_files(work: &Work) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let (mut expected, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for moved in &work.moves {
        if digest(&moved.source)? != digest(&moved.destination).unwrap_or_default() {
            wrong.push(format!("{} is not what was sent", moved.destination.display()));
        }
        expected.insert(moved.destination.clone());
        folders.extend(moved.destination.parent());
    }
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !expected.contains(&path) {
                wrong.push(format!("{} was left behind", path.display()));
            }
        }
    }
    Ok(wrong)
}

fn digest(path: &Path) -> std::io::Result<Vec<u8>> {
    Ok(Sha256::digest(fs::read(path)?).to_vec())
}

async fn nothing_waits(servers: &Servers, pool: &PgPool) -> anyhow::Result<()> {
    let jetstream = servers.jetstream().await?;
    wait_until("the end of all work", SETTLE, || async {
        let mut waiting = sentences(pool, &WAITING).await?;
        waiting.extend(mail(&jetstream).await?);
        ensure!(waiting.is_empty(), "{}", waiting.join("\n"));
        Ok(true)
    })
    .await
}

/// One sentence for each message that waits, and for each agent that is owed one.
pub async fn mail(jetstream: &Context) -> anyhow::Result<Vec<String>> {
    let stream = jetstream.get_stream("MAIL").await?;
    let state = &stream.cached_info().state;
    let mut found = Vec::new();
    if state.messages == 0 {
        return Ok(found);
    }
    for id in state.first_sequence..=state.last_sequence {
        if let Ok(message) = stream.get_raw_message(id).await {
            found.push(format!("message {id} waits since {}: {}", message.time, message.subject));
        }
    }
    let mut consumers = stream.consumers();
    while let Some(consumer) = consumers.try_next().await? {
        found.push(format!(
            "{} was given message {} last and has all until {}; {} are held back, {} of them again, {} follow",
            consumer.name,
            consumer.delivered.stream_sequence,
            consumer.ack_floor.stream_sequence,
            consumer.num_ack_pending,
            consumer.num_redelivered,
            consumer.num_pending,
        ));
    }
    Ok(found)
}

pub async fn sentences(pool: &PgPool, statements: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for statement in statements {
        found.extend(sqlx::query_scalar::<_, String>(statement).fetch_all(pool).await?);
    }
    Ok(found)
}

async fn print_attempts(pool: &PgPool) -> anyhow::Result<()> {
    let sql = "SELECT attempts, count(*) FROM read.transfers GROUP BY attempts ORDER BY attempts";
    let counts: Vec<(i32, i64)> = sqlx::query_as(sql).fetch_all(pool).await?;
    for (attempts, count) in counts {
        println!("{count} transfers completed in attempt {attempts}");
    }
    let sql = "SELECT coalesce(payload->>'error', ''), count(*) FROM events
                WHERE event_type = 'transfer_requeued' GROUP BY 1 ORDER BY 2 DESC LIMIT 10";
    let reasons: Vec<(String, i64)> = sqlx::query_as(sql).fetch_all(pool).await?;
    for (reason, count) in reasons {
        println!("{count} attempts were repeated because {reason}");
    }
    Ok(())
}
