//! Starts the attempts of transfers: requests the upload from the source agent, and the download from the destination
//! agent.
//!
//! Reads the transfers that are queued, or staged and not requested yet; sends `Dispatch`, which succeeds for only
//! one worker, and posts the request to the agent's mailbox. If it crashes between the two, the reconciler posts the
//! request.

use std::{slice, time::Duration};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use signalbox_domain::{
    kernel::{AgentId, Decider},
    transfer::{Agent, Leg, Phase, Transfer, TransferCommand},
};
use signalbox_messaging::{MailMessage, Mailbox, Wakeup};
use signalbox_projections::transfer::{TransferRow, mail_key, queries};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, failures::Failures, tried::Tried};

/// Transfers of one step.
const BATCH: i64 = 256;
/// Transfers dispatched at the same time.
const CONCURRENT: usize = 16;

/// The dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    mailbox: Mailbox,
    failures: Failures,
    tried: Tried<i64>,
}

impl Dispatcher {
    /// One that leaves requests in `mailbox`.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, failures: Failures::default(), tried: Tried::default() }
    }
}

impl Worker for Dispatcher {
    const NAME: &'static str = "dispatch";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Transfer::TYPE || word == Agent::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let paused = self.failures.paused();
        let limit = BATCH + (paused.len() + self.tried.count()) as i64;
        let mut queued = queries::due_transfers(&context.pool, context.server_time().await?, limit).await?;
        queued.retain(|row| !paused.contains(&row.id.0) && !self.tried.holds(row.id.0, &row.version));
        queued.truncate(BATCH as usize);
        let full = queued.len() as i64 == BATCH;
        let mut dispatched =
            stream::iter(queued).map(|row| begin(context, &self.mailbox, row)).buffer_unordered(CONCURRENT);
        let mut failed = None;
        while let Some((id, version, result)) = dispatched.next().await {
            if result.is_ok() {
                self.tried.note(id, version);
            }
            // One transfer that cannot be dispatched does not keep the others waiting.
            failed = self.failures.settle(id, result).err().or(failed);
        }
        self.failures.report(context, Self::NAME).await?;
        failed.map_or(Ok(full), Err)
    }
}

/// Dispatches the transfer; gives back its key and version as well.
async fn begin(
    context: &Context,
    mailbox: &Mailbox,
    row: TransferRow,
) -> (Uuid, i64, Result<(), WorkerError>) {
    let (id, version) = (row.id.0, row.version);
    (id, version, context.traced::<Transfer, _>(Dispatcher::NAME, id, dispatch(context, mailbox, row)).await)
}

async fn dispatch(context: &Context, mailbox: &Mailbox, row: TransferRow) -> Result<(), WorkerError> {
    let known = queries::agent_keys(&context.pool, &agents_of(slice::from_ref(&row))).await?;
    let gone = missing_agent(&row, |agent| known.contains(&agent));
    let version = row.version;
    if let Some(reason) = gone {
        let key = format!("fail {version}");
        let command = TransferCommand::Fail { reason };
        return context
            .send_for_item::<Transfer>(Dispatcher::NAME, row.id.0, &key, &command)
            .await
            .map(|_| ());
    }
    let key = format!("dispatch {version}");
    // Leg and attempt are derived from the row, so the command must fail if the transfer has changed since.
    let sent = context
        .send_if_unchanged::<Transfer>(Dispatcher::NAME, row.id.0, version, &key, &TransferCommand::Dispatch)
        .await?;
    // The read model may still show a transfer that has been dispatched; its request may even have been received
    // already. If a dispatcher crashed before it posted, or its first command got no answer, the reconciler posts.
    if sent.is_none_or(|outcome| outcome.repeated) {
        return Ok(());
    }
    let leg = if row.sha256.is_some() { Leg::Download } else { Leg::Upload };
    let begun = u32::from(row.phase.is(Phase::Queued));
    let attempt = row.attempts.unsigned_abs() + begun;
    post_request(mailbox, &row, attempt, leg).await
}

/// Integers of the agents at both ends of `rows`.
pub(crate) fn agents_of(rows: &[TransferRow]) -> Vec<i64> {
    let of = |row: &TransferRow| row.source_agent_number.into_iter().chain([row.destination_agent_number]);
    rows.iter().flat_map(of).collect()
}

/// Why the transfer fails, if one of its agents is not known any more, by integer and key.
pub(crate) fn missing_agent(row: &TransferRow, is_known: impl Fn((i64, AgentId)) -> bool) -> Option<String> {
    let source = row.source_agent_number.zip(row.source_agent_id);
    let destination = (row.destination_agent_number, row.destination_agent_id);
    let mut agents = source.into_iter().chain([destination]);
    let missing = agents.find(|(number, id)| !is_known((*number, *id)));
    missing.map(|(number, _)| format!("agent {number} has been deleted"))
}

/// Leaves the request of `leg` in the mailbox of the agent whose turn it is; once, however often it is called.
pub(crate) async fn post_request(
    mailbox: &Mailbox,
    row: &TransferRow,
    attempt: u32,
    leg: Leg,
) -> Result<(), WorkerError> {
    let agent = match leg {
        Leg::Upload => row.source_agent_id,
        Leg::Download => Some(row.destination_agent_id),
    };
    let Some(agent) = agent else { return Ok(()) };
    let data = json!({ "transfer": request(row, leg), "extensions": extensions(row, attempt, leg) });
    let message = MailMessage { kind: "transfer_request".to_owned(), data };
    mailbox.post(agent, &mail_key(row.number, attempt, leg), &message).await?;
    Ok(())
}

/// The request, with the fields that every agent knows.
fn request(row: &TransferRow, leg: Leg) -> Value {
    let mut request = json!({
        "id": row.number.to_string(),
        "job_id": row.job_number.map(|number| number.to_string()).unwrap_or_default(),
        "source_path": row.source_path,
        "destination_path": row.destination_path,
        "compressed": false,
        "chunk_size": 8,
        "transfer_type": leg,
    });
    match leg {
        Leg::Upload => request["destination_agent"] = json!(row.destination_agent_number.to_string()),
        // Agents of the FileFlux family write to the path as it is given.
        Leg::Download if !row.is_tree() && row.destination_path.ends_with('/') => {
            // A backslash is a letter of a name here: whether it parted the source's path was decided when the name was taken from it.
            let name = row.filename.rsplit('/').next().unwrap_or_default();
            let path = format!("{}{name}", row.destination_path);
            request["destination_path"] = json!(path);
        }
        Leg::Download => {}
    }
    request
}

/// Fields for agents that list the capability. The gateway removes them at delivery, because the capabilities of an
/// agent that has never been connected are not known here.
fn extensions(row: &TransferRow, attempt: u32, leg: Leg) -> Value {
    let any = json!({ "attempt": attempt, "filename": row.filename });
    let tree = json!({ "tree": row.is_tree() });
    match leg {
        Leg::Upload => json!({ "any": any, "tree": tree }),
        Leg::Download => {
            let checksum = json!({ "size": row.size, "sha256": row.sha256, "files": row.file_count });
            json!({ "any": any, "tree": tree, "checksum": checksum })
        }
    }
}

/// The leg that was requested from an agent but has not started.
pub(crate) fn requested_leg(row: &TransferRow) -> Option<Leg> {
    match row.phase.known() {
        Ok(Phase::Dispatched) => Some(Leg::Upload),
        Ok(Phase::Staged) if row.asked => Some(Leg::Download),
        _ => None,
    }
}
