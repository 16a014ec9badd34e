use serde::{Deserialize, Serialize};

use super::NewPackage;
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum PluginPackageCommand {
    /// Make its classes available.
    Install(NewPackage),
    /// Take them away.
    Uninstall,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PluginPackageEvent {
    /// Its classes are available now.
    PluginPackageInstalled(NewPackage),
    /// They no longer are. Instances of them stay.
    PluginPackageUninstalled {
        /// Its name, which is free again.
        name: String,
        /// The classes, whose ids are free again.
        class_ids: Vec<String>,
    },
}

event_kinds!(PluginPackageEvent, PluginPackageEventKind {
    PluginPackageInstalled = "plugin_package_installed", "1";
    PluginPackageUninstalled = "plugin_package_uninstalled", "1";
});
