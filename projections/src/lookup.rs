use signalbox_boxed::boxed;
use std::{
    collections::{HashMap, HashSet},
    io,
};

use signalbox_database::{BY_KEY, OwnConnection};
use sqlx::{PgConnection, PgPool};
use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
};
use uuid::Uuid;

use crate::table::ReadRow;

/// Limit of the rows looked up by one query.
const BATCH: usize = 256;

/// Finds rows by their keys for many requests at once: requests that arrive while a query is in progress share the
/// next one. Requests that wait for the same fold all look up at the same moment. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Lookup<R> {
    questions: mpsc::Sender<Question<R>>,
}

#[derive(Debug)]
struct Question<R> {
    id: Uuid,
    answer: oneshot::Sender<Result<Option<R>, sqlx::Error>>,
}

impl<R: ReadRow + Clone + 'static> Lookup<R> {
    /// Starts the task that queries; it ends with the last clone.
    pub fn start(pool: &PgPool) -> Self {
        let (questions, asked) = mpsc::channel(BATCH);
        tokio::spawn(answer_all(OwnConnection::new(pool, &BY_KEY), asked));
        Self { questions }
    }

    /// The row `id`, as it is after this call at the earliest.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn get(&self, id: Uuid) -> Result<Option<R>, sqlx::Error> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(Question { id, answer }).await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        answered.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

async fn answer_all<R: ReadRow + Clone>(mut own: OwnConnection, mut asked: mpsc::Receiver<Question<R>>) {
    let mut questions = Vec::new();
    while asked.recv_many(&mut questions, BATCH).await > 0 {
        // Requests woken at the same moment as the first one can join the query.
        yield_now().await;
        while questions.len() < BATCH
            && let Ok(question) = asked.try_recv()
        {
            questions.push(question);
        }
        let ids: HashSet<_> = questions.iter().map(|question| question.id).collect();
        let found = find(&mut own, ids.into_iter().collect()).await;
        for Question { id, answer } in questions.drain(..) {
            let row = match &found {
                Ok(rows) => Ok(rows.get(&id).cloned()),
                Err(error) => Err(sqlx::Error::Io(io::Error::other(error.to_string()))),
            };
            // The caller may have been dropped.
            let _ = answer.send(row);
        }
    }
}

async fn find<R: ReadRow>(own: &mut OwnConnection, ids: Vec<Uuid>) -> Result<HashMap<Uuid, R>, sqlx::Error> {
    let mut connection = own.take().await?;
    let rows: Vec<R> = read(&mut connection, &ids).await?;
    own.keep(connection);
    Ok(rows.into_iter().map(|row| (row.id(), row)).collect())
}

async fn read<R: ReadRow>(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<R>, sqlx::Error> {
    let sql = format!("SELECT * FROM read.{} WHERE id = ANY($1)", R::TABLE);
    sqlx::query_as(&sql).bind(ids).fetch_all(connection).await
}
