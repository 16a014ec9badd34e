//! Changes of rules, and the alarms that they start and end.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{Rule, RuleChanges, RuleCommand},
    kernel::{ChannelId, Decider, ErrorKind, Rejection, RuleId},
};
use signalbox_event_store::{ExecuteError, state};
use signalbox_projections::{
    Projection,
    automation::{AutomationProjection, alarm_judges::judged_position, rules::enabled_rules_on},
    register::At,
    unapplied_streams,
};
use tokio::time::{Instant, sleep, timeout_at};

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
/// Rules that are read from the log, because the read model does not show their newest events yet.
const UNSHOWN: i64 = 1000;
/// Commands that are sent at the same time.
pub(crate) const CONCURRENT: usize = 16;

/// Id and name of an enabled rule.
pub(crate) type EnabledRule = (RuleId, String);

/// Rules that were disabled.
#[derive(Debug, Default)]
pub(crate) struct Disabled {
    /// Their ids and names.
    pub(crate) rules: Vec<EnabledRule>,
    /// A place in the log that the read models did not show in time.
    unseen: Option<At>,
    /// Whether alarms of the rules may not be shown as cleared yet, or rules as disabled.
    has_pending_effects: bool,
}

impl Disabled {
    /// The answer `written` to what the rules were disabled for, which shows that they are, or says that it does not.
    pub(crate) fn beside(&self, written: Written) -> Written {
        Written {
            unseen: written.unseen.or(self.unseen),
            has_pending_effects: written.has_pending_effects || self.has_pending_effects,
            ..written
        }
    }
}

/// A request that disables rules.
pub(crate) struct Watching<'a> {
    pub(crate) database: &'a Database,
    pub(crate) commands: &'a Commands,
    pub(crate) user: &'a CurrentUser,
    pub(crate) context: &'a RequestContext,
}

impl Watching<'_> {
    /// Disables the enabled rules on `channels`, which were deleted: no value can end their alarms any more, and the log refuses new
    /// ones. `before` are those that were enabled before the deletion; a worker may have disabled them already. The deletion is
    /// recorded, so a failure leaves something pending, which that worker does.
    pub(crate) async fn disable_rules_on(
        &self,
        channels: &[ChannelId],
        before: Vec<EnabledRule>,
    ) -> Disabled {
        self.disable(channels, before).await.unwrap_or_else(|problem| {
            let channels: Vec<_> = channels.iter().map(|channel| channel.0).collect();
            tracing::error!(?problem, ?channels, "rules on deleted events may still be enabled");
            Disabled { has_pending_effects: true, ..Disabled::default() }
        })
    }

    async fn disable(&self, channels: &[ChannelId], before: Vec<EnabledRule>) -> Result<Disabled, Problem> {
        let Self { database, commands, user, context } = *self;
        let mut rules = before;
        let late = self.enabled_rules(channels).await?;
        rules.extend(
            late.into_iter()
                .filter(|(rule, _)| rules.iter().all(|(known, _)| known != rule))
                .collect::<Vec<_>>(),
        );
        let disabled = stream::iter(rules.clone()).map(|(rule, _)| async move {
            let metadata = context.metadata(user.actor(), &format!("disable rule {rule}"));
            let changes = RuleChanges { enabled: Some(false), ..RuleChanges::default() };
            if_still_there(
                commands
                    .write::<Rule>(rule.0, None, &metadata, &RuleCommand::Change { changes, after: 0 })
                    .await,
            )
        });
        let written: Vec<_> = disabled.buffer_unordered(CONCURRENT).try_collect().await?;
        let unseen = written.into_iter().flatten().find_map(|written| written.unseen);
        let ids: Vec<_> = rules.iter().map(|(rule, _)| *rule).collect();
        // The judge is compared with the read model of rules, which then shows those of before.
        let is_judged = unseen.is_none() && alarms_are_judged(database, commands, &ids).await;
        Ok(Disabled { rules, unseen, has_pending_effects: !is_judged })
    }

    /// The enabled rules on `channels`, with their names, also those that the read model does not show yet.
    pub(crate) async fn enabled_rules(&self, channels: &[ChannelId]) -> Result<Vec<EnabledRule>, Problem> {
        let pool = &self.database.primary;
        let unapplied = unapplied_streams(pool, Rule::CONTEXT, Rule::TYPE, UNSHOWN).await?;
        let mut rules = enabled_rules_on(pool, channels).await?;
        rules.retain(|(rule, _)| !unapplied.contains(&rule.0));
        for id in unapplied {
            let rule = match state::<Rule>(pool, id).await {
                Ok(rule) => rule,
                Err(ExecuteError::Unreadable(error) | ExecuteError::Newer(error)) => {
                    tracing::error!(%error, rule.id = %id, "it is unknown whether a rule watches an event that is deleted");
                    continue;
                }
                Err(error) => return Err(Rejection::from(error).into()),
            };
            let name = channels.iter().find_map(|channel| rule.enabled_on(*channel));
            rules.extend(name.map(|name| (RuleId(id), name.to_owned())));
        }
        Ok(rules)
    }
}

/// `written`, a change of `rule`, when alarms show what follows from it, for which it waits 2 s at most.
pub(crate) async fn judged(
    database: &Database,
    commands: &Commands,
    rule: RuleId,
    written: Written,
) -> Written {
    let is_judged = written.unseen.is_none() && alarms_are_judged(database, commands, &[rule]).await;
    Written { has_pending_effects: !is_judged, ..written }
}

/// Waits until the alarms of `rules` are judged by their newest specifications and show it; false when they do not within 2 s, or
/// it cannot be found out: the change itself is recorded. Otherwise an alarm would fire that its rule has ended, and could be
/// acknowledged.
async fn alarms_are_judged(database: &Database, commands: &Commands, rules: &[RuleId]) -> bool {
    if rules.is_empty() {
        return true;
    }
    let deadline = Instant::now() + JUDGE_TIMEOUT;
    let mut delay = FIRST_DELAY;
    loop {
        match timeout_at(deadline, judged_position(&database.primary, rules)).await {
            Ok(Ok(Some(position))) => {
                let left = deadline.saturating_duration_since(Instant::now()).max(FIRST_DELAY);
                return commands.gate.wait_at_most(AutomationProjection::NAME, position, left).await;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "it is unknown whether alarms are judged");
                return false;
            }
            Err(_) => return false,
        }
        if Instant::now() + delay >= deadline {
            return false;
        }
        sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

/// A rule that somebody else has deleted meanwhile need not be changed.
pub(crate) fn if_still_there(written: Result<Written, Rejection>) -> Result<Option<Written>, Problem> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(rejection) if rejection.kind == ErrorKind::NotFound => Ok(None),
        Err(rejection) => Err(rejection.into()),
    }
}
