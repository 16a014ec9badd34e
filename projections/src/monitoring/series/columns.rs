//! Roll-ups of one channel by column, of which only those are read that an aggregate needs. A year has 8,760 hours: a row for each
//! of them takes longer to read than to add.

use chrono::NaiveDate;
use signalbox_datapoint_log::ChunkPoint;
use signalbox_from_row::FromRow;
use sqlx::PgConnection;

use super::{
    DAY,
    packs::Group,
    rollups::Source,
    summary::{Figures, Sum, Summary},
};

/// `None` for columns that are not read, and for each where there are no roll-ups.
#[derive(Debug, FromRow)]
struct Columns {
    number: Option<Vec<i32>>,
    count: Option<Vec<i64>>,
    sum: Option<Vec<f64>>,
    sum_low: Option<Vec<f64>>,
    min: Option<Vec<f64>>,
    max: Option<Vec<f64>>,
    first_time: Option<Vec<i64>>,
    first_value: Option<Vec<f64>>,
    first_position: Option<Vec<i64>>,
    first_index: Option<Vec<i32>>,
    last_time: Option<Vec<i64>>,
    last_value: Option<Vec<f64>>,
    last_position: Option<Vec<i64>>,
    last_index: Option<Vec<i32>>,
}

fn cell<T: Copy + Default>(column: Option<&Vec<T>>, at: usize) -> T {
    column.and_then(|column| column.get(at)).copied().unwrap_or_default()
}

impl Columns {
    fn summary(&self, at: usize) -> Summary {
        Summary {
            count: cell(self.count.as_ref(), at),
            sum: Sum { high: cell(self.sum.as_ref(), at), low: cell(self.sum_low.as_ref(), at) },
            min: cell(self.min.as_ref(), at),
            max: cell(self.max.as_ref(), at),
            first: ChunkPoint {
                time: cell(self.first_time.as_ref(), at),
                value: cell(self.first_value.as_ref(), at),
                position: cell(self.first_position.as_ref(), at),
                index: cell(self.first_index.as_ref(), at) as u32,
            },
            last: ChunkPoint {
                time: cell(self.last_time.as_ref(), at),
                value: cell(self.last_value.as_ref(), at),
                position: cell(self.last_position.as_ref(), at),
                index: cell(self.last_index.as_ref(), at) as u32,
            },
        }
    }
}

/// The roll-ups of `channel` of one span in `ranges` of numbers, with these, in no order. One number may have several.
pub(super) async fn of_ranges(
    connection: &mut PgConnection,
    source: Source,
    channel: i32,
    (span, ranges): (i32, &[(i32, i32)]),
    figures: Figures,
) -> Result<Vec<(i32, Summary)>, sqlx::Error> {
    let (firsts, ends) = ranges.iter().copied().unzip();
    let days = vec![None; ranges.len()];
    read(connection, (source != Source::Kept, true), channel, (span, firsts, ends, days), figures).await
}

/// The hours of `channel` in `groups` whose values are there, as [`of_ranges`].
pub(super) async fn of_groups(
    connection: &mut PgConnection,
    channel: i32,
    groups: &[Group],
    figures: Figures,
) -> Result<Vec<(i32, Summary)>, sqlx::Error> {
    let firsts: Vec<i32> = groups.iter().map(|group| group.number.saturating_mul(DAY)).collect();
    let ends = firsts.iter().map(|first| first + DAY).collect();
    let days = groups.iter().map(|group| Some(group.day)).collect();
    read(connection, (true, false), channel, (1, firsts, ends, days), figures).await
}

/// Span, ranges of numbers without their ends, and the day of the log of each, unless it is any.
type Ranges = (i32, Vec<i32>, Vec<i32>, Vec<Option<NaiveDate>>);

async fn read(
    connection: &mut PgConnection,
    (with_live, with_kept): (bool, bool),
    channel: i32,
    (span, firsts, ends, days): Ranges,
    figures: Figures,
) -> Result<Vec<(i32, Summary)>, sqlx::Error> {
    let are = |some| figures == Figures::All || figures == some;
    let columns: Columns = sqlx::query_as(
        "SELECT array_agg(r.number) AS number,
                array_agg(r.count) FILTER (WHERE $6::bool) AS count, array_agg(r.sum) FILTER (WHERE $6) AS sum,
                array_agg(r.sum_low) FILTER (WHERE $6) AS sum_low,
                array_agg(r.min) FILTER (WHERE $7::bool) AS min, array_agg(r.max) FILTER (WHERE $7) AS max,
                array_agg(r.first_time) FILTER (WHERE $8::bool) AS first_time,
                array_agg(r.first_value) FILTER (WHERE $8) AS first_value,
                array_agg(r.first_position) FILTER (WHERE $8) AS first_position,
                array_agg(r.first_index) FILTER (WHERE $8) AS first_index,
                array_agg(r.last_time) FILTER (WHERE $8) AS last_time,
                array_agg(r.last_value) FILTER (WHERE $8) AS last_value,
                array_agg(r.last_position) FILTER (WHERE $8) AS last_position,
                array_agg(r.last_index) FILTER (WHERE $8) AS last_index
           FROM unnest($3::int[], $4::int[], $9::date[]) AS w (first, ending, day)
          CROSS JOIN LATERAL (
            SELECT s.* FROM (
                SELECT channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value, first_position, first_index,
                       last_time, last_value, last_position, last_index FROM series.rollups WHERE $5::bool
                 UNION ALL
                SELECT channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value, first_position, first_index,
                       last_time, last_value, last_position, last_index FROM ops.kept_rollups WHERE $10::bool) AS s
             WHERE s.channel = $1 AND s.span = $2 AND s.number >= w.first AND s.number < w.ending
               AND (w.day IS NULL OR s.day = w.day) OFFSET 0) AS r",
    )
    .bind(channel)
    .bind(span)
    .bind(firsts)
    .bind(ends)
    .bind(with_live)
    .bind(are(Figures::Sums))
    .bind(are(Figures::Extremes))
    .bind(are(Figures::Ends))
    .bind(days)
    .bind(with_kept)
    .fetch_one(connection)
    .await?;
    let numbers = columns.number.iter().flatten().enumerate();
    Ok(numbers.map(|(at, number)| (*number, columns.summary(at))).collect())
}
