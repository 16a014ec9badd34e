use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{runtime::Builder, sync::oneshot};

use crate::{abuse::Abuse, scene::Scene, tally::Tally};

/// Added to the priority of the abusers' thread; more means lower.
const NICE: i32 = 10;

/// Abusers at work, in a thread of their own.
pub struct Abusers {
    tally: Tally,
    begun: Instant,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
}

pub async fn start(abuse: Abuse, scene: &Scene) -> anyhow::Result<Abusers> {
    let (tally, target) = (Tally::default(), scene.target.clone());
    scene.mark().await?;
    let (stop, mut stopped) = oneshot::channel();
    let counted = tally.clone();
    let thread = thread::spawn(move || {
        rustix::process::nice(NICE)?;
        Builder::new_current_thread().enable_all().build()?.block_on(async move {
            tokio::select! {
                result = abuse.commit(&target, &counted) => result,
                _ = &mut stopped => Ok(()),
            }
        })
    });
    Ok(Abusers { tally, begun: Instant::now(), stop, thread })
}

impl Abusers {
    /// Ends them; returns what they met, and how long they were at work.
    pub async fn stop(self) -> anyhow::Result<(Tally, Duration)> {
        let elapsed = self.begun.elapsed();
        let _ = self.stop.send(());
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.ok().context("the abusers panicked")?.context("the abusers failed")?;
        Ok((self.tally, elapsed))
    }
}
