//! The range of each setting that is a number.

use toml::{Table, Value};

/// A hundred years. Sums of a time and far more overflow.
const MAX_HOURS: i64 = 24 * MAX_DAYS;
const MAX_SECONDS: i64 = MAX_HOURS * 3600;
/// Longest time that datapoints or their roll-ups are kept, but for ever.
const MAX_DAYS: i64 = 36_500;
/// For numbers that do no harm however large they are.
const MAX_COUNT: i64 = u32::MAX as i64;
const MAX_BYTES: i64 = i64::MAX;

/// Key, lowest and highest value.
const RANGES: &[(&str, i64, i64)] = &[
    ("server.drain_seconds", 0, MAX_SECONDS),
    ("server.max_connections", 0, MAX_COUNT),
    ("server.max_connections_per_address", 1, MAX_COUNT),
    ("server.max_connections_per_agent_address", 1, MAX_COUNT),
    ("server.header_seconds", 1, MAX_SECONDS),
    ("server.idle_seconds", 1, MAX_SECONDS),
    ("server.stall_seconds", 1, MAX_SECONDS),
    ("server.min_body_bytes_per_second", 0, MAX_COUNT),
    // Two segments of each upload are in memory.
    ("storage.segment_mb", 1, 256),
    // A pool has memory for all of them from its start.
    ("database.max_connections", 4, 10_000),
    ("nats.replicas", 1, 5),
    ("identity.token_hours", 1, MAX_HOURS),
    // Each takes 19 MiB and a thread.
    ("identity.concurrent_hashes", 1, 256),
    ("limits.requests_per_minute", 1, MAX_COUNT),
    ("limits.request_burst", 1, MAX_COUNT),
    ("limits.agent_requests_per_minute", 1, MAX_COUNT),
    ("limits.agent_request_burst", 1, MAX_COUNT),
    ("limits.ingest_requests_per_minute", 1, MAX_COUNT),
    ("limits.ingest_request_burst", 1, MAX_COUNT),
    ("limits.sockets_per_user", 1, MAX_COUNT),
    ("limits.socket_messages_per_second", 1, MAX_COUNT),
    ("limits.reads_per_user", 1, MAX_COUNT),
    // Multiplied by the seconds of a burst, in 32 bits.
    ("limits.read_seconds_per_user", 0, 10_000),
    ("limits.logins_per_account", 1, MAX_COUNT),
    ("limits.logins_per_address", 1, MAX_COUNT),
    ("limits.anonymous_extractions_per_minute", 1, MAX_COUNT),
    ("transfer.max_file_bytes", 1, MAX_BYTES),
    ("transfer.stall_seconds", 1, MAX_SECONDS),
    ("transfer.retention_hours", 0, MAX_HOURS),
    ("transfer.catch_up_seconds", 0, MAX_SECONDS),
    ("monitoring.retention_days", 0, MAX_DAYS),
    ("monitoring.rollup_retention_days", 0, MAX_DAYS),
    ("ingest.max_channels", 0, MAX_COUNT),
    ("webhooks.concurrent_requests", 1, 1000),
    ("webhooks.concurrent_per_subscription", 1, MAX_COUNT),
    ("mail.port", 0, 65_535),
    ("extraction.max_file_bytes", 1, MAX_BYTES),
    // Each is a process.
    ("extraction.parsers", 0, 1024),
    ("extraction.max_open_jobs", 1, MAX_COUNT),
    ("extraction.result_hours", 1, MAX_HOURS),
    ("extraction.input_hours", 0, MAX_HOURS),
    ("extraction.kept_mb_each", 0, MAX_COUNT),
    ("extraction.cache_hours", 0, MAX_HOURS),
    ("extraction.cache_mb", 0, MAX_COUNT),
    ("extraction.anonymous_mb", 0, MAX_COUNT),
    ("extraction.anonymous_mb_each", 0, MAX_COUNT),
    ("extraction.patience_seconds", 0, MAX_SECONDS),
    // With less, no parser starts; 1 TiB is more than any document takes.
    ("extraction.memory_mb", 64, 1 << 20),
    ("extraction.cpu_seconds", 1, MAX_SECONDS),
    ("extraction.wall_seconds", 1, MAX_SECONDS),
    ("extraction.max_pages", 1, MAX_COUNT),
    ("extraction.max_megapixels", 1, MAX_COUNT),
    ("extraction.tika_seconds", 1, MAX_SECONDS),
    ("extraction.google_vision_seconds", 1, MAX_SECONDS),
    ("extraction.llm_seconds", 1, MAX_SECONDS),
    ("extraction.llm_piece_letters", 1, MAX_COUNT),
    ("firmware.max_file_bytes", 1, MAX_BYTES),
    ("firmware.download_seconds", 1, MAX_SECONDS),
    ("firmware.hook_seconds", 1, MAX_SECONDS),
];

/// The first setting of `values` that is out of its range, and its fault. Values that are no whole numbers are left to the types.
pub(crate) fn out_of_range(values: &Table) -> Option<(&'static str, String)> {
    RANGES.iter().find_map(|&(key, low, high)| {
        let value = number(values, key)?;
        (!(low..=high).contains(&value)).then(|| (key, describe(low, high)))
    })
}

fn number(values: &Table, key: &str) -> Option<i64> {
    let (section, name) = key.split_once('.')?;
    values.get(section)?.get(name).and_then(Value::as_integer)
}

fn describe(low: i64, high: i64) -> String {
    if high == i64::MAX { format!("must be at least {low}") } else { format!("must be from {low} to {high}") }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{Config, ConfigError, sources::DEFAULTS};

    fn load(key: &str, value: i64) -> Result<Config, ConfigError> {
        let name = format!("SIGNALBOX_{}", key.replace('.', "__").to_uppercase());
        Config::load(None, &HashMap::from([(name, value.to_string())]))
    }

    #[test]
    fn each_range_holds_at_both_ends() {
        for &(key, low, high) in RANGES {
            for inside in [low, high] {
                assert!(load(key, inside).is_ok(), "{key} = {inside} is refused");
            }
            for outside in [low.checked_sub(1), high.checked_add(1)].into_iter().flatten() {
                let error = load(key, outside).unwrap_err().to_string();
                assert!(error.contains(key) && error.contains(&describe(low, high)), "{outside}: {error}");
            }
        }
    }

    #[test]
    fn each_number_among_the_defaults_has_a_range() {
        let defaults: Table = DEFAULTS.parse().unwrap();
        for (section, keys) in &defaults {
            for (name, value) in keys.as_table().unwrap() {
                let key = format!("{section}.{name}");
                let has_range = RANGES.iter().any(|(ranged, ..)| *ranged == key);
                assert_eq!(has_range, value.is_integer(), "{key}");
            }
        }
    }
}
