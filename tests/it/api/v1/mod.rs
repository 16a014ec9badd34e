pub mod datapoints;
mod events;
mod tokens;
mod users;
