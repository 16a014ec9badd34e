use std::slice;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    fleet::{Direction, MappingChanges, MappingSpec, PluginInstance, PluginInstanceCommand},
    kernel::MappingId,
};
use signalbox_projections::{
    fleet::{MappingRow, queries},
    register::At,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::instances::{MappingOut, find as find_instance, find_past as find_past_instance};
use crate::{
    answer::{self, StatusOut},
    auth::{Reader, Writer},
    context::RequestContext,
    existence::{examples, judged},
    extract::{IfMatch, JsonBody, Text, Texts, key, not_null, present},
    monitoring::channels::optional_channel,
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::{commands::Commands, replica::Database},
};

const WHAT: &str = "Channel mapping";

/// A created channel mapping.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MappingCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    mapping: MappingOut,
}

/// A new channel mapping.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MappingIn {
    /// Its name in the plugin: unique within the instance, 1 to 100 characters.
    channel_id: String,
    /// 1 to 255 characters.
    channel_name: String,
    /// `input`, `output` or `bidirectional`.
    #[schema(value_type = crate::words::Direction)]
    direction: Direction,
    /// Up to 50 characters.
    unit: String,
    /// The linked event.
    event_public_id: Option<String>,
}

/// Changes of a channel mapping; absent fields stay as they are, null unlinks the event.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MappingChangesIn {
    /// The plugin's channel, if at all: another one is mapped anew.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    channel_id: Option<String>,
    /// 1 to 255 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    channel_name: Option<String>,
    /// `input`, `output` or `bidirectional`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::Direction>, nullable = false)]
    direction: Option<Direction>,
    /// Up to 50 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    unit: Option<String>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    event_public_id: Option<Option<String>>,
}

/// List the channel mappings of a plugin instance, in the order in which they were made.
#[utoipa::path(get, path = "/api/v1/plugins/{public_id}/channels", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), AtParams), operation_id = "list_channel_mappings",
    responses((status = 200, body = Vec<MappingOut>), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Json<Vec<MappingOut>>, Problem> {
    let rows = match at {
        None => {
            let instance = find_instance(&database, &id).await?;
            database.read(|pool| queries::mappings(pool, slice::from_ref(&instance.row.id))).await?
        }
        Some(at) => find_past_instance(&database, &id, at).await?.1,
    };
    Ok(Json(rows.into_iter().map(Into::into).collect()))
}

/// Map another channel of a plugin instance.
#[utoipa::path(post, path = "/api/v1/plugins/{public_id}/channels", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), request_body = MappingIn, operation_id = "create_channel_mapping",
    responses((status = 201, body = MappingCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    Text(id): Text,
    context: RequestContext,
    JsonBody(mapping): JsonBody<MappingIn>,
) -> Result<Response, Problem> {
    let MappingIn { channel_id, channel_name, direction, unit, event_public_id } = mapping;
    let spec = MappingSpec { channel_id, channel_name, direction, unit, event: None };
    let mapping = MappingId(context.resource);
    let instance = find_instance(&database, &id).await.map_err(|missing| {
        let add = PluginInstanceCommand::AddMapping { mapping, spec: spec.clone() };
        judged::<PluginInstance>(missing, [examples::instance(), add])
    })?;
    let instance = instance.row.id;
    let spec = MappingSpec { event: optional_channel(&database, event_public_id).await?, ..spec };
    let metadata = context.metadata(user.actor(), "map channel");
    let command = PluginInstanceCommand::AddMapping { mapping, spec };
    let written = commands.write::<PluginInstance>(instance, None, &metadata, &command).await?;
    let mapping =
        after_write(|| find_at(&database, instance, context.resource, written.unseen)).await?.into();
    let out =
        MappingCreatedOut { status: "success", message: "Channel mapping successfully created.", mapping };
    Ok(answer::written(written, StatusCode::CREATED, None, &out))
}

/// Change a channel mapping, or link it to an event.
#[utoipa::path(put, path = "/api/v1/plugins/{public_id}/channels/{mapping_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), ("mapping_id" = String, Path,)),
    request_body = MappingChangesIn, operation_id = "update_channel_mapping",
    responses((status = 200, body = MappingOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Texts(instance, id): Texts,
    context: RequestContext,
    JsonBody(changes): JsonBody<MappingChangesIn>,
) -> Result<Response, Problem> {
    let MappingChangesIn { channel_id, channel_name, direction, unit, event_public_id } = changes;
    let changes = MappingChanges { channel_name, direction, unit, event: None };
    let found = async {
        let instance = find_instance(&database, &instance).await?.row.id;
        Ok::<_, Problem>((instance, find(&database, instance, &id).await?))
    };
    let (instance, row) = found.await.map_err(|missing| {
        let mapping = MappingId(context.resource);
        let change = PluginInstanceCommand::ChangeMapping { mapping, changes: changes.clone() };
        judged::<PluginInstance>(missing, examples::mapping(mapping).into_iter().chain([change]))
    })?;
    let mapping = row.id;
    Problem::unless_kept("channel_id", "mapping", &row.channel_id, channel_id.as_deref().map(str::trim))?;
    let event = match event_public_id {
        Some(id) => Some(optional_channel(&database, id).await?),
        None => None,
    };
    let changes = MappingChanges { event, ..changes };
    let metadata = context.metadata(user.actor(), "change channel mapping");
    let command = PluginInstanceCommand::ChangeMapping { mapping, changes };
    let written = commands.write::<PluginInstance>(instance, versions, &metadata, &command).await?;
    let out =
        MappingOut::from(after_write(|| find_at(&database, instance, mapping.0, written.unseen)).await?);
    Ok(answer::written(written, StatusCode::OK, None, &out))
}

/// Take a channel mapping away; its event stays.
#[utoipa::path(delete, path = "/api/v1/plugins/{public_id}/channels/{mapping_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), ("mapping_id" = String, Path,)),
    operation_id = "delete_channel_mapping",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Texts(instance, id): Texts,
    context: RequestContext,
) -> Result<Response, Problem> {
    let instance = find_instance(&database, &instance).await?.row.id;
    let mapping = find(&database, instance, &id).await?.id;
    let metadata = context.metadata(user.actor(), "remove channel mapping");
    let command = PluginInstanceCommand::RemoveMapping { mapping };
    let written = commands.write::<PluginInstance>(instance, versions, &metadata, &command).await?;
    Ok(answer::success(written, "Channel mapping successfully deleted."))
}

async fn find(database: &Database, instance: Uuid, id: &str) -> Result<MappingRow, Problem> {
    find_at(database, instance, key(WHAT, id)?, None).await
}

/// The mapping `id` of `instance` as it was `at`, or as it is.
async fn find_at(
    database: &Database,
    instance: Uuid,
    id: Uuid,
    at: Option<At>,
) -> Result<MappingRow, Problem> {
    let row = match at {
        None => database.read(|pool| queries::mapping(pool, id)).await?,
        Some(at) => {
            let (_, mappings) = find_past_instance(database, &instance.to_string(), at).await?;
            mappings.into_iter().find(|mapping| mapping.id.0 == id)
        }
    };
    row.filter(|row| row.instance_id == instance).ok_or_else(|| Problem::not_found(WHAT))
}
