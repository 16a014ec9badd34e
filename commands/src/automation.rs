//! Commands for rules, webhooks, deliveries and the system's health.

use signalbox_datapoint_log::head;
use signalbox_domain::{
    automation::{Consignment, Health, Rule, RuleCommand, Webhook},
    kernel::Decider,
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unavailable, unknown};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        Rule::TYPE => {
            let mut command = parse::<Rule>(&message.command)?;
            if let RuleCommand::Create(_) | RuleCommand::Change { .. } = &command {
                // Read before the rule is appended: whatever is sent after the answer comes behind it.
                let end = head(&handler.pool).await.map_err(|error| unavailable(&error))?.position;
                begin_after(&mut command, end);
            }
            Ok(handler.run::<Rule>(message, command).await)
        }
        Webhook::TYPE => {
            let command = parse::<Webhook>(&message.command)?;
            Ok(handler.run::<Webhook>(message, command).await)
        }
        Consignment::TYPE => {
            let command = parse::<Consignment>(&message.command)?;
            Ok(handler.run::<Consignment>(message, command).await)
        }
        Health::TYPE => {
            let command = parse::<Health>(&message.command)?;
            Ok(handler.run::<Health>(message, command).await)
        }
        _ => Err(unknown(&message)),
    }
}

fn begin_after(command: &mut RuleCommand, end: i64) {
    match command {
        RuleCommand::Create(new) => new.after = end,
        RuleCommand::Change { after, .. } => *after = end,
        RuleCommand::Judge { .. } | RuleCommand::Delete => {}
    }
}
