use std::{slice, sync::Arc};

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    fleet::{
        InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstance,
        PluginInstanceCommand, PluginRef,
    },
    kernel::Decider,
};
use signalbox_projections::{
    fleet::{
        InstanceRow, MappingRow, past_instance,
        queries::{self, Instance, InstanceFilter},
    },
    register::At,
};
use signalbox_sealing::Sealer;
use utoipa::{IntoParams, ToSchema};

use super::{
    channels, classes,
    controllers::{note_controller, sees_secrets},
    instance_config::{Schemas, changed_config, seal, secrets_of, unseal},
    own_events::{self, NamedOut, Removed},
    redaction::Secrets,
};
use crate::{
    answer::{self, Page},
    auth::{Credential, Reader, Writer},
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, IfMatch, JsonBody, Params, Sort, Text, key, not_null, present},
    fleet::services::FleetServices,
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::{auth::ApiTokens, commands::Commands, replica::Database},
    state::Written,
};

/// A status that no controller has confirmed for so long is no longer believed.
const BELIEVED: TimeDelta = TimeDelta::seconds(60);

/// A channel of a plugin instance, and the event that it feeds or obeys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MappingOut {
    public_id: String,
    /// Its name in the plugin.
    channel_id: String,
    channel_name: String,
    /// `input`, `output` or `bidirectional`.
    #[schema(value_type = crate::words::Direction)]
    direction: String,
    unit: String,
    /// The linked event; null when there is none, also after the event was deleted.
    event_public_id: Option<String>,
    created_on: DateTime<Utc>,
}

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
    #[schema(value_type = crate::words::InstanceStatus)]
    status: String,
    /// A JSON object as text. Values that the class's schema marks as secret (`writeOnly`, or `format` `password`) are
    /// `[redacted]`, but for controllers (an API token with `controller`).
    config_json: Option<String>,
    /// With the status `error`, what is wrong.
    error_message: Option<String>,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
    /// The user that created it.
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
    /// A JSON object as text, which fits the class's `config_schema`; kept encrypted.
    config_json: Option<String>,
}

/// Changes of a plugin instance; absent fields stay as they are, null clears the configuration.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InstanceChangesIn {
    /// Its plugin class, if at all: an instance of another class is made anew.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    plugin_id: Option<String>,
    /// Unique, 1 to 255 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    instance_name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    demo_mode: Option<bool>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
    /// With `[redacted]` for a secret, that stays as it is.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    config_json: Option<Option<String>>,
}

/// How an instance is.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReportIn {
    /// `inactive`, `connected`, `demo` or `error`.
    #[schema(value_type = crate::words::InstanceStatus)]
    status: InstanceStatus,
    /// The fault, up to 1000 characters.
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

/// Further things deleted with an instance.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InstanceDeleteParams {
    /// Whether the events that the instance created stay; false if absent.
    keep_events: Option<bool>,
    /// Whether the datapoints of those that are deleted, and their aggregates, are deleted, too: for good; false if absent.
    values: Option<bool>,
}

/// A deleted plugin instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstanceDeletedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    /// The events that were deleted with it.
    deleted_events: Vec<NamedOut>,
    /// The rules on those events that were disabled.
    disabled_rules: Vec<NamedOut>,
}

/// List plugin instances with their channels, oldest first, so that an instance stays on its page.
#[utoipa::path(get, path = "/api/v1/plugins", tag = "plugins", security(("jwt" = [])), params(EnvelopeParams, Sort<Instance>, InstanceParams), operation_id = "list_plugin_instances",
    responses((status = 200, body = Page<InstanceOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(services): State<FleetServices>,
    Reader(user): Reader,
    context: RequestContext,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<Instance>,
    Params(params): Params<InstanceParams>,
) -> Result<Json<Page<InstanceOut>>, Problem> {
    let InstanceParams { plugin_id, name, enabled } = params;
    let filter = InstanceFilter { plugin_id, name, enabled };
    let page = envelope.page()?;
    let (rows, total) =
        services.database.read(|pool| queries::instances(pool, &filter, sort.order(), page)).await?;
    let ids: Vec<_> = rows.iter().map(|instance| instance.row.id).collect();
    let mut mappings = services.database.read(|pool| queries::mappings(pool, &ids)).await?;
    let sees_secrets =
        sees_secrets(&services.database, &services.commands, &services.api_tokens, &user, &context).await?;
    let mut schemas = Schemas::default();
    let now = services.database.time().await?;
    let mut data = Vec::with_capacity(rows.len());
    for instance in rows {
        let own = mappings.extract_if(.., |mapping| mapping.instance_id == instance.row.id).collect();
        let secrets =
            if sees_secrets { None } else { Some(schemas.secrets(&services.database, &instance).await?) };
        data.push(InstanceOut::new(&services.sealer, now, instance, own, secrets).await?);
    }
    Ok(Json(envelope.envelope(total, data)))
}

/// One plugin instance with its channels. That a controller fell silent is not in the log: with `at`, `status` is what it had
/// reported last.
#[utoipa::path(get, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), AtParams), operation_id = "get_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(sealer): State<Sealer>,
    State(api_tokens): State<Arc<ApiTokens>>,
    Reader(user): Reader,
    context: RequestContext,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let sees_secrets = sees_secrets(&database, &commands, &api_tokens, &user, &context).await?;
    let (version, out) = show_at(&database, &sealer, &id, at, sees_secrets).await?;
    Ok(answer::resource(version, &out))
}

/// Create a plugin instance. Its channels are found out from its class and configuration, and linked to events.
#[utoipa::path(post, path = "/api/v1/plugins", tag = "plugins", security(("jwt" = [])), request_body = InstanceIn, operation_id = "create_plugin_instance",
    responses((status = 201, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(services): State<FleetServices>,
    Writer(user): Writer,
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
        config: seal(&services.sealer, context.resource, config_json.as_deref())?,
    };
    // Checked before events are made for it. A repetition has made the instance itself.
    let spec = spec.validate()?;
    let offered = classes::find(&services.database, plugin_id.trim()).await?;
    if let Some(config) = &config_json {
        Secrets::of(Some(offered.class.config_schema.as_str())).restore(config.clone(), None)?;
    }
    let config = offered.check(config_json.as_deref())?;
    if queries::is_instance_name_taken(&services.database.primary, &spec.name, context.resource).await? {
        let detail = "Another plugin instance has this name: choose another one.";
        return Err(Problem::conflict("instance_name_taken", detail));
    }
    let found = offered.channels(&services.config, &services.wheels, &services.plugins, config).await?;
    let link = auto_create_events.unwrap_or(true);
    let mappings =
        channels::map(&services.database, &services.commands, &user, &context, &spec.name, found, link)
            .await?;
    let plugin = PluginRef { id: offered.class.id, is_built_in: offered.package.is_none() };
    let command =
        PluginInstanceCommand::Create { new: NewInstance { owner: user.id, plugin, spec }, mappings };
    let metadata = context.metadata(user.actor(), "create plugin instance");
    let written =
        services.commands.write::<PluginInstance>(context.resource, None, &metadata, &command).await?;
    let (id, sees_secrets) = (context.resource.to_string(), user.runs_controller());
    let (version, out) =
        after_write(|| show_at(&services.database, &services.sealer, &id, written.unseen, sees_secrets))
            .await?;
    Ok(answer::created(written, &format!("/api/v1/plugins/{}", out.public_id), version, &out))
}

/// Change a plugin instance. Its controller follows at its next look; its channels stay.
#[utoipa::path(put, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), request_body = InstanceChangesIn, operation_id = "update_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(services): State<FleetServices>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Text(id): Text,
    context: RequestContext,
    JsonBody(changes): JsonBody<InstanceChangesIn>,
) -> Result<Response, Problem> {
    let InstanceChangesIn { plugin_id, instance_name, demo_mode, enabled, config_json } = changes;
    let instance = match find(&services.database, &id).await {
        Ok(instance) => instance,
        Err(missing) => {
            InstanceConfig::clean(config_json.as_ref().and_then(Option::as_deref))?;
            let changes = InstanceChanges { name: instance_name, ..InstanceChanges::default() };
            let change = PluginInstanceCommand::Change(changes);
            return Err(judged::<PluginInstance>(missing, [examples::instance(), change]));
        }
    };
    let plugin_id = plugin_id.as_deref().map(str::trim);
    Problem::unless_kept("plugin_id", "instance", &instance.row.plugin_id, plugin_id)?;
    let config = match config_json {
        Some(config) => changed_config(&services, &instance, config.as_deref()).await?,
        None => None,
    };
    let changes = InstanceChanges { name: instance_name, demo_mode, enabled, config };
    let metadata = context.metadata(user.actor(), "change plugin instance");
    let command = PluginInstanceCommand::Change(changes);
    let written =
        services.commands.write::<PluginInstance>(instance.row.id, versions, &metadata, &command).await?;
    let sees_secrets = user.runs_controller();
    let (version, out) =
        after_write(|| show_at(&services.database, &services.sealer, &id, written.unseen, sees_secrets))
            .await?;
    Ok(answer::changed(written, version, &out))
}

/// Say how a plugin instance is, as the controller that runs it. To be repeated at least once a minute.
#[utoipa::path(put, path = "/api/v1/plugins/{public_id}/status", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), request_body = ReportIn, operation_id = "report_plugin_instance",
    responses((status = 200, body = InstanceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn report(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(sealer): State<Sealer>,
    State(api_tokens): State<Arc<ApiTokens>>,
    Writer(user): Writer,
    Text(id): Text,
    context: RequestContext,
    JsonBody(report): JsonBody<ReportIn>,
) -> Result<Response, Problem> {
    let ReportIn { status, error_message } = report;
    let command = PluginInstanceCommand::Report { status, error: error_message };
    let instance = find(&database, &id)
        .await
        .map_err(|missing| judged::<PluginInstance>(missing, [examples::instance(), command.clone()]))?;
    let metadata = context.metadata(user.actor(), "report plugin instance");
    let written = commands.write::<PluginInstance>(instance.row.id, None, &metadata, &command).await?;
    let noted = || async {
        Ok(queries::note_report(&database.primary, instance.row.id, database.time().await?).await?)
    };
    after_write(noted).await?;
    if let (None, Credential::ApiToken(token)) = (user.controller, user.credential) {
        api_tokens.remember_controller(token, true);
        note_controller(&commands, &user, &context, token).await;
    }
    let sees_secrets = user.runs_controller();
    let (version, out) =
        after_write(|| show_at(&database, &sealer, &id, written.unseen, sees_secrets)).await?;
    Ok(answer::changed(written, version, &out))
}

/// Delete a plugin instance with its channel mappings, and the events that it created and that no other instance maps, unless
/// `keep_events=true`. Rules on those events are disabled; their datapoints stay, unless `values=true` deletes them for good.
#[utoipa::path(delete, path = "/api/v1/plugins/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,), InstanceDeleteParams), operation_id = "delete_plugin_instance",
    responses((status = 200, body = InstanceDeletedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn delete(
    change: Change<Writer>,
    Params(InstanceDeleteParams { keep_events, values }): Params<InstanceDeleteParams>,
) -> Result<Response, Problem> {
    if keep_events == Some(true) && values == Some(true) {
        let detail =
            "must not be true beside keep_events=true: values of an event that stays cannot be deleted";
        return Err(Problem::field("values", detail));
    }
    let instance = find(&change.database, &change.id).await?.row;
    // The log is asked, not the read model, which may not show a version yet that makes this deletion fail: the events stay then.
    if let Some(versions) = &change.versions
        && !versions.contains(change.commands.gate.version(PluginInstance::TYPE, instance.id).await?)
    {
        return Err(Problem::version_mismatch());
    }
    // The instance goes last: should this be broken off, the same request does what is left.
    let removed = match keep_events.unwrap_or(false) {
        true => Removed::default(),
        false => {
            let values = values.unwrap_or(false);
            own_events::remove(
                &change.database,
                &change.commands,
                &change.user,
                &change.context,
                instance.id,
                values,
            )
            .await?
        }
    };
    let command = PluginInstanceCommand::Delete;
    let written = change.write::<PluginInstance>(instance.id, "delete plugin instance", &command).await?;
    // The instance is deleted, also if the notes on its controllers stay.
    if let Err(error) = queries::forget_controllers(&change.database.primary, instance.id).await {
        tracing::warn!(%error, instance = %instance.id, "the controllers of a deleted plugin instance were not forgotten");
    }
    let Removed { events, rules, written: removed } = removed;
    let out = InstanceDeletedOut {
        status: "success",
        message: "Plugin instance successfully deleted.",
        deleted_events: events,
        disabled_rules: rules,
    };
    let unseen = written.unseen.or(removed.unseen);
    let written = Written { unseen, has_pending_effects: removed.has_pending_effects, ..written };
    Ok(answer::written(written, StatusCode::OK, None, &out))
}

/// The instance `id`.
pub(super) async fn find(database: &Database, id: &str) -> Result<Instance, Problem> {
    let id = key("Plugin instance", id)?;
    database
        .read(|pool| queries::instance(pool, id))
        .await?
        .ok_or_else(|| Problem::not_found("Plugin instance"))
}

/// The instance `id` as it was `at`, or as it is.
async fn show_at(
    database: &Database,
    sealer: &Sealer,
    id: &str,
    at: Option<At>,
    sees_secrets: bool,
) -> Result<(i64, InstanceOut), Problem> {
    let now = database.time().await?;
    let (instance, mappings) = match at {
        None => {
            let instance = find(database, id).await?;
            let own = slice::from_ref(&instance.row.id);
            let mappings = database.read(|pool| queries::mappings(pool, own)).await?;
            (instance, mappings)
        }
        Some(at) => {
            let (row, mappings) = find_past(database, id, at).await?;
            (Instance { row, reported_at: Some(now) }, mappings)
        }
    };
    let secrets =
        if sees_secrets { None } else { Some(secrets_of(database, &instance.row.plugin_id).await?) };
    Ok((instance.row.version, InstanceOut::new(sealer, now, instance, mappings, secrets.as_ref()).await?))
}

pub(super) async fn find_past(
    database: &Database,
    id: &str,
    at: At,
) -> Result<(InstanceRow, Vec<MappingRow>), Problem> {
    let what = "Plugin instance";
    there(what, past_instance(&database.primary, key(what, id)?, at).await?)
}

impl InstanceOut {
    /// The instance as it is at `now`, by PostgreSQL's clock, by which it reports.
    async fn new(
        sealer: &Sealer,
        now: DateTime<Utc>,
        instance: Instance,
        mappings: Vec<MappingRow>,
        redacted: Option<&Secrets>,
    ) -> Result<Self, Problem> {
        let config_json = unseal(sealer, &instance).await?;
        let config_json = match redacted {
            Some(secrets) => config_json.map(|config| secrets.redact(config)),
            None => config_json,
        };
        let Instance { row, reported_at } = instance;
        let is_believed = reported_at.is_some_and(|reported| now - reported <= BELIEVED);
        let inactive = || (InstanceStatus::Inactive.as_str().to_owned(), None);
        let (status, error_message) = if is_believed { (row.status.into(), row.error) } else { inactive() };
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

impl From<MappingRow> for MappingOut {
    fn from(row: MappingRow) -> Self {
        let MappingRow { id, channel_id, channel_name, direction, unit, event_id, created_at, .. } = row;
        Self {
            public_id: id.to_string(),
            channel_id,
            channel_name,
            direction: direction.into(),
            unit,
            event_public_id: event_id.map(|event| event.to_string()),
            created_on: created_at,
        }
    }
}
