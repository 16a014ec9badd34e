use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_datapoint_log::micros;
use sqlx::PgPool;

use super::{
    Datapoint, SeriesError,
    hours::{Range, hours, next_points, rows_of},
    snapshot::Snapshot,
};

/// The points of a channel measured from `from` on and before `to`, in the order of their arrival; `None` if there
/// are more than `most`.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn recorded(
    pool: &PgPool,
    channel: i32,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
    most: usize,
) -> Result<Option<Vec<Datapoint>>, SeriesError> {
    let range = Range {
        channels: Some(vec![channel]),
        from: Some(micros(from)),
        to: Some(micros(to)),
        ..Range::default()
    };
    let mut snapshot = Snapshot::open(pool).await?;
    let mut tail = snapshot.tail(range.from).await?;
    tail.points.retain(|point| range.contains(point));
    let folded = hours(snapshot.connection(), &range, &tail).await?;
    let count = folded.iter().map(|hour| hour.count).sum::<i64>() as usize + tail.points.len();
    if count > most {
        snapshot.close();
        return Ok(None);
    }
    let mut found = tail.points.clone();
    for hour in folded {
        let mut rows = rows_of(snapshot.connection(), &range, hour.hour).await?;
        let connection = snapshot.connection();
        while let Some(points) = next_points(connection, hour.hour, &mut rows, &range, &tail).await? {
            found.extend(points);
        }
    }
    snapshot.close();
    // The count may have been estimated.
    if found.len() > most {
        return Ok(None);
    }
    found.sort_unstable_by_key(|point| (point.point.position, point.point.index));
    Ok(Some(found))
}
