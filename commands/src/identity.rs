//! Commands for users, sessions and API tokens.

use signalbox_domain::{
    catalog::Context,
    identity::{User, UserCommand},
    kernel::Decider,
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unavailable};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        User::TYPE => {
            let mut command = parse::<User>(&message.command)?;
            if let UserCommand::Create(new) | UserCommand::CreateLinked { user: new, .. } = &mut command {
                new.number =
                    handler.numbers.next("ops.user_numbers").await.map_err(|error| unavailable(&error))?;
            }
            Ok(handler.run::<User>(message, command).await)
        }
        _ => Ok(handler.run_plain(Context::Identity, message).await),
    }
}
