//! Logins, passwords and users.

mod api_login;
mod login;
mod users;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

pub(crate) use api_login::StatusOut;
pub(crate) use login::valid_password;

/// The routes of both logins and of users.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(login::login))
        .routes(routes!(login::refresh))
        .routes(routes!(login::current_user))
        .routes(routes!(login::change_password))
        .routes(routes!(api_login::login))
        .routes(routes!(api_login::logout))
        .routes(routes!(api_login::me))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::get, users::update, users::delete))
}
