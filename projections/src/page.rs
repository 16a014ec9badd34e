//! What lists have in common: which rows are wanted, and the conditions of their filters.

use chrono::{DateTime, Utc};
use signalbox_database::begin;
use sqlx::{Encode, FromRow, PgPool, Postgres, QueryBuilder, Type, postgres::PgRow};

/// Which rows of a list are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Rows at most.
    pub limit: i64,
    /// Rows left out before.
    pub offset: i64,
}

/// The rows of `page` in this order, and how many there are on all pages. `from` says of what: it adds `FROM … WHERE …`.
pub(crate) async fn list<'q, R: for<'r> FromRow<'r, PgRow> + Send + Unpin>(
    pool: &PgPool,
    select: &str,
    order: &str,
    page: Page,
    from: impl Fn(&mut QueryBuilder<'q, Postgres>),
) -> Result<(Vec<R>, i64), sqlx::Error> {
    let mut rows = QueryBuilder::new(select);
    from(&mut rows);
    rows.push(format!(" ORDER BY {order} LIMIT "))
        .push_bind(page.limit)
        .push(" OFFSET ")
        .push_bind(page.offset);
    let mut count = QueryBuilder::new("SELECT count(*)");
    from(&mut count);
    // Both see the same moment: a total of one beside an empty page would be no answer.
    let mut moment = begin(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    let rows = rows.build_query_as().fetch_all(&mut *moment).await?;
    let total = count.build_query_scalar().fetch_one(&mut *moment).await?;
    moment.commit().await?;
    Ok((rows, total))
}

/// Adds that `column` is `value`, if one is wanted.
pub(crate) fn and_eq<'q, T>(query: &mut QueryBuilder<'q, Postgres>, column: &str, value: Option<T>)
where
    T: Encode<'q, Postgres> + Type<Postgres> + 'q,
{
    if let Some(value) = value {
        query.push(format!(" AND {column} = ")).push_bind(value);
    }
}

/// Adds that `part` is in `column`, in any case of letters, if one is wanted.
pub(crate) fn and_like<'q>(query: &mut QueryBuilder<'q, Postgres>, column: &str, part: Option<&'q str>) {
    if let Some(part) = part {
        query.push(format!(" AND strpos(lower({column}), lower(")).push_bind(part).push(")) > 0");
    }
}

/// Adds that `column` is at or after `from` and before `to`, as far as they are given.
pub(crate) fn and_within(
    query: &mut QueryBuilder<'_, Postgres>,
    column: &str,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
) {
    if let Some(from) = from {
        query.push(format!(" AND {column} >= ")).push_bind(from);
    }
    if let Some(to) = to {
        query.push(format!(" AND {column} < ")).push_bind(to);
    }
}
