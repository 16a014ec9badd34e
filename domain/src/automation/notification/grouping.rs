use chrono::{DateTime, TimeDelta, Utc};

use super::{Notice, QuietHours};

/// How long the first notice of a message waits for others.
pub const GROUP_INTERVAL: TimeDelta = TimeDelta::seconds(10);
/// Between two messages to a contact, unless a critical alarm fires.
pub const MESSAGE_INTERVAL: TimeDelta = TimeDelta::seconds(60);

/// Decides when the waiting notices of a contact are sent, and which of them together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grouping<'a> {
    pub quiet_hours: Option<&'a QuietHours>,
    /// When the contact's last message was composed.
    pub last_message: Option<DateTime<Utc>>,
}

impl Grouping<'_> {
    /// When the next message is due; `None` without a waiting notice.
    pub fn due_at(&self, waiting: &[Notice]) -> Option<DateTime<Utc>> {
        waiting.iter().map(|notice| self.notice_due_at(notice)).min()
    }

    /// The notices of the message that is due at `now`, in their order; none before it is due. Notices that quiet hours
    /// hold back are not sent with a critical one.
    pub fn due<'n>(&self, waiting: &'n [Notice], now: DateTime<Utc>) -> Vec<&'n Notice> {
        let grouping = Self { last_message: self.last_message.filter(|last| *last <= now), ..*self };
        let possible: Vec<_> = waiting.iter().map(|notice| possible_at(notice, now)).collect();
        if grouping.due_at(&possible).is_none_or(|due_at| now < due_at) {
            return Vec::new();
        }
        let released =
            waiting.iter().zip(&possible).filter(|(_, possible)| self.released_at(possible) <= now);
        released.map(|(notice, _)| notice).collect()
    }

    fn notice_due_at(&self, notice: &Notice) -> DateTime<Utc> {
        if notice.is_urgent() {
            return notice.arrived_on;
        }
        let released_at = self.released_at(notice);
        // Quiet hours have grouped what arrived in them.
        let is_held = released_at > notice.arrived_on;
        let due_at = if is_held { released_at } else { released_at + GROUP_INTERVAL };
        self.last_message.map_or(due_at, |last| due_at.max(last + MESSAGE_INTERVAL))
    }

    /// When a message may contain it. It is the arrival that quiet hours hold back, so a notice from the seconds before
    /// them does not wait until they end.
    fn released_at(&self, notice: &Notice) -> DateTime<Utc> {
        let quiet_hours = self.quiet_hours.filter(|_| !notice.is_critical());
        quiet_hours.and_then(|hours| hours.end_after(notice.arrived_on)).unwrap_or(notice.arrived_on)
    }
}

/// The notice, with a time that is possible at `now`: a clock that was ahead and was set right has left times of the future,
/// which would hold back notices until then.
fn possible_at(notice: &Notice, now: DateTime<Utc>) -> Notice {
    let is_possible = notice.arrived_on <= now;
    Notice { arrived_on: if is_possible { notice.arrived_on } else { now - GROUP_INTERVAL }, ..*notice }
}
