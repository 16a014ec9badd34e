//! Retries of streams that are set aside.

use signalbox_event_store::{EventKey, LogSlice, read_stream_from, stream_keys};
use sqlx::{Connection, PgConnection, PgPool};

use super::{
    BATCH, SetAside,
    table::{bump_revision, report},
    withdraw,
};
use crate::{
    ApplyError, Poison, Projection, Rows, StepError, projection::catch_panic, withdrawals::withdrawing,
};

/// Result of a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// The stream is not set aside any more: this many events were applied.
    Applied(i64),
    /// This many events were applied; the next one cannot be, and waits with those after it.
    Waits(i64, Poison),
}

/// Applies the events of the stream `stream` that wait, in order, as far as they can be applied, [`BATCH`] at a time.
///
/// # Errors
/// [`StepError`] when the database does not answer. Events that were applied before stay applied, and the stream is retried later than
/// others.
pub async fn retry<P: Projection>(pool: &PgPool, stream: &SetAside) -> Result<Retried, StepError> {
    // Its own connection, because a panic may leave it in any state.
    let mut connection = pool.acquire().await?.detach();
    let (mut stream, mut applied) = (stream.clone(), 0);
    let retried = loop {
        let batch = match retry_batch::<P>(&mut connection, &mut stream).await {
            Ok(batch) => batch,
            Err(error) => {
                // The transaction is gone, and with it when to retry: the stream would be the next one for ever.
                postpone(pool, &stream, &error).await?;
                return Err(error);
            }
        };
        applied += batch.applied;
        match (batch.poison, batch.is_last) {
            (Some(poison), _) => break Retried::Waits(applied, poison),
            (None, true) => break Retried::Applied(applied),
            (None, false) => {}
        }
    };
    report(pool, P::NAME).await?;
    Ok(retried)
}

/// Result of one transaction of a retry.
struct RetriedBatch {
    applied: i64,
    poison: Option<Poison>,
    /// Whether no events wait after it.
    is_last: bool,
}

/// Applies the first [`BATCH`] of the events that wait in `stream`, and moves its start after them. The runner
/// applies nothing meanwhile, so it is kept short.
async fn retry_batch<P: Projection>(
    connection: &mut PgConnection,
    stream: &mut SetAside,
) -> Result<RetriedBatch, StepError> {
    let mut transaction = connection.begin().await?;
    // Locked as by a runner.
    let last: i64 =
        sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1 FOR UPDATE")
            .bind(P::NAME)
            .fetch_one(&mut *transaction)
            .await?;
    // Another process may have retried it meanwhile.
    if !waits(&mut transaction, stream).await? {
        return Ok(RetriedBatch { applied: 0, poison: None, is_last: true });
    }
    let slice = read_stream_from(&mut transaction, stream.key(), stream.sequence, last, BATCH).await?;
    let (applied, poison) = apply_each::<P>(&mut transaction, "read", &slice).await?;
    let next_sequence = stream.sequence + slice.count() as i64;
    let behind = read_stream_from(&mut transaction, stream.key(), next_sequence, last, 1).await?;
    let next = behind.keys().into_iter().next();
    if poison.is_some() || next.is_some() {
        // The events before may have restored access that later ones withdraw.
        let words = withdrawing(P::CONTEXT);
        let sequence = poison.as_ref().map_or(next_sequence, |poison| poison.key.sequence);
        for key in stream_keys(&mut transaction, stream.key(), sequence, last, &words).await? {
            withdraw(&mut transaction, "read", &key).await?;
        }
    }
    let mut moved = None;
    match (&poison, next) {
        (None, Some(next)) => moved = Some(move_to(&mut transaction, stream, &next).await?),
        (poison, _) => conclude(&mut transaction, stream, poison.as_ref()).await?,
    }
    transaction.commit().await?;
    let is_last = moved.is_none();
    if let Some(moved) = moved {
        *stream = moved;
    }
    Ok(RetriedBatch { applied, poison, is_last })
}

/// Whether `stream` still waits from the same event on.
async fn waits(connection: &mut PgConnection, stream: &SetAside) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM read.poisonous_events WHERE projection = $1 AND position = $2)",
    )
    .bind(&stream.projection)
    .bind(stream.position)
    .fetch_one(connection)
    .await
}

/// The stream waits from `next` on, as nothing before it does any more.
async fn move_to(
    connection: &mut PgConnection,
    stream: &SetAside,
    next: &EventKey,
) -> Result<SetAside, sqlx::Error> {
    sqlx::query(
        "UPDATE read.poisonous_events SET position = $3, sequence = $4, event_type = $5
          WHERE projection = $1 AND position = $2",
    )
    .bind(&stream.projection)
    .bind(stream.position)
    .bind(next.position)
    .bind(next.sequence)
    .bind(&next.event_type)
    .execute(&mut *connection)
    .await?;
    bump_revision(connection, &stream.projection).await?;
    let event_type = next.event_type.clone();
    Ok(SetAside { position: next.position, sequence: next.sequence, event_type, ..stream.clone() })
}

/// Has other streams retried before `stream`.
async fn postpone(pool: &PgPool, stream: &SetAside, error: &StepError) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE read.poisonous_events SET error = $3, {LATER} WHERE projection = $1 AND position = $2"
    );
    sqlx::query(&sql)
        .bind(&stream.projection)
        .bind(stream.position)
        .bind(error.to_string())
        .execute(pool)
        .await?;
    Ok(())
}

/// Sets when a stream is retried after a failed attempt.
const LATER: &str = "attempts = attempts + 1,
    retry_at = now() + least(interval '1 minute' * 2 ^ least(attempts + 1, 11), interval '1 day')";

/// Applies the events of `slice` to the tables in `schema`, one after the other; returns how many, and the one that cannot be
/// applied.
pub(super) async fn apply_each<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    slice: &LogSlice,
) -> Result<(i64, Option<Poison>), StepError> {
    for (key, applied) in slice.keys().into_iter().zip(0..) {
        if let Some(error) = apply_one::<P>(connection, schema, slice, &key).await? {
            return Ok((applied, Some(Poison { key, error })));
        }
    }
    Ok((slice.count() as i64, None))
}

/// Applies the event `key` of `slice`; returns why it cannot be applied.
async fn apply_one<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    slice: &LogSlice,
    key: &EventKey,
) -> Result<Option<String>, StepError> {
    if let Some(unreadable) = slice.unreadable.iter().find(|event| event.key == *key) {
        return Ok(Some(unreadable.error.clone()));
    }
    let Some(recorded) = slice.events.iter().find(|event| event.position == key.position) else {
        return Ok(None);
    };
    let mut attempt = connection.begin().await?;
    let fold = async {
        let event = match P::Rows::decode(recorded) {
            Ok(event) => event,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let mut rows = P::Rows::default();
        rows.fold(&mut attempt, schema, vec![(recorded, event)]).await?;
        rows.write(&mut attempt, schema, 0).await?;
        Ok::<_, ApplyError>(None)
    };
    match catch_panic(fold).await {
        Ok(None) => attempt.commit().await.map(|()| None).map_err(Into::into),
        Ok(Some(error)) => attempt.rollback().await.map(|()| Some(error)).map_err(Into::into),
        Err(error) if error.is_refusal() => {
            attempt.rollback().await?;
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Notes the result of a retry of `stream`.
async fn conclude(
    connection: &mut PgConnection,
    stream: &SetAside,
    poison: Option<&Poison>,
) -> Result<(), sqlx::Error> {
    let Some(Poison { key, error }) = poison else {
        sqlx::query("DELETE FROM read.poisonous_events WHERE projection = $1 AND position = $2")
            .bind(&stream.projection)
            .bind(stream.position)
            .execute(&mut *connection)
            .await?;
        return bump_revision(connection, &stream.projection).await;
    };
    let sql = format!(
        "UPDATE read.poisonous_events SET position = $3, sequence = $4, event_type = $5, error = $6, {LATER}
          WHERE projection = $1 AND position = $2"
    );
    sqlx::query(&sql)
        .bind(&stream.projection)
        .bind(stream.position)
        .bind(key.position)
        .bind(key.sequence)
        .bind(&key.event_type)
        .bind(error)
        .execute(&mut *connection)
        .await?;
    bump_revision(connection, &stream.projection).await
}
