use std::collections::HashMap;

use signalbox_domain::{
    automation::Judge,
    kernel::{ChannelId, RuleId},
};
use signalbox_projections::automation::{
    RuleRow,
    rules::{ChangedRule, rules_since},
};
use sqlx::PgPool;

/// The enabled rules, by the channels that they watch.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Position of the newest change of a rule that was read.
    known: i64,
    by_channel: HashMap<i32, Vec<Watch>>,
    channels: HashMap<RuleId, i32>,
}

/// A rule as it is evaluated.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) rule: RuleId,
    pub(super) channel: ChannelId,
    /// Version of the aggregate that `judge` stands for.
    pub(super) version: i64,
    /// Advances ahead of the version while a batch is evaluated.
    pub(super) judge: Judge,
}

impl Watches {
    /// Reads changed rules. Specifications from before the row `position` are dropped.
    pub(super) async fn refresh(&mut self, pool: &PgPool, position: i64) -> Result<(), sqlx::Error> {
        let mut is_complete = true;
        for ChangedRule { rule, channel_number } in rules_since(pool, self.known).await? {
            // The read model does not show the channel yet, or has set it aside: the rule is read again, and keeps no other
            // rule waiting.
            let Some(channel) = channel_number else {
                is_complete = false;
                continue;
            };
            if is_complete {
                self.known = rule.changed_at;
            }
            self.take_in(&rule, channel, position);
        }
        Ok(())
    }

    fn take_in(&mut self, row: &RuleRow, channel: i32, position: i64) {
        if self.find(row.id).is_some_and(|known| known.version >= row.version) {
            return;
        }
        if let Some(watches) = self.channels.remove(&row.id).and_then(|old| self.by_channel.get_mut(&old)) {
            watches.retain(|watch| watch.rule != row.id);
        }
        let judge = match row.judge() {
            Ok(judge) => judge,
            Err(error) => return tracing::error!(%error, rule.id = %row.id, "a rule cannot be evaluated"),
        };
        if !judge.is_awake_behind(position) {
            return;
        }
        self.channels.insert(row.id, channel);
        self.by_channel.entry(channel).or_default().push(Watch {
            rule: row.id,
            channel: row.channel_id,
            version: row.version,
            judge,
        });
    }

    /// Whether no rule watches anything.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Those that watch the channel with this integer.
    pub(super) fn on(&mut self, channel: i32) -> &mut [Watch] {
        self.by_channel.get_mut(&channel).map(Vec::as_mut_slice).unwrap_or_default()
    }

    /// Rule `id` is at `version` now.
    pub(super) fn settle(&mut self, id: RuleId, version: i64) {
        let channel = self.channels.get(&id).copied();
        let watches = channel.and_then(|channel| self.by_channel.get_mut(&channel));
        if let Some(watch) = watches.into_iter().flatten().find(|watch| watch.rule == id) {
            watch.version = version;
        }
    }

    fn find(&self, id: RuleId) -> Option<&Watch> {
        self.by_channel.get(self.channels.get(&id)?)?.iter().find(|watch| watch.rule == id)
    }
}
