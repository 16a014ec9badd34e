//! How a rule came to be what it is, and its way back.

use axum::{Json, extract::State, response::Response};
use signalbox_domain::automation::{
    AlarmChanges, NotificationChanges, Rule, RuleChanges, RuleCommand, RuleSpec,
};
use signalbox_projections::{
    automation::RuleRow,
    register::{self, Resource},
};

use super::{rule_references::is_there, rules::RuleOut};
use crate::{
    answer::Page,
    auth::Admin,
    change::Change,
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text},
    history::{RestoreIn, VersionOut, content, earlier, restoring},
    problem::{Problem, ProblemOut},
    resource::{changed, find},
    services::replica::Database,
    watching::judged,
};

/// Fields that change without a version.
const BY_ITSELF: [&str; 4] = ["last_triggered_at", "silence_comment", "silenced_until", "updated_on"];

/// The versions of a rule, newest first, each with what is different from the one before. Firings are not among them.
#[utoipa::path(get, path = "/api/v1/rules/{id}/history", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,), EnvelopeParams, Sort<VersionOut>), operation_id = "rule_history",
    responses((status = 200, body = Page<VersionOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn history(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<VersionOut>,
) -> Result<Json<Page<VersionOut>>, Problem> {
    let page = envelope.page()?;
    let row = find::<RuleRow>(&database, &id).await?;
    let (versions, total) =
        register::history::<RuleRow, _>(&database.primary, row.id.0, (sort.order(), page), |rows, id| {
            content(&RuleOut::from(RuleRow::of(rows, id)?.clone()), &BY_ITSELF)
        })
        .await?;
    Ok(Json(envelope.envelope(total, versions.into_iter().map(Into::into).collect())))
}

/// Make a rule what it was in an earlier version. It is in force for every datapoint that is sent after the answer.
#[utoipa::path(post, path = "/api/v1/rules/{id}/restore", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RestoreIn, operation_id = "restore_rule",
    responses((status = 200, body = RuleOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn restore(
    change: Change<Admin>,
    JsonBody(RestoreIn { version: target }): JsonBody<RestoreIn>,
) -> Result<Response, Problem> {
    let key = change.find::<RuleRow>().await?.id;
    let then: RuleRow = earlier(&change.database, "Rule", key.0, target).await?;
    let spec = then.spec()?;
    let remedy = "restore another version, or change the rule to another event";
    is_there(&change.database, &spec.name, spec.channel, remedy).await?;
    let command = RuleCommand::Change { changes: all_of(spec), after: 0 };
    let metadata = restoring(change.context.metadata(change.user.actor(), "restore rule"), target);
    let written = change.commands.write::<Rule>(key.0, change.versions.clone(), &metadata, &command).await?;
    let written = judged(&change.database, &change.commands, key, written).await;
    changed::<RuleRow>(&change.database, &change.id, written).await
}

/// Changes that make `spec` out of any other.
fn all_of(spec: RuleSpec) -> RuleChanges {
    let RuleSpec { name, channel, condition, action, cooldown_seconds, enabled, alarm, notify } = spec;
    RuleChanges {
        name: Some(name),
        channel: Some(channel),
        operator: Some(condition.operator),
        threshold: Some(condition.threshold),
        threshold_high: Some(condition.threshold_high),
        action_type: Some(action.kind()),
        webhook_event_type: Some(action.event_type()),
        cooldown_seconds: Some(cooldown_seconds),
        enabled: Some(enabled),
        alarm: AlarmChanges::all_of(alarm),
        notify: NotificationChanges::all_of(notify),
    }
}
