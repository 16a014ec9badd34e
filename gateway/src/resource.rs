//! Resources that routes find by their ids, and show as they are or were.

use std::time::Duration;

use axum::response::Response;
use futures::future::BoxFuture;
use serde::Serialize;
use signalbox_projections::register::{At, Past, Resource, StateError, past};
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{
    answer::{self, Written},
    extract::key,
    past::there,
    problem::{Problem, ProblemKind},
    services::replica::Database,
};

/// Between the two reads after a write.
const RETRY_DELAY: Duration = Duration::from_millis(100);
const RETRY_TIMEOUT: Duration = Duration::from_secs(2);

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

/// The resource that clients call `id`, after the write `written` of it.
pub(crate) async fn find_written<R: Found>(
    database: &Database,
    id: &str,
    written: Written,
) -> Result<R, Problem> {
    after_write(|| find_at(database, id, written.unseen)).await
}

/// An answer that says that a change was made which it cannot show, and what to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotShown {
    pub(crate) code: &'static str,
    pub(crate) detail: &'static str,
}

impl NotShown {
    pub(crate) const RESOURCE: Self = Self {
        code: "change_not_shown",
        detail: "The change was made, but cannot be shown now: read the resource in a moment in place of repeating the change.",
    };
    /// For answers that show a secret that no other one does.
    pub(crate) const SECRET: Self = Self {
        code: "secret_not_shown",
        detail: "The secret was made, but cannot be shown now, and it is in this answer alone: repeat the request with the same \
                 Idempotency-Key. If it had none, delete or replace the secret, and make another one.",
    };

    /// The answer, because of `cause`, or of none when the time was up.
    fn problem(self, cause: Option<Problem>) -> Problem {
        match cause {
            Some(problem) => tracing::error!(?problem, "a change that was made is not shown"),
            None => {
                tracing::error!("a change that was made is not shown, because it could not be read in time")
            }
        }
        Problem::new(ProblemKind::Internal, self.code, self.detail)
    }
}

/// The result of `read`, which shows what a write has changed. The write is recorded: should `read` fail, it is tried once more, and
/// then the answer says that the change was made. A client that took it for a failure would make it twice.
pub(crate) async fn after_write<T, F: Future<Output = Result<T, Problem>>>(
    read: impl Fn() -> F,
) -> Result<T, Problem> {
    after_write_or(NotShown::RESOURCE, read).await
}

/// The same, which answers `not_shown` if it fails.
pub(crate) async fn after_write_or<T, F: Future<Output = Result<T, Problem>>>(
    not_shown: NotShown,
    read: impl Fn() -> F,
) -> Result<T, Problem> {
    let is_failure = |problem: &Problem| problem.kind() != ProblemKind::NotFound;
    match read().await {
        Err(problem) if is_failure(&problem) => wait_to_read_again(problem).await,
        found => return found,
    }
    match timeout(RETRY_TIMEOUT, read()).await {
        Ok(Err(problem)) if is_failure(&problem) => Err(not_shown.problem(Some(problem))),
        Ok(found) => found,
        Err(_) => Err(not_shown.problem(None)),
    }
}

async fn wait_to_read_again(problem: Problem) {
    tracing::warn!(?problem, "what a write has changed could not be read, and is read again");
    sleep(RETRY_DELAY).await;
}

/// The `problem` of a request that makes something and shows a secret, so that its answer is not kept: repeated after the thing was
/// deleted, it makes nothing.
pub(crate) fn not_made_again(written: Written, problem: Problem) -> Problem {
    if written.repeated && problem.kind() == ProblemKind::NotFound {
        let detail = "this Idempotency-Key was used to make something that was deleted since: use a new one";
        return Problem::new(ProblemKind::KeyReused, "idempotency_key_reused", detail);
    }
    problem
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
    let row = find_written::<R>(database, &id.to_string(), written).await?;
    Ok(answer::created(written, &format!("{}/{id}", R::PATH), row.version(), &R::Out::from(row)))
}

/// The answer to a write that changed the resource that clients call `id`.
pub(crate) async fn changed<R: Shown>(
    database: &Database,
    id: &str,
    written: Written,
) -> Result<Response, Problem> {
    let row = find_written::<R>(database, id, written).await?;
    Ok(answer::changed(written, row.version(), &R::Out::from(row)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The result of a read after a write that fails `failures` times with what `problem` makes, and how often it was tried.
    async fn read(failures: usize, problem: fn() -> Problem) -> (Result<(), Problem>, usize) {
        let tries = AtomicUsize::new(0);
        let read = || {
            let number = tries.fetch_add(1, Ordering::SeqCst);
            async move { if number < failures { Err(problem()) } else { Ok(()) } }
        };
        let found = after_write(read).await;
        (found, tries.into_inner())
    }

    #[tokio::test]
    async fn a_change_is_shown_although_a_read_fails_once() {
        let (found, tries) = read(1, || Problem::unavailable("The database does not answer.")).await;
        assert!(found.is_ok() && tries == 2, "{found:?}");
    }

    #[tokio::test]
    async fn an_answer_without_the_resource_says_that_it_was_changed() {
        for problem in [|| Problem::unavailable("away"), || Problem::invalid("a history is too long")] {
            let (found, tries) = read(9, problem).await;
            let problem = found.unwrap_err();
            assert_eq!((tries, problem.kind()), (2, ProblemKind::Internal));
            assert!(problem.detail().starts_with("The change was made"), "{problem:?}");
        }
    }

    #[tokio::test]
    async fn a_resource_that_was_deleted_meanwhile_is_not_found() {
        let (found, tries) = read(9, || Problem::not_found("Event")).await;
        assert_eq!((found.unwrap_err().kind(), tries), (ProblemKind::NotFound, 1));
    }
}
