//! Commands for channels, experiments, dashboards and log entries.

use signalbox_domain::{
    catalog::Context,
    kernel::Decider,
    monitoring::{Channel, ChannelCommand},
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unavailable};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        Channel::TYPE => {
            let mut command = parse::<Channel>(&message.command)?;
            if let ChannelCommand::Create(new) = &mut command {
                let drawn = handler.numbers.next("ops.channel_numbers").await;
                let number = drawn.map_err(|error| unavailable(&error))?;
                new.number = i32::try_from(number).map_err(|_| unavailable(&sqlx::Error::RowNotFound))?;
            }
            Ok(handler.run::<Channel>(message, command).await)
        }
        _ => Ok(handler.run_plain(Context::Monitoring, message).await),
    }
}
