//! Commands for rules, alarms, contacts, reported readings, webhooks, deliveries and the system's health.

use signalbox_datapoint_log::head;
use signalbox_domain::{
    automation::{
        Alarm, Contact, DeliveryBatch, Health, NewRule, ReportedReading, Rule, RuleCommand, Webhook,
    },
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
            if let Some(after) = place(&mut command) {
                // Read before the rule is appended, so that values sent after the answer follow this place.
                *after = head(&handler.pool).await.map_err(|error| unavailable(&error))?.position;
            }
            Ok(handler.run::<Rule>(message, command).await)
        }
        Alarm::TYPE => {
            let command = parse::<Alarm>(&message.command)?;
            Ok(handler.run::<Alarm>(message, command).await)
        }
        Contact::TYPE => {
            let command = parse::<Contact>(&message.command)?;
            Ok(handler.run::<Contact>(message, command).await)
        }
        ReportedReading::TYPE => {
            let command = parse::<ReportedReading>(&message.command)?;
            Ok(handler.run::<ReportedReading>(message, command).await)
        }
        Webhook::TYPE => {
            let command = parse::<Webhook>(&message.command)?;
            Ok(handler.run::<Webhook>(message, command).await)
        }
        DeliveryBatch::TYPE => {
            let command = parse::<DeliveryBatch>(&message.command)?;
            Ok(handler.run::<DeliveryBatch>(message, command).await)
        }
        Health::TYPE => {
            let command = parse::<Health>(&message.command)?;
            Ok(handler.run::<Health>(message, command).await)
        }
        _ => Err(unknown(&message)),
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
