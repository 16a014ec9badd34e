use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};

use super::{PlacedWidget, WidgetChanges, WidgetSpec};
use crate::kernel::{UserId, WidgetId};

/// A new dashboard, without widgets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDashboard {
    /// Who makes it, and alone may change it.
    pub owner: UserId,
    /// Display name, 1–255 characters.
    pub name: String,
    /// Whether everybody sees it.
    pub is_global: bool,
}

/// What can be asked of a dashboard.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum DashboardCommand {
    /// Create it.
    Create(NewDashboard),
    /// Change what is present.
    Change {
        /// Another name.
        name: Option<String>,
        /// Whether everybody sees it.
        is_global: Option<bool>,
    },
    /// Remove it with its widgets.
    Delete,
    /// Put a widget on it.
    AddWidget {
        /// Key of the widget.
        widget: WidgetId,
        /// What it shows, and where.
        spec: WidgetSpec,
    },
    /// Change a widget.
    ChangeWidget {
        /// Key of the widget.
        widget: WidgetId,
        /// What is present changes.
        changes: WidgetChanges,
    },
    /// Take a widget away.
    RemoveWidget {
        /// Key of the widget.
        widget: WidgetId,
    },
    /// Make it what it was once.
    Restore {
        /// Its name then.
        name: String,
        /// Whether everybody saw it.
        is_global: bool,
        /// All its widgets.
        widgets: Vec<PlacedWidget>,
    },
}

/// What can have happened to a dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DashboardEvent {
    /// A dashboard exists now.
    DashboardCreated(NewDashboard),
    /// It has another name, or is seen by others.
    DashboardUpdated {
        /// Its name now.
        name: String,
        /// Whether everybody sees it now.
        is_global: bool,
    },
    /// It is gone, with its widgets.
    DashboardDeleted {
        /// Its name, for readers of the log.
        name: String,
    },
    /// A widget was put on it.
    WidgetAdded {
        /// Key of the widget.
        widget: WidgetId,
        /// What it shows, and where.
        #[serde(flatten)]
        spec: WidgetSpec,
    },
    /// A widget changed.
    WidgetUpdated {
        /// Key of the widget.
        widget: WidgetId,
        /// What is different.
        changes: WidgetChanges,
    },
    /// A widget was taken away.
    WidgetRemoved {
        /// Key of the widget.
        widget: WidgetId,
    },
    /// It is what it was once.
    DashboardRestored {
        /// Its name now.
        name: String,
        /// Whether everybody sees it now.
        is_global: bool,
        /// All its widgets now.
        widgets: Vec<PlacedWidget>,
        /// Those that were taken away.
        removed: Vec<WidgetId>,
    },
}

impl DomainEvent for DashboardEvent {
    fn event_type(&self) -> String {
        match self {
            Self::DashboardCreated(_) => "dashboard_created",
            Self::DashboardUpdated { .. } => "dashboard_updated",
            Self::DashboardDeleted { .. } => "dashboard_deleted",
            Self::WidgetAdded { .. } => "widget_added",
            Self::WidgetUpdated { .. } => "widget_updated",
            Self::WidgetRemoved { .. } => "widget_removed",
            Self::DashboardRestored { .. } => "dashboard_restored",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}
