//! Dashboards: grids of widgets that each show one channel.

mod decide;
mod events;
mod widget;

pub use decide::Dashboard;
pub use events::{DashboardCommand, DashboardEvent, NewDashboard};
pub use widget::{PlacedWidget, WidgetChanges, WidgetSpec, WidgetType};
