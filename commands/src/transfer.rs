//! Commands for agents, agent tokens, jobs and transfers.

use signalbox_domain::{
    catalog::Context,
    kernel::Decider,
    transfer::{
        Agent, AgentCommand, AgentToken, AgentTokenCommand, Job, JobCommand, Transfer, TransferCommand,
    },
};
use signalbox_messaging::{CommandMessage, CommandReply};

use crate::handler::{Handler, parse, unavailable};

pub(crate) async fn handle(handler: Handler, message: CommandMessage) -> CommandReply {
    run(handler, message).await.unwrap_or_else(|refused| refused)
}

async fn run(handler: Handler, message: CommandMessage) -> Result<CommandReply, CommandReply> {
    match message.aggregate_type.as_str() {
        Agent::TYPE => {
            let mut command = parse::<Agent>(&message.command)?;
            if let AgentCommand::Create(new) = &mut command {
                new.number = number(&handler, "ops.agent_numbers").await?;
            }
            Ok(handler.run::<Agent>(message, command).await)
        }
        AgentToken::TYPE => {
            let mut command = parse::<AgentToken>(&message.command)?;
            if let AgentTokenCommand::Create(new) = &mut command {
                new.number = number(&handler, "ops.agent_token_numbers").await?;
            }
            Ok(handler.run::<AgentToken>(message, command).await)
        }
        Job::TYPE => {
            let mut command = parse::<Job>(&message.command)?;
            if let JobCommand::Create(new) = &mut command {
                new.number = number(&handler, "ops.job_numbers").await?;
            }
            Ok(handler.run::<Job>(message, command).await)
        }
        Transfer::TYPE => {
            let mut command = parse::<Transfer>(&message.command)?;
            if let TransferCommand::Request(new) = &mut command {
                new.number = number(&handler, "ops.transfer_numbers").await?;
            }
            Ok(handler.run::<Transfer>(message, command).await)
        }
        _ => Ok(handler.run_plain(Context::Transfer, message).await),
    }
}

async fn number(handler: &Handler, sequence: &'static str) -> Result<i64, CommandReply> {
    handler.numbers.next(sequence).await.map_err(|error| unavailable(&error))
}
