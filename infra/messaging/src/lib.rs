//! The bus. NATS is a transport and never the source of truth: messages lost here are restored from the log.
//!
//! * [`Bus`] is the connection; [`Bus::send`] sends a command and waits for its outcome, [`Bus::serve`] answers them.
//! * [`Wakeup`]s make readers poll the log or a read model; they carry positions, never data.
//! * [`Bus::ingest`] sends datapoints to their log; [`Bus::live_rows`] delivers committed rows to sockets.
//! * [`Mailbox`] keeps messages until agents acknowledge them; [`EventStream`] is the relayed log.

mod bus;
mod command;
mod events;
mod ingest;
mod mailbox;
mod streams;
mod trace;
mod wakeup;

pub use bus::{Bus, BusError};
pub use command::{CommandMessage, CommandReply};
pub use events::{EventStream, OutgoingEvent};
pub use ingest::{IngestMessage, IngestOutcome, LiveRow};
pub use mailbox::{Mail, MailMessage, Mailbox, Waiting};
pub use streams::StreamStanding;
pub use wakeup::Wakeup;
