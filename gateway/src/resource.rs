//! Resources that routes find by their ids, and show as they are or were.

use axum::response::Response;
use futures::future::BoxFuture;
use serde::Serialize;
use signalbox_projections::register::{At, Past, Resource, StateError, past};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    answer::{self, Written},
    extract::key,
    past::there,
    problem::Problem,
    services::replica::Database,
};

/// A row that a route finds by its id.
pub(crate) trait Found: Resource + 'static {
    /// Names its kind to people.
    const KIND: &'static str;

    /// The row `id` as it is.
    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>>;

    /// The row `id` as it was.
    fn query_at(pool: &PgPool, id: Uuid, at: At) -> BoxFuture<'_, Result<Past<Self>, StateError>> {
        Box::pin(past(pool, id, at))
    }
}

/// A row that is shown without asking for more.
pub(crate) trait Shown: Found {
    /// Path of its collection.
    const PATH: &'static str;
    /// Its body in answers.
    type Out: From<Self> + Serialize;

    fn version(&self) -> i64;
}

/// The resource that clients call `id`.
pub(crate) async fn find<R: Found>(database: &Database, id: &str) -> Result<R, Problem> {
    let id = key(R::KIND, id)?;
    database.read(|pool| R::query(pool, id)).await?.ok_or_else(|| Problem::not_found(R::KIND))
}

/// The resource that clients call `id` as it was `at`, or as it is.
pub(crate) async fn find_at<R: Found>(database: &Database, id: &str, at: Option<At>) -> Result<R, Problem> {
    match at {
        None => find(database, id).await,
        Some(at) => there(R::KIND, R::query_at(&database.primary, key(R::KIND, id)?, at).await?),
    }
}

/// The answer that shows `row`.
pub(crate) fn shown<R: Shown>(row: R) -> Response {
    answer::resource(row.version(), &R::Out::from(row))
}

/// The answer to a write that created the resource `id`.
pub(crate) async fn created<R: Shown>(
    database: &Database,
    id: Uuid,
    written: Written,
) -> Result<Response, Problem> {
    let row = find_at::<R>(database, &id.to_string(), written.unseen).await?;
    Ok(answer::created(written, &format!("{}/{id}", R::PATH), row.version(), &R::Out::from(row)))
}

/// The answer to a write that changed the resource that clients call `id`.
pub(crate) async fn changed<R: Shown>(
    database: &Database,
    id: &str,
    written: Written,
) -> Result<Response, Problem> {
    let row = find_at::<R>(database, id, written.unseen).await?;
    Ok(answer::changed(written, row.version(), &R::Out::from(row)))
}
