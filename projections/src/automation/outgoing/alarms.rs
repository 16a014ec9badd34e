//! Published events about alarms.

use signalbox_domain::{
    automation::{Acknowledged, Alarm, AlarmEvent, EventSubject, EventType, NewAlarm},
    kernel::AlarmId,
};
use signalbox_event_store::RecordedEvent;

use super::{
    Background, Outgoing, OutgoingError, outgoing,
    payload::{About, AlarmState, text_of},
};

/// Changes while the rule is silenced are not published.
pub(super) fn alarm(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<Outgoing>, OutgoingError> {
    let (event_type, cleared, by) = match recorded.decode::<Alarm>()? {
        AlarmEvent::AlarmFired { silenced: false, .. } | AlarmEvent::AlarmAnnounced => {
            (EventType::AlarmFiring, None, None)
        }
        AlarmEvent::AlarmCleared { cleared_on, value, silenced: false } => {
            (EventType::AlarmCleared, Some((cleared_on, value)), None)
        }
        AlarmEvent::AlarmAcknowledged(by @ Acknowledged { silenced: false, .. }) => {
            (EventType::AlarmAcknowledged, None, Some(by))
        }
        _ => return Ok(None),
    };
    let Some(new) = started(background, recorded)? else { return Ok(None) };
    let mut fired = None;
    for known in background.before(recorded) {
        if let AlarmEvent::AlarmFired { fired_on, value, .. } = known.decode::<Alarm>()? {
            fired = Some((fired_on, value));
        }
    }
    let about = About::Alarm(AlarmState {
        alarm_id: AlarmId(recorded.aggregate_id),
        state: if cleared.is_some() { "cleared" } else { "firing" },
        reason: new.reason.as_str(),
        severity: new.severity.as_str(),
        sensor: &new.channel_name,
        sensor_id: new.channel_id,
        value: cleared.or(fired).map_or(new.value, |(_, value)| value),
        rule: &new.rule_name,
        rule_id: new.rule_id,
        operator: new.condition.operator.as_str(),
        threshold: new.condition.threshold,
        threshold_high: new.condition.threshold_high,
        rate_window_seconds: new.rate_window_seconds,
        started_on: text_of(new.started_on),
        fired_on: fired.map(|(on, _)| text_of(on)),
        cleared_on: cleared.map(|(on, _)| text_of(on)),
        acknowledged_by: by.as_ref().map(|by| by.user),
        comment: by.as_ref().and_then(|by| by.comment.as_deref()),
    });
    let event = outgoing(recorded, event_type, recorded.recorded_at, about)?;
    let channel = background.channel(new.channel_id, recorded)?;
    Ok(Some(Outgoing { subject: EventSubject::Alarm { channel, severity: new.severity }, ..event }))
}

/// The start of the alarm that `recorded` is about.
pub(super) fn started(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<NewAlarm>, OutgoingError> {
    for known in background.before(recorded) {
        if let AlarmEvent::AlarmStarted(new) = known.decode::<Alarm>()? {
            return Ok(Some(new));
        }
    }
    Ok(None)
}
