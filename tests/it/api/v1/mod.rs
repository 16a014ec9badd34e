mod dashboards;
mod events;
mod experiments;
mod logging;
mod tokens;
mod users;
mod webmacs;
