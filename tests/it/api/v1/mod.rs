mod dashboards;
pub mod datapoints;
mod events;
mod experiments;
mod export;
mod logging;
mod tokens;
mod users;
mod webmacs;
