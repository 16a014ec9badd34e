use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Firing, History, Judge, NewRule, RuleChanges, RuleCommand, RuleEvent, RuleSpec};
use crate::{
    automation::{DatapointPlace, Reading},
    kernel::{ChannelId, Claim, ClaimOp, Decider, Rejection},
    monitoring::channel::CHANNEL_CLAIM,
};

/// Watches the values of one channel.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Rule {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    spec: RuleSpec,
    history: History,
}

const NAME_CLAIM: &str = "rule.name";

impl Decider for Rule {
    const TYPE: &'static str = "rule";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    // Each firing is an event.
    const SNAPSHOT_EVERY: Option<i64> = Some(50);
    type Command = RuleCommand;
    type Event = RuleEvent;

    fn decide(&self, command: RuleCommand) -> Result<Vec<RuleEvent>, Rejection> {
        let Some(present) = &self.present else {
            return match command {
                RuleCommand::Create(new) => {
                    let spec = new.spec.validate()?;
                    Ok(vec![RuleEvent::RuleCreated(NewRule { spec, ..new })])
                }
                _ => Err(Rejection::not_found("Rule")),
            };
        };
        match command {
            RuleCommand::Create(_) => Err(Rejection::conflict("rule_exists", "This rule exists already.")),
            RuleCommand::Change { changes, after } => present.change(changes, after),
            RuleCommand::Judge { readings } => Ok(present.judge(readings)),
            RuleCommand::Delete => Ok(vec![RuleEvent::RuleDeleted { name: present.spec.name.clone() }]),
        }
    }

    fn evolve(&mut self, event: RuleEvent) {
        match (event, &mut self.present) {
            (RuleEvent::RuleCreated(new), present) => {
                let history = History { seen: DatapointPlace::end_of(new.after), last_triggered_at: None };
                *present = Some(Present { spec: new.spec, history });
            }
            (RuleEvent::RuleUpdated { to, after, .. }, Some(present)) => {
                present.spec = to;
                if let Some(after) = after {
                    present.history.seen = present.history.seen.max(DatapointPlace::end_of(after));
                }
            }
            (RuleEvent::RuleTriggered(firing), Some(present)) => {
                let Reading { place, occurred_at, .. } = firing.reading;
                present.history = History { seen: place, last_triggered_at: Some(occurred_at) };
            }
            (RuleEvent::RuleDeleted { .. }, present) => *present = None,
            (_, None) => {}
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            NAME_CLAIM => {
                Rejection::conflict("rule_name_taken", "Another rule has this name: choose another one.")
            }
            _ => Rejection::not_found("Event"),
        }
    }

    fn claims(_id: Uuid, event: &RuleEvent) -> Vec<Claim> {
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let exists = |ChannelId(id)| Claim::new(ClaimOp::Require, CHANNEL_CLAIM, id.to_string());
        match event {
            RuleEvent::RuleCreated(new) => {
                vec![exists(new.spec.channel), name(ClaimOp::Take, &new.spec.name)]
            }
            RuleEvent::RuleUpdated { from, to, .. } => {
                let mut claims = Vec::new();
                claims.extend((from.channel != to.channel).then(|| exists(to.channel)));
                if from.name != to.name {
                    claims.extend([name(ClaimOp::Release, &from.name), name(ClaimOp::Take, &to.name)]);
                }
                claims
            }
            RuleEvent::RuleTriggered(_) => Vec::new(),
            RuleEvent::RuleDeleted { name: old } => vec![name(ClaimOp::Release, old)],
        }
    }
}

impl Present {
    fn change(&self, changes: RuleChanges, after: i64) -> Result<Vec<RuleEvent>, Rejection> {
        let (from, to) = (self.spec.clone(), self.spec.with(changes)?);
        if from == to {
            return Ok(Vec::new());
        }
        let begins = !from.enabled && to.enabled || from.channel != to.channel;
        Ok(vec![RuleEvent::RuleUpdated { from, to, after: begins.then_some(after) }])
    }

    fn judge(&self, readings: Vec<Reading>) -> Vec<RuleEvent> {
        let mut judge = Judge::new(&self.spec, self.history);
        let fires = move |reading: &Reading| {
            // What came in on a channel that it watches no more.
            reading.channel_id == self.spec.channel
                && judge.fires(reading.place, reading.value, reading.occurred_at)
        };
        let firing = |reading| {
            RuleEvent::RuleTriggered(Firing {
                reading,
                rule_name: self.spec.name.clone(),
                condition: self.spec.condition,
                action: self.spec.action,
            })
        };
        readings.into_iter().filter(fires).map(firing).collect()
    }
}
