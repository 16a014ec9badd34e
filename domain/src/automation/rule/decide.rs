use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{FiredAlarm, Firing, History, Judge, NewRule, Phase, RuleCommand, RuleEvent, RuleSpec, Silence};
use crate::{
    automation::{
        Condition, DatapointPlace, Reading,
        alarm::limits::MAX_COMMENT,
        contact::{CONTACT_CLAIM, rules_of_contact},
    },
    kernel::{AlarmId, ChannelId, Claim, ClaimOp, ContactId, Decider, ErrorKind, Rejection, required_text},
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
    /// The alarm by which it fired last.
    #[serde(default)]
    last_alarm: Option<AlarmId>,
    #[serde(default)]
    silence: Option<Silence>,
}

const NAME_CLAIM: &str = "rule.name";

impl Decider for Rule {
    const TYPE: &'static str = "rule";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 3;
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
            (RuleCommand::Act { reading, alarm, condition }, Some(present)) => {
                Ok(present.act(reading, alarm, condition))
            }
            (_, None | Some(Present { is_deleted: true, .. })) => Err(Rejection::not_found("Rule")),
            (RuleCommand::Change { changes, after }, Some(present)) => {
                let (from, to) = (present.spec.clone(), present.spec.with(changes)?);
                Ok(if from == to { Vec::new() } else { vec![RuleEvent::RuleUpdated { from, to, after }] })
            }
            (RuleCommand::Silence(silence), Some(present)) => present.silence(silence),
            (RuleCommand::Delete { after }, Some(present)) => {
                let contacts = present.spec.notify.all_contacts().into_iter().collect();
                Ok(vec![RuleEvent::RuleDeleted { name: present.spec.name.clone(), after, contacts }])
            }
        }
    }

    fn evolve(&mut self, event: RuleEvent) {
        match (event, &mut self.present) {
            (RuleEvent::RuleCreated(new), present) => {
                let history = History { seen: DatapointPlace::end_of(new.after), last_triggered_at: None };
                let earlier = Vec::new();
                *present = Some(Present {
                    spec: new.spec,
                    earlier,
                    history,
                    is_deleted: false,
                    last_alarm: None,
                    silence: None,
                });
            }
            (RuleEvent::RuleUpdated { to, after, .. }, Some(present)) => present.become_another(to, after),
            (RuleEvent::RuleTriggered(firing), Some(present)) => {
                let Reading { place, occurred_at, .. } = firing.reading;
                // An alarm may fire by a value that had arrived before the last firing.
                let seen = place.max(present.history.seen);
                present.history = History { seen, last_triggered_at: Some(occurred_at) };
                present.last_alarm = firing.alarm.map(|alarm| alarm.alarm_id);
            }
            (RuleEvent::RuleSilenced(silence), Some(present)) => {
                present.silence = Some(silence).filter(|silence| silence.until.is_some());
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
            CONTACT_CLAIM => {
                let why = "A contact that the rule names does not exist any more: take it out of the rule.";
                Rejection::new(ErrorKind::NotFound, "not_found", why)
            }
            _ => {
                let why = "The event that the rule watches does not exist any more: name another one.";
                Rejection::new(ErrorKind::NotFound, "not_found", why)
            }
        }
    }

    fn claims(id: Uuid, event: &RuleEvent) -> Vec<Claim> {
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let exists = |ChannelId(id)| Claim::new(ClaimOp::Require, CHANNEL_CLAIM, id.to_string());
        let own = |op, contact: &ContactId| Claim::new(op, rules_of_contact(*contact), id.to_string());
        let there = |contact: &ContactId| Claim::new(ClaimOp::Require, CONTACT_CLAIM, contact.to_string());
        match event {
            RuleEvent::RuleCreated(new) => {
                let mut claims = vec![exists(new.spec.channel), name(ClaimOp::Take, &new.spec.name)];
                let contacts = new.spec.notify.all_contacts();
                // They exist now, and are not deleted as long as the rule names them.
                claims.extend(contacts.iter().map(there));
                claims.extend(contacts.iter().map(|contact| own(ClaimOp::Take, contact)));
                claims
            }
            RuleEvent::RuleUpdated { from, to, .. } => {
                let mut claims = Vec::new();
                let (before, after) = (from.notify.all_contacts(), to.notify.all_contacts());
                claims.extend(after.difference(&before).map(there));
                // Also of those that it named before: a process of an earlier release has made the rule, or changed it, without claims.
                claims.extend(after.iter().map(|contact| own(ClaimOp::Take, contact)));
                claims.extend(before.difference(&after).map(|contact| own(ClaimOp::Release, contact)));
                // Nothing could end the alarm of a channel that is deleted.
                claims.extend((to.enabled || from.channel != to.channel).then(|| exists(to.channel)));
                if from.name != to.name {
                    claims.extend([name(ClaimOp::Release, &from.name), name(ClaimOp::Take, &to.name)]);
                }
                claims
            }
            RuleEvent::RuleTriggered(_) | RuleEvent::RuleSilenced(_) => Vec::new(),
            RuleEvent::RuleDeleted { name: old, contacts, .. } => {
                let mut claims = vec![name(ClaimOp::Release, old)];
                claims.extend(contacts.iter().map(|contact| own(ClaimOp::Release, contact)));
                claims
            }
        }
    }
}

impl Rule {
    /// Whether it notifies `contact` of its alarms.
    pub fn names(&self, contact: ContactId) -> bool {
        let present = self.present.as_ref().filter(|present| !present.is_deleted);
        present.is_some_and(|present| present.spec.notify.all_contacts().contains(&contact))
    }

    /// Its name, if it is enabled on `channel`.
    pub fn enabled_on(&self, channel: ChannelId) -> Option<&str> {
        let spec = &self.present.as_ref().filter(|present| !present.is_deleted)?.spec;
        (spec.enabled && spec.channel == channel).then_some(spec.name.as_str())
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
                    alarm: None,
                }));
            }
        }
        firings
    }

    /// The firing by `alarm`, unless it was recorded or the cooldown has not passed.
    fn act(&self, reading: Reading, alarm: FiredAlarm, condition: Option<Condition>) -> Vec<RuleEvent> {
        let Self { spec, history, .. } = self;
        let cooldown = TimeDelta::seconds(i64::from(spec.cooldown_seconds));
        let is_rested = cooldown.is_zero()
            || history.last_triggered_at.is_none_or(|last| reading.occurred_at - last >= cooldown);
        if !is_rested || self.last_alarm == Some(alarm.alarm_id) {
            return Vec::new();
        }
        vec![RuleEvent::RuleTriggered(Firing {
            reading,
            rule_name: spec.name.clone(),
            condition: condition.unwrap_or(spec.condition),
            action: spec.action,
            alarm: Some(alarm),
        })]
    }

    fn silence(&self, silence: Silence) -> Result<Vec<RuleEvent>, Rejection> {
        let Silence { until, comment } = silence;
        let comment = comment.map(|comment| required_text("comment", &comment, MAX_COMMENT)).transpose()?;
        if until.is_some() && self.spec.alarm.is_none() {
            let why = "This rule has no alarm that could be silenced: give it one first.";
            return Err(Rejection::conflict("rule_without_alarm", why));
        }
        let silence = Silence { until, comment };
        let requested = Some(&silence).filter(|silence| silence.until.is_some());
        if requested == self.silence.as_ref() {
            return Ok(Vec::new());
        }
        Ok(vec![RuleEvent::RuleSilenced(silence)])
    }

    /// The specification in force when the value at `place` arrived.
    fn spec_for(&self, place: DatapointPlace) -> &RuleSpec {
        let phase = self.earlier.iter().find(|phase| place.position <= phase.until);
        phase.map_or(&self.spec, |phase| &phase.spec)
    }
}
