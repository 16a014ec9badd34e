//! Abuses a running system in every way that a careless or hostile neighbour may, one after the other, while a
//! bystander works with a login of its own. No request of the bystander may fail, its slowest requests (p95) may take
//! at most twice as long as without abuse, and the abusers must meet limits. Both are printed as tables.
//! In the last part (`silence`), all connections to PostgreSQL go silent at once.
//!
//! `make abuse`; `ABUSE_SECONDS` (45) of each abuse, `ABUSE_REST_SECONDS` (45) without any, `ABUSE_ONLY` (all; the names of abuses,
//! separated by commas).
//!
//! The system has the limits of its default configuration. Abusers and bystander share the machine with it, but not an address:
//! abusers use others of 127.0.0.0/8. Abusers run at a lower priority, as they would on machines of their own.

#[path = "../../benches/report.rs"]
#[allow(dead_code, reason = "shared with the benches, which use other parts")]
mod report;

#[path = "../../benches/system/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the benches, which use other parts")]
mod system;

mod abuse;
mod abusers;
mod bystander;
mod connections;
mod documents;
mod floods;
mod measured;
mod reads;
mod scene;
mod socket;
mod tally;

use std::{env, time::Duration};

use abuse::Abuse;
use anyhow::{Context as _, ensure};
use bystander::Bystander;
use measured::Measured;
use scene::Scene;
use tokio::time::sleep;

/// Until caches are filled and connections are open.
const WARM_UP: Duration = Duration::from_secs(10);
/// Until the bystander's requests are in progress.
const BEFORE_SILENCE: Duration = Duration::from_secs(2);
/// By when everything works again after connections to PostgreSQL went silent.
const RECOVERY: Duration = Duration::from_secs(15);
/// After an abuse, for work that it has left behind.
const SETTLE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make abuse`"]
async fn one_neighbour_does_not_stop_the_others() -> anyhow::Result<()> {
    let (rest, each) = (seconds("ABUSE_REST_SECONDS", 45)?, seconds("ABUSE_SECONDS", 45)?);
    let mut scene = Scene::start().await?;
    let result = run(&scene, rest, each).await;
    let running = scene.program.is_running();
    let faults = result.with_context(|| scene.program.said())?;
    ensure!(running, "the server has ended:\n{}", scene.program.said());
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// returns a sentence for each thing that is not as it should be.
async fn run(scene: &Scene, rest: Duration, each: Duration) -> anyhow::Result<Vec<String>> {
    let bystander = Bystander::begin(scene).await?;
    bystander.work(WARM_UP).await?;
    let at_rest = bystander.work(rest).await?;
    at_rest.print("at rest", None);
    let mut faults = at_rest.faults("at rest", None);
    let only = env::var("ABUSE_ONLY").unwrap_or_default();
    for abuse in Abuse::ALL {
        if !only.is_empty() && !only.split(',').any(|name| name == abuse.name()) {
            continue;
        }
        let abusers = abusers::start(abuse, scene).await?;
        let watching = async { if abuse == Abuse::Reads { scene.most_queries(each).await } else { Ok(0) } };
        let (measured, most_queries) = tokio::join!(bystander.work(each), watching);
        let (measured, most_queries) = (measured?, most_queries?);
        let (seen, elapsed) = abusers.stop().await?;
        measured.print(abuse.title(), Some(&at_rest));
        faults.extend(measured.faults(abuse.title(), Some(&at_rest)));
        seen.print(elapsed);
        faults.extend(abuse.unlimited(scene, &seen, elapsed, most_queries).await?);
        sleep(SETTLE).await;
    }
    if only.is_empty() || only.split(',').any(|name| name == "silence") {
        faults.extend(silence(scene, &bystander, &at_rest, each).await?);
    }
    Ok(faults)
}

/// All connections to PostgreSQL that are open at a moment go silent. For [`RECOVERY`] requests may be refused or wait; after
/// that, all is as at rest, and what was answered with success is there.
async fn silence(
    scene: &Scene,
    bystander: &Bystander,
    at_rest: &Measured,
    each: Duration,
) -> anyhow::Result<Vec<String>> {
    let title = "all connections to PostgreSQL silent at once";
    let silenced = async {
        sleep(BEFORE_SILENCE).await;
        scene.link.silence();
        scene.link.restore();
    };
    let (during, ()) = tokio::join!(bystander.work(BEFORE_SILENCE + RECOVERY), silenced);
    let during = during?;
    during.print(title, Some(at_rest));
    let mut faults = during.worse_than_refused(title, RECOVERY.as_secs_f64() * 1000.0);
    let after = bystander.work(each).await?;
    let title = "after the silence";
    after.print(title, Some(at_rest));
    faults.extend(after.faults(title, Some(at_rest)));
    faults.extend(bystander.lost().await?);
    Ok(faults)
}

fn seconds(name: &str, default: u64) -> anyhow::Result<Duration> {
    let text = env::var(name).unwrap_or_else(|_| default.to_string());
    Ok(Duration::from_secs(text.parse().with_context(|| format!("{name} is not a number"))?))
}
