//! Which channels were deleted a moment ago, for datapoints that are about to be recorded.
//!
//! The catalog in memory may be behind: an event that was deleted at another gateway a moment ago would still take values.
//! So every batch asks for the deletions since the state that its catalog shows. Batches that arrive while one is
//! being checked are checked together by the next query, so that one connection serves all of them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signalbox_projections::monitoring::queries::{HeldState, channels_deleted_since};
use sqlx::PgPool;
use tokio::sync::{
    Mutex as AsyncMutex,
    oneshot::{self, error::TryRecvError},
};
use uuid::Uuid;

use crate::http::problem::Problem;

type Answer = Result<Arc<HashSet<Uuid>>, Problem>;

#[derive(Debug)]
struct Question {
    held: HeldState,
    answer: oneshot::Sender<Answer>,
}

/// Asks for deleted channels, for several batches at a time.
#[derive(Debug, Default)]
pub(crate) struct LivingChannels {
    /// At most one for each request with datapoints that is being answered.
    waiting: Mutex<Vec<Question>>,
    /// Held by the request that asks for all that wait.
    asking: AsyncMutex<()>,
}

impl LivingChannels {
    /// The channels that are deleted now, of those that lived as of `held`, and perhaps others that are deleted.
    pub(crate) async fn deleted_since(&self, pool: &PgPool, held: HeldState) -> Answer {
        loop {
            let (answer, mut answered) = oneshot::channel();
            self.waiting().push(Question { held, answer });
            let _asking = self.asking.lock().await;
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => {
                    let questions = std::mem::take(&mut *self.waiting());
                    return ask(pool, questions, held).await;
                }
                // The request that asked for this one was broken off.
                Err(TryRecvError::Closed) => {}
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Question>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the deletions since the oldest state of `questions`, of which `held` is one, and answers each.
async fn ask(pool: &PgPool, questions: Vec<Question>, held: HeldState) -> Answer {
    let oldest = questions.iter().fold(held, |oldest, question| oldest.or_older(question.held));
    let deleted = channels_deleted_since(pool, oldest).await.map(Arc::new).map_err(Problem::from);
    for Question { answer, .. } in questions {
        // The request may have been broken off, and this one is among them.
        let _ = answer.send(deleted.clone());
    }
    deleted
}
