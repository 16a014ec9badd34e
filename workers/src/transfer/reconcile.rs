//! Posts again the requests that mailboxes should hold and do not.
//!
//! A dispatched transfer that has not started has its request in its agent's mailbox, or the agent has received it. If
//! neither is the case for a while (JetStream lost its disk, a worker crashed before it posted, a message was lost with a
//! socket), the request is posted again and costs no attempt; agents recognise repetitions, and the gateway holds back
//! those that an agent would not recognise. This makes mailboxes safe to lose.
//!
//! A request that stays in the mailbox of a connected agent is posted anew: JetStream may leave a message behind that it never
//! gives out, and that keeps every other one under its key away.
//!
//! A leg that has started but does not move is requested again too, if the agent lists capabilities and so recognises
//! the repetition: it continues, repeats its report of a finished leg, or starts a leg that it does not know because
//! it was restarted.
//!
//! A transfer whose owner uploads the file and has not done so within a day fails, and so does one of a deleted agent, whichever
//! side that is.

use std::{collections::HashSet, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    kernel::TransferId,
    transfer::{Leg, Phase, Transfer, TransferCommand},
};
use signalbox_messaging::{Mailbox, Waiting};
use signalbox_projections::transfer::{
    AgentRow, TransferRow, mail_key,
    queries::{self, agent_requests},
};
use uuid::Uuid;

use crate::{
    Context, Worker, WorkerError,
    transfer::{
        dispatch::{agents_of, missing_agent, post_request, requested_leg},
        untaken::Untaken,
    },
};

/// Transfers looked at together.
const BATCH: i64 = 500;
/// A request that is not in the mailbox and was not begun is posted again after this.
const LOST: TimeDelta = TimeDelta::seconds(15);
/// Time without progress after which a leg is requested again.
const STANDSTILL: TimeDelta = TimeDelta::seconds(30);
/// The owner of a transfer may let the upload of its file rest for this long.
const OWNERS_UPLOAD: TimeDelta = TimeDelta::hours(24);

/// A request that its agent does not take for this long, although it is connected, is posted anew.
const UNTAKEN: Duration = Duration::from_secs(120);

/// The reconciler.
#[derive(Debug)]
pub struct Reconciler {
    mailbox: Mailbox,
    untaken: Untaken,
}

impl Worker for Reconciler {
    const NAME: &'static str = "reconciler";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        self.mailbox.ensure().await?;
        let now = context.server_time().await?;
        for (phases, idle) in [(["dispatched", "staged"], LOST), (["uploading", "downloading"], STANDSTILL)] {
            self.put_back_all(context, &phases, now, idle).await?;
        }
        self.untaken.end_look();
        Ok(false)
    }
}

impl Reconciler {
    /// One that looks into `mailbox`.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, untaken: Untaken::default() }
    }

    async fn put_back_all(
        &self,
        context: &Context,
        phases: &[&str],
        now: DateTime<Utc>,
        idle: TimeDelta,
    ) -> Result<(), WorkerError> {
        let mut after = TransferId(Uuid::nil());
        loop {
            let rows = queries::idle_transfers(&context.pool, phases, now - idle, after, BATCH).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            let agents = agents_of(&rows);
            let known: HashSet<_> = queries::agent_keys(&context.pool, &agents).await?.into_iter().collect();
            for row in &rows {
                match missing_agent(row, |agent| known.contains(&agent)) {
                    Some(reason) => fail(context, row, &reason).await?,
                    None => self.put_back(context, row, now).await?,
                }
            }
        }
    }

    async fn put_back(
        &self,
        context: &Context,
        row: &TransferRow,
        now: DateTime<Utc>,
    ) -> Result<(), WorkerError> {
        let standing = standing_leg(row);
        let Some(leg) = requested_leg(row).or(standing) else { return Ok(()) };
        let id = match leg {
            Leg::Upload => row.source_agent_id,
            Leg::Download => Some(row.destination_agent_id),
        };
        let Some(id) = id else {
            if row.active_at <= now - OWNERS_UPLOAD {
                fail(context, row, "its file was not uploaded within a day").await?;
            }
            return Ok(());
        };
        // If it was deleted a moment ago, the next step fails the transfer.
        let Some(agent) = queries::agent_by_id(&context.pool, id).await? else { return Ok(()) };
        // An agent that is away names its work when it connects again.
        if standing.is_some() && (agent.session.is_none() || agent.capabilities.is_empty()) {
            return Ok(());
        }
        let attempt = row.attempts.unsigned_abs();
        let Some(request) = self.mailbox.find(id, &mail_key(row.number, attempt, leg)).await? else {
            tracing::info!(transfer = row.number, attempt, "a request is posted again");
            return post_request(&self.mailbox, row, attempt, leg).await;
        };
        if !self.is_left_behind(context, &agent, row.number, &request).await? {
            return Ok(());
        }
        self.mailbox.remove_waiting(&[request]).await?;
        tracing::warn!(
            transfer = row.number,
            attempt,
            seconds = UNTAKEN.as_secs(),
            "a connected agent does not take a request, which is posted anew"
        );
        post_request(&self.mailbox, row, attempt, leg).await
    }

    /// Whether `request`, about `transfer`, waits although `agent` could take it.
    async fn is_left_behind(
        &self,
        context: &Context,
        agent: &AgentRow,
        transfer: i64,
        request: &Waiting,
    ) -> Result<bool, WorkerError> {
        if agent.session.is_none() {
            return Ok(false);
        }
        // To one without capabilities, all attempts are the same work: it is given the next when it has ended the first.
        if agent.capabilities.is_empty()
            && !agent_requests::not_ended(&context.pool, agent.id, &[transfer]).await?.is_empty()
        {
            return Ok(false);
        }
        Ok(self.untaken.time(request, context.clock.monotonic()) >= UNTAKEN)
    }
}

async fn fail(context: &Context, row: &TransferRow, reason: &str) -> Result<(), WorkerError> {
    let command = TransferCommand::Fail { reason: reason.to_owned() };
    let key = format!("fail {}", row.version);
    context.send_if_still_due::<Transfer>(Reconciler::NAME, row.id.0, &key, &command).await?;
    Ok(())
}

/// The leg that an agent has begun.
fn standing_leg(row: &TransferRow) -> Option<Leg> {
    match row.phase.known() {
        Ok(Phase::Uploading) => Some(Leg::Upload),
        Ok(Phase::Downloading) => Some(Leg::Download),
        _ => None,
    }
}
