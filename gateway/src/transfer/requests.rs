//! Which requests of transfers an agent has taken charge of, and may not be sent again yet.
//!
//! The service asks again for a leg that does not move. An agent without capabilities starts a second copy of the work
//! then, so it is asked again only after its session or that leg's HTTP body has ended, or after it reported the end
//! itself; one with capabilities knows the request and answers with its state, but not more than once a minute.
//! A request that is held back stays in the mailbox.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_database::delete_in_batches;
use signalbox_domain::{kernel::AgentId, transfer::Leg};
use signalbox_messaging::{Mail, Waiting};
use signalbox_projections::transfer::parse_mail_key;
use sqlx::PgPool;
use tokio::spawn;

use super::peer::Peer;
use crate::{problem::Problem, transfer::services::TransferServices};

/// Seconds before an agent with capabilities is asked again for what it has taken charge of.
const ASK_AGAIN_SECONDS: f64 = 60.0;
/// Age after which a request holds nothing back.
const KEPT: TimeDelta = TimeDelta::days(7);

/// Records that `agent` has taken charge of the messages `taken`.
pub(super) async fn record_taken(
    pool: &PgPool,
    agent: AgentId,
    taken: &[Waiting],
) -> Result<(), sqlx::Error> {
    let taken: Vec<_> = taken.iter().filter_map(|message| parse_mail_key(&message.key)).collect();
    if taken.is_empty() {
        return Ok(());
    }
    // One leg stands once among the keys of one statement: the newest attempt.
    let mut newest = HashMap::new();
    for (number, attempt, leg) in taken {
        let known = newest.entry((number, word(leg))).or_insert(attempt);
        *known = attempt.max(*known);
    }
    let legs: Vec<_> = newest.keys().copied().collect();
    sqlx::query(
        "INSERT INTO ops.agent_requests (agent_id, transfer, leg, attempt, session, taken_at, ended)
         SELECT a.id, t.transfer, t.leg, t.attempt, a.session, now(), false
           FROM read.agents a, unnest($2::bigint[], $3::text[], $4::int[]) AS t (transfer, leg, attempt)
          WHERE a.id = $1
         ON CONFLICT (agent_id, transfer, leg) DO UPDATE
            SET attempt = excluded.attempt, session = excluded.session, taken_at = excluded.taken_at, ended = false",
    )
    .bind(agent.0)
    .bind(legs.iter().map(|(number, _)| *number).collect::<Vec<_>>())
    .bind(legs.iter().map(|(_, leg)| (*leg).to_owned()).collect::<Vec<_>>())
    .bind(legs.iter().map(|key| i32::try_from(newest[key]).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(())
}

/// `mails` without the requests that the agent may not get yet.
pub(super) async fn allowed(
    pool: &PgPool,
    agent: AgentId,
    capabilities: &[String],
    mails: Vec<Mail>,
) -> Result<Vec<Mail>, Problem> {
    let transfers: Vec<_> = mails.iter().filter_map(|mail| Some(parse_mail_key(&mail.key)?.0)).collect();
    if transfers.is_empty() {
        return Ok(mails);
    }
    let is_capable = !capabilities.is_empty();
    let held_back: HashSet<_> = held_back(pool, agent, is_capable, &transfers).await?.into_iter().collect();
    let is_allowed = |mail: &Mail| {
        parse_mail_key(&mail.key).is_none_or(|(number, attempt, leg)| {
            // To an agent without capabilities all attempts are the same work.
            let attempt = if is_capable { i32::try_from(attempt).unwrap_or(i32::MAX) } else { 0 };
            !held_back.contains(&(number, word(leg).to_owned(), attempt))
        })
    };
    Ok(mails.into_iter().filter(is_allowed).collect())
}

async fn held_back(
    pool: &PgPool,
    agent: AgentId,
    is_capable: bool,
    transfers: &[i64],
) -> Result<Vec<(i64, String, i32)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.transfer, r.leg, CASE WHEN $2 THEN r.attempt ELSE 0 END
           FROM ops.agent_requests r JOIN read.agents a ON a.id = r.agent_id
          WHERE r.agent_id = $1 AND r.transfer = ANY($3) AND r.session = a.session
            AND CASE WHEN $2 THEN r.taken_at > now() - make_interval(secs => $4) ELSE NOT r.ended END",
    )
    .bind(agent.0)
    .bind(is_capable)
    .bind(transfers)
    .bind(ASK_AGAIN_SECONDS)
    .fetch_all(pool)
    .await
}

/// Deletes rows that are too old at `now`, the time of sweeps, to hold anything back.
pub(crate) async fn purge(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let old = "t.taken_at < least($1, now() - interval '7 days')";
    delete_in_batches(pool, "ops.agent_requests", old, now - KEPT).await.map(drop)
}

/// Records, when it is dropped, that the HTTP body of a leg has ended.
pub(super) struct Body {
    services: TransferServices,
    agent: AgentId,
    number: i64,
    leg: Leg,
}

impl Body {
    pub(super) fn new(services: &TransferServices, peer: &Peer, number: i64, leg: Leg) -> Self {
        Self { services: services.clone(), agent: peer.auth.agent, number, leg }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let (services, agent, number, leg) = (self.services.clone(), self.agent, self.number, self.leg);
        spawn(async move {
            if let Err(error) = record_end(&services.database.primary, agent, number, Some(leg)).await {
                tracing::warn!(%error, transfer = number, "the end of a body was not noted; the agent's session has to end");
            }
        });
    }
}

/// Records that what `agent` did for the transfer `number` has ended: one leg of it, or whatever it did.
pub(super) async fn record_end(
    pool: &PgPool,
    agent: AgentId,
    number: i64,
    leg: Option<Leg>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.agent_requests SET ended = true
          WHERE agent_id = $1 AND transfer = $2 AND ($3::text IS NULL OR leg = $3) AND NOT ended",
    )
    .bind(agent.0)
    .bind(number)
    .bind(leg.map(word))
    .execute(pool)
    .await
    .map(drop)
}

fn word(leg: Leg) -> &'static str {
    match leg {
        Leg::Upload => "upload",
        Leg::Download => "download",
    }
}
