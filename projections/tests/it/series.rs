//! Datapoints: queries show all of them, whatever their order of arrival, and whenever they are folded.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use signalbox_clock::Clock;
use signalbox_datapoint_log::{
    Appender, Batch, ChunkPoint, Origin, Point, Tombstone, append_tombstone, codec::encode_block, micros,
    moment,
};
use signalbox_projections::{
    Listed, Order, Page,
    monitoring::series::{
        Aggregate, BucketWindow, Datapoint, Export, ExportSpan, Figures, FoldStep, Folder, ListFilter,
        Window, buckets, drop_old_days, drop_old_rollups, latest, list, rebuild_series, series,
    },
};
use signalbox_test_support::fresh_database;
use sqlx::PgPool;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::{World, at};

mod damage;
mod deletions;
mod exports;
mod retention;
mod rollups;

const HOUR: i64 = 3_600_000_000;

fn order(sort: &str) -> Order {
    Datapoint::SORTING.order(sort).unwrap()
}

/// A log and its expected points.
struct Log {
    pool: PgPool,
    clock: Clock,
    appender: Appender,
    folder: Folder,
    known: Vec<Datapoint>,
    /// When rows arrived.
    arrivals: BTreeMap<i64, i64>,
    batches: u128,
}

impl Log {
    async fn new() -> Self {
        Self::of(signalbox_database::connect(&fresh_database().await, 8).await.unwrap())
    }

    /// Beside a log of events.
    async fn in_world() -> (Self, World) {
        let world = World::start().await;
        (Self::of(world.pool().clone()), world)
    }

    fn of(pool: PgPool) -> Self {
        let clock = Clock::manual(at(0));
        let appender = Appender::start(pool.clone(), clock.clone(), mpsc::channel(1).0);
        let folder = Folder::new(pool.clone());
        Self { pool, clock, appender, folder, known: Vec::new(), arrivals: BTreeMap::new(), batches: 0 }
    }

    async fn append(&mut self, mut points: Vec<Point>) {
        self.batches += 1;
        let block = encode_block(Origin::User(Uuid::nil()), &mut points).into();
        let batch =
            Batch { id: Uuid::from_u128(self.batches), points: points.len(), block, traceparent: None };
        let appended = self.appender.append(batch).await.unwrap();
        self.arrivals.insert(appended.position, micros(self.clock.now()));
        for (point, index) in points.into_iter().zip(appended.first_index..) {
            let position = appended.position;
            let known = ChunkPoint { time: point.time, value: point.value, position, index };
            self.known.push(Datapoint { channel: point.channel, day: appended.day, point: known });
        }
    }

    async fn delete(&mut self, place: usize) {
        let point = self.known.swap_remove(place);
        let tombstone = Tombstone {
            day: point.day,
            position: point.point.position,
            index: point.point.index,
            channel: point.channel,
            time: point.point.time,
            actor: "system:test".to_owned(),
        };
        append_tombstone(&self.pool, &tombstone, &self.clock).await.unwrap().unwrap();
    }

    /// A row that claims to hold `points` points, and does not.
    async fn append_unreadable(&self, points: i32) {
        sqlx::query(
            "WITH head AS (UPDATE log_head SET position = position + 1, points = points + $2
                            WHERE log = 'datapoints' RETURNING position, points)
             INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
             SELECT position, $1::date, $1, 1, $2, points, '\\x0badc0de' FROM head",
        )
        .bind(self.clock.now())
        .bind(points)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    async fn fold(&mut self) {
        while self.folder.step().await.unwrap() != FoldStep::Idle {}
    }

    async fn pack(&self) {
        while self.folder.pack().await.unwrap() {}
    }

    fn expected(&self, is_selected: impl Fn(&Datapoint) -> bool) -> Vec<Datapoint> {
        let mut points: Vec<_> = self.known.iter().copied().filter(|point| is_selected(point)).collect();
        points.sort_by_key(|point| point.point.order());
        points
    }

    async fn exported(&self, from: DateTime<Utc>, to: Option<DateTime<Utc>>, slice: usize) -> Vec<Datapoint> {
        let export =
            Export::begin(&self.pool, ExportSpan { from, to, ..ExportSpan::default() }).await.unwrap();
        let mut export = export.in_slices_of(slice);
        let mut found = Vec::new();
        while let Some(points) = export.next().await.unwrap() {
            found.extend(points);
        }
        found
    }

    /// Compares every query with the expected points.
    async fn check(&self, random: &mut StdRng) {
        // The earlier of device time and arrival counts.
        let rank = |point: &Datapoint| {
            let point = point.point;
            (point.time.min(self.arrivals[&point.position]), point.position, point.index)
        };
        let mut current: BTreeMap<i32, Datapoint> = BTreeMap::new();
        for point in self.expected(|_| true) {
            let known = current.entry(point.channel).or_insert(point);
            if rank(known) < rank(&point) {
                *known = point;
            }
        }
        assert_eq!(latest(&self.pool).await.unwrap(), current.into_values().collect::<Vec<_>>());
        for slice in [1, random.random_range(2..100), 1_000_000] {
            assert_eq!(self.exported(DateTime::UNIX_EPOCH, None, slice).await, self.expected(|_| true));
        }
        self.check_export_parts(random).await;
        let times: Vec<i64> = self.known.iter().map(|point| point.point.time).collect();
        for _ in 0..4 {
            let mut time = || *times.choose(random).unwrap_or(&0) + random.random_range(-1..2);
            let (from, to) = (time(), time());
            let channels: Vec<i32> = (1..5).filter(|_| random.random()).collect();
            let (from, to) = (random.random::<bool>().then_some(from), random.random::<bool>().then_some(to));
            let channels = random.random::<bool>().then_some(channels);
            self.check_list(channels, from, to, random.random_range(0..40)).await;
        }
        let from = moment(*times.choose(random).unwrap_or(&0));
        self.check_series(from).await;
        for _ in 0..3 {
            self.check_buckets(random).await;
        }
    }

    /// Exports that end anywhere and continue behind their last point have all points once.
    async fn check_export_parts(&self, random: &mut StdRng) {
        let channels: Vec<i32> = (1..5).filter(|_| random.random()).collect();
        let expected = self.expected(|point| channels.contains(&point.channel));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let span = ExportSpan { channels: Some(channels.clone()), after, ..ExportSpan::default() };
            let mut export = Export::begin(&self.pool, span).await.unwrap().in_slices_of(7);
            let (mut part, most) = (Vec::new(), random.random_range(20..200));
            while part.len() < most
                && let Some(points) = export.next().await.unwrap()
            {
                part.extend(points);
            }
            part.truncate(most);
            let Some(last) = part.last() else { break };
            after = Some(last.point);
            found.extend(part);
        }
        assert_eq!(found, expected);
    }

    async fn check_list(&self, channels: Option<Vec<i32>>, from: Option<i64>, to: Option<i64>, offset: i64) {
        let mut expected = self.expected(|point| {
            from.is_none_or(|from| point.point.time >= from)
                && to.is_none_or(|to| point.point.time < to)
                && channels.as_ref().is_none_or(|channels| channels.contains(&point.channel))
        });
        let filter = ListFilter { channels, from: from.map(moment), to: to.map(moment) };
        for sort in ["oldest", "newest"] {
            let found =
                list(&self.pool, filter.clone(), order(sort), Page { limit: 25, offset }).await.unwrap();
            assert_eq!((found.total, found.is_estimated), (expected.len() as i64, false));
            let page: Vec<_> = expected.iter().copied().skip(offset as usize).take(25).collect();
            assert_eq!(found.points, page, "{sort} from {from:?} to {to:?} after {offset}");
            expected.reverse();
        }
    }

    /// Every aggregate equals the same over the raw points, for windows and steps of any size.
    async fn check_buckets(&self, random: &mut StdRng) {
        if random.random_bool(0.2) {
            self.pack().await;
        }
        let times: Vec<i64> = self.known.iter().map(|point| point.point.time).collect();
        let oldest = times.iter().copied().min().unwrap_or_default();
        let (any, length) = (*times.choose(random).unwrap_or(&0), random.random_range(1..20 * 24 * HOUR));
        let mut from = if random.random_bool(0.3) { oldest } else { any - random.random_range(0..length) };
        let step = match random.random_range(0..4) {
            0 => random.random_range(1..1000) * HOUR,
            1 => 24 * HOUR * random.random_range(1..400),
            2 => HOUR,
            _ => random.random_range(1..30 * HOUR),
        };
        if random.random_bool(0.7) {
            from -= from.rem_euclid(HOUR);
        }
        let to = from + if random.random_bool(0.3) { 20_000 * HOUR } else { length };
        let channels = vec![1, 2, 3, 9];
        let window = BucketWindow {
            channels: channels.clone(),
            from: moment(from),
            to: moment(to),
            step: TimeDelta::microseconds(step),
            figures: [Figures::All, Figures::Sums, Figures::Extremes, Figures::Ends]
                [random.random_range(0..4)],
        };
        let are = |some| window.figures == Figures::All || window.figures == some;
        let found = buckets(&self.pool, &window).await.unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), channels);
        for (channel, found) in found {
            let mut expected: BTreeMap<i64, Vec<ChunkPoint>> = BTreeMap::new();
            let is_selected =
                |point: &Datapoint| point.channel == channel && (from..to).contains(&point.point.time);
            for point in self.expected(is_selected) {
                expected.entry((point.point.time - from) / step).or_default().push(point.point);
            }
            let starts: Vec<_> = expected.keys().map(|number| moment(from + number * step)).collect();
            assert_eq!(found.iter().map(|bucket| bucket.start).collect::<Vec<_>>(), starts, "{window:?}");
            for (bucket, points) in found.iter().zip(expected.values()) {
                let (summary, values) = (bucket.summary, points.iter().map(|point| point.value));
                let sum: f64 = values.clone().sum();
                if are(Figures::Sums) {
                    assert_eq!(summary.count(), points.len() as i64, "{channel} {window:?} {bucket:?}");
                    assert!(
                        (summary.sum() - sum).abs() <= 1e-9 * sum.abs(),
                        "{} is not {sum}",
                        summary.sum()
                    );
                    assert!((summary.avg() - sum / points.len() as f64).abs() <= 1e-9 * sum.abs());
                }
                if are(Figures::Extremes) {
                    assert_eq!(summary.min(), values.clone().fold(f64::INFINITY, f64::min));
                    assert_eq!(summary.max(), values.fold(f64::NEG_INFINITY, f64::max));
                }
                if are(Figures::Ends) {
                    assert_eq!((summary.first(), summary.last()), (points[0], points[points.len() - 1]));
                }
            }
        }
    }

    async fn check_series(&self, from: DateTime<Utc>) {
        let window =
            Window { channels: vec![1, 2, 9], from, to: None, max_points: 50, aggregate: Aggregate::None };
        let found = series(&self.pool, &window).await.unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1, 2, 9]);
        assert_eq!(found[&9], []);
        for channel in [1, 2] {
            let points = self.expected(|point| point.channel == channel && point.point.time >= micros(from));
            let expected: Vec<_> = if points.len() <= 50 {
                points
            } else {
                let stride = |nth: usize| points[nth * points.len() / 50];
                (0..49).map(stride).chain(points.last().copied()).collect()
            };
            assert_eq!(found[&channel], expected);
        }
    }
}

/// Mostly of now, some late, some very late, some equal.
fn points(random: &mut StdRng, now: i64) -> Vec<Point> {
    let count = random.random_range(1..60);
    let mut time = || match random.random_range(0..10) {
        0 => now - random.random_range(0..30 * HOUR),
        1 => random.random_range(0..now),
        2 => now + random.random_range(0..HOUR / 6),
        _ => now - random.random_range(0..3) * 1_000_000,
    };
    let times: Vec<i64> = (0..count).map(|_| time()).collect();
    let point = |time| Point {
        channel: random.random_range(1..5),
        time,
        value: f64::from(random.random_range(-500..500)) / 8.0,
    };
    times.into_iter().map(point).collect()
}

#[tokio::test]
async fn queries_show_all_points_whenever_they_are_folded() {
    for seed in 0..4 {
        let random = &mut StdRng::seed_from_u64(seed);
        let mut log = Log::new().await;
        for round in 0..40 {
            log.clock.advance(TimeDelta::seconds(random.random_range(0..6000)));
            let now = micros(log.clock.now());
            log.append(points(random, now)).await;
            if random.random_bool(0.3) {
                let newest =
                    (0..log.known.len()).max_by_key(|place| log.known[*place].point.order()).unwrap();
                let any = random.random_range(0..log.known.len());
                log.delete(if random.random() { newest } else { any }).await;
            }
            if random.random_bool(0.5) {
                log.fold().await;
            }
            if round % 5 == 4 {
                log.check(random).await;
            }
        }
        log.fold().await;
        log.check(random).await;
        let report = rebuild_series(&log.pool).await.unwrap();
        assert_eq!(report.differences, 0, "seed {seed}");
        log.check(random).await;
        // The live fold continues where the rebuild ended.
        log.append(points(random, micros(log.clock.now()))).await;
        log.fold().await;
        log.check(random).await;
    }
}

#[tokio::test]
async fn a_rebuild_reports_damage_and_repairs_it() {
    let random = &mut StdRng::seed_from_u64(9);
    let mut log = Log::new().await;
    for _ in 0..5 {
        log.append(points(random, micros(log.clock.now()))).await;
        log.fold().await;
    }
    sqlx::query("DELETE FROM series.chunks WHERE channel = 2").execute(&log.pool).await.unwrap();
    sqlx::query("UPDATE series.latest SET value = value + 1 WHERE channel = 1")
        .execute(&log.pool)
        .await
        .unwrap();
    assert!(rebuild_series(&log.pool).await.unwrap().differences > 2);
    log.check(random).await;
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
}

#[tokio::test]
async fn a_rebuild_while_points_come_in_loses_none() {
    let mut log = Log::new().await;
    let random = &mut StdRng::seed_from_u64(5);
    let pool = log.pool.clone();
    let rebuilding = tokio::spawn(async move {
        for _ in 0..4 {
            rebuild_series(&pool).await.unwrap();
        }
    });
    while !rebuilding.is_finished() {
        log.append(points(random, micros(log.clock.now()))).await;
        let page = Page { limit: 1, offset: 0 };
        let listed = list(&log.pool, ListFilter::default(), order("newest"), page).await.unwrap();
        assert_eq!(listed.total, log.known.len() as i64);
        log.folder.step().await.unwrap();
    }
    rebuilding.await.unwrap();
    log.fold().await;
    log.check(random).await;
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
}

#[tokio::test]
async fn old_days_are_dropped_with_their_newest_points() {
    let mut log = Log::new().await;
    let random = &mut StdRng::seed_from_u64(7);
    for day in 0..6 {
        let now = micros(log.clock.now());
        let mut points = points(random, now);
        // A channel that stopped, and one that gets late values only.
        points.retain(|point| point.channel != 3 || day < 2);
        points.push(Point { channel: 8, time: now - day * 40 * HOUR, value: day as f64 });
        log.append(points).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    let oldest = at(0).date_naive() + TimeDelta::days(3);
    assert!(drop_old_days(&log.pool, oldest, oldest).await.unwrap().partitions >= 9);
    log.known.retain(|point| point.day >= oldest);
    // Roll-ups outlive their values, and `check` compares buckets with values.
    drop_old_rollups(&log.pool, oldest - TimeDelta::days(1)).await.unwrap();
    log.check(random).await;
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    log.check(random).await;
    // Rows that have not been folded are never dropped.
    log.append(points(random, micros(log.clock.now()))).await;
    drop_old_days(&log.pool, oldest + TimeDelta::days(99), oldest).await.unwrap();
    log.fold().await;
    let kept: HashSet<_> = latest(&log.pool).await.unwrap().into_iter().map(|point| point.day).collect();
    assert!(kept.contains(&log.clock.now().date_naive()));
}

/// A busy channel: samples stand for points, the newest is shown, and few bytes are read.
#[tokio::test]
async fn a_long_window_of_a_busy_channel_is_thinned_by_samples() {
    let mut log = Log::new().await;
    let start = micros(at(0));
    let total = 60_000_i64;
    for batch in 0..20 {
        let of = |index: i64| {
            let nth = batch * 3000 + index;
            Point { channel: 1, time: start + nth * HOUR / 20_000, value: nth as f64 }
        };
        log.append((0..3000).map(of).collect()).await;
        log.fold().await;
    }
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM series.chunks").fetch_one(&log.pool).await.unwrap();
    assert!(rows <= 12, "{rows} rows for three hours");
    let shown = async |max_points, aggregate| {
        let window = Window { channels: vec![1], from: at(0), to: None, max_points, aggregate };
        let found = series(&log.pool, &window).await.unwrap().remove(&1).unwrap();
        found.iter().map(|point| point.point.value).collect::<Vec<_>>()
    };
    for max_points in [10, 100, 500] {
        let values = shown(max_points, Aggregate::None).await;
        assert!(values.len() <= max_points && values.len() > max_points / 2, "{}", values.len());
        assert_eq!((values[0], values[values.len() - 1]), (0.0, (total - 1) as f64));
        let widest = values.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(widest <= 4.0 * total as f64 / max_points as f64, "{max_points}: a gap of {widest}");
        let greatest = shown(max_points, Aggregate::Max).await;
        assert_eq!(greatest.last(), Some(&((total - 1) as f64)));
        assert_eq!(shown(max_points, Aggregate::Min).await[0], 0.0);
        let means = shown(max_points, Aggregate::Avg).await;
        assert!(means.is_sorted());
    }
}

/// Samples stand for points above 8,192, and those of late values overlap others in time.
#[tokio::test]
async fn late_values_of_a_busy_channel_leave_aggregates_in_order() {
    let mut log = Log::new().await;
    let start = micros(at(0));
    for late in [0, 1] {
        for batch in 0..5 {
            let of = |index: i64| {
                let time = start + (2 * (batch * 4000 + index) + late) * 90_000;
                let value = f64::from(i32::try_from((index * 7919) % 4001).unwrap());
                Point { channel: 1, time, value }
            };
            log.append((0..4000).map(of).collect()).await;
            log.fold().await;
        }
    }
    let newest = *log.expected(|_| true).last().unwrap();
    for aggregate in [Aggregate::None, Aggregate::Avg, Aggregate::Min, Aggregate::Max, Aggregate::MinMax] {
        for max_points in [10, 100, 500, 2000] {
            let window = Window { channels: vec![1], from: at(0), to: None, max_points, aggregate };
            let found = series(&log.pool, &window).await.unwrap().remove(&1).unwrap();
            assert!(found.len() <= max_points, "{aggregate:?} {max_points}: {}", found.len());
            assert!(found.is_sorted_by_key(|point| point.point.time), "{aggregate:?} {max_points}");
            assert_eq!(found.last(), Some(&newest), "{aggregate:?} {max_points}");
        }
    }
}

#[tokio::test]
async fn points_after_a_clock_that_was_ahead_are_shown() {
    let mut log = Log::new().await;
    let random = &mut StdRng::seed_from_u64(13);
    for days in [40, -40, 3, -3] {
        log.append(points(random, micros(at(0)))).await;
        log.check(random).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(days));
    }
    log.append(points(random, micros(at(0)))).await;
    log.check(random).await;
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    log.check(random).await;
}
