//! Pages of lists, and the conditions of their filters.

use chrono::{DateTime, Utc};
use signalbox_database::begin;
use sqlx::{Encode, FromRow, PgPool, Postgres, QueryBuilder, Type, postgres::PgRow};

/// A page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Rows at most.
    pub limit: i64,
    /// Rows left out before.
    pub offset: i64,
}

/// A field that a list can be sorted by: its name in the interface, and its column.
pub type SortField = (&'static str, &'static str);

/// Rows that are listed in pages.
pub trait Listed {
    /// The orders that their list can be shown in.
    const SORTING: Sorting;

    /// The order of a request that names none.
    fn default_order() -> Order {
        Self::SORTING.default
    }
}

/// The orders that a list can be shown in.
///
/// A list that may become long offers only the order of creation, which an index serves.
#[derive(Debug, Clone, Copy)]
pub struct Sorting {
    created: SortField,
    others: &'static [SortField],
    tie_break: &'static str,
    default: Order,
}

/// The order of one list. Rows that are equal in the column follow the tie-break, so that no page repeats or misses a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    column: &'static str,
    tie_break: &'static str,
    is_descending: bool,
}

impl Sorting {
    /// Newest first by default. `created` grows with each new row, `tie_break` is different in every row.
    pub const fn newest_first(
        created: SortField,
        others: &'static [SortField],
        tie_break: &'static str,
    ) -> Self {
        let default = Order { column: created.1, tie_break, is_descending: true };
        Self { created, others, tie_break, default }
    }

    /// Oldest first by default.
    pub const fn oldest_first(
        created: SortField,
        others: &'static [SortField],
        tie_break: &'static str,
    ) -> Self {
        let default = Order { column: created.1, tie_break, is_descending: false };
        Self { created, others, tie_break, default }
    }

    /// Ascending by `column` by default.
    pub const fn by(self, column: &'static str) -> Self {
        let default = Order { column, tie_break: self.tie_break, is_descending: false };
        Self { default, ..self }
    }

    /// The order that a client calls `text`: `newest`, `oldest`, or a field, with `-` before it for descending. The time of
    /// creation has one name in every list beside its own.
    pub fn order(&self, text: &str) -> Option<Order> {
        let (name, is_descending) = match text {
            "newest" => (self.created.0, true),
            "oldest" => (self.created.0, false),
            field => field.strip_prefix('-').map_or((field, false), |field| (field, true)),
        };
        let name = if matches!(name, "created_at" | "created_on") { self.created.0 } else { name };
        let (_, column) = self.fields().find(|(known, _)| *known == name)?;
        Some(Order { column, tie_break: self.tie_break, is_descending })
    }

    /// Everything that [`Self::order`] takes, but for the second names.
    pub fn values(&self) -> Vec<String> {
        let fields = self.fields().flat_map(|(name, _)| [name.to_owned(), format!("-{name}")]);
        ["newest", "oldest"].map(str::to_owned).into_iter().chain(fields).collect()
    }

    fn fields(&self) -> impl Iterator<Item = SortField> {
        std::iter::once(self.created).chain(self.others.iter().copied())
    }
}

impl Order {
    /// Whether the greatest, or the newest, is first.
    pub fn is_descending(self) -> bool {
        self.is_descending
    }

    /// The terms of `ORDER BY`.
    fn terms(self) -> String {
        let direction = if self.is_descending { "DESC" } else { "ASC" };
        let Self { column, tie_break, .. } = self;
        if column == tie_break {
            return format!("{column} {direction}");
        }
        format!("{column} {direction}, {tie_break} {direction}")
    }
}

/// The rows of `page` in this order, and their number on all pages. `from` adds `FROM … WHERE …`.
pub(crate) async fn list<'q, R: for<'r> FromRow<'r, PgRow> + Send + Unpin>(
    pool: &PgPool,
    select: &str,
    order: Order,
    page: Page,
    from: impl Fn(&mut QueryBuilder<'q, Postgres>),
) -> Result<(Vec<R>, i64), sqlx::Error> {
    let mut rows = QueryBuilder::new(select);
    from(&mut rows);
    rows.push(format!(" ORDER BY {} LIMIT ", order.terms()))
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

/// Adds the condition that `column` equals `value`, if there is a value.
pub(crate) fn and_eq<'q, T>(query: &mut QueryBuilder<'q, Postgres>, column: &str, value: Option<T>)
where
    T: Encode<'q, Postgres> + Type<Postgres> + 'q,
{
    if let Some(value) = value {
        query.push(format!(" AND {column} = ")).push_bind(value);
    }
}

/// Adds the condition that `column` contains `part`, ignoring case, if there is a part.
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

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: Sorting = Sorting::newest_first(("created_at", "number"), &[("name", "j.name")], "number");

    #[test]
    fn an_order_is_named_by_a_field_of_the_list() {
        let terms = |text: &str| JOBS.order(text).map(Order::terms);
        for (text, expected) in [
            ("newest", "number DESC"),
            ("-created_at", "number DESC"),
            ("created_on", "number ASC"),
            ("name", "j.name ASC, number ASC"),
            ("-name", "j.name DESC, number DESC"),
        ] {
            assert_eq!(terms(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "-", "--name", "-newest", "Name", "j.name", "name, id", "number"] {
            assert_eq!(terms(text), None, "{text}");
        }
    }

    #[test]
    fn every_value_names_an_order() {
        assert_eq!(JOBS.values(), ["newest", "oldest", "created_at", "-created_at", "name", "-name"]);
        assert!(JOBS.values().iter().all(|value| JOBS.order(value).is_some()));
        assert_eq!(Some(JOBS.default), JOBS.order("newest"));
        assert_eq!(Some(JOBS.by("j.name").default), JOBS.order("name"));
    }
}
