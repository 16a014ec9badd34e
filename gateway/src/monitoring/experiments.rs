use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::monitoring::{Experiment, ExperimentCommand, NewExperiment};
use signalbox_projections::monitoring::experiments::{self, ExperimentFilter, ExperimentRow};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::{self, Page, StatusOut},
    auth::{Reader, Writer},
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, not_null},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, changed, created, find_at, shown},
    services::{commands::Commands, replica::Database},
};

/// An experiment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExperimentOut {
    public_id: String,
    name: String,
    /// `running` or `stopped`.
    #[schema(value_type = crate::words::ExperimentStatus)]
    status: &'static str,
    started_on: DateTime<Utc>,
    /// Null while it runs.
    stopped_on: Option<DateTime<Utc>>,
    /// The user that started it.
    user_public_id: String,
}

/// A new experiment.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ExperimentIn {
    /// Unique, 1 to 255 characters.
    name: String,
}

/// Changes of an experiment; absent fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ExperimentChangesIn {
    /// Unique, 1 to 255 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
}

/// Whether an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Running,
    Stopped,
}

/// Which experiments are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExperimentParams {
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// `running` or `stopped`.
    #[param(value_type = Option<crate::words::ExperimentStatus>)]
    status: Option<Status>,
    /// Begun at or after, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Begun before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// List experiments, newest first.
#[utoipa::path(get, path = "/api/v1/experiments", tag = "experiments", security(("jwt" = [])), params(EnvelopeParams, Sort<ExperimentRow>, ExperimentParams), operation_id = "list_experiments",
    responses((status = 200, body = Page<ExperimentOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<ExperimentRow>,
    Params(params): Params<ExperimentParams>,
) -> Result<Json<Page<ExperimentOut>>, Problem> {
    let ExperimentParams { name, status, from, to } = params;
    let running = status.map(|status| status == Status::Running);
    let filter = ExperimentFilter { name, running, from, to };
    let page = envelope.page()?;
    let (rows, total) =
        database.read(|pool| experiments::experiments(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One experiment.
#[utoipa::path(get, path = "/api/v1/experiments/{id}", tag = "experiments", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_experiment",
    responses((status = 200, body = ExperimentOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<ExperimentRow>(&database, &id, at).await.map(shown)
}

/// Create an experiment and start it. One runs at a time.
#[utoipa::path(post, path = "/api/v1/experiments", tag = "experiments", security(("jwt" = [])), request_body = ExperimentIn, operation_id = "create_experiment",
    responses((status = 201, body = ExperimentOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(experiment): JsonBody<ExperimentIn>,
) -> Result<Response, Problem> {
    let command = ExperimentCommand::Start(NewExperiment { owner: user.id, name: experiment.name });
    let metadata = context.metadata(user.actor(), "start experiment");
    let written = commands.write::<Experiment>(context.resource, None, &metadata, &command).await?;
    created::<ExperimentRow>(&database, context.resource, written).await
}

/// Give an experiment another name.
#[utoipa::path(put, path = "/api/v1/experiments/{id}", tag = "experiments", security(("jwt" = [])), params(("id" = String, Path,)), request_body = ExperimentChangesIn, operation_id = "update_experiment",
    responses((status = 200, body = ExperimentOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    change: Change<Writer>,
    JsonBody(changes): JsonBody<ExperimentChangesIn>,
) -> Result<Response, Problem> {
    let row = change.find::<ExperimentRow>().await.map_err(|missing| match &changes.name {
        Some(name) => {
            let rename = ExperimentCommand::Rename { name: name.clone() };
            judged::<Experiment>(missing, [examples::experiment(), rename])
        }
        None => missing,
    })?;
    let command = ExperimentCommand::Rename { name: changes.name.unwrap_or_else(|| row.name.clone()) };
    write(change, row, "rename experiment", command).await
}

/// Stop an experiment.
#[utoipa::path(put, path = "/api/v1/experiments/{id}/stop", tag = "experiments", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "stop_experiment",
    responses((status = 200, body = ExperimentOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn stop(change: Change<Writer>) -> Result<Response, Problem> {
    let row = change.find::<ExperimentRow>().await?;
    write(change, row, "stop experiment", ExperimentCommand::Stop).await
}

/// Delete an experiment, and stop it before if it runs. Its datapoints stay.
#[utoipa::path(delete, path = "/api/v1/experiments/{id}", tag = "experiments", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_experiment",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Writer>) -> Result<Response, Problem> {
    let row = change.find::<ExperimentRow>().await?;
    let written = change.write::<Experiment>(row.id, "delete experiment", &ExperimentCommand::Delete).await?;
    Ok(answer::success(written, "Experiment successfully deleted."))
}

async fn write(
    change: Change<Writer>,
    row: ExperimentRow,
    purpose: &str,
    command: ExperimentCommand,
) -> Result<Response, Problem> {
    let written = change.write::<Experiment>(row.id, purpose, &command).await?;
    changed::<ExperimentRow>(&change.database, &change.id, written).await
}

impl Found for ExperimentRow {
    const KIND: &'static str = "Experiment";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        experiments::experiment(pool, id)
    }
}

impl Shown for ExperimentRow {
    const PATH: &'static str = "/api/v1/experiments";
    type Out = ExperimentOut;

    fn version(&self) -> i64 {
        self.version
    }
}

impl From<ExperimentRow> for ExperimentOut {
    fn from(row: ExperimentRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            name: row.name,
            status: if row.stopped_at.is_none() { "running" } else { "stopped" },
            started_on: row.started_at,
            stopped_on: row.stopped_at,
            user_public_id: row.owner_id.to_string(),
        }
    }
}
