//! Configurations of plugin instances: sealed where they are stored, compared as the texts that clients send.

use std::collections::HashMap;

use serde_json::Value;
use signalbox_domain::fleet::InstanceConfig;
use signalbox_projections::fleet::queries::Instance;
use signalbox_sealing::Sealer;
use uuid::Uuid;

use super::{classes, redaction::Secrets};
use crate::{
    fleet::services::FleetServices,
    problem::{Problem, ProblemKind},
    services::replica::Database,
};

/// The configuration to store for a request of `config`, or `None` if it equals the known one. Texts are compared
/// unsealed: sealing the same text twice yields different ones.
pub(super) async fn changed_config(
    services: &FleetServices,
    instance: &Instance,
    config: Option<&str>,
) -> Result<Option<Option<InstanceConfig>>, Problem> {
    let (config, known) = (InstanceConfig::clean(config)?, unseal(&services.sealer, instance).await?);
    let offered = classes::find(&services.database, &instance.row.plugin_id).await?;
    let secrets = Secrets::of(Some(offered.class.config_schema.as_str()));
    let restored = config.clone().map(|config| secrets.restore(config, known.as_deref())).transpose()?;
    let is_restored = restored != config;
    let config = restored;
    let values = offered.check(config.as_deref())?;
    if config == known || (is_restored && is_same_json(config.as_deref(), known.as_deref())) {
        return Ok(None);
    }
    // As when the instance was made, the plugin says what the schema cannot: channels of one id, commands to what takes none.
    offered.channels(&services.config, &services.wheels, &services.plugins, values).await?;
    seal(&services.sealer, instance.row.id, config.as_deref()).map(Some)
}

fn is_same_json(one: Option<&str>, other: Option<&str>) -> bool {
    let read = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    read(one).is_some_and(|one| read(other) == Some(one))
}

pub(super) fn seal(
    sealer: &Sealer,
    instance: Uuid,
    config: Option<&str>,
) -> Result<Option<InstanceConfig>, Problem> {
    let sealed = config.map(|config| sealer.seal(instance, config)).transpose();
    Ok(sealed.map_err(|error| Problem::internal(&error))?.map(InstanceConfig::Sealed))
}

pub(super) async fn unseal(sealer: &Sealer, instance: &Instance) -> Result<Option<String>, Problem> {
    match instance.row.config.as_deref() {
        None => Ok(None),
        Some(InstanceConfig::Plain(config)) => Ok(Some(config.clone())),
        Some(InstanceConfig::Sealed(sealed)) => {
            let opened = sealer.unseal(instance.row.id, sealed).await;
            Ok(Some(opened.map_err(|error| Problem::internal(&error))?.expose().to_owned()))
        }
    }
}

/// Which values of a configuration for the class `id` are secret.
pub(super) async fn secrets_of(database: &Database, id: &str) -> Result<Secrets, Problem> {
    match classes::find(database, id).await {
        Ok(offered) => Ok(Secrets::of(Some(offered.class.config_schema.as_str()))),
        Err(problem) if problem.kind() == ProblemKind::NotFound => Ok(Secrets::of(None)),
        Err(problem) => Err(problem),
    }
}

/// The secrets of the classes in a list.
#[derive(Default)]
pub(super) struct Schemas(HashMap<String, Secrets>);

impl Schemas {
    /// Those of the class of `instance`.
    pub(super) async fn secrets(
        &mut self,
        database: &Database,
        instance: &Instance,
    ) -> Result<&Secrets, Problem> {
        let id = &instance.row.plugin_id;
        let secrets = match self.0.remove(id) {
            Some(known) => known,
            None => secrets_of(database, id).await?,
        };
        Ok(self.0.entry(id.clone()).or_insert(secrets))
    }
}
