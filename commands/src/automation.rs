//! Commands for rules, alarms, contacts, reported readings, webhooks, deliveries and the system's health.

use signalbox_datapoint_log::head;
use signalbox_domain::{
    automation::{NewRule, Rule, RuleCommand},
    catalog::Context,
    kernel::Decider,
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unavailable};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        Rule::TYPE => {
            let mut command = parse::<Rule>(&message.command)?;
            if let Some(after) = place(&mut command) {
                // Read before the rule is appended, so that values sent after the answer follow this place.
                *after = head(&handler.pool).await.map_err(|error| unavailable(&error))?.position;
            }
            Ok(handler.run::<Rule>(message, command).await)
        }
        _ => Ok(handler.run_plain(Context::Automation, message).await),
    }
}

/// The field for the end of the datapoint log, which separates earlier values from later ones.
fn place(command: &mut RuleCommand) -> Option<&mut i64> {
    match command {
        RuleCommand::Create(NewRule { after, .. })
        | RuleCommand::Change { after, .. }
        | RuleCommand::Delete { after } => Some(after),
        RuleCommand::Judge { .. } | RuleCommand::Act { .. } | RuleCommand::Silence(_) => None,
    }
}
