//! The time by which sweeps delete.
//!
//! A sweep that trusts one clock deletes everything when that clock is years ahead. This time is the earlier one of
//! the process's clock and PostgreSQL's. It stands still while they differ by more than [`MAX_DIFFERENCE`], it starts
//! at the newest recorded time, and it follows a leap of both clocks by at most [`LEAP`] per [`LEAP_INTERVAL`] of
//! PostgreSQL's uptime, so that a wrong clock of the whole machine is reported before everything is deleted.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

use crate::report_fault;

/// Difference of clocks beyond which nothing is deleted.
pub const MAX_DIFFERENCE: TimeDelta = TimeDelta::hours(1);
/// Steps of the clocks up to this are the passing of time; longer ones are a leap.
const STEP: TimeDelta = TimeDelta::hours(1);
/// Part of a leap that is followed at once; the rest is followed later.
pub const LEAP: TimeDelta = TimeDelta::days(2);
/// PostgreSQL's uptime between two leaps, in seconds.
pub const LEAP_INTERVAL: i64 = 3600;
/// Steps that are too short to be stored.
const STORED: TimeDelta = TimeDelta::minutes(1);

/// The fault of clocks that differ. It lapses when it is no longer reported: another process's clock may be right.
const CLOCK: &str = "clock";
/// The fault of clocks that have leapt further than sweeps follow at once.
const LEAPT: &str = "clock.sweeps";

/// The clocks' times, and the time that sweeps have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clocks {
    process: DateTime<Utc>,
    server: DateTime<Utc>,
    server_started: DateTime<Utc>,
    reached: Reached,
}

/// The stored time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reached {
    time: DateTime<Utc>,
    server_started: DateTime<Utc>,
    leapt_at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// The clocks differ too much.
    Refuse,
    /// Sweeps use this time; `reached` is stored if it has changed enough.
    Allow { time: DateTime<Utc>, reached: Option<Reached> },
}

#[derive(Debug, FromRow)]
struct Row {
    server: DateTime<Utc>,
    server_started: DateTime<Utc>,
    reached: Option<DateTime<Utc>>,
    leapt_with: Option<DateTime<Utc>>,
    leapt_at: Option<i64>,
}

/// The time that sweeps delete by now; `None` while the clocks differ too much, which is reported.
///
/// A manual clock is trusted: it stands for PostgreSQL's too.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn sweep_time(pool: &PgPool, clock: &Clock) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    if clock.is_manual() {
        return Ok(Some(clock.now()));
    }
    let row = read(pool).await?;
    let newest = if row.reached.is_none() { newest_recorded(pool).await? } else { None };
    let clocks = row.clocks(clock.now(), newest);
    match decide(&clocks) {
        Decision::Refuse => {
            let reason = format!(
                "The clock of a process says {}, PostgreSQL's {}. Nothing is deleted by age until they agree to an hour: \
                 set the wrong one right.",
                clocks.process.format("%Y-%m-%d %H:%M:%S UTC"),
                clocks.server.format("%Y-%m-%d %H:%M:%S UTC"),
            );
            tracing::warn!(reason, "a sweep is left out");
            report_fault(pool, CLOCK, &reason).await?;
            Ok(None)
        }
        Decision::Allow { time, reached } => {
            if let Some(reached) = reached {
                store(pool, row.reached, reached).await?;
            }
            let behind = clocks.process.min(clocks.server) - time;
            if behind > LEAP {
                let reason = format!(
                    "The clocks have leapt: they are {} hours ahead of the time that sweeps delete by. If they are wrong, set \
                     them right; if the service was off, sweeps follow by two days an hour.",
                    behind.num_hours(),
                );
                report_fault(pool, LEAPT, &reason).await?;
            }
            Ok(Some(time))
        }
    }
}

/// When the newest row of either log was recorded.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn newest_recorded(pool: &PgPool) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT greatest((SELECT recorded_at FROM events ORDER BY position DESC LIMIT 1),
                         (SELECT recorded_at FROM datapoint_log ORDER BY position DESC LIMIT 1))",
    )
    .fetch_one(pool)
    .await
}

async fn read(pool: &PgPool) -> Result<Row, sqlx::Error> {
    sqlx::query_as(
        "SELECT clock_timestamp() AS server, pg_postmaster_start_time() AS server_started,
                c.reached, c.server_started AS leapt_with, c.leapt_at
           FROM (SELECT) AS one LEFT JOIN ops.sweep_clock c ON true",
    )
    .fetch_one(pool)
    .await
}

/// Unless another process has stored a time meanwhile.
async fn store(pool: &PgPool, before: Option<DateTime<Utc>>, reached: Reached) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.sweep_clock AS c (reached, server_started, leapt_at) VALUES ($2, $3, $4)
         ON CONFLICT (one) DO UPDATE SET reached = $2, server_started = $3, leapt_at = $4 WHERE c.reached = $1",
    )
    .bind(before)
    .bind(reached.time)
    .bind(reached.server_started)
    .bind(reached.leapt_at)
    .execute(pool)
    .await?;
    Ok(())
}

impl Row {
    fn clocks(&self, process: DateTime<Utc>, newest: Option<DateTime<Utc>>) -> Clocks {
        let &Self { server, server_started, .. } = self;
        let stored = || {
            Some(Reached { time: self.reached?, server_started: self.leapt_with?, leapt_at: self.leapt_at? })
        };
        // The newest record was written at that time, so it bounds the clocks' times.
        let first = Reached { time: newest.unwrap_or(process.min(server)), server_started, leapt_at: 0 };
        Clocks { process, server, server_started, reached: stored().unwrap_or(first) }
    }
}

fn decide(clocks: &Clocks) -> Decision {
    let &Clocks { process, server, server_started, reached } = clocks;
    if (process - server).abs() > MAX_DIFFERENCE {
        return Decision::Refuse;
    }
    let target = process.min(server);
    let ahead = target - reached.time;
    if ahead <= STEP {
        let is_stored = ahead.abs() >= STORED;
        let moved = is_stored.then_some(Reached { time: target, ..reached });
        return Decision::Allow { time: target, reached: moved };
    }
    let uptime = (server - server_started).num_seconds();
    // A leap that is later than the present uptime was recorded while PostgreSQL's clock was ahead.
    let is_of_this_run = reached.server_started == server_started && reached.leapt_at <= uptime;
    let since_leap = if is_of_this_run { uptime - reached.leapt_at } else { uptime };
    if since_leap < LEAP_INTERVAL {
        return Decision::Allow { time: reached.time, reached: None };
    }
    let time = target.min(reached.time + LEAP);
    Decision::Allow { time, reached: Some(Reached { time, server_started, leapt_at: uptime }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::hours(hours)
    }

    fn reached(hours: i64) -> Reached {
        Reached { time: at(hours), server_started: at(0), leapt_at: 0 }
    }

    /// Both clocks at `now`, the server up since hour 0.
    fn both(now: i64, reached: Reached) -> Decision {
        decide(&Clocks { process: at(now), server: at(now), server_started: at(0), reached })
    }

    fn allowed(decision: Decision) -> Option<DateTime<Utc>> {
        match decision {
            Decision::Refuse => None,
            Decision::Allow { time, .. } => Some(time),
        }
    }

    #[test]
    fn clocks_that_differ_by_more_than_an_hour_are_refused() {
        let of = |process, server| {
            allowed(decide(&Clocks {
                process: at(process),
                server: at(server),
                server_started: at(0),
                reached: reached(100),
            }))
        };
        assert_eq!(of(100 + 24 * 4000, 100), None);
        assert_eq!(of(98, 100), None);
        assert_eq!(of(101, 100), Some(at(100)), "the earlier one counts");
        assert_eq!(of(99, 100), Some(at(99)));
    }

    #[test]
    fn a_leap_is_followed_by_two_days_per_hour_of_uptime() {
        let leap = 24 * 4000;
        let Decision::Allow { time, reached: Some(first) } = both(leap, reached(100)) else {
            panic!("the first leap is followed")
        };
        assert_eq!(time, at(148));
        assert_eq!(allowed(both(leap, first)), Some(at(148)), "no uptime has passed");
        let Decision::Allow { reached: Some(second), .. } = both(leap + 1, first) else {
            panic!("an hour later the next leap is followed")
        };
        assert_eq!(second.time, at(196));
    }

    #[test]
    fn a_server_that_has_just_started_waits_for_an_hour() {
        let of = |minutes| {
            let now = at(500) + TimeDelta::minutes(minutes);
            let clocks = Clocks { process: now, server: now, server_started: at(500), reached: reached(100) };
            allowed(decide(&clocks))
        };
        assert_eq!(of(59), Some(at(100)));
        assert_eq!(of(60), Some(at(148)));
    }

    #[test]
    fn a_leap_of_a_clock_that_was_set_right_keeps_no_later_one_waiting() {
        let wrong = Reached { time: at(100), server_started: at(0), leapt_at: 24 * 4000 * 3600 };
        assert_eq!(allowed(both(500, wrong)), Some(at(148)));
    }

    #[test]
    fn time_that_passes_is_followed_at_once() {
        assert_eq!(allowed(both(101, reached(100))), Some(at(101)));
        assert_eq!(both(100, reached(100)), Decision::Allow { time: at(100), reached: None });
        // A clock that was ahead and is set right takes sweeps back with it.
        let Decision::Allow { time, reached: Some(back) } = both(100, reached(148)) else {
            panic!("the time is stored")
        };
        assert_eq!((time, back.time), (at(100), at(100)));
    }
}
