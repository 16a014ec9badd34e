mod events;
mod tokens;
mod users;
