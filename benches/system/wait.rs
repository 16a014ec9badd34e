use std::{future::Future, time::Duration};

use anyhow::bail;
use tokio::time::{Instant, sleep};

const INTERVAL: Duration = Duration::from_millis(20);

/// Calls `look` until it gives something, and gives that back.
pub async fn wait_for<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let looked = look().await;
        if let Ok(Some(found)) = looked {
            return Ok(found);
        }
        if Instant::now() > deadline {
            looked?;
            bail!("{what} did not happen within {limit:?}");
        }
        sleep(INTERVAL).await;
    }
}

/// Waits until `holds` is true.
pub async fn wait_until<F>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    wait_for(what, limit, || {
        let looked = holds();
        async move { Ok(looked.await?.then_some(())) }
    })
    .await
}
