mod events;
mod users;
