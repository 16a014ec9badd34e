//! Command handlers: they receive commands from the bus, let aggregates decide, and append the resulting events.
//!
//! Reads: the log. Writes: the log, through the group-commit writer, and nothing else. Any number of processes may
//! run it; the log's optimistic lock prevents conflicts. If one crashes, senders repeat the command with the same id
//! at another.

mod automation;
mod handler;
mod identity;
mod ingest;
mod locks;
mod monitoring;
mod numbers;
mod transfer;

use std::time::Duration;

use futures::future::try_join_all;
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use signalbox_domain::catalog::Context;
use signalbox_event_store::{Appender, head_position};
use signalbox_messaging::{Bus, BusError, CommandMessage, CommandReply, Wakeup};
use sqlx::PgPool;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use handler::Handler;

/// How often the newest position is announced without need, for readers that missed a wake-up.
const REMIND: Duration = Duration::from_secs(1);

/// Serves the commands of all contexts until `stop`.
///
/// # Errors
/// [`BusError`] when a subscription is refused.
#[boxed]
pub async fn run(pool: PgPool, bus: Bus, clock: Clock, stop: CancellationToken) -> Result<(), BusError> {
    let appender = Appender::start(pool.clone(), clock.clone());
    let handler = Handler::new(pool.clone(), appender.clone());
    let contexts = Context::ALL.iter().map(|context| {
        let handler = handler.clone();
        bus.serve(context.word(), move |message| handle(*context, handler.clone(), message))
    });
    let work = async {
        tokio::try_join!(
            try_join_all(contexts),
            announce(&pool, &bus, &appender),
            ingest::run(&pool, &bus, &clock),
        )
    };
    tokio::select! {
        done = work => done.map(|_| ()),
        () = stop.cancelled() => Ok(()),
    }
}

/// Handles a command of `context`.
async fn handle(context: Context, handler: Handler, message: CommandMessage) -> CommandReply {
    match context {
        Context::Automation => automation::handle(handler, message).await,
        Context::Identity => identity::handle(handler, message).await,
        Context::Monitoring => monitoring::handle(handler, message).await,
        Context::Transfer => transfer::handle(handler, message).await,
        // Their aggregates need nothing that is read for them.
        Context::Extraction | Context::Fleet => handler.run_plain(context, message).await,
    }
}

/// Notifies readers of the log that it has grown. Commits in quick succession become one wakeup.
async fn announce(pool: &PgPool, bus: &Bus, appender: &Appender) -> Result<(), BusError> {
    let mut heads = appender.heads();
    let mut announced = head_position(pool).await.unwrap_or_default();
    bus.wake(&Wakeup::LogAppended { position: announced, aggregates: Vec::new() }).await?;
    loop {
        let aggregates = match timeout(REMIND, heads.changed()).await {
            Ok(Ok(())) => {
                let heads = heads.borrow_and_update();
                let changed = heads.iter().filter(|(_, head)| **head > announced);
                let (aggregates, positions): (Vec<_>, Vec<_>) =
                    changed.map(|(aggregate, head)| ((*aggregate).to_owned(), *head)).unzip();
                announced = positions.into_iter().max().unwrap_or(announced);
                aggregates
            }
            Ok(Err(_)) => return Ok(()),
            Err(_) => Vec::new(),
        };
        // A closed connection shows in the subscriptions too.
        bus.wake(&Wakeup::LogAppended { position: announced, aggregates }).await?;
    }
}
