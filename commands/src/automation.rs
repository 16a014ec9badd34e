//! Commands for rules, alarms, contacts, reported readings, webhooks, deliveries and the system's health.

use signalbox_datapoint_log::head;
use signalbox_domain::{
    automation::{CONTACT_IN_USE, Contact, ContactCommand, NewRule, Rule, RuleCommand, rules_of_contact},
    catalog::Context,
    kernel::{ContactId, Decider},
};
use signalbox_event_store::release_unheld;
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
        Contact::TYPE => {
            let command = parse::<Contact>(&message.command)?;
            match command {
                ContactCommand::Delete => delete_contact(&handler, message).await,
                command => Ok(handler.run::<Contact>(message, command).await),
            }
        }
        _ => Ok(handler.run_plain(Context::Automation, message).await),
    }
}

/// Deletes a contact that no rule names. A process of an earlier release has changed or deleted rules without releasing their claims:
/// when these refuse the deletion, the rules themselves are asked.
async fn delete_contact(handler: &Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    let contact = ContactId(message.aggregate_id);
    loop {
        let reply = handler.run::<Contact>(message.clone(), ContactCommand::Delete).await;
        if !matches!(&reply, CommandReply::Rejected(rejection) if rejection.code == CONTACT_IN_USE) {
            return Ok(reply);
        }
        let names = |rule: &Rule| rule.names(contact);
        let released = release_unheld::<Rule>(&handler.pool, &rules_of_contact(contact), names).await;
        match released.map_err(|error| CommandReply::Rejected(error.into()))? {
            // A rule does name it.
            0 => return Ok(reply),
            released => tracing::info!(%contact, released, "claims were released that no rule holds"),
        }
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
