//! Clients of other products, unchanged, that write into Signalbox: InfluxData's client for Python, Debian's `influx` command and
//! Debian's `vmagent`.

mod kills;
mod limits;
mod new_series;
mod programs;

use serde_json::json;

use super::prometheus::{EQUAL, query, samples};
use crate::{api::v1::datapoints::listed, harness::World};

/// When the first value of each series was measured, in seconds: 2026-03-01T09:30:00Z.
pub const FIRST: i64 = 1_772_357_400;

/// The series and values that a client writes: value `i` of series `s` is i + 0.5 · s, measured `i` seconds after [`FIRST`].
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub series: i64,
    /// Of each series.
    pub values: i64,
}

impl Work {
    pub fn total(self) -> i64 {
        self.series * self.values
    }

    /// Number of the series, value and time in seconds of each, in the order of time.
    pub fn points(self) -> impl Iterator<Item = (i64, f64, i64)> {
        (0..self.values).flat_map(move |index| {
            (0..self.series).map(move |number| (number, index as f64 + 0.5 * number as f64, FIRST + index))
        })
    }

    /// Asserts that exactly these values were recorded, each once. The series are those whose label `key` is `value`.
    pub async fn assert_each_once(self, world: &World, key: &str, value: &str) {
        assert_eq!(listed(&world.admin, "page_size=1").await.1, self.total(), "number of values");
        let all = query(&[(EQUAL, key, value)], i64::MIN, i64::MAX);
        let read = samples(&world.admin, vec![all]).await.remove(0);
        assert_eq!(read.len() as i64, self.series);
        for number in 0..self.series {
            let label = format!("number=\"{number}\"");
            let (_, found) = read.iter().find(|(labels, _)| labels.contains(&label)).unwrap();
            let expected = self.points().filter(|(of, ..)| *of == number);
            let expected: Vec<_> = expected.map(|(_, value, time)| (time * 1000, value)).collect();
            assert!(*found == expected, "series {number} has {} values", found.len());
        }
    }
}

/// A new API token of the admin.
pub async fn token(world: &World) -> String {
    let made = world.admin.post("/api/v1/tokens", json!({"name": "foreign"})).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}
