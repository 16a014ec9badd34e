//! Dashboards: grids of widgets that each show one channel.

mod decide;
mod events;
mod widget;

pub use decide::Dashboard;
pub use events::{DashboardCommand, DashboardEvent, DashboardEventKind, NewDashboard};
pub use widget::{PlacedWidget, WidgetChanges, WidgetSpec, WidgetType};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::decide::{MAX_NAME as DASHBOARD_NAME, MAX_WIDGETS};
    pub use super::widget::{
        MAX_CONFIG as WIDGET_CONFIG, MAX_PLACE as WIDGET_PLACE, MAX_SIZE as WIDGET_SIZE,
        MAX_TITLE as WIDGET_TITLE,
    };
}
