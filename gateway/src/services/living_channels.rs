//! Which channels exist, for datapoints that are about to be recorded.
//!
//! The catalog in memory may be behind: an event that was deleted at another gateway a moment ago would still take values.
//! So every batch is checked against the claims, which change with the deletion itself. Batches that arrive while one is
//! being checked are checked together by the next query, so that one connection serves all of them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signalbox_domain::monitoring::CHANNEL_CLAIM;
use signalbox_event_store::claimed;
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
    channels: HashSet<Uuid>,
    answer: oneshot::Sender<Answer>,
}

/// Checks channels of batches, several batches at a time.
#[derive(Debug, Default)]
pub(crate) struct LivingChannels {
    /// At most one for each request with datapoints that is being answered.
    waiting: Mutex<Vec<Question>>,
    /// Held by the request that asks for all that wait.
    asking: AsyncMutex<()>,
}

impl LivingChannels {
    /// Those of `channels` that exist, and perhaps others.
    pub(crate) async fn among(&self, pool: &PgPool, channels: &HashSet<Uuid>) -> Answer {
        loop {
            let (answer, mut answered) = oneshot::channel();
            self.waiting().push(Question { channels: channels.clone(), answer });
            let _asking = self.asking.lock().await;
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => {
                    let questions = std::mem::take(&mut *self.waiting());
                    return ask(pool, questions).await;
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

/// Asks for all channels of `questions` at once, and answers each.
async fn ask(pool: &PgPool, questions: Vec<Question>) -> Answer {
    let keys: HashSet<_> = questions.iter().flat_map(|question| &question.channels).collect();
    let keys: Vec<_> = keys.into_iter().map(Uuid::to_string).collect();
    let found = claimed(pool, CHANNEL_CLAIM, &keys).await.map_err(Problem::from);
    let living = found.map(|keys| Arc::new(keys.iter().filter_map(|key| key.parse().ok()).collect()));
    for Question { answer, .. } in questions {
        // The request may have been broken off, and this one is among them.
        let _ = answer.send(living.clone());
    }
    living
}
