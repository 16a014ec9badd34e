mod tokens;
mod users;
