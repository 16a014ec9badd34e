//! Commands for extraction jobs.

use signalbox_domain::{extraction::ExtractionJob, kernel::Decider};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unknown};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    if message.aggregate_type != ExtractionJob::TYPE {
        return unknown(&message);
    }
    match parse::<ExtractionJob>(&message.command) {
        Ok(command) => handler.run::<ExtractionJob>(message, command).await,
        Err(refused) => refused,
    }
}
