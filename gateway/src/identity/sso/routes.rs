use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use signalbox_projections::identity::{UserRow, queries};
use utoipa::{IntoParams, ToSchema};

use super::{
    SameSite, SingleSignOn, accounts, attempt,
    codes::{self, Issued},
    failure::Failure,
};
use crate::{
    answer,
    client_address::ClientAddress,
    context::RequestContext,
    extract::{JsonBody, Params},
    identity::{
        api_login::ApiLoginOut,
        login::{start_session, throttle_address},
        login_log,
        services::LoginServices,
    },
    problem::{Problem, ProblemKind, ProblemOut},
    services::replica::Database,
};

/// Whether people can log in at an identity provider.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SsoConfigOut {
    enabled: bool,
    /// Display name of the provider; empty without one.
    provider_name: String,
    /// Where a browser goes to log in; empty when there is no provider.
    authorize_url: &'static str,
}

/// How the provider sends the browser back.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackParams {
    /// Code of the provider, which is redeemed for the person's tokens.
    code: Option<String>,
    /// The `state` with which the login began.
    state: Option<String>,
    /// The provider's `iss`.
    iss: Option<String>,
    /// Why there is no code.
    error: Option<String>,
}

/// A code that the front end was given.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SsoCodeIn {
    /// As it stood in the address of the front end.
    code: String,
}

/// Whether single sign-on is set up, and where it begins.
#[utoipa::path(get, path = "/api/v1/auth/sso/config", tag = "auth", operation_id = "sso_config",
    responses((status = 200, body = SsoConfigOut)))]
pub(crate) async fn config(State(sso): State<Option<Arc<SingleSignOn>>>) -> Json<SsoConfigOut> {
    Json(match &sso {
        Some(sso) => SsoConfigOut {
            enabled: true,
            provider_name: sso.provider_name.clone(),
            authorize_url: "/api/v1/auth/sso/authorize",
        },
        None => SsoConfigOut { enabled: false, provider_name: String::new(), authorize_url: "" },
    })
}

/// Begin a login: sends the browser to the identity provider, or to the front end with an `error` when that cannot be used.
#[utoipa::path(get, path = "/api/v1/auth/sso/authorize", tag = "auth", operation_id = "sso_authorize",
    responses((status = 307, description = "Location is the provider's page for logging in"), (status = 404, body = ProblemOut)))]
pub(crate) async fn authorize(
    State(services): State<LoginServices>,
    context: RequestContext,
    address: ClientAddress,
) -> Result<Response, Problem> {
    let sso = enabled(&services.sso)?;
    let secret = attempt::random_secret().map_err(|error| Problem::internal(&error))?;
    // Another gateway may resume it.
    let now = services.database.time().await?;
    let begun = attempt::begin(&services.keys, &secret, now)
        .ok_or_else(|| Problem::internal(&"there is no signing key"))?;
    let (to, cookie) = match sso.provider.authorization_url(&begun).await {
        Ok(url) => (url.to_string(), sso.set_cookie(&secret, attempt::LIFE.num_seconds(), SameSite::Lax)),
        Err(error) => {
            let failure = error.into();
            note_failure(&services, &context, &address, failure).await;
            (explain(sso, failure), None)
        }
    };
    redirect(&to, cookie)
}

/// The identity provider sends the browser here, and it goes on to `/sso-callback` of the front end: with a `code` to be
/// exchanged within 60 s, or with `error` and `error_description`.
#[utoipa::path(get, path = "/api/v1/auth/sso/callback", tag = "auth", operation_id = "sso_callback", params(CallbackParams),
    responses((status = 307, description = "Location is the front end"), (status = 404, body = ProblemOut)))]
pub(crate) async fn callback(
    State(services): State<LoginServices>,
    context: RequestContext,
    address: ClientAddress,
    headers: HeaderMap,
    params: Result<Params<CallbackParams>, Problem>,
) -> Result<Response, Problem> {
    let sso = enabled(&services.sso)?;
    let params = params.map(|Params(params)| params).unwrap_or_default();
    let (to, cookie) = match log_in(&services, sso, &context, &address, &headers, params).await {
        Ok(Issued { code, browser }) => {
            let cookie = sso.set_cookie(&browser, codes::LIFE.num_seconds(), sso.same_site_of_front_end());
            (sso.front_end(&[("code", &code)]), cookie)
        }
        Err(failure) => {
            note_failure(&services, &context, &address, failure).await;
            (explain(sso, failure), sso.set_cookie("", 0, SameSite::Lax))
        }
    };
    redirect(&to, cookie)
}

/// Exchange the code that the front end was given for a login. It works once, within 60 s, and only in the browser that was given
/// it: the request has to carry its cookie (`credentials: "include"`, if the front end is served from elsewhere).
#[utoipa::path(post, path = "/api/v1/auth/sso/exchange", tag = "auth", operation_id = "sso_exchange", request_body = SsoCodeIn,
    responses((status = 200, body = ApiLoginOut), (status = 400, body = ProblemOut), (status = 422, body = ProblemOut), (status = 429, body = ProblemOut)))]
pub(crate) async fn exchange(
    State(services): State<LoginServices>,
    context: RequestContext,
    address: ClientAddress,
    headers: HeaderMap,
    JsonBody(SsoCodeIn { code }): JsonBody<SsoCodeIn>,
) -> Result<Response, Problem> {
    throttle_address(&services.config, &services.clock, &services.limiter, &address)?;
    let browser = services.sso.as_ref().and_then(|sso| sso.cookie(&headers));
    let Some(user) = user_of(&services.database, &code, browser).await? else {
        let detail =
            "This code is unknown, used, older than 60 s, or another browser's: begin the login again.";
        return Err(Problem::new(ProblemKind::Malformed, "invalid_code", detail));
    };
    let started = start_session(&services, &context, user).await?;
    login_log::note_success(&services.commands, &services.clock, &context, &address, &started.user).await;
    Ok(answer::secret(started.written, StatusCode::OK, None, &ApiLoginOut::from(started)))
}

/// Writes `failure` to the log that people read, or counts it.
async fn note_failure(
    services: &LoginServices,
    context: &RequestContext,
    address: &ClientAddress,
    failure: Failure,
) {
    // Attempts beyond the limits are not recorded: their number has no bound.
    if failure == Failure::TooMany {
        return;
    }
    let LoginServices { commands, clock, failed_logins, .. } = services;
    let reason = failure.to_string();
    login_log::note_sso_failure(commands, clock, failed_logins, context, address, &reason).await;
}

/// The code for the front end.
async fn log_in(
    services: &LoginServices,
    sso: &SingleSignOn,
    context: &RequestContext,
    address: &ClientAddress,
    headers: &HeaderMap,
    params: CallbackParams,
) -> Result<Issued, Failure> {
    throttle_address(&services.config, &services.clock, &services.limiter, address)?;
    let CallbackParams { code, state: came_back, iss, error } = params;
    let (secret, came_back) = sso.cookie(headers).zip(came_back).ok_or(Failure::State)?;
    let now = services.database.time().await?;
    let begun = attempt::resume(&services.keys, secret, &came_back, now).ok_or(Failure::State)?;
    let code = match (code, error) {
        (_, Some(error)) => return Err(Failure::from_provider(&error)),
        (Some(code), None) => code,
        (None, None) => return Err(Failure::Refused),
    };
    let person = sso.provider.redeem(&code, iss.as_deref(), &begun, now).await?;
    let user = accounts::find_or_make(
        &services.database,
        &services.commands,
        &services.clock,
        sso,
        context,
        &person,
    )
    .await?;
    Ok(codes::issue(&services.database, user.id).await?)
}

/// The user of a code, who may have been deleted since.
async fn user_of(
    database: &Database,
    code: &str,
    browser: Option<&str>,
) -> Result<Option<UserRow>, sqlx::Error> {
    match codes::redeem(database, code, browser).await? {
        Some(user) => queries::user(&database.primary, user).await,
        None => Ok(None),
    }
}

fn enabled(sso: &Option<Arc<SingleSignOn>>) -> Result<&SingleSignOn, Problem> {
    let missing =
        || Problem::new(ProblemKind::NotFound, "sso_disabled", "Single sign-on is not set up here.");
    sso.as_deref().ok_or_else(missing)
}

fn explain(sso: &SingleSignOn, failure: Failure) -> String {
    sso.front_end(&[("error", failure.code()), ("error_description", &failure.to_string())])
}

/// Sends the browser on. The address may hold a code, so it is not cached.
fn redirect(to: &str, cookie: Option<HeaderValue>) -> Result<Response, Problem> {
    let location = HeaderValue::from_str(to).map_err(|error| Problem::internal(&error))?;
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(cookie) = cookie {
        headers.insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
