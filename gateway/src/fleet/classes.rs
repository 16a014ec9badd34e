use std::sync::LazyLock;

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::{Map, Value};
use signalbox_config::Config;
use signalbox_domain::{
    fleet::{Direction, PluginChannel, PluginClass},
    kernel::Sha256Hex,
};
use signalbox_plugins::{Plugins, Question, Wheel};
use signalbox_projections::fleet::{PackageRow, queries};
use utoipa::ToSchema;

use super::packages;
use crate::{
    auth::Reader,
    problem::{Problem, ProblemOut},
    services::{replica::Database, wheels::Wheels},
};

/// The classes that come with the service, as the SDK describes them; a test of the SDK keeps the two equal.
static BUILT_IN: LazyLock<Vec<PluginClass>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the file is compiled in, and read by a test")]
    serde_json::from_str(include_str!("built_in.json")).expect("built_in.json holds classes")
});

/// A kind of device that a plugin can be an instance of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginClassOut {
    id: String,
    name: String,
    version: String,
    vendor: String,
    description: String,
    url: String,
    /// JSON Schema of `config_json`, from which a form can be made.
    #[schema(value_type = Object)]
    config_schema: Value,
    /// The channels that it has when nothing is configured.
    channels: Vec<ClassChannelOut>,
}

/// A channel as its plugin describes it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassChannelOut {
    channel_id: String,
    channel_name: String,
    #[schema(value_type = crate::words::Direction)]
    direction: Direction,
    unit: String,
    min_value: f64,
    max_value: f64,
}

/// A class, and the package that offers it; none offers one that is built in.
pub(super) struct Offered {
    pub(super) class: PluginClass,
    pub(super) package: Option<PackageRow>,
}

/// Whether the class `id` ships with the service.
pub(super) fn is_built_in(id: &str) -> bool {
    BUILT_IN.iter().any(|class| class.id == id)
}

/// List the plugin classes: those that come with the service, then those of packages.
#[utoipa::path(get, path = "/api/v1/plugins/available", tag = "plugins", security(("jwt" = [])), operation_id = "list_plugin_classes",
    responses((status = 200, body = Vec<PluginClassOut>), (status = 401, body = ProblemOut)))]
pub(crate) async fn available(
    State(database): State<Database>,
    _: Reader,
) -> Result<Json<Vec<PluginClassOut>>, Problem> {
    let packages = database.read(queries::packages).await?;
    let uploaded = packages.into_iter().flat_map(|package| package.classes.0);
    Ok(Json(BUILT_IN.iter().cloned().chain(uploaded).map(Into::into).collect()))
}

/// The class `id`.
pub(super) async fn find(database: &Database, id: &str) -> Result<Offered, Problem> {
    if let Some(class) = BUILT_IN.iter().find(|class| class.id == id) {
        return Ok(Offered { class: class.clone(), package: None });
    }
    for package in database.read(queries::packages).await? {
        if let Some(class) = package.classes.iter().find(|class| class.id == id) {
            return Ok(Offered { class: class.clone(), package: Some(package) });
        }
    }
    Err(Problem::not_found("Plugin"))
}

impl Offered {
    /// The object in `config`, if it is valid JSON for the class; absent means an empty object.
    pub(super) fn check(&self, config: Option<&str>) -> Result<Map<String, Value>, Problem> {
        let config = config.filter(|config| !config.trim().is_empty()).unwrap_or("{}");
        let wrong = |why: &str| Problem::field("config_json", why);
        let config: Value = serde_json::from_str(config).map_err(|_| wrong("must be JSON"))?;
        let schema: Value =
            serde_json::from_str(&self.class.config_schema).map_err(|error| Problem::internal(&error))?;
        let validator = jsonschema::validator_for(&schema)
            .map_err(|_| wrong("cannot be checked: the plugin's schema is not a JSON Schema"))?;
        if let Some(error) = validator.iter_errors(&config).next() {
            // Without the value, which may be a secret.
            let place = error.instance_path().to_string();
            return Err(wrong(&format!("does not fit the plugin: {} at {place}/", error.masked())));
        }
        match config {
            Value::Object(config) => Ok(config),
            _ => Err(wrong("must be a JSON object")),
        }
    }

    /// The channels that an instance with this configuration has.
    pub(super) async fn channels(
        &self,
        config: &Config,
        wheels: &Wheels,
        plugins: &Plugins,
        given: Map<String, Value>,
    ) -> Result<Vec<PluginChannel>, Problem> {
        // A built-in class that has channels without a configuration has the same ones with any.
        let is_fixed = self.package.is_none() && !self.class.channels.is_empty();
        if is_fixed || given.is_empty() {
            return Ok(self.class.channels.clone());
        }
        let sha256 = match &self.package {
            Some(package) => Some(unpacked(config, wheels, plugins, package).await?),
            None => None,
        };
        let question = Question::Channels { plugin_id: self.class.id.clone(), config: given };
        let told = plugins.describe(sha256.as_ref(), &question).await;
        let told = told.map_err(|error| match error {
            signalbox_plugins::DescribeError::Plugin(why) => {
                Problem::field("config_json", format!("is refused by the plugin: {why}"))
            }
            other => packages::failed(other),
        })?;
        let unreadable =
            |_| Problem::invalid("the plugin describes its channels in a way that cannot be read");
        let channels = serde_json::from_value(told["channels"].clone()).map_err(unreadable)?;
        Ok(PluginChannel::validate_all(channels)?)
    }
}

/// Makes sure that `package` is unpacked here: another gateway may have installed it.
async fn unpacked(
    config: &Config,
    wheels: &Wheels,
    plugins: &Plugins,
    package: &PackageRow,
) -> Result<Sha256Hex, Problem> {
    let sha256: Sha256Hex = package.sha256.parse().map_err(|error| Problem::internal(&error))?;
    if !plugins.is_unpacked(&sha256) {
        let wheel = packages::fetch(config, wheels, package).await?;
        let (plugins, digest, name) = (plugins.clone(), sha256.clone(), package.file_name.clone());
        let unpacking =
            tokio::task::spawn_blocking(move || plugins.unpack(Wheel::open(wheel, &name)?, &digest)).await;
        unpacking.map_err(|error| Problem::internal(&error))?.map_err(|error| Problem::internal(&error))?;
    }
    Ok(sha256)
}

impl From<PluginClass> for PluginClassOut {
    fn from(class: PluginClass) -> Self {
        let PluginClass { id, name, version, vendor, description, url, config_schema, channels } = class;
        Self {
            id,
            name,
            version,
            vendor,
            description,
            url,
            config_schema: serde_json::from_str(&config_schema).unwrap_or_default(),
            channels: channels.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<PluginChannel> for ClassChannelOut {
    fn from(channel: PluginChannel) -> Self {
        let PluginChannel { id, name, direction, unit, min_value, max_value } = channel;
        Self { channel_id: id, channel_name: name, direction, unit, min_value, max_value }
    }
}

#[cfg(test)]
mod tests {
    use signalbox_domain::kernel::FieldPointer;

    use super::*;

    fn check(config: &str) -> Result<Map<String, Value>, Problem> {
        let class = BUILT_IN[0].clone();
        Offered { class, package: None }.check(Some(config))
    }

    #[test]
    fn what_is_built_in_is_valid() {
        for class in BUILT_IN.iter() {
            assert_eq!(class.clone().validate().as_ref(), Ok(class));
            assert!(check(r#"{"poll_interval_ms": 500, "other": 1}"#).is_ok());
        }
        assert!(is_built_in("simulated") && is_built_in("system") && !is_built_in("weather"));
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused_without_repeating_it() {
        for config in ["", " ", "{}"] {
            assert_eq!(check(config).unwrap(), Map::new());
        }
        for config in ["geheim", "[]", r#"{"poll_interval_ms": 5}"#, r#"{"poll_interval_ms": "geheim"}"#] {
            let problem = check(config).unwrap_err();
            assert_eq!(problem.pointer(), Some(&FieldPointer::to("config_json")), "{}", problem.detail());
            assert!(!problem.detail().contains("geheim"), "{}", problem.detail());
        }
    }
}
