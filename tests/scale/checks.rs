use std::{collections::BTreeMap, sync::PoisonError, time::Duration};

use anyhow::ensure;
use serde_json::Value;
use sqlx::PgPool;

use crate::{installation::Installation, load::Load, system::wait_until};

const SETTLE: Duration = Duration::from_secs(60);

/// Each statement gives one sentence for each thing that is not as it should be.
const WRONG: [&str; 7] = [
    "SELECT format('%s agents are called %s', count(*), name) FROM read.agents GROUP BY name HAVING count(*) > 1",
    "SELECT format('%s transfers were made for the firing at %s', count(*), payload->>'scheduled_for') FROM events
      WHERE event_type = 'transfer_requested' GROUP BY payload->>'scheduled_for' HAVING count(*) > 1",
    "SELECT format('rule %s fired %s times on datapoint %s', aggregate_id, count(*), payload->>'datapoint_id') FROM events
      WHERE event_type = 'rule_triggered' GROUP BY aggregate_id, payload->>'datapoint_id' HAVING count(*) <> 1",
    "SELECT format('event %s was queued %s times', d->>'event_id', count(*))
       FROM events, jsonb_array_elements(payload->'deliveries') d
      WHERE event_type = 'deliveries_queued' GROUP BY d->>'event_id' HAVING count(*) <> 1",
    "SELECT format('delivery %s ended as %s: %s', id, status, last_error) FROM read.deliveries WHERE status <> 'delivered'",
    "SELECT format('the log has %s events up to %s, its head is %s', count(*), max(e.position), h.position)
       FROM events e, log_head h WHERE h.log = 'events' GROUP BY h.position
     HAVING count(*) <> max(e.position) OR max(e.position) <> h.position",
    "SELECT format('event %s is poisonous for %s: %s', position, projection, error) FROM read.poisonous_events",
];

/// Pending work.
const WAITING: &str = "SELECT (SELECT count(*) FROM read.checkpoints c, log_head h WHERE h.log = 'events' AND c.position < h.position)
     + (SELECT count(*) FROM read.deliveries WHERE due_at IS NOT NULL)";

/// Fails with what was lost or done twice.
pub async fn all(installation: &Installation, mut load: Load) -> anyhow::Result<()> {
    load.stop().await?;
    let pool = &installation.pool;
    let values = load.accepted.lock().unwrap_or_else(PoisonError::into_inner).values;
    wait_until("the end of all work", SETTLE, || async {
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(pool).await?;
        let ended: i64 = sqlx::query_scalar("SELECT count(*) FROM read.deliveries").fetch_one(pool).await?;
        Ok(waiting == 0 && ended as usize >= values)
    })
    .await?;
    let mut wrong = Vec::new();
    for statement in WRONG {
        wrong.extend(sqlx::query_scalar::<_, String>(statement).fetch_all(pool).await?);
    }
    let (agents, eventual) = {
        let mut accepted = load.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.append(&mut accepted.unseen);
        (std::mem::take(&mut accepted.agents), accepted.eventual)
    };
    for gateway in &installation.gateways {
        for (id, name) in &agents {
            let shown = gateway.get(&format!("/api/agents/{id}")).await?;
            if shown["name"] != name.as_str() {
                wrong.push(format!("agent {id} is {shown}, not {name}"));
            }
        }
    }
    let mut came = BTreeMap::<String, usize>::new();
    for (_, body) in load.sink.take() {
        let body: Value = serde_json::from_slice(&body)?;
        *came.entry(body["id"].to_string()).or_default() += 1;
    }
    if came.len() != values {
        wrong.push(format!(
            "{values} values crossed the threshold, the receiver was notified of {}",
            came.len()
        ));
    }
    ensure!(wrong.is_empty(), "{}", wrong.iter().take(50).cloned().collect::<Vec<_>>().join("\n"));
    report(pool, agents.len(), eventual, &came).await
}

async fn report(
    pool: &PgPool,
    agents: usize,
    eventual: usize,
    came: &BTreeMap<String, usize>,
) -> anyhow::Result<()> {
    let firings: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE event_type = 'transfer_requested'")
            .fetch_one(pool)
            .await?;
    let again = came.values().filter(|times| **times > 1).count();
    println!(
        "\n{agents} writes were accepted, each is there once and at both gateways; {eventual} answers were eventual"
    );
    println!("{} values crossed a threshold, each was delivered; {again} requests came again", came.len());
    println!("{firings} firings made one transfer each");
    Ok(())
}
