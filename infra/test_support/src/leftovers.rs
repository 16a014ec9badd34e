use std::time::Duration;

use async_nats::jetstream;
use futures::TryStreamExt;
use signalbox_domain::catalog::Context;
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::{
    TestServers,
    setup::{Setup, time_limit},
};

/// Keeps its messages for external readers, so it is not checked.
const RELAYED_LOG: &str = "EVENTS";

/// Of the projection of context $1, whose checkpoint is stored a second later where events of other aggregates than $2 follow.
const NOT_PROJECTED: &str =
    "SELECT format('projection %s stands at %s, its event at %s', projection, c.position, next)
       FROM read.checkpoints c, LATERAL (SELECT min(e.position) AS next FROM events e
             WHERE e.position > c.position AND e.aggregate_type = ANY($2)) e
      WHERE projection = $1 AND next IS NOT NULL";

/// Each statement gives one sentence for each thing left over in the database.
const IN_DATABASE: [&str; 5] = [
    "SELECT format('datapoints are folded to %s, their log stands at %s', p.position, h.position)
       FROM series.progress p, log_head h WHERE h.log = 'datapoints' AND p.position < h.position",
    "SELECT format('a change of an alarm is not recorded: %s', note) FROM ops.alarm_outbox",
    "SELECT format('event %s is poisonous for projection %s: %s', position, projection, error)
       FROM read.poisonous_events",
    r"SELECT format('schema %s of a rebuild is there', nspname) FROM pg_namespace
       WHERE nspname LIKE 'read\_rebuild\_%'",
    "SELECT format('a transaction is open after: %s', query) FROM pg_stat_activity
      WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
];

pub(crate) async fn none_within(bound: Duration, servers: &TestServers) {
    let jetstream = jetstream::new(servers.nats.client().await);
    let deadline = Instant::now() + time_limit(bound);
    loop {
        let mut found = in_database(&servers.pool).await;
        found.extend(in_streams(&jetstream).await);
        if found.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "the test leaves work behind:\n{}", found.join("\n"));
        sleep(Duration::from_millis(20)).await;
    }
}

async fn in_database(pool: &PgPool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for context in Context::ALL {
        let behind = sqlx::query_scalar(NOT_PROJECTED).bind(context.word()).bind(context.aggregates());
        found.extend(behind.fetch_optional(pool).await.expect(NOT_PROJECTED));
    }
    for statement in IN_DATABASE {
        let sentences: Vec<String> = sqlx::query_scalar(statement).fetch_all(pool).await.expect(statement);
        found.extend(sentences);
    }
    found
}

async fn in_streams(jetstream: &jetstream::Context) -> Vec<String> {
    // A cluster that was disturbed may be choosing its leader.
    let streams: Vec<_> = match jetstream.streams().try_collect().await {
        Ok(streams) => streams,
        Err(error) => return vec![format!("the streams cannot be listed: {error}")],
    };
    // Where servers are killed, an agent may have ended whose word that it has its mail got lost.
    let is_taken_away = |name: &str| name != RELAYED_LOG && Setup::of_this_run().kills().is_none();
    let waiting =
        streams.iter().filter(|stream| stream.state.messages > 0 && is_taken_away(&stream.config.name));
    waiting
        .map(|stream| format!("{} messages wait in stream {}", stream.state.messages, stream.config.name))
        .collect()
}
