use std::slice;

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::fleet::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstance,
    PluginInstanceCommand, PluginRef,
};
use signalbox_projections::{
    fleet::{
        InstanceRow, MappingRow, past_instance,
        queries::{self, Instance, InstanceFilter},
    },
    register::At,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{channels, classes, mappings::MappingOut};
use crate::{
    answer::{self, Page, StatusOut},
    auth::{Reader, Writer},
    context::RequestContext,
    extract::{EnvelopeParams, IfMatch, JsonBody, Params, Text, present},
    past::{AsOf, AtParams, key, there},
    problem::{Problem, ProblemOut},
    state::{AppState, State as Gateway},
};

/// A status that no controller has confirmed for so long is no longer believed.
const BELIEVED: TimeDelta = TimeDelta::seconds(60);

/// A plugin at work on one device.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceOut {
    public_id: String,
    plugin_id: String,
    instance_name: String,
    /// Whether its values are simulated.
    demo_mode: bool,
    /// Whether a controller is to run it.
    enabled: bool,
    /// `inactive`, `connected`, `demo` or `error`; `inactive` also when no controller has reported for a minute.
    status: String,
    /// A JSON object as text.
    config_json: Option<String>,
    /// With the status `error`, what is wrong.
    error_message: Option<String>,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
    /// Who made it.
    user_public_id: String,
    /// In the order in which they were made.
    channel_mappings: Vec<MappingOut>,
}

/// A new plugin instance.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InstanceIn {
    /// The plugin class.
    plugin_id: String,
    /// Unique, 1 to 255 characters.
    instance_name: String,
    /// Whether values are simulated; false if absent.
    demo_mode: Option<bool>,
    /// Whether a controller is to run it; true if absent.
    enabled: Option<bool>,
    /// Whether an event is linked to every channel, made if need be; true if absent.
    auto_create_events: Option<bool>,
    /// A JSON object as text, which fits the class's `config_schema`; seen by every user, and kept encrypted.
    config_json: Option<String>,
}

/// Changes of a plugin instance; absent fields stay as they are, null clears the configuration.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InstanceChangesIn {
    /// Unique, 1 to 255 characters.
    instance_name: Option<String>,
    demo_mode: Option<bool>,
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    config_json: Option<Option<String>>,
}

/// How an instance is.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReportIn {
    /// `inactive`, `connected`, `demo` or `error`.
    #[schema(value_type = String)]
    status: InstanceStatus,
    /// What is wrong, up to 1000 characters.
    error_message: Option<String>,
}

/// Which instances are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InstanceParams {
    /// A plugin class.
    plugin_id: Option<String>,
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// Only those that a controller is to run, or only the others.
    enabled: Option<bool>,
}

/// List plugin instances with their channels, newest first.
#[utoipa::path(get, path = "/api/v1/plugins", tag = "plugins", security(("jwt" = [])), params(EnvelopeParams, InstanceParams), operation_id = "list_plugin_instances",
    responses((status = 200, body = Page<InstanceOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    _: Reader,
    Params(envelope): Params<EnvelopeParams>,
    Params(params): Params<InstanceParams>,
) -> Result<Json<Page<InstanceOut>>, Problem> {
    let InstanceParams { plugin_id, name, enabled } = params;
    let filter = InstanceFilter { plugin_id, name, enabled };
    let wanted = envelope.page()?;
    let (rows, total) = state.read(|pool| queries::instances(pool, &filter, wanted)).await?;
    let ids: Vec<_> = rows.iter().map(|instance| instance.row.id).collect();
    let mut mappings = state.read(|pool| queries::mappings(pool, &ids)).await?;
    let mut data = Vec::with_capacity(rows.len());
    for instance in rows {
        let own = mappings.extract_if(.., |mapping| mapping.instance_id == instance.row.id).collect();
        data.push(InstanceOut::new(&state, instance, own).await?);
    }
    Ok(Json(envelope.envelope(total, data)))
}

/// One plugin instance with its channels. That a controller fell silent is not in the log: with `at`, `status` is what it had
/// reported last.
#[utoipa::path(get, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), AtParams), operation_id = "get_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(state): State<AppState>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let (version, out) = show_at(&state, &id, at).await?;
    Ok(answer::resource(version, &out))
}

/// Create a plugin instance. Its channels are found out from its class and configuration, and linked to events.
#[utoipa::path(post, path = "/api/v1/plugins", tag = "plugins", security(("jwt" = [])), request_body = InstanceIn, operation_id = "create_plugin_instance",
    responses((status = 201, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    Writer(who): Writer,
    context: RequestContext,
    JsonBody(instance): JsonBody<InstanceIn>,
) -> Result<Response, Problem> {
    let InstanceIn { plugin_id, instance_name, demo_mode, enabled, auto_create_events, config_json } =
        instance;
    let config_json = InstanceConfig::clean(config_json.as_deref())?;
    let spec = InstanceSpec {
        name: instance_name,
        demo_mode: demo_mode.unwrap_or(false),
        enabled: enabled.unwrap_or(true),
        config: seal(&state, context.resource, config_json.as_deref())?,
    };
    // Checked before events are made for it. A repetition has made the instance itself.
    let spec = spec.validate()?;
    let offered = classes::find(&state, plugin_id.trim()).await?;
    let config = offered.check(config_json.as_deref())?;
    if queries::is_instance_name_taken(&state.pool, &spec.name, context.resource).await? {
        let detail = "Another plugin instance has this name: choose another one.";
        return Err(Problem::conflict("instance_name_taken", detail));
    }
    let found = offered.channels(&state, config).await?;
    let link = auto_create_events.unwrap_or(true);
    let mappings = channels::map(&state, &who, &context, &spec.name, found, link).await?;
    let plugin = PluginRef { id: offered.class.id, is_built_in: offered.package.is_none() };
    let command =
        PluginInstanceCommand::Create { new: NewInstance { owner: who.user, plugin, spec }, mappings };
    let metadata = context.metadata(who.actor(), "create plugin instance");
    let written = state.write::<PluginInstance>(context.resource, None, &metadata, &command).await?;
    let (version, out) = show_at(&state, &context.resource.to_string(), written.unseen).await?;
    Ok(answer::created(written, &format!("/api/v1/plugins/{}", out.public_id), version, &out))
}

/// Change a plugin instance. Its controller follows at its next look; its channels stay.
#[utoipa::path(put, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), request_body = InstanceChangesIn, operation_id = "update_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(state): State<AppState>,
    Writer(who): Writer,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
    JsonBody(changes): JsonBody<InstanceChangesIn>,
) -> Result<Response, Problem> {
    let InstanceChangesIn { instance_name, demo_mode, enabled, config_json } = changes;
    let instance = find(&state, &id).await?;
    let config = match config_json {
        Some(config) => changed_config(&state, &instance, config.as_deref()).await?,
        None => None,
    };
    let changes = InstanceChanges { name: instance_name, demo_mode, enabled, config };
    let metadata = context.metadata(who.actor(), "change plugin instance");
    let command = PluginInstanceCommand::Change(changes);
    let written = state.write::<PluginInstance>(instance.row.id, version, &metadata, &command).await?;
    let (version, out) = show_at(&state, &id, written.unseen).await?;
    Ok(answer::changed(written, version, &out))
}

/// Say how a plugin instance is, as the controller that runs it. To be repeated at least once a minute.
#[utoipa::path(put, path = "/api/v1/plugins/{public_id}/status", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), request_body = ReportIn, operation_id = "report_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn report(
    State(state): State<AppState>,
    Writer(who): Writer,
    Text(id): Text,
    context: RequestContext,
    JsonBody(report): JsonBody<ReportIn>,
) -> Result<Response, Problem> {
    let ReportIn { status, error_message } = report;
    let instance = find(&state, &id).await?;
    let metadata = context.metadata(who.actor(), "report plugin instance");
    let command = PluginInstanceCommand::Report { status, error: error_message };
    let written = state.write::<PluginInstance>(instance.row.id, None, &metadata, &command).await?;
    queries::note_report(&state.pool, instance.row.id, state.clock.now()).await?;
    let (version, out) = show_at(&state, &id, written.unseen).await?;
    Ok(answer::changed(written, version, &out))
}

/// Delete a plugin instance with its channel mappings; the events stay.
#[utoipa::path(delete, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), operation_id = "delete_plugin_instance",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    Writer(who): Writer,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let instance = find(&state, &id).await?.row.id;
    let metadata = context.metadata(who.actor(), "delete plugin instance");
    let command = PluginInstanceCommand::Delete;
    let written = state.write::<PluginInstance>(instance, version, &metadata, &command).await?;
    queries::forget_controllers(&state.pool, instance).await?;
    Ok(answer::success(written, "Plugin instance successfully deleted."))
}

/// The instance `id`.
pub(super) async fn find(state: &Gateway, id: &str) -> Result<Instance, Problem> {
    let id = key("Plugin instance", id)?;
    state.read(|pool| queries::instance(pool, id)).await?.ok_or_else(|| Problem::not_found("Plugin instance"))
}

/// The instance `id` as it was `at`, or as it is.
async fn show_at(state: &Gateway, id: &str, at: Option<At>) -> Result<(i64, InstanceOut), Problem> {
    let (instance, mappings) = match at {
        None => {
            let instance = find(state, id).await?;
            let own = slice::from_ref(&instance.row.id);
            let mappings = state.read(|pool| queries::mappings(pool, own)).await?;
            (instance, mappings)
        }
        Some(at) => {
            let (row, mappings) = find_past(state, id, at).await?;
            (Instance { row, reported_at: Some(state.clock.now()) }, mappings)
        }
    };
    Ok((instance.row.version, InstanceOut::new(state, instance, mappings).await?))
}

pub(super) async fn find_past(
    state: &Gateway,
    id: &str,
    at: At,
) -> Result<(InstanceRow, Vec<MappingRow>), Problem> {
    let what = "Plugin instance";
    there(what, past_instance(&state.pool, key(what, id)?, at).await?)
}

/// What `config` changes: nothing, if it is what there is. Sealed texts cannot be compared.
async fn changed_config(
    state: &Gateway,
    instance: &Instance,
    config: Option<&str>,
) -> Result<Option<Option<InstanceConfig>>, Problem> {
    let config = InstanceConfig::clean(config)?;
    classes::find(state, &instance.row.plugin_id).await?.check(config.as_deref())?;
    if unseal(state, instance).await? == config {
        return Ok(None);
    }
    seal(state, instance.row.id, config.as_deref()).map(Some)
}

fn seal(state: &Gateway, instance: Uuid, config: Option<&str>) -> Result<Option<InstanceConfig>, Problem> {
    let sealed = config.map(|config| state.sealer.seal(instance, config)).transpose();
    Ok(sealed.map_err(|error| Problem::internal(&error))?.map(InstanceConfig::Sealed))
}

async fn unseal(state: &Gateway, instance: &Instance) -> Result<Option<String>, Problem> {
    match instance.row.config.as_deref() {
        None => Ok(None),
        Some(InstanceConfig::Plain(config)) => Ok(Some(config.clone())),
        Some(InstanceConfig::Sealed(sealed)) => {
            let opened = state.sealer.unseal(instance.row.id, sealed).await;
            Ok(Some(opened.map_err(|error| Problem::internal(&error))?.expose().to_owned()))
        }
    }
}

impl InstanceOut {
    async fn new(state: &Gateway, instance: Instance, mappings: Vec<MappingRow>) -> Result<Self, Problem> {
        let config_json = unseal(state, &instance).await?;
        let Instance { row, reported_at } = instance;
        let is_believed = reported_at.is_some_and(|reported| state.clock.now() - reported <= BELIEVED);
        let inactive = || (InstanceStatus::Inactive.as_str().to_owned(), None);
        let (status, error_message) = if is_believed { (row.status, row.error) } else { inactive() };
        Ok(Self {
            public_id: row.id.to_string(),
            plugin_id: row.plugin_id,
            instance_name: row.name,
            demo_mode: row.demo_mode,
            enabled: row.enabled,
            status,
            config_json,
            error_message,
            created_on: row.created_at,
            updated_on: row.updated_at,
            user_public_id: row.owner_id.to_string(),
            channel_mappings: mappings.into_iter().map(Into::into).collect(),
        })
    }
}
