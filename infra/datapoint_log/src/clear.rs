use chrono::NaiveDate;
use sqlx::PgConnection;

use crate::{
    Origin, Point,
    codec::{decode_block, encode_block},
};

/// Rows that one call reads at most, and points: a row may hold many.
const ROWS: i64 = 1000;
const POINTS: i64 = 200_000;

/// Removes the values of `channels` from some rows of `day` after `position`: their places stay, empty, so that every other point keeps
/// its id. Returns the position of the last row read; `None` when there are no more. A row that cannot be decoded stays as it is.
///
/// # Errors
/// The database's error.
pub async fn clear_points(
    connection: &mut PgConnection,
    (day, channels): (NaiveDate, &[i32]),
    position: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(
        "SELECT position, payload FROM (
             SELECT position, payload, points, sum(points) OVER (ORDER BY position) AS read
               FROM (SELECT position, payload, points FROM datapoint_log WHERE day = $1 AND position > $2 AND kind = 1
                      ORDER BY position LIMIT $3) AS l) AS r
          WHERE read - points < $4 ORDER BY position",
    )
    .bind(day)
    .bind(position)
    .bind(ROWS)
    .bind(POINTS)
    .fetch_all(&mut *connection)
    .await?;
    let Some(last) = rows.last().map(|(position, _)| *position) else { return Ok(None) };
    let cleared =
        rows.iter().filter_map(|(position, payload)| Some((*position, without(payload, channels)?)));
    let (positions, payloads): (Vec<i64>, Vec<Vec<u8>>) = cleared.unzip();
    sqlx::query("SELECT clear_datapoints($1, $2::bigint[], $3::bytea[])")
        .bind(day)
        .bind(positions)
        .bind(payloads)
        .execute(connection)
        .await?;
    Ok(Some(last))
}

/// The blocks of `payload` with empty places for the values of `channels`; `None` if it has none of them, or is unreadable.
fn without(mut payload: &[u8], channels: &[i32]) -> Option<Vec<u8>> {
    let (mut written, mut is_changed) = (Vec::with_capacity(payload.len()), false);
    while !payload.is_empty() {
        let (origin, mut points): (Origin, Vec<Point>) = decode_block(&mut payload).ok()?;
        for point in &mut points {
            if channels.contains(&point.channel) {
                is_changed |= !point.is_cleared();
                *point = Point::cleared(point.channel);
            }
        }
        // Points are in the order of their channels already, so their places stay.
        written.extend(encode_block(origin, &mut points));
    }
    is_changed.then_some(written)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::decode_payload;

    #[test]
    fn other_points_keep_value_time_and_index() {
        let point = |channel, time| Point { channel, time, value: 0.5 };
        let block = |points: &[Point]| encode_block(Origin::User(Uuid::nil()), &mut points.to_vec());
        let payload =
            [block(&[point(1, 5), point(2, 6), point(2, 7), point(9, 8)]), block(&[point(2, 9)])].concat();
        let written = without(&payload, &[2, 3]).unwrap();
        let points = decode_payload(&written).unwrap();
        assert_eq!(points.len(), 5);
        let kept: Vec<_> = points.iter().map(|point| (!point.is_cleared()).then_some(point.time)).collect();
        assert_eq!(kept, [Some(5), None, None, Some(8), None]);
        assert_eq!(without(&written, &[2]), None);
        assert_eq!(without(&payload, &[4]), None);
        assert_eq!(without(&payload[..7], &[2]), None);
    }
}
