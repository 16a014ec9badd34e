use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Firing, History, Judge, NewRule, Phase, RuleCommand, RuleEvent, RuleSpec};
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
    earlier: Vec<Phase>,
    history: History,
    /// It still judges values that arrived before, and refuses all other commands.
    is_deleted: bool,
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
        match (command, &self.present) {
            (RuleCommand::Create(new), None) => {
                let spec = new.spec.validate()?;
                spec.action.permitted()?;
                Ok(vec![RuleEvent::RuleCreated(NewRule { spec, ..new })])
            }
            (RuleCommand::Create(_), Some(_)) => {
                Err(Rejection::conflict("rule_exists", "This rule exists already."))
            }
            (RuleCommand::Judge { readings }, Some(present)) => Ok(present.judge(readings)),
            (_, None | Some(Present { is_deleted: true, .. })) => Err(Rejection::not_found("Rule")),
            (RuleCommand::Change { changes, after }, Some(present)) => {
                let (from, to) = (present.spec.clone(), present.spec.with(changes)?);
                Ok(if from == to { Vec::new() } else { vec![RuleEvent::RuleUpdated { from, to, after }] })
            }
            (RuleCommand::Delete { after }, Some(present)) => {
                Ok(vec![RuleEvent::RuleDeleted { name: present.spec.name.clone(), after }])
            }
        }
    }

    fn evolve(&mut self, event: RuleEvent) {
        match (event, &mut self.present) {
            (RuleEvent::RuleCreated(new), present) => {
                let history = History { seen: DatapointPlace::end_of(new.after), last_triggered_at: None };
                let earlier = Vec::new();
                *present = Some(Present { spec: new.spec, earlier, history, is_deleted: false });
            }
            (RuleEvent::RuleUpdated { to, after, .. }, Some(present)) => present.become_another(to, after),
            (RuleEvent::RuleTriggered(firing), Some(present)) => {
                let Reading { place, occurred_at, .. } = firing.reading;
                present.history = History { seen: place, last_triggered_at: Some(occurred_at) };
            }
            (RuleEvent::RuleDeleted { after, .. }, Some(present)) => {
                present.become_another(RuleSpec { enabled: false, ..present.spec.clone() }, after);
                present.is_deleted = true;
            }
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
            RuleEvent::RuleDeleted { name: old, .. } => vec![name(ClaimOp::Release, old)],
        }
    }
}

impl Present {
    fn become_another(&mut self, to: RuleSpec, after: i64) {
        let from = std::mem::replace(&mut self.spec, to);
        Phase::remember(&mut self.earlier, from, after);
    }

    fn judge(&self, readings: Vec<Reading>) -> Vec<RuleEvent> {
        let mut judge = Judge::new(&self.spec, &self.earlier, self.history);
        let mut firings = Vec::new();
        for reading in readings {
            let is_watched = reading.channel_id == self.spec.channel;
            if is_watched && judge.fires(reading.place, reading.value, reading.occurred_at) {
                let spec = self.spec_for(reading.place);
                firings.push(RuleEvent::RuleTriggered(Firing {
                    reading,
                    rule_name: spec.name.clone(),
                    condition: spec.condition,
                    action: spec.action,
                }));
            }
        }
        firings
    }

    /// The specification in force when the value at `place` arrived.
    fn spec_for(&self, place: DatapointPlace) -> &RuleSpec {
        let phase = self.earlier.iter().find(|phase| place.position <= phase.until);
        phase.map_or(&self.spec, |phase| &phase.spec)
    }
}
