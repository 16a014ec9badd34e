//! A whole installation of two processes of each role on a nats cluster and a replicated database, under steady load,
//! in which one part after another is killed. Reports how long each kind of work was interrupted, and fails if
//! anything was lost or done twice.
//!
//! `make scale`; `SCALE_SECONDS` (12) for each part.

#[path = "../../benches/system/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the benches, which use other parts")]
mod system;

#[path = "../../benches/webhooks/sink.rs"]
#[allow(dead_code, reason = "shared with the benches, which use other parts")]
mod sink;

mod checks;
mod holder;
mod installation;
mod load;
mod pulse;

use std::{env, time::Duration};

use anyhow::Context as _;
use installation::{Installation, Part};
use load::Load;
use tokio::time::{Instant, sleep};

/// Time before the first kill, in which the longest interruptions of undisturbed work are measured.
const QUIET: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make scale`"]
async fn parts_that_are_killed_are_replaced_and_nothing_is_lost_or_done_twice() -> anyhow::Result<()> {
    let seconds = env::var("SCALE_SECONDS").map_or(Ok(12), |text| text.parse());
    let period = Duration::from_secs(seconds.context("SCALE_SECONDS is not a number")?);
    let mut installation = Installation::start().await?;
    let load = Load::start(&installation).await?;
    let outcome = disturb(&mut installation, &load, period).await;
    let checked = match outcome {
        Ok(()) => checks::all(&installation, load).await,
        Err(error) => Err(error),
    };
    checked.with_context(|| installation.said())
}

async fn disturb(installation: &mut Installation, load: &Load, period: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    sleep(QUIET).await;
    println!(
        "\nLongest interruption in ms, one part after another being killed (SIGKILL) or stopped (SIGSTOP) under load:\n"
    );
    println!("{:<34}{}", "", load.headings());
    println!("{:<34}{}", "nothing", load.interruptions(begun));
    for part in Part::ALL {
        let killed = Instant::now();
        let (name, gone) = installation.disturb(part).await.with_context(|| format!("{part:?}"))?;
        sleep(period).await;
        // Also what has not gone on yet.
        println!("{name:<34}{}", load.interruptions(killed));
        installation.mend(gone).await?;
        // The next part is killed in a whole installation.
        installation.until_whole().await?;
    }
    Ok(())
}
