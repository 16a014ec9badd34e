//! What a gateway does besides answering: it listens to wake-ups, ends void sessions, shares rate limits, and notes
//! presence. Every step is short, repeated, and loses nothing when it fails once.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use signalbox_messaging::Wakeup;
use signalbox_projections::transfer::queries;
use sqlx::PgPool;
use tokio::time::{MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use crate::{
    fleet,
    identity::sso,
    monitoring::{live, open_sockets::end_void},
    state::{AppState, State},
};

/// How often void tokens are looked for: a revoked one closes its session within a second.
const REVOCATION: Duration = Duration::from_millis(500);
/// How often credentials of open sockets are looked at; with how long they are remembered it stays below a second.
const CREDENTIALS: Duration = Duration::from_millis(150);
/// How often other gateways hear of what this one has let through.
const RATES: Duration = Duration::from_millis(250);
/// How often presence and use are written.
const NOTES: Duration = Duration::from_secs(5);
/// How often remembered requests and login codes that are too old are deleted, and what uploads have left behind.
const PURGE: Duration = Duration::from_secs(600);

/// Runs all of it until the gateway stops.
pub(crate) async fn run(state: AppState) {
    let gateway = state.clock.new_id();
    tokio::join!(
        listen(&state, gateway),
        every(REVOCATION, || end_revoked(&state)),
        every(CREDENTIALS, || end_void(&state)),
        live::follow(&state),
        every(RATES, || share_rates(&state, gateway)),
        every(NOTES, || write_notes(&state)),
        every(PURGE, || purge(&state)),
        every(PURGE, || fleet::sweep(&state)),
    );
}

async fn every<F: Future<Output = Result<(), sqlx::Error>>>(period: Duration, step: impl Fn() -> F) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = step().await {
            tracing::warn!(%error, "a background step of the gateway failed; it is repeated");
        }
    }
}

async fn listen(state: &State, gateway: Uuid) {
    loop {
        match state.bus.wakeups().await {
            Ok(wakeups) => {
                let mut wakeups = std::pin::pin!(wakeups);
                while let Some(wakeup) = wakeups.next().await {
                    hear(state, gateway, wakeup);
                }
            }
            Err(error) => tracing::warn!(%error, "the gateway hears no wake-ups; it polls"),
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn hear(state: &State, gateway: Uuid, wakeup: Wakeup) {
    match &wakeup {
        Wakeup::ReadAdvanced { projection, position, .. } => state.gate.advance(projection, *position),
        Wakeup::AgentSession { agent, session } => state.live_agents.replaced((*agent).into(), *session),
        Wakeup::RateTaken { gateway: other, taken } if *other != gateway => {
            state.limiter.note(taken, state.clock.now());
        }
        Wakeup::TestEcho { .. } | Wakeup::TransferStopped { .. } => {
            // Nobody may be waiting.
            let _ = state.wakeups.send(wakeup);
        }
        Wakeup::LogAppended { position, .. } => drop(state.log_moved.send_replace(*position)),
        Wakeup::DatapointsAppended { .. } | Wakeup::RateTaken { .. } => {}
    }
}

async fn end_revoked(state: &State) -> Result<(), sqlx::Error> {
    let tokens = state.live_agents.tokens();
    if !tokens.is_empty() {
        let valid = queries::live_tokens(&state.pool, &tokens, state.clock.now()).await?;
        // Sessions that were opened meanwhile were checked a moment ago.
        let void: Vec<_> = tokens.into_iter().filter(|token| !valid.contains(token)).collect();
        state.live_agents.end_tokens(&void);
    }
    Ok(())
}

async fn share_rates(state: &State, gateway: Uuid) -> Result<(), sqlx::Error> {
    let taken = state.limiter.drain_taken();
    if !taken.is_empty()
        && let Err(error) = state.bus.wake(&Wakeup::RateTaken { gateway, taken }).await
    {
        tracing::debug!(%error, "rates were not shared");
    }
    Ok(())
}

async fn write_notes(state: &State) -> Result<(), sqlx::Error> {
    let now = state.clock.now();
    state.keys.reload().await?;
    write_presence(state, now).await?;
    let used = state.agent_tokens.drain_used().into_iter().chain(state.api_tokens.drain_used());
    let (tokens, times): (Vec<_>, Vec<_>) = used.unzip();
    note_uses(&state.pool, &tokens, &times).await
}

async fn write_presence(state: &State, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let presences = state.live_agents.presences(now);
    if presences.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO ops.agent_presence AS p (agent_id, session, last_seen)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[])
         ON CONFLICT (agent_id) DO UPDATE SET session = excluded.session, last_seen = excluded.last_seen
          WHERE p.last_seen < excluded.last_seen",
    )
    .bind(presences.iter().map(|presence| presence.agent.0).collect::<Vec<_>>())
    .bind(presences.iter().map(|presence| presence.session).collect::<Vec<_>>())
    .bind(presences.iter().map(|presence| presence.last_seen).collect::<Vec<_>>())
    .execute(&state.pool)
    .await?;
    Ok(())
}

async fn note_uses(pool: &PgPool, tokens: &[Uuid], times: &[DateTime<Utc>]) -> Result<(), sqlx::Error> {
    if tokens.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO ops.token_uses AS t (token_id, last_used) SELECT * FROM unnest($1::uuid[], $2::timestamptz[])
         ON CONFLICT (token_id) DO UPDATE SET last_used = excluded.last_used WHERE t.last_used < excluded.last_used",
    )
    .bind(tokens)
    .bind(times)
    .execute(pool)
    .await?;
    Ok(())
}

async fn purge(state: &State) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.idempotent_requests WHERE created_at < $1")
        .bind(state.clock.now() - TimeDelta::hours(24))
        .execute(&state.pool)
        .await?;
    sso::purge(state).await
}
