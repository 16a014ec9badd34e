//! Hours that the ends of buckets cut: their roll-ups say in which days of the log they have chunks.

use signalbox_from_row::FromRow;
use sqlx::PgConnection;

use super::{
    chunk::RowHead,
    rollups::{RollupRow, Source},
};

/// The roll-up of an hour, and a row of its chunk.
#[derive(Debug, FromRow)]
pub(super) struct ChunkOfRollup {
    #[row(flatten)]
    pub(super) rollup: RollupRow,
    part: Option<i32>,
    points: Option<i32>,
    /// The points, of the first rows.
    pub(super) bytes: Option<Vec<u8>>,
}

impl ChunkOfRollup {
    /// None where there is no row: where the points are gone.
    pub(super) fn head(&self) -> Option<RowHead> {
        let RollupRow { channel, number, day, .. } = self.rollup;
        let (part, count) = self.part.zip(self.points)?;
        Some(RowHead { channel, hour: number, day, part, count })
    }
}

/// The hours of `channels` in `ranges`, with the rows of their chunks, of which the first ones, with at most `most` points, have their
/// points with them.
pub(super) async fn of_ranges(
    connection: &mut PgConnection,
    source: Source,
    channels: &[i32],
    ranges: &[(i32, i32)],
    most: i64,
) -> Result<Vec<ChunkOfRollup>, sqlx::Error> {
    let (firsts, ends): (Vec<i32>, Vec<i32>) = ranges.iter().copied().unzip();
    sqlx::query_as(
        "SELECT r.*, c.part, c.count AS points,
                CASE WHEN sum(c.count) OVER (ORDER BY r.channel, r.number, r.day, c.part) <= $5 THEN c.points END AS bytes
           FROM unnest($1::int[]) AS w (channel)
          CROSS JOIN unnest($2::int[], $3::int[]) AS v (first, ending)
          CROSS JOIN LATERAL (
            SELECT s.* FROM (
                SELECT l.*, false AS is_kept FROM series.rollups l WHERE $4::bool
                 UNION ALL
                SELECT channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value, first_position,
                       first_index, last_time, last_value, last_position, last_index, true FROM ops.kept_rollups) AS s
             WHERE s.channel = w.channel AND s.span = 1 AND s.number >= v.first AND s.number < v.ending OFFSET 0) AS r
           LEFT JOIN series.chunks c
             ON NOT r.is_kept AND c.channel = r.channel AND c.hour = r.number AND c.day = r.day",
    )
    .bind(channels)
    .bind(firsts)
    .bind(ends)
    .bind(source != Source::Kept)
    .bind(most)
    .fetch_all(connection)
    .await
}
