mod events;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{PluginPackageCommand, PluginPackageEvent, PluginPackageEventKind};
use super::{
    Direction,
    mapping::{MAX_ID, MAX_NAME, MAX_UNIT},
};
use crate::kernel::{
    Claim, ClaimOp, Decider, Rejection, Sha256Hex, TextError, UserId, clean_text, non_empty_text,
};

/// Longest text in the description of a class, in characters.
const MAX_TEXT: usize = 2000;
/// Classes of one package at most.
const MAX_CLASSES: usize = 50;
/// Channels of one class at most.
const MAX_CHANNELS: usize = 1000;
/// Longest configuration schema, in bytes.
const MAX_SCHEMA: usize = 64 * 1024;

/// A kind of device that a plugin can be an instance of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginClass {
    /// Unique among all classes, 1–100 characters.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Its version.
    pub version: String,
    pub vendor: String,
    pub description: String,
    /// Where there is more about it.
    pub url: String,
    /// JSON Schema of its configuration, as text.
    pub config_schema: String,
    /// The channels that it has when nothing is configured.
    pub channels: Vec<PluginChannel>,
}

/// A channel as its plugin describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginChannel {
    /// Unique within the plugin, 1–100 characters.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Which way values go.
    pub direction: Direction,
    /// Unit of its values; may be empty.
    pub unit: String,
    /// Lowest value.
    pub min_value: f64,
    /// Highest value.
    pub max_value: f64,
}

/// A new package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewPackage {
    /// The user who uploaded it.
    pub owner: UserId,
    /// Name of the distribution, in its normal form.
    pub name: String,
    /// Version of the distribution.
    pub version: String,
    /// File name of the wheel; never a path.
    pub file_name: String,
    /// Size of the wheel in bytes.
    pub size: u64,
    /// Digest of the wheel.
    pub sha256: Sha256Hex,
    /// The plugin classes found in the wheel.
    pub classes: Vec<PluginClass>,
}

/// An uploaded wheel with plugins.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct PluginPackage {
    /// Name and ids of classes.
    installed: Option<(String, Vec<String>)>,
}

const NAME_CLAIM: &str = "plugin_package.name";
/// Taken as long as the class is available; instances of it require it.
pub(super) const CLASS_CLAIM: &str = "plugin_class";

impl Decider for PluginPackage {
    const TYPE: &'static str = "plugin_package";
    const CONTEXT: &'static str = "fleet";
    const STATE_VERSION: i32 = 1;
    type Command = PluginPackageCommand;
    type Event = PluginPackageEvent;

    fn decide(&self, command: PluginPackageCommand) -> Result<Vec<PluginPackageEvent>, Rejection> {
        match (command, &self.installed) {
            (PluginPackageCommand::Install(_), Some(_)) => Err(taken()),
            (PluginPackageCommand::Install(new), None) => {
                Ok(vec![PluginPackageEvent::PluginPackageInstalled(new.validate()?)])
            }
            (PluginPackageCommand::Uninstall, None) => Err(Rejection::not_found("Plugin package")),
            (PluginPackageCommand::Uninstall, Some((name, class_ids))) => {
                let (name, class_ids) = (name.clone(), class_ids.clone());
                Ok(vec![PluginPackageEvent::PluginPackageUninstalled { name, class_ids }])
            }
        }
    }

    fn evolve(&mut self, event: PluginPackageEvent) {
        self.installed = match event {
            PluginPackageEvent::PluginPackageInstalled(new) => {
                Some((new.name, new.classes.into_iter().map(|class| class.id).collect()))
            }
            PluginPackageEvent::PluginPackageUninstalled { .. } => None,
        };
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            CLASS_CLAIM => Rejection::conflict(
                "plugin_class_taken",
                "Another package offers a plugin with the same id: uninstall that package first.",
            ),
            _ => taken(),
        }
    }

    fn claims(_id: Uuid, event: &PluginPackageEvent) -> Vec<Claim> {
        let all = |op, name: &str, classes: &mut dyn Iterator<Item = String>| {
            let classes = classes.map(|class| Claim::new(op, CLASS_CLAIM, class));
            [Claim::new(op, NAME_CLAIM, name)].into_iter().chain(classes).collect()
        };
        match event {
            PluginPackageEvent::PluginPackageInstalled(new) => {
                all(ClaimOp::Take, &new.name, &mut new.classes.iter().map(|class| class.id.clone()))
            }
            PluginPackageEvent::PluginPackageUninstalled { name, class_ids } => {
                all(ClaimOp::Release, name, &mut class_ids.iter().cloned())
            }
        }
    }
}

fn taken() -> Rejection {
    Rejection::conflict(
        "package_installed",
        "A package with this name is installed already: uninstall it before uploading another version.",
    )
}

impl NewPackage {
    fn validate(self) -> Result<Self, Rejection> {
        if self.classes.is_empty() || self.classes.len() > MAX_CLASSES {
            return Err(Rejection::invalid(
                "invalid_package",
                format!("A package must hold 1 to {MAX_CLASSES} plugins."),
            ));
        }
        let classes: Vec<_> =
            self.classes.into_iter().map(PluginClass::validate).collect::<Result<_, _>>()?;
        let distinct: BTreeSet<_> = classes.iter().map(|class| &class.id).collect();
        if distinct.len() != classes.len() {
            return Err(Rejection::invalid(
                "invalid_package",
                "Two plugins of the package have the same id.",
            ));
        }
        let name = non_empty_text(&self.name, MAX_NAME)
            .map_err(|error| Rejection::invalid("invalid_package", format!("The package's name {error}")))?;
        Ok(Self { name, classes, ..self })
    }
}

impl PluginClass {
    /// The class as it may be recorded.
    ///
    /// # Errors
    /// A [`Rejection`] that states the required change of the plugin.
    pub fn validate(self) -> Result<Self, Rejection> {
        let text = |field: &str, text: &str| clean_text(text, MAX_TEXT).map_err(|error| wrong(field, &error));
        if self.config_schema.len() > MAX_SCHEMA {
            let message = format!("The plugin's configuration schema is longer than {MAX_SCHEMA} bytes.");
            return Err(Rejection::invalid("invalid_plugin", message));
        }
        Ok(Self {
            id: non_empty_text(&self.id, MAX_ID).map_err(|error| wrong("id", &error))?,
            name: text("name", &self.name)?,
            version: text("version", &self.version)?,
            vendor: text("vendor", &self.vendor)?,
            description: text("description", &self.description)?,
            url: text("url", &self.url)?,
            config_schema: self.config_schema,
            channels: PluginChannel::validate_all(self.channels)?,
        })
    }
}

impl PluginChannel {
    /// The channels of one plugin as they may be mapped.
    ///
    /// # Errors
    /// A [`Rejection`] that states the required change of the plugin.
    pub fn validate_all(channels: Vec<Self>) -> Result<Vec<Self>, Rejection> {
        if channels.len() > MAX_CHANNELS {
            let message = format!("The plugin has more than {MAX_CHANNELS} channels.");
            return Err(Rejection::invalid("invalid_plugin", message));
        }
        let channels: Vec<_> = channels.into_iter().map(Self::validate).collect::<Result<_, _>>()?;
        let distinct: BTreeSet<_> = channels.iter().map(|channel| &channel.id).collect();
        if distinct.len() != channels.len() {
            return Err(Rejection::invalid("invalid_plugin", "Two channels of the plugin have the same id."));
        }
        Ok(channels)
    }

    fn validate(self) -> Result<Self, Rejection> {
        if !self.min_value.is_finite() || !self.max_value.is_finite() || self.min_value > self.max_value {
            let message = "A channel's min_value and max_value must be finite and in order.";
            return Err(Rejection::invalid("invalid_plugin", message));
        }
        Ok(Self {
            id: non_empty_text(&self.id, MAX_ID).map_err(|error| wrong("channel id", &error))?,
            name: non_empty_text(&self.name, MAX_NAME).map_err(|error| wrong("channel name", &error))?,
            unit: clean_text(&self.unit, MAX_UNIT).map_err(|error| wrong("channel unit", &error))?,
            ..self
        })
    }
}

/// The description is the plugin's, not the request's: no field of the request is named.
fn wrong(field: &str, error: &TextError) -> Rejection {
    Rejection::invalid("invalid_plugin", format!("The plugin's {field} {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(id: &str) -> PluginClass {
        PluginClass {
            id: id.to_owned(),
            name: "Weather".to_owned(),
            version: "1.0.0".to_owned(),
            vendor: String::new(),
            description: String::new(),
            url: String::new(),
            config_schema: "{}".to_owned(),
            channels: vec![channel("t")],
        }
    }

    fn channel(id: &str) -> PluginChannel {
        PluginChannel {
            id: id.to_owned(),
            name: "Temperature".to_owned(),
            direction: Direction::Input,
            unit: "°C".to_owned(),
            min_value: -40.0,
            max_value: 60.0,
        }
    }

    fn package(classes: Vec<PluginClass>) -> NewPackage {
        NewPackage {
            owner: UserId(Uuid::nil()),
            name: "plugin-weather".to_owned(),
            version: "1.0.0".to_owned(),
            file_name: "plugin_weather-1.0.0-py3-none-any.whl".to_owned(),
            size: 1,
            sha256: Sha256Hex::from_bytes(&[1; 32]),
            classes,
        }
    }

    fn install(classes: Vec<PluginClass>) -> Result<Vec<PluginPackageEvent>, Rejection> {
        PluginPackage::default().decide(PluginPackageCommand::Install(package(classes)))
    }

    #[test]
    fn an_installed_package_claims_its_name_and_its_classes_and_gives_them_back() {
        let events = install(vec![class("a"), class("b")]).unwrap();
        let taken = PluginPackage::claims(Uuid::nil(), &events[0]);
        assert_eq!(
            taken.iter().map(|claim| claim.key.as_str()).collect::<Vec<_>>(),
            ["plugin-weather", "a", "b"]
        );
        let mut installed = PluginPackage::default();
        installed.evolve(events[0].clone());
        let gone = installed.decide(PluginPackageCommand::Uninstall).unwrap();
        let released = PluginPackage::claims(Uuid::nil(), &gone[0]);
        assert_eq!(released.len(), taken.len());
        assert!(released.iter().all(|claim| claim.op == ClaimOp::Release));
    }

    #[test]
    fn what_a_plugin_must_not_be_is_refused() {
        let with = |channels| PluginClass { channels, ..class("a") };
        let wrong = [
            vec![],
            vec![class("a"), class("a")],
            vec![class(" ")],
            vec![class("x\0")],
            vec![PluginClass { config_schema: "x".repeat(MAX_SCHEMA + 1), ..class("a") }],
            vec![with(vec![channel("t"), channel("t")])],
            vec![with(vec![PluginChannel { min_value: f64::NAN, ..channel("t") }])],
            vec![with(vec![PluginChannel { min_value: 61.0, ..channel("t") }])],
            vec![with((0..=MAX_CHANNELS).map(|number| channel(&number.to_string())).collect())],
        ];
        for classes in wrong {
            assert!(install(classes.clone()).is_err(), "{classes:?}");
        }
    }
}
