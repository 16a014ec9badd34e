use chrono::{DateTime, Utc};

use super::{DatapointPlace, REPORT_INTERVAL};

/// Selects the values of a channel that are reported: the first one at once, then the newest one at the end of each
/// interval, as long as new ones arrive. `T` is the caller's data for a report.
#[derive(Debug, Clone)]
pub struct ReportWindow<T> {
    last: Option<(DatapointPlace, DateTime<Utc>)>,
    /// The value that opens a window; reported as soon as possible.
    first: Option<(DatapointPlace, T)>,
    /// The newest value since; reported when the window ends.
    newest: Option<(DatapointPlace, T)>,
}

impl<T> ReportWindow<T> {
    /// A channel whose `last` report was this one.
    pub fn new(last: Option<(DatapointPlace, DateTime<Utc>)>) -> Self {
        Self { last, first: None, newest: None }
    }

    /// A value at `place` that was recorded at `recorded_at` has been read. Values are read in the order of their places.
    pub fn arrive(
        &mut self,
        place: DatapointPlace,
        recorded_at: DateTime<Utc>,
        now: DateTime<Utc>,
        value: T,
    ) {
        if self.last.is_some_and(|(last, _)| place <= last) {
            return;
        }
        // A value that is read late, after a restart, belongs to the window in which it arrived.
        let opens = self.is_over(now) && self.is_over(recorded_at);
        if opens && self.first.is_none() && self.newest.is_none() {
            self.first = Some((place, value));
        } else {
            self.newest = Some((place, value));
        }
    }

    /// Takes the value to report at `now`, if one is due.
    pub fn due(&mut self, now: DateTime<Utc>) -> Option<T> {
        let is_over = self.is_over(now);
        let due = self.first.take().or_else(|| if is_over { self.newest.take() } else { None });
        due.map(|(_, value)| value)
    }

    /// The value at `place` was reported at `now`.
    pub fn reported(&mut self, place: DatapointPlace, now: DateTime<Utc>) {
        self.last = Some((place, now));
    }

    /// The values that wait to be reported.
    pub fn waiting(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.newest).map(|(_, value)| value)
    }

    fn is_over(&self, now: DateTime<Utc>) -> bool {
        self.last.is_none_or(|(_, reported_at)| is_interval_over(reported_at, now))
    }
}

/// Whether the interval that began at `reported_at` is over at `now`. A clock that was set back by more than an interval ends
/// it too: otherwise nothing would be reported until it has caught up.
pub(super) fn is_interval_over(reported_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (now - reported_at).abs() >= REPORT_INTERVAL
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn at(milliseconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)
    }

    fn place(position: i64) -> DatapointPlace {
        DatapointPlace { position, index: 0 }
    }

    fn report(window: &mut ReportWindow<i64>, now: i64) -> Option<i64> {
        let due = window.due(at(now))?;
        window.reported(place(due), at(now));
        Some(due)
    }

    #[test]
    fn burst_gives_its_first_value_at_once_and_its_last_after_the_interval() {
        let mut window = ReportWindow::new(None);
        (1..=5).for_each(|value| window.arrive(place(value), at(0), at(10), value));
        assert_eq!(report(&mut window, 10), Some(1));
        assert_eq!((report(&mut window, 10), report(&mut window, 5_009)), (None, None));
        assert_eq!(report(&mut window, 5_010), Some(5));
        assert_eq!(report(&mut window, 60_000), None);
        window.arrive(place(6), at(60_000), at(60_000), 6);
        assert_eq!(report(&mut window, 60_000), Some(6));
    }

    #[test]
    fn value_within_a_window_waits_for_its_end() {
        let mut window = ReportWindow::new(Some((place(1), at(0))));
        window.arrive(place(2), at(100), at(110), 2);
        window.arrive(place(3), at(4_900), at(4_910), 3);
        assert_eq!(report(&mut window, 4_999), None);
        window.arrive(place(4), at(5_050), at(5_060), 4);
        assert_eq!(report(&mut window, 5_060), Some(4));
    }

    #[test]
    fn values_read_again_after_a_restart_are_reported_once() {
        let mut window = ReportWindow::new(Some((place(2), at(0))));
        // 1 and 2 were reported or passed over; 3 and 4 arrived within the window, which is over by now.
        for (value, recorded) in [(1, -100), (2, 0), (3, 100), (4, 200)] {
            window.arrive(place(value), at(recorded), at(30_000), value);
        }
        assert_eq!(report(&mut window, 30_000), Some(4));
        assert_eq!(window.waiting().count(), 0);
    }

    #[test]
    fn clock_set_back_does_not_silence_a_channel() {
        let day = 86_400_000;
        let mut window = ReportWindow::new(Some((place(1), at(day))));
        window.arrive(place(2), at(0), at(0), 2);
        assert_eq!(report(&mut window, 0), Some(2));
        window.arrive(place(3), at(1_000), at(1_000), 3);
        assert_eq!((report(&mut window, 1_000), report(&mut window, 5_000)), (None, Some(3)));
    }
}
