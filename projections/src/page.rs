//! What lists have in common: which rows are wanted, and the conditions of their filters.

use sqlx::{Postgres, QueryBuilder};

/// Which rows of a list are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Rows at most.
    pub limit: i64,
    /// Rows left out before.
    pub offset: i64,
}

pub(crate) fn and_eq(query: &mut QueryBuilder<'_, Postgres>, column: &str, value: Option<&str>) {
    if let Some(value) = value {
        query.push(format!(" AND {column} = ")).push_bind(value.to_owned());
    }
}

pub(crate) fn and_like(query: &mut QueryBuilder<'_, Postgres>, column: &str, part: Option<&str>) {
    if let Some(part) = part {
        query.push(format!(" AND strpos(lower({column}), lower(")).push_bind(part.to_owned()).push(")) > 0");
    }
}

pub(crate) fn push_page(query: &mut QueryBuilder<'_, Postgres>, page: Page) {
    query.push(" LIMIT ").push_bind(page.limit).push(" OFFSET ").push_bind(page.offset);
}
