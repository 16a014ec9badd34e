use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::{
    checks::sentences,
    sink::{Behaviour, Sink},
    system::{Api, wait_for},
    victims::Victims,
    work::Progress,
};

const SUBMIT: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(50);
/// Batches in progress at the same time, so that some are whenever a process is killed.
const UNDER_WAY: usize = 5;

/// Each statement gives one sentence for each thing that is not as it should be.
const WRONG: [&str; 5] = [
    "SELECT format('rule %s fired %s times on datapoint %s', aggregate_id, count(*), payload->>'datapoint_id') FROM events
      WHERE event_type = 'rule_triggered' GROUP BY aggregate_id, payload->>'datapoint_id' HAVING count(*) <> 1",
    "SELECT format('event %s was queued %s times', d->>'event_id', count(*))
       FROM events, jsonb_array_elements(payload->'deliveries') d
      WHERE event_type = 'deliveries_queued' GROUP BY d->>'event_id' HAVING count(*) <> 1",
    "SELECT format('delivery %s ended as %s: %s', id, status, last_error) FROM read.deliveries WHERE status <> 'delivered'",
    // Numbers from 1 without holes, each once.
    "SELECT format('delivery %s has the attempts %s', a->>'id', string_agg(a->>'attempt', ' ' ORDER BY position))
       FROM events, jsonb_array_elements(payload->'attempts') a WHERE event_type = 'attempts_ended'
      GROUP BY a->>'id', a->>'round'
     HAVING count(*) <> max((a->>'attempt')::int) OR count(*) <> count(DISTINCT a->>'attempt')",
    "SELECT format('event %s is poisonous for %s: %s', position, projection, error) FROM read.poisonous_events",
];

/// Values that cross the thresholds of rules, and the receiver that is notified of each.
#[derive(Clone)]
pub struct Crossings {
    channels: Vec<String>,
    count: usize,
    gateways: [Api; 2],
    pool: PgPool,
    sink: Arc<Sink>,
}

impl Progress for Crossings {
    fn count(&self) -> usize {
        self.count
    }

    async fn completed(&self) -> Result<usize, sqlx::Error> {
        let sql = "SELECT count(*) FROM read.deliveries WHERE status = 'delivered'";
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        Ok(count as usize)
    }
}

impl Crossings {
    /// Makes the channels, the rules and the subscription.
    pub async fn prepare(
        victims: &Victims,
        pool: &PgPool,
        count: usize,
        rules: usize,
    ) -> anyhow::Result<Self> {
        let api = &victims.gateways[0];
        let sink = Sink::start(Behaviour::Accept).await?;
        let webhook = json!({"url": sink.url("hook"), "secret": "a shared secret", "events": ["sensor.threshold_exceeded"]});
        api.post("/api/v1/webhooks", &webhook).await?;
        let mut channels = Vec::new();
        for number in 0..rules {
            let channel = json!({"name": format!("channel {number}"), "type": "sensor"});
            let channel = api.post("/api/v1/events", &channel).await?;
            let channel = channel["public_id"].as_str().context("an event without an id")?.to_owned();
            let rule = json!({"name": format!("rule {number}"), "event_public_id": channel, "operator": "gt",
                "threshold": 10, "cooldown_seconds": 0, "action_type": "webhook",
                "webhook_event_type": "sensor.threshold_exceeded"});
            api.post("/api/v1/rules", &rule).await?;
            channels.push(channel);
        }
        let count = count / rules * rules;
        let gateways = victims.gateways.clone();
        Ok(Self { channels, count, gateways, pool: pool.clone(), sink: Arc::new(sink) })
    }

    /// Sends a value below the threshold and one above it to each channel, again and again, at one gateway and then the
    /// other, repeating what was not answered.
    pub async fn submit(self) -> anyhow::Result<()> {
        for number in 0..self.count / self.channels.len() {
            let before = number.saturating_sub(UNDER_WAY) * self.channels.len();
            while self.completed().await.is_ok_and(|completed| completed < before) {
                sleep(INTERVAL).await;
            }
            let values = [1.0, 11.0 + number as f64];
            let points = values.iter().flat_map(|value| {
                self.channels.iter().map(move |channel| json!({"value": value, "event_public_id": channel}))
            });
            let batch = json!({"datapoints": points.collect::<Vec<_>>()});
            let key = format!("crossing-{number}");
            let mut gateways = self.gateways.iter().cycle().skip(number);
            wait_for("a batch being taken", SUBMIT, || {
                let asking =
                    gateways.next().map(|api| api.post_once("/api/v1/datapoints/batch", &key, &batch));
                async move {
                    Ok(match asking {
                        Some(asking) => Some(asking.await?),
                        None => None,
                    })
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until no delivery is in progress.
    pub async fn wait_until_ended(&self, victims: &mut Victims) -> anyhow::Result<()> {
        let deadline = Instant::now() + END;
        loop {
            victims.tend()?;
            let sql = "SELECT count(*) FROM read.deliveries WHERE due_at IS NULL";
            let ended: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
            if ended as usize >= self.count {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "only {ended} of {} deliveries have ended within {END:?}",
                self.count
            );
            sleep(INTERVAL).await;
        }
    }

    /// Fails with what does not hold.
    pub async fn check(&self) -> anyhow::Result<()> {
        let mut wrong = sentences(&self.pool, &WRONG).await?;
        let sql = "SELECT count(*) FROM events WHERE event_type = 'rule_triggered'";
        let fired: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        if fired as usize != self.count {
            wrong.push(format!("{} values crossed a threshold, rules fired {fired} times", self.count));
        }
        let mut came = BTreeMap::<String, usize>::new();
        let mut values = BTreeSet::new();
        for (_, body) in self.sink.take() {
            let body: Value = serde_json::from_slice(&body)?;
            *came.entry(body["id"].to_string()).or_default() += 1;
            values.insert((body["sensor_id"].to_string(), body["value"].to_string()));
        }
        if came.len() != self.count || values.len() != self.count {
            wrong.push(format!("the receiver got {} events of {} values", came.len(), values.len()));
        }
        ensure!(wrong.is_empty(), "{}", wrong.iter().take(50).cloned().collect::<Vec<_>>().join("\n"));
        let again = came.values().filter(|times| **times > 1).count();
        println!("{} events reached the receiver, {again} of them more than once", came.len());
        Ok(())
    }
}
