use axum::{Json, extract::State};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use signalbox_domain::kernel::required_text;
use signalbox_projections::fleet::queries;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    auth::Writer,
    extract::{JsonBody, id},
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// How long a claim holds that is not repeated, in seconds.
const SECONDS: i64 = 30;
/// Longest name of a controller, in characters.
pub(crate) const MAX_NAME: usize = 100;
/// Instances of one controller at most.
pub(crate) const MAX_INSTANCES: usize = 1000;

/// What a controller means to run.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ClaimsIn {
    /// Which controller, 1 to 100 characters; the same one after it was started again.
    controller: String,
    /// All instances that it means to run, up to 1000; others that it has had are free at once.
    instances: Vec<String>,
}

/// What a controller is to run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimsOut {
    /// The instances that no other controller runs.
    instances: Vec<String>,
    /// For how long, unless they are claimed again.
    seconds: i64,
}

/// Claim plugin instances for a controller, so that no other runs them. To be repeated before the claims end.
#[utoipa::path(post, path = "/api/v1/plugins/claims", tag = "plugins", security(("jwt" = [])), request_body = ClaimsIn, operation_id = "claim_plugin_instances",
    responses((status = 200, body = ClaimsOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn claim(
    State(database): State<Database>,
    _: Writer,
    JsonBody(claims): JsonBody<ClaimsIn>,
) -> Result<Json<ClaimsOut>, Problem> {
    let ClaimsIn { controller, instances } = claims;
    let controller = required_text("controller", &controller, MAX_NAME)?;
    if instances.len() > MAX_INSTANCES {
        return Err(Problem::field("instances", format!("must be at most {MAX_INSTANCES}")));
    }
    let wanted: Vec<_> = instances.iter().filter_map(|text| id(text)).collect();
    let now = database.time().await?;
    let until = now + TimeDelta::seconds(SECONDS);
    let held = queries::claim_instances(&database.primary, &controller, &wanted, now, until).await?;
    Ok(Json(ClaimsOut { instances: held.iter().map(Uuid::to_string).collect(), seconds: SECONDS }))
}
