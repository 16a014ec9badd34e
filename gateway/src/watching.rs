//! The rules on channels that are about to be deleted.

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{Rule, RuleChanges, RuleCommand},
    kernel::{ErrorKind, Rejection},
};
use signalbox_projections::automation::rules::enabled_rules_on;
use uuid::Uuid;

use crate::{
    auth::CurrentUser,
    context::RequestContext,
    problem::Problem,
    services::{commands::Commands, replica::Database},
    state::Written,
};

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
    Ok(Disabled { rules, written: written.into_iter().flatten().collect() })
}

/// What somebody else has deleted meanwhile need not be changed.
pub(crate) fn if_still_there(written: Result<Written, Rejection>) -> Result<Option<Written>, Problem> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(rejection) if rejection.kind == ErrorKind::NotFound => Ok(None),
        Err(rejection) => Err(rejection.into()),
    }
}
