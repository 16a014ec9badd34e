use serde::{Deserialize, Serialize};

use super::{
    AlarmCommand, AlarmEvent, AlarmMark, AlarmState, StepKind,
    events::{Acknowledged, MAX_COMMENT, NewAlarm},
};
use crate::kernel::{Decider, Rejection, required_text};

/// An alarm of a rule, from its start until it is cleared.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Alarm {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    state: AlarmState,
    /// Whether its firing was published to webhooks.
    is_published: bool,
    acknowledged: Option<Acknowledged>,
}

impl Decider for Alarm {
    const TYPE: &'static str = "alarm";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    const IS_ONE_TRACE: bool = true;

    type Command = AlarmCommand;
    type Event = AlarmEvent;

    fn decide(&self, command: AlarmCommand) -> Result<Vec<AlarmEvent>, Rejection> {
        match (command, &self.present) {
            (AlarmCommand::Record { alarm, marks }, _) => Ok(self.record(alarm, marks)),
            (_, None) => Err(Rejection::not_found("Alarm")),
            (AlarmCommand::Acknowledge(by), Some(present)) => present.acknowledge(by),
            (AlarmCommand::Unacknowledge, Some(present)) => present.unacknowledge(),
            (AlarmCommand::Announce, Some(present)) => {
                let is_due = present.state == AlarmState::Firing && !present.is_published;
                Ok(is_due.then_some(AlarmEvent::AlarmAnnounced).into_iter().collect())
            }
        }
    }

    fn evolve(&mut self, event: AlarmEvent) {
        match (event, &mut self.present) {
            (AlarmEvent::AlarmStarted(_), present) => {
                *present =
                    Some(Present { state: AlarmState::Pending, is_published: false, acknowledged: None });
            }
            (AlarmEvent::AlarmFired { silenced, .. }, Some(present)) => {
                (present.state, present.is_published) = (AlarmState::Firing, !silenced);
            }
            (AlarmEvent::AlarmCleared { .. }, Some(present)) => present.state = AlarmState::Cleared,
            (AlarmEvent::AlarmAcknowledged(by), Some(present)) => present.acknowledged = Some(by),
            (AlarmEvent::AlarmUnacknowledged, Some(present)) => present.acknowledged = None,
            (AlarmEvent::AlarmAnnounced, Some(present)) => present.is_published = true,
            (_, None) => {}
        }
    }
}

impl Alarm {
    fn record(&self, alarm: NewAlarm, marks: Vec<AlarmMark>) -> Vec<AlarmEvent> {
        let mut after = self.clone();
        let mut events = Vec::new();
        let mut add = |after: &mut Self, event: AlarmEvent| {
            after.evolve(event.clone());
            events.push(event);
        };
        if after.present.is_none() {
            add(&mut after, AlarmEvent::AlarmStarted(alarm));
        }
        for mark in marks {
            if let Some(event) = after.present.as_ref().and_then(|present| present.take(mark)) {
                add(&mut after, event);
            }
        }
        events
    }
}

impl Present {
    /// The event of `mark`, unless it was recorded before.
    fn take(&self, mark: AlarmMark) -> Option<AlarmEvent> {
        let AlarmMark { kind, on, value, silenced } = mark;
        match (kind, self.state) {
            (StepKind::Fired, AlarmState::Pending) => {
                Some(AlarmEvent::AlarmFired { fired_on: on, value, silenced })
            }
            (StepKind::Cleared, AlarmState::Pending | AlarmState::Firing) => {
                let silenced = silenced || !self.is_published;
                Some(AlarmEvent::AlarmCleared { cleared_on: on, value, silenced })
            }
            (StepKind::Started, _) | (StepKind::Fired, _) | (StepKind::Cleared, AlarmState::Cleared) => None,
        }
    }

    fn acknowledge(&self, by: Acknowledged) -> Result<Vec<AlarmEvent>, Rejection> {
        let comment =
            by.comment.map(|comment| required_text("comment", &comment, MAX_COMMENT)).transpose()?;
        self.refuse_if_cleared()?;
        let is_known =
            self.acknowledged.as_ref().is_some_and(|known| known.user == by.user && known.comment == comment);
        if is_known {
            return Ok(Vec::new());
        }
        let silenced = by.silenced || !self.is_published;
        Ok(vec![AlarmEvent::AlarmAcknowledged(Acknowledged { user: by.user, comment, silenced })])
    }

    fn unacknowledge(&self) -> Result<Vec<AlarmEvent>, Rejection> {
        self.refuse_if_cleared()?;
        Ok(self.acknowledged.is_some().then_some(AlarmEvent::AlarmUnacknowledged).into_iter().collect())
    }

    /// The acknowledgement of an alarm that is over stays as it was.
    fn refuse_if_cleared(&self) -> Result<(), Rejection> {
        match self.state {
            AlarmState::Cleared => {
                Err(Rejection::conflict("alarm_cleared", "The alarm has been cleared already."))
            }
            AlarmState::Pending | AlarmState::Firing => Ok(()),
        }
    }
}
