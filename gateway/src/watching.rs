//! Changes of rules, and the alarms that they end.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{Rule, RuleChanges, RuleCommand},
    kernel::{ErrorKind, Rejection},
};
use signalbox_projections::{
    Projection,
    automation::{AutomationProjection, alarm_judges::judged_position, rules::enabled_rules_on},
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::{
    auth::CurrentUser,
    context::RequestContext,
    problem::Problem,
    services::{commands::Commands, replica::Database},
    state::Written,
};

/// How long an answer waits for the judge of alarms before it reports eventual consistency.
const JUDGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks at how far the judge is; doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(10);
const LONGEST_DELAY: Duration = Duration::from_millis(80);
/// Commands that are sent at the same time.
pub(crate) const CONCURRENT: usize = 16;

/// Rules that were disabled.
#[derive(Debug, Default)]
pub(crate) struct Disabled {
    /// Their ids and names.
    pub(crate) rules: Vec<(Uuid, String)>,
    pub(crate) written: Vec<Written>,
}

/// Disables the enabled rules on `channels`: no value can end their alarms any more, and a rule cannot be changed when its
/// channel is gone.
pub(crate) async fn disable_rules_on(
    database: &Database,
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    channels: &[Uuid],
) -> Result<Disabled, Problem> {
    let rules = enabled_rules_on(&database.primary, channels).await?;
    let disabled = stream::iter(rules.clone()).map(|(rule, _)| async move {
        let metadata = context.metadata(user.actor(), &format!("disable rule {rule}"));
        let changes = RuleChanges { enabled: Some(false), ..RuleChanges::default() };
        if_still_there(
            commands.write::<Rule>(rule, None, &metadata, &RuleCommand::Change { changes, after: 0 }).await,
        )
    });
    let written: Vec<_> = disabled.buffer_unordered(CONCURRENT).try_collect().await?;
    let mut written: Vec<_> = written.into_iter().flatten().collect();
    let ids: Vec<_> = rules.iter().map(|(rule, _)| *rule).collect();
    let is_judged = alarms_are_judged(database, commands, &ids).await?;
    for written in &mut written {
        written.has_pending_effects = !is_judged;
    }
    Ok(Disabled { rules, written })
}

/// `written`, a change of `rule`, when alarms show what follows from it, for which it waits 2 s at most.
pub(crate) async fn judged(
    database: &Database,
    commands: &Commands,
    rule: Uuid,
    written: Written,
) -> Result<Written, Problem> {
    let has_pending_effects = !alarms_are_judged(database, commands, &[rule]).await?;
    Ok(Written { has_pending_effects, ..written })
}

/// Waits until the alarms of `rules` are judged by their newest specifications and show it; false when they do not within 2 s.
/// Otherwise an alarm would fire that its rule has ended, and could be acknowledged.
async fn alarms_are_judged(
    database: &Database,
    commands: &Commands,
    rules: &[Uuid],
) -> Result<bool, Problem> {
    if rules.is_empty() {
        return Ok(true);
    }
    let deadline = Instant::now() + JUDGE_TIMEOUT;
    let mut delay = FIRST_DELAY;
    loop {
        if let Some(position) = judged_position(&database.primary, rules).await? {
            let left = deadline.saturating_duration_since(Instant::now()).max(FIRST_DELAY);
            return Ok(commands.gate.wait_at_most(AutomationProjection::NAME, position, left).await);
        }
        if Instant::now() + delay >= deadline {
            return Ok(false);
        }
        sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

/// What somebody else has deleted meanwhile need not be changed.
pub(crate) fn if_still_there(written: Result<Written, Rejection>) -> Result<Option<Written>, Problem> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(rejection) if rejection.kind == ErrorKind::NotFound => Ok(None),
        Err(rejection) => Err(rejection.into()),
    }
}
