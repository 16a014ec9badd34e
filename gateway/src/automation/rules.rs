use axum::{Json, extract::State, response::Response};
use futures::future::BoxFuture;
use serde::Deserialize;
use signalbox_domain::automation::{ActionType, NewRule, Rule, RuleCommand};
use signalbox_projections::automation::rules::{self, RuleFilter, RuleRow};
use sqlx::PgPool;
use utoipa::IntoParams;
use uuid::Uuid;

use self::body::{RuleChangesIn, RuleCreatedOut};
use super::rule_references::{channel, find_contacts, is_there};
use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, wanted},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, changed, find_at, find_written, shown},
    services::{commands::Commands, replica::Database},
    watching::judged as judged_by_alarms,
};

mod body;

pub(crate) use body::{RuleIn, RuleOut};

/// Which rules are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuleParams {
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// The event that they watch.
    event_public_id: Option<String>,
    /// Whether they watch.
    enabled: Option<bool>,
    /// `log` or `webhook`.
    #[param(value_type = Option<crate::words::ActionType>)]
    action_type: Option<ActionType>,
}

/// List rules, newest first.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", security(("jwt" = [])), params(EnvelopeParams, Sort<RuleRow>, RuleParams), operation_id = "list_rules",
    responses((status = 200, body = Page<RuleOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<RuleRow>,
    Params(params): Params<RuleParams>,
) -> Result<Json<Page<RuleOut>>, Problem> {
    let RuleParams { name, event_public_id, enabled, action_type } = params;
    let filter = RuleFilter {
        name,
        channel: wanted(event_public_id),
        enabled,
        action_type: action_type.map(ActionType::as_str),
    };
    let page = envelope.page()?;
    let (rows, total) = database.read(|pool| rules::rules(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One rule.
#[utoipa::path(get, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_rule",
    responses((status = 200, body = RuleOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<RuleRow>(&database, &id, at).await.map(shown)
}

/// Create a rule. It watches every datapoint that is sent after the answer.
#[utoipa::path(post, path = "/api/v1/rules", tag = "rules", security(("jwt" = [])), request_body = RuleIn, operation_id = "create_rule",
    responses((status = 201, body = RuleCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(rule): JsonBody<RuleIn>,
) -> Result<Response, Problem> {
    let spec = rule.specify(&database).await?;
    let command = RuleCommand::Create(NewRule { owner: user.id, spec, after: 0 });
    let metadata = context.metadata(user.actor(), "create rule");
    let written = commands.write::<Rule>(context.resource, None, &metadata, &command).await?;
    let written = judged_by_alarms(&database, &commands, context.resource.into(), written).await;
    let row = find_written::<RuleRow>(&database, &context.resource.to_string(), written).await?;
    let (version, location) = (row.version, format!("/api/v1/rules/{}", row.id));
    let out = RuleCreatedOut { status: "success", message: "Rule successfully created.", rule: row.into() };
    Ok(answer::created(written, &location, version, &out))
}

/// Change a rule. The change is in force for every datapoint that is sent after the answer.
#[utoipa::path(put, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RuleChangesIn, operation_id = "update_rule",
    responses((status = 200, body = RuleOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    change: Change<Admin>,
    JsonBody(body): JsonBody<RuleChangesIn>,
) -> Result<Response, Problem> {
    let event = body.event_public_id.clone();
    let mut changes = body.into_changes()?;
    let row = change.find::<RuleRow>().await.map_err(|missing| {
        let change = RuleCommand::Change { changes: changes.clone(), after: 0 };
        judged::<Rule>(missing, [examples::rule(), change])
    })?;
    // The body is validated before the names in it are looked up.
    let is_enabled = match row.spec() {
        Ok(spec) => spec.with(changes.clone())?.enabled,
        Err(_) => row.enabled,
    };
    match &event {
        Some(id) => changes.channel = Some(channel(&change.database, id).await?),
        // No value can end the alarm of a channel that is gone.
        None if is_enabled => {
            let remedy = "name another one in event_public_id, or leave the rule disabled";
            is_there(&change.database, &row.name, row.channel_id, remedy).await?;
        }
        None => {}
    }
    find_contacts(&change.database, &changes.notify, &row.notify).await?;
    // The aggregate completes omitted fields, so concurrent changes lose nothing.
    let command = RuleCommand::Change { changes, after: 0 };
    let written = change.write::<Rule>(row.id, "change rule", &command).await?;
    let written = judged_by_alarms(&change.database, &change.commands, row.id, written).await;
    changed::<RuleRow>(&change.database, &change.id, written).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_rule",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Admin>) -> Result<Response, Problem> {
    let row = change.find::<RuleRow>().await?;
    let written = change.write::<Rule>(row.id, "delete rule", &RuleCommand::Delete { after: 0 }).await?;
    let written = judged_by_alarms(&change.database, &change.commands, row.id, written).await;
    Ok(answer::success(written, "Rule successfully deleted."))
}

impl Found for RuleRow {
    const KIND: &'static str = "Rule";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        rules::rule(pool, id.into())
    }
}

impl Shown for RuleRow {
    const PATH: &'static str = "/api/v1/rules";
    type Out = RuleOut;

    fn version(&self) -> i64 {
        self.version
    }
}
