//! Lists and exports of many points.

use chrono::DateTime;
use rand::{Rng, SeedableRng, rngs::StdRng};
use signalbox_database::on_behalf;
use signalbox_datapoint_log::{Point, micros, moment};
use signalbox_projections::{
    Page,
    monitoring::series::{Export, ExportSpan, ListFilter, list},
};
use signalbox_test_support::{eventually, seconds};

use super::{HOUR, Log, order, points};
use crate::world::at;

#[tokio::test]
async fn a_query_whose_caller_has_gone_away_ends_at_the_server() {
    let mut log = Log::new().await;
    log.append(vec![Point { channel: 1, time: micros(at(0)), value: 1.0 }]).await;
    log.fold().await;
    let mut blocker = signalbox_database::begin(&log.pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE series.hours IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let waiting = async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&log.pool).await.unwrap()
    };
    let pool = log.pool.clone();
    let page = Page { limit: 1, offset: 0 };
    let query = async move { list(&pool, ListFilter::default(), order("newest"), page).await.is_ok() };
    let query = tokio::spawn(on_behalf((), query));
    eventually(seconds(10), async || waiting().await == 1).await;
    query.abort();
    eventually(seconds(10), async || waiting().await == 0).await;
    blocker.rollback().await.unwrap();
    assert_eq!(list(&log.pool, ListFilter::default(), order("newest"), page).await.unwrap().total, 1);
}

#[tokio::test]
async fn an_export_holds_no_snapshot_and_shows_what_was_there_when_it_began() {
    let mut log = Log::new().await;
    let random = &mut StdRng::seed_from_u64(17);
    for _ in 0..6 {
        log.append(points(random, micros(log.clock.now()))).await;
    }
    log.fold().await;
    log.append(points(random, micros(log.clock.now()))).await;
    let span = ExportSpan { from: DateTime::UNIX_EPOCH, ..ExportSpan::default() };
    let mut export = Export::begin(&log.pool, span).await.unwrap().in_slices_of(7);
    let expected = log.expected(|_| true);
    let mut found = Vec::new();
    while let Some(slice) = export.next().await.unwrap() {
        found.extend(slice);
        let open = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()";
        let open = async || sqlx::query_scalar::<_, i64>(open).fetch_one(&log.pool).await.unwrap();
        eventually(seconds(10), async || open().await == 0).await;
        if random.random_bool(0.2) {
            log.append(points(random, micros(log.clock.now()))).await;
            log.fold().await;
        }
    }
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_total_of_many_matches_is_estimated_and_pages_are_exact() {
    let mut log = Log::new().await;
    let start = micros(at(0)).div_euclid(HOUR) * HOUR;
    for hour in 0..3 {
        let time = |nth: i64| start + hour * HOUR + nth * (HOUR / 50_000);
        log.append((0..50_000).map(|nth| Point { channel: 1, time: time(nth), value: nth as f64 }).collect())
            .await;
        log.fold().await;
    }
    let whole =
        list(&log.pool, ListFilter::default(), order("newest"), Page { limit: 1, offset: 0 }).await.unwrap();
    assert_eq!((whole.total, whole.is_estimated), (150_000, false));
    let (from, to) = (start + HOUR / 2, start + 5 * HOUR / 2);
    let filter = ListFilter { channels: None, from: Some(moment(from)), to: Some(moment(to)) };
    let mut expected = log.expected(|point| (from..to).contains(&point.point.time));
    for sort in ["oldest", "newest"] {
        for offset in [0, 24_990, 25_000, 99_990] {
            let found =
                list(&log.pool, filter.clone(), order(sort), Page { limit: 25, offset }).await.unwrap();
            assert!(found.is_estimated && (99_000..=101_000).contains(&found.total), "{}", found.total);
            let page: Vec<_> = expected.iter().copied().skip(offset as usize).take(25).collect();
            assert_eq!(found.points, page, "{sort} after {offset}");
        }
        expected.reverse();
    }
}
