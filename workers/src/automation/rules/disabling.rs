//! Disables rules whose channel was deleted: no value can end their alarms any more.
//!
//! Reads: `read.rules` and `read.channels`. Writes: `Change` to the rules, at the version that was read. The gateway disables them with
//! the deletion, so that its answer shows it; this worker decides, for rules that the gateway could not see, such as those of an event
//! that is set aside, and for gateways that crash in between. After a crash the next step finds the same rules.

use std::time::Duration;

use signalbox_domain::{
    automation::{Rule, RuleChanges, RuleCommand},
    kernel::{Decider, RuleId},
    monitoring::Channel,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::rules::enabled_on_deleted;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Rules that are read at a time.
const AT_ONCE: i64 = 100;

/// The worker.
#[derive(Debug)]
pub struct RuleDisabling;

impl Worker for RuleDisabling {
    const NAME: &'static str = "rule-disabling";

    fn period(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Channel::TYPE || word == Rule::TYPE)
    }

    /// Firings of rules are events as well, and a gateway usually disables them by itself.
    fn gathers(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut after = RuleId(Uuid::nil());
        loop {
            let rules = enabled_on_deleted(&context.pool, after, AT_ONCE).await?;
            let Some((last, _)) = rules.last() else { return Ok(false) };
            after = *last;
            for (rule, version) in rules {
                let changes = RuleChanges { enabled: Some(false), ..RuleChanges::default() };
                let (key, command) =
                    (format!("disable {version}"), RuleCommand::Change { changes, after: 0 });
                // One that refuses keeps no other waiting, and is tried again with the next step.
                context.send_if_unchanged::<Rule>(Self::NAME, rule.0, version, &key, &command).await?;
            }
        }
    }
}
