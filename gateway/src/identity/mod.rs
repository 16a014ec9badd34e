//! Logins, passwords, users and their API tokens.

mod api_login;
mod api_tokens;
mod login;
mod login_log;
mod users;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

pub(crate) use api_login::StatusOut;
pub(crate) use login::valid_password;

/// The routes of both logins, of users and of API tokens.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(login::login))
        .routes(routes!(login::refresh))
        .routes(routes!(login::current_user))
        .routes(routes!(login::change_password))
        .routes(routes!(api_login::login))
        .routes(routes!(api_login::logout))
        .routes(routes!(api_login::me))
        .routes(routes!(api_tokens::list, api_tokens::create))
        .routes(routes!(api_tokens::delete))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::get, users::update, users::delete))
}
