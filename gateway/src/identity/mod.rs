//! Logins, passwords, single sign-on, users and their API tokens.

mod api_login;
mod api_tokens;
mod login;
pub(crate) mod login_log;
pub(crate) mod services;
pub(crate) mod sso;
mod users;

use utoipa_axum::routes;

use crate::{policy::Policy, routes::Routes};

pub(crate) use login::valid_password;

/// The routes of all logins, of users and of API tokens.
pub(crate) fn routes() -> Routes {
    const SERVICE_1: Policy = Policy::SERVICE_1;
    const OPEN: Policy = Policy::PROBLEMS.open();
    Routes::new(Policy::PROBLEMS)
        .with(SERVICE_1.open(), routes!(login::login))
        .with(SERVICE_1, routes!(login::refresh))
        .with(SERVICE_1, routes!(login::current_user))
        .with(SERVICE_1, routes!(login::change_password))
        .with(OPEN, routes!(api_login::login))
        .routes(routes!(api_login::logout))
        .routes(routes!(api_login::me))
        .with(OPEN, routes!(sso::routes::config))
        .with(OPEN, routes!(sso::routes::authorize))
        .with(OPEN, routes!(sso::routes::callback))
        .with(OPEN, routes!(sso::routes::exchange))
        .routes(routes!(api_tokens::list, api_tokens::create))
        .routes(routes!(api_tokens::delete))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::get, users::update, users::delete))
}
