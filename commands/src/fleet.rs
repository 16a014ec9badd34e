//! Commands for packages of plugins, their instances, and firmware updates.

use signalbox_domain::{
    fleet::{Firmware, PluginInstance, PluginPackage},
    kernel::Decider,
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unknown};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        PluginPackage::TYPE => {
            let command = parse::<PluginPackage>(&message.command)?;
            Ok(handler.run::<PluginPackage>(message, command).await)
        }
        PluginInstance::TYPE => {
            let command = parse::<PluginInstance>(&message.command)?;
            Ok(handler.run::<PluginInstance>(message, command).await)
        }
        Firmware::TYPE => {
            let command = parse::<Firmware>(&message.command)?;
            Ok(handler.run::<Firmware>(message, command).await)
        }
        _ => Err(unknown(&message)),
    }
}
