use serde::{Deserialize, Serialize};

use super::{PlacedWidget, WidgetChanges, WidgetSpec};
use crate::kernel::{UserId, WidgetId, event_kinds};

/// A new dashboard, without widgets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDashboard {
    /// The creator; only the owner may change the dashboard.
    pub owner: UserId,
    /// Display name, 1–255 characters.
    pub name: String,
    /// Whether all users see it.
    pub is_global: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum DashboardCommand {
    /// Create it.
    Create(NewDashboard),
    /// Change the fields that are present.
    Change {
        /// Another name.
        name: Option<String>,
        /// Whether all users see it.
        is_global: Option<bool>,
    },
    /// Remove it with its widgets.
    Delete,
    /// Put a widget on it.
    AddWidget {
        /// Key of the widget.
        widget: WidgetId,
        spec: WidgetSpec,
    },
    /// Change a widget.
    ChangeWidget {
        /// Key of the widget.
        widget: WidgetId,
        /// Fields that are present change.
        changes: WidgetChanges,
    },
    /// Take a widget away.
    RemoveWidget {
        /// Key of the widget.
        widget: WidgetId,
    },
    /// Restore an earlier state.
    Restore {
        /// Its name then.
        name: String,
        /// Whether all users saw it.
        is_global: bool,
        /// All its widgets.
        widgets: Vec<PlacedWidget>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DashboardEvent {
    /// A dashboard exists now.
    DashboardCreated(NewDashboard),
    /// It has another name, or is seen by others.
    DashboardUpdated {
        /// Its name now.
        name: String,
        /// Whether all users see it now.
        is_global: bool,
    },
    /// It is gone, with its widgets.
    DashboardDeleted {
        /// Its name, for readers of the log.
        name: String,
    },
    /// A widget was added.
    WidgetAdded {
        /// Key of the widget.
        widget: WidgetId,
        #[serde(flatten)]
        spec: WidgetSpec,
    },
    /// A widget changed.
    WidgetUpdated {
        /// Key of the widget.
        widget: WidgetId,
        changes: WidgetChanges,
    },
    /// A widget was taken away.
    WidgetRemoved {
        /// Key of the widget.
        widget: WidgetId,
    },
    /// An earlier state was restored.
    DashboardRestored {
        /// Its name now.
        name: String,
        /// Whether all users see it now.
        is_global: bool,
        /// All its widgets now.
        widgets: Vec<PlacedWidget>,
        /// Those that were taken away.
        removed: Vec<WidgetId>,
    },
}

event_kinds!(DashboardEvent, DashboardEventKind {
    DashboardCreated = "dashboard_created", "1";
    DashboardUpdated = "dashboard_updated", "1";
    DashboardDeleted = "dashboard_deleted", "1";
    WidgetAdded = "widget_added", "1";
    WidgetUpdated = "widget_updated", "1";
    WidgetRemoved = "widget_removed", "1";
    DashboardRestored = "dashboard_restored", "1";
});
