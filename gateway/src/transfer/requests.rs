//! Which requests of transfers an agent has taken charge of, and may not be sent again yet.
//!
//! The service asks again for a leg that does not move. An agent without capabilities starts a second copy of the work
//! then, so it is asked again only after its session or that leg's HTTP body has ended, or after it reported the end
//! itself; one with capabilities knows the request and answers with its state, but not more than once a minute.
//! A request that is held back stays in the mailbox; one that the transfer is past is removed from it.

use std::collections::{HashMap, HashSet};

use signalbox_domain::{kernel::AgentId, transfer::Leg};
use signalbox_messaging::{Mail, Mailbox, Waiting};
use signalbox_projections::transfer::{
    parse_mail_key,
    queries::agent_requests::{self, Request},
};
use sqlx::PgPool;
use tokio::spawn;

use super::peer::Peer;
use crate::{problem::Problem, transfer::services::TransferServices};

/// Seconds before an agent with capabilities is asked again for what it has taken charge of.
const ASK_AGAIN_SECONDS: f64 = 60.0;

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
    let taken: Vec<_> = newest
        .into_iter()
        .map(|((transfer, leg), attempt)| Request { transfer, leg, attempt: number_of(attempt) })
        .collect();
    agent_requests::record_taken(pool, agent, &taken).await
}

/// `mails` without the requests that the agent may not get yet, and without those that serve nothing any more, which leave
/// the mailbox.
pub(super) async fn allowed(
    pool: &PgPool,
    mailbox: &Mailbox,
    agent: AgentId,
    capabilities: &[String],
    mails: Vec<Mail>,
) -> Result<Vec<Mail>, Problem> {
    let mails = without_outdated(pool, mailbox, agent, mails).await?;
    let transfers: Vec<_> = mails.iter().filter_map(|mail| Some(parse_mail_key(&mail.key)?.0)).collect();
    if transfers.is_empty() {
        return Ok(mails);
    }
    let is_capable = !capabilities.is_empty();
    let held_back: HashSet<_> = match is_capable {
        true => agent_requests::taken_within(pool, agent, &transfers, ASK_AGAIN_SECONDS).await?,
        false => agent_requests::not_ended(pool, agent, &transfers).await?,
    }
    .into_iter()
    .collect();
    let is_allowed = |mail: &Mail| {
        request_in(mail).is_none_or(|Request { transfer, leg, attempt }| {
            // To an agent without capabilities all attempts are the same work.
            let attempt = if is_capable { attempt } else { 0 };
            !held_back.contains(&(transfer, leg.to_owned(), attempt))
        })
    };
    Ok(mails.into_iter().filter(is_allowed).collect())
}

async fn without_outdated(
    pool: &PgPool,
    mailbox: &Mailbox,
    agent: AgentId,
    mails: Vec<Mail>,
) -> Result<Vec<Mail>, Problem> {
    let asked: Vec<_> = mails.iter().filter_map(request_in).collect();
    if asked.is_empty() {
        return Ok(mails);
    }
    let outdated: HashSet<_> = agent_requests::outdated(pool, &asked).await?.into_iter().collect();
    let (outdated, kept): (Vec<_>, _) = mails.into_iter().partition(|mail| {
        request_in(mail).is_some_and(|Request { transfer, leg, attempt }| {
            outdated.contains(&(transfer, leg.to_owned(), attempt))
        })
    });
    if !outdated.is_empty() {
        let (mailbox, outdated) = (mailbox.clone(), outdated.iter().map(Waiting::from).collect::<Vec<_>>());
        // The agent waits for the others. One that stays is given out again, to be removed then.
        spawn(async move {
            if let Err(error) = mailbox.remove_waiting(&outdated).await {
                tracing::debug!(%agent, %error, "outdated requests stay in a mailbox for a while");
            }
        });
    }
    Ok(kept)
}

/// The request that `mail` is, if it is one.
fn request_in(mail: &Mail) -> Option<Request> {
    let (transfer, attempt, leg) = parse_mail_key(&mail.key)?;
    Some(Request { transfer, leg: word(leg), attempt: number_of(attempt) })
}

/// The attempt as read models have it.
fn number_of(attempt: u32) -> i32 {
    i32::try_from(attempt).unwrap_or(i32::MAX)
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
    agent_requests::record_end(pool, agent, number, leg.map(word)).await
}

fn word(leg: Leg) -> &'static str {
    match leg {
        Leg::Upload => "upload",
        Leg::Download => "download",
    }
}
