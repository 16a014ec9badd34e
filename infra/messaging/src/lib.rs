//! The bus. NATS carries, it is never the truth: whatever is lost here is put back from the log.
//!
//! * [`Bus`] is the connection; [`Bus::send`] sends a command and waits for its outcome, [`Bus::serve`] answers them.
//! * [`Wakeup`]s tell readers to look at the log or at a read model again; they carry positions, never data.
//! * [`Bus::ingest`] takes datapoints to their log; [`Bus::live_rows`] brings what was committed to sockets.
//! * [`Mailbox`] keeps what agents have not yet taken; [`EventStream`] is the relayed log.

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
pub use mailbox::{Mail, MailMessage, Mailbox};
pub use streams::StreamStanding;
pub use wakeup::Wakeup;
