//! The thread that spawns every child and keeps the children's logs bounded.
//!
//! The kernel sends a parent-death signal when the *thread* that spawned the child ends, not when its process does. A
//! shared server spawned from a test's thread, or from a runtime that is shut down before the process ends, would be
//! stopped early. So all children are spawned by one thread that lives as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::log::Log;

const LOG_CHECK: Duration = Duration::from_secs(10);

static KEEPER: Mutex<Option<Sender<Order>>> = Mutex::new(None);

struct Order {
    command: Command,
    log: Weak<Log>,
    reply: Sender<io::Result<Child>>,
}

/// Spawns `command` and limits the size of `log` as long as the log is in use.
pub(crate) fn spawn(command: Command, log: &Arc<Log>) -> io::Result<Child> {
    let (reply, answer) = channel();
    let order = Order { command, log: Arc::downgrade(log), reply };
    orders()?.send(order).map_err(|_| keeper_is_gone())?;
    answer.recv().map_err(|_| keeper_is_gone())?
}

fn keeper_is_gone() -> io::Error {
    io::Error::other("the thread that starts servers has ended")
}

fn orders() -> io::Result<Sender<Order>> {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(orders) = keeper.as_ref() {
        return Ok(orders.clone());
    }
    let (sender, receiver) = channel();
    thread::Builder::new().name("embedded-keeper".into()).spawn(move || keep(&receiver))?;
    Ok(keeper.insert(sender).clone())
}

fn keep(orders: &Receiver<Order>) {
    let mut logs: Vec<Weak<Log>> = Vec::new();
    loop {
        match orders.recv_timeout(LOG_CHECK) {
            Ok(order) => logs.push(carry_out(order)),
            Err(RecvTimeoutError::Timeout) => logs.retain(bound),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn carry_out(mut order: Order) -> Weak<Log> {
    let spawned = order.command.spawn();
    if let Err(unclaimed) = order.reply.send(spawned)
        && let Ok(mut child) = unclaimed.0
    {
        child.kill().ok();
    }
    order.log
}

/// Rotates a log that grew too large; false once its child is gone.
fn bound(log: &Weak<Log>) -> bool {
    let Some(log) = log.upgrade() else { return false };
    if let Err(error) = log.rotate_when_full() {
        tracing::warn!(log.path = %log.path().display(), %error, "a server's log could not be rotated");
    }
    true
}
