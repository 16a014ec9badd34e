//! A gateway's background work: it receives wakeups, ends void sessions, shares rate limits, and notes presence.
//! Every step is short, repeated, and loses nothing when it fails once.

use std::time::Duration;

use futures::{StreamExt, future::join_all};
use signalbox_clock::Clock;
use signalbox_database::{
    ops::{idempotent_requests, login_codes},
    sweep_time,
};
use signalbox_domain::{
    kernel::{Actor, Decider},
    transfer::{Agent, AgentCommand, AgentToken, TransportMode},
};
use signalbox_messaging::{Bus, Wakeup};
use signalbox_projections::transfer::queries::{self, agent_requests};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use uuid::Uuid;

use crate::{
    fleet,
    identity::login_log,
    services::{
        agent_work::AgentWork,
        changes,
        limits::Limiter,
        live_agents::{EndedSession, LiveAgents},
        live_values,
        replica::Database,
    },
    state::Services,
    transfer::{doubles, peer::metadata_of},
};

/// How often warnings that have become untrue are looked for.
const WARNINGS: Duration = Duration::from_secs(60);
/// How often tokens of agents and credentials of open sockets are looked at; with how long they are remembered it stays below a second.
const CREDENTIALS: Duration = Duration::from_millis(150);
/// How long the ends of sessions whose tokens are void may take to be noted.
const NOTED: Duration = Duration::from_millis(300);
/// How often PostgreSQL's clock is read.
const SERVER_TIME: Duration = Duration::from_secs(5);
/// How often other gateways hear of what this one has let through.
const RATES: Duration = Duration::from_millis(250);
/// How often counted failed logins are looked through for those whose minute is over.
const FAILED_LOGINS: Duration = Duration::from_secs(1);
/// How often presence and use are written.
const NOTES: Duration = Duration::from_secs(5);
/// How often remembered requests and login codes that are too old are deleted, and what uploads have left behind.
const PURGE: Duration = Duration::from_secs(600);

/// Runs all of it until the gateway stops.
pub(crate) async fn run(state: Services) {
    let gateway = state.clock.new_id();
    tokio::join!(
        listen(&state, gateway),
        every(SERVER_TIME, || state.server_clock.refresh(&state.pool)),
        every(CREDENTIALS, || end_revoked(&state)),
        every(WARNINGS, || doubles::clear(&state.database, &state.clock, &state.bus, &state.live_agents)),
        every(CREDENTIALS, || state.open_sockets.end_void(&state.credentials)),
        live_values::follow(&state.live_values, state.live_source()),
        changes::follow(&state.changes, state.change_source()),
        every(RATES, || share_rates(&state.bus, &state.limiter, gateway)),
        every(FAILED_LOGINS, || login_log::write_counted(
            &state.commands,
            &state.clock,
            &state.failed_logins
        )),
        every(NOTES, || write_notes(&state)),
        every(PURGE, || purge(&state.database, &state.clock)),
        every(PURGE, || fleet::sweep(&state.database, &state.clock, &state.wheels, &state.plugins)),
        state.readiness().run(),
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

async fn listen(state: &Services, gateway: Uuid) {
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

fn hear(state: &Services, gateway: Uuid, wakeup: Wakeup) {
    match &wakeup {
        Wakeup::ReadAdvanced { projection, position, aggregates, has_set_aside } => {
            state.gate.advance(projection, *position, *has_set_aside);
            if aggregates.iter().any(|word| word == AgentToken::TYPE) {
                state.agent_tokens.forget();
            }
        }
        Wakeup::AgentSession { agent, session, version } => {
            state.live_agents.replaced((*agent).into(), *session, *version);
        }
        Wakeup::RateTaken { gateway: other, taken } if *other != gateway => {
            state.limiter.note(taken, state.clock.now());
        }
        Wakeup::TestEcho { .. } | Wakeup::TransferStopped { .. } => {
            // There may be no receiver.
            let _ = state.wakeups.send(wakeup);
        }
        Wakeup::LogAppended { position, .. } => drop(state.log_moved.send_replace(*position)),
        Wakeup::DatapointsAppended { .. } | Wakeup::RateTaken { .. } => {}
    }
}

async fn end_revoked(state: &Services) -> Result<(), sqlx::Error> {
    let mut tokens = state.live_agents.tokens();
    tokens.extend(state.agent_work.tokens());
    tokens.sort_unstable();
    tokens.dedup();
    if tokens.is_empty() {
        return Ok(());
    }
    let valid = queries::live_tokens(&state.pool, &tokens, state.server_clock.now()).await?;
    // Work that began meanwhile was checked a moment ago.
    let void: Vec<_> = tokens.into_iter().filter(|token| !valid.contains(token)).collect();
    if !void.is_empty() {
        state.agent_work.end_tokens(&void);
        let ended = state.live_agents.end_tokens(&void);
        let noted = ended.into_iter().map(|it| end_polling(&state.clock, &state.bus, &state.agent_work, it));
        // Else other tokens that end meanwhile would have to wait for the bus.
        if timeout(NOTED, join_all(noted)).await.is_err() {
            tracing::warn!("the ends of sessions were not noted in time; the sweep does it");
        }
    }
    Ok(())
}

/// Records the end of a polling session whose token is void; a socket does it by itself. Another token of the agent
/// that is in use keeps the session.
async fn end_polling(clock: &Clock, bus: &Bus, agent_work: &AgentWork, ended: EndedSession) {
    if ended.transport != TransportMode::Polling || agent_work.serves(ended.agent) {
        return;
    }
    let reason = "its token was revoked or has expired".to_owned();
    let command = AgentCommand::Disconnect { session: ended.session, reason };
    let metadata = metadata_of(clock, Actor::system("gateway"));
    if let Err(error) = bus.send::<Agent>(ended.agent.0, None, &metadata, &command).await {
        tracing::warn!(agent = %ended.agent, %error, "the end of a session was not noted; the sweep does it");
    }
}

async fn share_rates(bus: &Bus, limiter: &Limiter, gateway: Uuid) -> Result<(), sqlx::Error> {
    for taken in limiter.drain_taken() {
        if let Err(error) = bus.wake(&Wakeup::RateTaken { gateway, taken }).await {
            tracing::debug!(%error, "rates were not shared");
        }
    }
    Ok(())
}

/// Each by itself: one that fails does not keep the others.
async fn write_notes(state: &Services) -> Result<(), sqlx::Error> {
    let (keys, presence, agents, users) = tokio::join!(
        state.keys.reload(),
        write_presence(&state.database, &state.clock, &state.live_agents),
        state.agent_tokens.used().write(&state.pool),
        state.api_tokens.used().write(&state.pool),
    );
    keys.and(presence).and(agents).and(users)
}

async fn write_presence(
    database: &Database,
    clock: &Clock,
    live_agents: &LiveAgents,
) -> Result<(), sqlx::Error> {
    let presences = live_agents.presences(clock.monotonic());
    if presences.is_empty() {
        return Ok(());
    }
    let noted: Vec<_> = presences
        .iter()
        .map(|presence| (presence.agent, presence.session, presence.silence.as_secs_f64()))
        .collect();
    queries::note_presences(&database.primary, &noted).await
}

/// Each by itself: one that fails does not keep the others.
async fn purge(database: &Database, clock: &Clock) -> Result<(), sqlx::Error> {
    let Some(now) = sweep_time(&database.primary, clock).await? else { return Ok(()) };
    let (answers, requests, codes) = tokio::join!(
        idempotent_requests::purge(&database.primary, now),
        agent_requests::purge(&database.primary, now),
        login_codes::purge(&database.primary, now),
    );
    answers.and(requests).and(codes)
}
