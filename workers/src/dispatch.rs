//! Begins the attempts of transfers: tells the source agent to upload, and the destination agent to download.
//!
//! Reads the transfers that are queued, or staged and not asked for; sends `Dispatch`, which only one worker can win, and leaves
//! the request in the agent's mailbox. If it dies between the two, the reconciler leaves the request.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use signalbox_domain::{
    kernel::{AgentId, Decider},
    transfer::{Agent, Leg, Phase, Transfer, TransferCommand},
};
use signalbox_messaging::{MailMessage, Wakeup};
use signalbox_projections::transfer::{TransferRow, mail_key, queries};

use crate::{Context, Worker, WorkerError};

/// Transfers of one step.
const BATCH: i64 = 256;
/// Transfers dispatched at the same time.
const CONCURRENT: usize = 16;

/// The dispatcher.
#[derive(Debug)]
pub struct Dispatcher;

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
        let queued = queries::due_transfers(&context.pool, context.clock.now(), BATCH).await?;
        let full = queued.len() as i64 == BATCH;
        let mut dispatched = stream::iter(queued).map(|row| begin(context, row)).buffer_unordered(CONCURRENT);
        let mut failed = None;
        while let Some(result) = dispatched.next().await {
            // One transfer that cannot be dispatched does not keep the others waiting.
            failed = result.err().or(failed);
        }
        failed.map_or(Ok(full), Err)
    }
}

async fn begin(context: &Context, row: TransferRow) -> Result<(), WorkerError> {
    let id = row.id;
    context.traced::<Transfer, _>(Dispatcher::NAME, id, dispatch(context, row)).await
}

async fn dispatch(context: &Context, row: TransferRow) -> Result<(), WorkerError> {
    let gone = missing_agent(context, &row).await?;
    let version = row.version;
    if let Some(reason) = gone {
        let key = format!("fail {version}");
        let command = TransferCommand::Fail { reason };
        return context
            .send_if_still_due::<Transfer>(Dispatcher::NAME, row.id, &key, &command)
            .await
            .map(|_| ());
    }
    let key = format!("dispatch {version}");
    // Leg and attempt follow from what was read, so nothing may have happened to the transfer since.
    let sent = context
        .send_if_unchanged::<Transfer>(Dispatcher::NAME, row.id, version, &key, &TransferCommand::Dispatch)
        .await?;
    // The read model may still show what has been dispatched; its request may even have been taken already. Where a
    // dispatcher died before it posted, or was not answered at first, the reconciler posts.
    if sent.is_none_or(|outcome| outcome.repeated) {
        return Ok(());
    }
    let leg = if row.sha256.is_some() { Leg::Download } else { Leg::Upload };
    let begun = u32::from(row.known_phase() == Phase::Queued);
    let attempt = row.attempts.unsigned_abs() + begun;
    post_request(context, &row, attempt, leg).await
}

async fn missing_agent(context: &Context, row: &TransferRow) -> Result<Option<String>, WorkerError> {
    let numbers = [row.source_agent_number, row.destination_agent_number];
    let known = queries::agent_keys(&context.pool, &numbers).await?;
    let missing = numbers.into_iter().find(|number| known.iter().all(|(known, _)| known != number));
    Ok(missing.map(|number| format!("agent {number} has been deleted")))
}

/// Leaves the request of `leg` in the mailbox of the agent whose turn it is; once, however often it is called.
pub(crate) async fn post_request(
    context: &Context,
    row: &TransferRow,
    attempt: u32,
    leg: Leg,
) -> Result<(), WorkerError> {
    let agent = match leg {
        Leg::Upload => row.source_agent_id,
        Leg::Download => row.destination_agent_id,
    };
    let data = json!({ "transfer": request(row, leg), "extensions": extensions(row, attempt, leg) });
    let message = MailMessage { kind: "transfer_request".to_owned(), data };
    context.mailbox.post(AgentId(agent), &mail_key(row.number, attempt, leg), &message).await?;
    Ok(())
}

/// The request in the words that every agent knows.
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
    if leg == Leg::Upload {
        request["destination_agent"] = json!(row.destination_agent_number.to_string());
    }
    request
}

/// What is added for an agent that lists the capability. The gateway does it when it delivers, because an agent that has
/// never been connected has not said yet what it knows.
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

/// The leg that an agent has been asked for but has not begun.
pub(crate) fn requested_leg(row: &TransferRow) -> Option<Leg> {
    match row.known_phase() {
        Phase::Dispatched => Some(Leg::Upload),
        Phase::Staged if row.asked => Some(Leg::Download),
        _ => None,
    }
}
