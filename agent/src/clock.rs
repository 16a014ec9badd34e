//! The only place of this crate that reads the wall clock.

/// The present moment as RFC 3339 in UTC.
#[expect(clippy::disallowed_methods, reason = "the agent stamps its heartbeats itself; nothing replays them")]
pub fn now_rfc3339() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
