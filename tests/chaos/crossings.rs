use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::{
    sink::Sink,
    system::{Api, wait_for},
    victims::{Progress, Victims},
};

const SUBMIT: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);
const RULES: usize = 200;
/// Values of one batch; every other one crosses the threshold.
const BATCH: usize = 50;
/// Firings that may be outstanding, so that some are whenever a process is killed.
const UNDER_WAY: usize = 400;

/// Values that cross the thresholds of rules, each of which has to fire once.
#[derive(Clone)]
pub struct Crossings {
    /// Events, each watched by the rule of the same number.
    events: Vec<String>,
    /// How many values cross.
    count: usize,
    gateways: [Api; 2],
    pool: PgPool,
}

impl Progress for Crossings {
    fn count(&self) -> usize {
        self.count
    }

    async fn completed(&self) -> Result<usize, sqlx::Error> {
        let sql = "SELECT count(*) FROM events WHERE event_type = 'rule_triggered'";
        Ok(sqlx::query_scalar::<_, i64>(sql).fetch_one(&self.pool).await? as usize)
    }
}

impl Crossings {
    /// Makes events and rules; half of the rules write log entries, half tell the receiver.
    pub async fn prepare(
        victims: &Victims,
        pool: &PgPool,
        count: usize,
        receiver: &Sink,
    ) -> anyhow::Result<Self> {
        let api = &victims.gateways[0];
        let webhook = json!({"url": receiver.url("hook"), "events": ["sensor.threshold_exceeded"]});
        api.post("/api/v1/webhooks", &webhook).await?;
        let mut events = Vec::new();
        for number in 0..RULES {
            let event = json!({"name": format!("sensor {number}"), "type": "sensor"});
            let made = api.post("/api/v1/events", &event).await?;
            let id = made["public_id"].as_str().context("an event without an id")?.to_owned();
            let action = if number.is_multiple_of(2) { "log" } else { "webhook" };
            let rule = json!({"name": number.to_string(), "event_public_id": id, "operator": "gt", "threshold": 0,
                "cooldown_seconds": 0, "action_type": action,
                "webhook_event_type": "sensor.threshold_exceeded"});
            api.post("/api/v1/rules", &rule).await?;
            events.push(id);
        }
        Ok(Self { events, count, gateways: victims.gateways.clone(), pool: pool.clone() })
    }

    /// Which rule crossing `number` fires.
    fn rule(number: usize) -> usize {
        number * 7 % RULES
    }

    /// Sends all values, at one gateway and then the other, repeating what was not answered.
    pub async fn submit(self) -> anyhow::Result<()> {
        let per_batch = BATCH / 2;
        for first in (0..self.count).step_by(per_batch) {
            while self.completed().await.is_ok_and(|completed| completed + UNDER_WAY < first) {
                sleep(PAUSE).await;
            }
            let items: Vec<_> =
                (first..(first + per_batch).min(self.count)).flat_map(|number| self.items(number)).collect();
            let batch = json!({ "datapoints": items });
            let key = format!("crossings-{first}");
            let mut gateways = self.gateways.iter().cycle().skip(first / per_batch);
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

    /// The value that crosses, which is its number, and one that does not.
    fn items(&self, number: usize) -> [Value; 2] {
        let event = &self.events[Self::rule(number)];
        let value = number as f64 + 1.0;
        [value, -value].map(|value| json!({"value": value, "event_public_id": event}))
    }

    /// Waits until everything has fired and been delivered.
    pub async fn wait_until_ended(&self, victims: &mut Victims) -> anyhow::Result<()> {
        let deadline = Instant::now() + END;
        let outstanding = "SELECT (SELECT count(*) FROM ops.rule_shards s, log_head h
              WHERE h.log = 'datapoints' AND s.position < h.position)
            + (SELECT count(*) FROM read.deliveries WHERE due_at IS NOT NULL)
            + (SELECT count(*) FROM ops.relay_checkpoint c, log_head h
                WHERE h.log = 'events' AND c.position < h.position)";
        loop {
            victims.tend()?;
            let fired = self.completed().await?;
            let left: i64 = sqlx::query_scalar(outstanding).fetch_one(&self.pool).await?;
            if fired >= self.count && left == 0 {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "within {END:?} {fired} of {} firings came, and {left} things wait to be done",
                self.count
            );
            sleep(PAUSE).await;
        }
    }

    /// Sentences about what is not as it should be.
    pub async fn wrong(&self, receiver: &Sink) -> anyhow::Result<Vec<String>> {
        let mut wrong = self.wrong_firings().await?;
        wrong.extend(self.wrong_entries().await?);
        wrong.extend(self.wrong_arrivals(receiver)?);
        Ok(wrong)
    }

    /// Each crossing has fired once, in order.
    async fn wrong_firings(&self) -> anyhow::Result<Vec<String>> {
        let sql = "SELECT payload->>'rule_name', (payload->>'value')::float8 FROM events
                    WHERE event_type = 'rule_triggered' ORDER BY position";
        let firings: Vec<(String, f64)> = sqlx::query_as(sql).fetch_all(&self.pool).await?;
        let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        firings.into_iter().for_each(|(rule, value)| found.entry(rule).or_default().push(value));
        let mut expected: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for number in 0..self.count {
            expected.entry(Self::rule(number).to_string()).or_default().push(number as f64 + 1.0);
        }
        let differ = |rule: &String| found.get(rule) != expected.get(rule);
        let rules: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
        let sentence = |rule: &String| {
            let count = |of: &BTreeMap<String, Vec<f64>>| of.get(rule).map_or(0, Vec::len);
            format!("rule {rule} fired {} times and should {} times", count(&found), count(&expected))
        };
        Ok(rules.into_iter().filter(|rule| differ(rule)).map(sentence).collect())
    }

    /// Each firing that asks for it has its log entry.
    async fn wrong_entries(&self) -> anyhow::Result<Vec<String>> {
        let sql = "SELECT format('%s log entries stand for %s firings', entries, firings) FROM
            (SELECT count(*) AS entries FROM read.log_entries WHERE source = 'rules') AS e,
            (SELECT count(*) AS firings FROM events WHERE event_type = 'rule_triggered' AND payload->>'action' = 'log') AS f
             WHERE entries <> firings";
        Ok(sqlx::query_scalar(sql).fetch_all(&self.pool).await?)
    }

    /// Each firing that asks for it has reached the receiver, under one id.
    fn wrong_arrivals(&self, receiver: &Sink) -> anyhow::Result<Vec<String>> {
        let mut ids: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for (_, body) in receiver.take() {
            let body: Value = serde_json::from_slice(&body)?;
            let value = body["value"].as_f64().context("a delivery without a value")?;
            let id = body["id"].as_str().context("a delivery without an id")?;
            ids.entry(value as u64).or_default().insert(id.to_owned());
        }
        let expected = (0..self.count).filter(|number| Self::rule(*number) % 2 == 1);
        let expected: BTreeSet<u64> = expected.map(|number| number as u64 + 1).collect();
        let mut wrong = Vec::new();
        wrong.extend(
            expected.iter().filter(|value| !ids.contains_key(value)).map(|v| format!("{v} did not arrive")),
        );
        wrong.extend(
            ids.keys().filter(|value| !expected.contains(value)).map(|v| format!("{v} should not arrive")),
        );
        wrong.extend(
            ids.iter().filter(|(_, ids)| ids.len() > 1).map(|(v, ids)| format!("{v} arrived as {ids:?}")),
        );
        let all: usize = ids.values().map(BTreeSet::len).sum();
        let distinct: BTreeSet<_> = ids.values().flatten().collect();
        if distinct.len() != all {
            wrong.push("two firings share an id".to_owned());
        }
        Ok(wrong)
    }
}
