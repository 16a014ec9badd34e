use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use signalbox_domain::kernel::Rejection;
use signalbox_messaging::{CommandMessage, CommandReply};
use tokio::task::JoinHandle;

use super::World;

/// Answers before the command handlers that there is no handler. They carry out the command all the same: it is as if
/// their answers were lost. Stops when it is dropped.
#[derive(Debug)]
pub struct LostAnswers {
    count: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl LostAnswers {
    /// The first answer to each command of `context`; repeated commands are answered.
    pub async fn first(world: &World, context: &str) -> Self {
        let mut known = HashSet::new();
        Self::begin(world, context, move |command| known.insert(command.metadata.command_id)).await
    }

    /// All answers to commands of `context`.
    pub async fn all(world: &World, context: &str) -> Self {
        Self::begin(world, context, |_| true).await
    }

    async fn begin(
        world: &World,
        context: &str,
        mut is_lost: impl FnMut(&CommandMessage) -> bool + Send + 'static,
    ) -> Self {
        let client = world.servers.nats.client().await;
        let mut commands = client.subscribe(format!("cmd.{context}")).await.unwrap();
        client.flush().await.unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let lost = CommandReply::Rejected(Rejection::unavailable("the answer is lost"));
        let lost = serde_json::to_vec(&lost).unwrap();
        let task = tokio::spawn(async move {
            while let Some(message) = commands.next().await {
                let command = serde_json::from_slice(&message.payload).unwrap();
                if is_lost(&command) {
                    client.publish(message.reply.unwrap(), lost.clone().into()).await.unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { count, task }
    }

    /// How many were lost.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for LostAnswers {
    fn drop(&mut self) {
        self.task.abort();
    }
}
