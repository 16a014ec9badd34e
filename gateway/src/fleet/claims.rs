use axum::{Json, extract::State};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use signalbox_domain::kernel::required_text;
use signalbox_projections::fleet::queries::{self, Claimant};
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
const TAKEN: &str = "Another controller with this name runs: stop one of them, or give this one another name. A controller that was \
                     copied with its folder needs a folder of its own.";
/// Longest name of a controller, in characters.
pub(crate) const MAX_NAME: usize = 100;
/// Instances of one controller at most.
pub(crate) const MAX_INSTANCES: usize = 1000;

/// The instances that a controller asks to run.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ClaimsIn {
    /// Which controller, 1 to 100 characters; the same one after it was started again.
    controller: String,
    /// Names this run of it, 1 to 100 characters: a run whose `previous_session` names the one that holds claims takes over, and of two
    /// runs of one name the other one is refused. Without it, controllers of one name count as one.
    session: Option<String>,
    /// The session of its last run, whose claims this run takes over.
    previous_session: Option<String>,
    /// All instances that it means to run, up to 1000; others that it has had are free at once.
    instances: Vec<String>,
}

/// The instances that a controller is to run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimsOut {
    /// The instances that no other controller runs.
    instances: Vec<String>,
    /// For how long, unless they are claimed again.
    seconds: i64,
}

/// Claim plugin instances for a controller, so that no other runs them. To be repeated before the claims end.
#[utoipa::path(post, path = "/api/v1/plugins/claims", tag = "plugins", security(("jwt" = [])), request_body = ClaimsIn, operation_id = "claim_plugin_instances",
    responses((status = 200, body = ClaimsOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn claim(
    State(database): State<Database>,
    _: Writer,
    JsonBody(claims): JsonBody<ClaimsIn>,
) -> Result<Json<ClaimsOut>, Problem> {
    let ClaimsIn { controller, session, previous_session, instances } = claims;
    let controller = required_text("controller", &controller, MAX_NAME)?;
    let named =
        |field, given: Option<String>| given.map(|text| required_text(field, &text, MAX_NAME)).transpose();
    let session = named("session", session)?;
    let previous = named("previous_session", previous_session)?;
    if instances.len() > MAX_INSTANCES {
        return Err(Problem::field("instances", format!("must be at most {MAX_INSTANCES}")));
    }
    let ids: Vec<_> = instances.iter().filter_map(|text| id(text)).collect();
    let now = database.time().await?;
    let until = now + TimeDelta::seconds(SECONDS);
    let claimant =
        Claimant { controller: &controller, session: session.as_deref(), previous: previous.as_deref() };
    let held = queries::claim_instances(&database.primary, &claimant, &ids, now, until).await?;
    let held = held.ok_or_else(|| Problem::conflict("controller_name_taken", TAKEN))?;
    Ok(Json(ClaimsOut { instances: held.iter().map(Uuid::to_string).collect(), seconds: SECONDS }))
}
