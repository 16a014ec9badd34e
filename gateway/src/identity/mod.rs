//! Logins, passwords, single sign-on, users and their API tokens.

mod api_login;
mod api_tokens;
mod login;
pub(crate) mod login_log;
pub(crate) mod sso;
mod users;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

pub(crate) use login::valid_password;

/// The routes of all logins, of users and of API tokens.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(login::login))
        .routes(routes!(login::refresh))
        .routes(routes!(login::current_user))
        .routes(routes!(login::change_password))
        .routes(routes!(api_login::login))
        .routes(routes!(api_login::logout))
        .routes(routes!(api_login::me))
        .routes(routes!(sso::routes::config))
        .routes(routes!(sso::routes::authorize))
        .routes(routes!(sso::routes::callback))
        .routes(routes!(sso::routes::exchange))
        .routes(routes!(api_tokens::list, api_tokens::create))
        .routes(routes!(api_tokens::delete))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::get, users::update, users::delete))
}
