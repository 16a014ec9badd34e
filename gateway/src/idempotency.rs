//! `Idempotency-Key`: the same POST twice is one.
//!
//! The first request with a key leaves a seed from which all ids and command ids of the request follow. Its answer is
//! kept for 24 h. If the gateway dies in between, a repetition runs again with the same seed, and the log recognises
//! its commands. Answers that show a secret are never kept: they are computed again from the seed.

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State as Shared},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use crate::{
    auth::Reader,
    client_address::ClientAddress,
    context::Seed,
    extract::read_body,
    extraction::takes_documents,
    fleet::takes_files,
    problem::{Problem, ProblemKind},
    state::{AppState, State},
};

const KEY: &str = "idempotency-key";

/// In an answer: it shows a secret and must not be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotStored;

#[derive(Debug, FromRow)]
struct Known {
    fingerprint: Vec<u8>,
    seed: Uuid,
    status: Option<i16>,
    content_type: Option<String>,
    location: Option<String>,
    body: Option<Vec<u8>>,
}

/// Answers a repeated POST as the first time.
pub(crate) async fn once(Shared(state): Shared<AppState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_large = takes_documents(path) || takes_files(path);
    if request.method() != Method::POST || !request.headers().contains_key(KEY) || is_large {
        return next.run(request).await;
    }
    once_with_key(&state, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn once_with_key(state: &AppState, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let Once(Some(once)) = Once::from_request_parts(&mut parts, state).await? else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let body = read_body(Request::from_parts(parts.clone(), body)).await?;
    match once.begin(state, &digest(parts.uri.path(), &body)).await? {
        Begun::Before(first) => Ok(first),
        Begun::Now(seed) => {
            parts.extensions.insert(Seed(seed));
            parts.extensions.insert(IdempotencyKey(once.key.clone()));
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            once.keep(&state.pool, response).await
        }
    }
}

/// The `Idempotency-Key` of a request, if it has one. Handlers that take large bodies ask for it themselves, and say what
/// makes the request the same one when they have received it.
pub(crate) struct Once(pub(crate) Option<Keyed>);

/// What the client calls a request that is not made twice.
#[derive(Debug, Clone)]
pub(crate) struct IdempotencyKey(pub(crate) String);

/// A request with an `Idempotency-Key`.
pub(crate) struct Keyed {
    principal: String,
    key: String,
}

/// What has become of a request.
pub(crate) enum Begun {
    /// It was answered before, like this.
    Before(Response),
    /// It was not; this is the seed of its ids.
    Now(Uuid),
}

impl FromRequestParts<AppState> for Once {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        if !parts.headers.contains_key(KEY) {
            return Ok(Self(None));
        }
        let given = parts.headers.get(KEY).and_then(|value| value.to_str().ok());
        let key = valid_key(given)?;
        let principal = match Reader::from_request_parts(parts, state).await {
            Ok(Reader(who)) => format!("user:{}", who.user),
            // Whoever needs a login is refused by the handler.
            Err(_) => format!("address:{}", ClientAddress::from_request_parts(parts, state).await?.0),
        };
        Ok(Self(Some(Keyed { principal, key })))
    }
}

impl Keyed {
    /// Notes the request, which `digest` tells from others.
    pub(crate) async fn begin(&self, state: &State, digest: &[u8]) -> Result<Begun, Problem> {
        // Keyed, because a body may hold a password, which nobody who sees the database shall be able to guess at.
        let fingerprints = state.keys.derive("idempotent request", digest);
        let newest = fingerprints.first().ok_or_else(|| Problem::internal(&"there is no signing key"))?;
        let known = begin(&state.pool, &self.principal, &self.key, newest, state).await?;
        if !fingerprints.iter().any(|fingerprint| known.fingerprint == fingerprint) {
            return Err(Problem::new(
                ProblemKind::KeyReused,
                "idempotency_key_reused",
                "this Idempotency-Key was used for another request: use a new one",
            ));
        }
        Ok(first_answer(&known).map_or(Begun::Now(known.seed), Begun::Before))
    }

    /// Keeps the answer for repetitions of the request, if it is worth it and shows no secret.
    pub(crate) async fn keep(&self, pool: &PgPool, response: Response) -> Result<Response, Problem> {
        if response.extensions().get::<NotStored>().is_some() || !is_worth_keeping(response.status()) {
            return Ok(response);
        }
        keep(pool, &self.principal, &self.key, response).await
    }
}

/// A key that a client may choose.
pub(crate) fn valid_key(given: Option<&str>) -> Result<String, Problem> {
    let key = given.unwrap_or_default();
    let visible = (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if visible {
        Ok(key.to_owned())
    } else {
        Err(Problem::malformed("Idempotency-Key must be 1 to 255 visible ASCII characters"))
    }
}

/// What tells the request for `path` with `body` from others.
pub(crate) fn digest(path: &str, body: &[u8]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    hasher.update(path);
    hasher.update(b"\0");
    hasher.update(body);
    hasher.finalize().to_vec()
}

async fn begin(
    pool: &PgPool,
    principal: &str,
    key: &str,
    fingerprint: &[u8],
    state: &State,
) -> Result<Known, sqlx::Error> {
    // The update that changes nothing makes the row visible to RETURNING; a day later the key is free again.
    sqlx::query_as(
        "INSERT INTO ops.idempotent_requests AS r (principal, key, fingerprint, seed, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (principal, key) DO UPDATE SET
            fingerprint = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.fingerprint ELSE r.fingerprint END,
            seed = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.seed ELSE r.seed END,
            status = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN NULL ELSE r.status END,
            created_at = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.created_at ELSE r.created_at END
         RETURNING fingerprint, seed, status, content_type, location, body",
    )
    .bind(principal)
    .bind(key)
    .bind(fingerprint)
    .bind(state.clock.new_id())
    .bind(state.clock.now())
    .fetch_one(pool)
    .await
}

fn first_answer(known: &Known) -> Option<Response> {
    let status = StatusCode::from_u16(u16::try_from(known.status?).ok()?).ok()?;
    let mut response = (status, known.body.clone().unwrap_or_default()).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    for (name, value) in [(header::CONTENT_TYPE, &known.content_type), (header::LOCATION, &known.location)] {
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    Some(response)
}

/// Refusals are kept out: the repetition may come with better rights, or when the service is better.
fn is_worth_keeping(status: StatusCode) -> bool {
    status.is_success()
}

async fn keep(pool: &PgPool, principal: &str, key: &str, response: Response) -> Result<Response, Problem> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| Problem::internal(&error))?.to_bytes();
    let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    sqlx::query(
        "UPDATE ops.idempotent_requests SET status = $3, content_type = $4, location = $5, body = $6
          WHERE principal = $1 AND key = $2",
    )
    .bind(principal)
    .bind(key)
    .bind(parts.status.as_u16() as i16)
    .bind(text(header::CONTENT_TYPE))
    .bind(text(header::LOCATION))
    .bind(body.as_ref())
    .execute(pool)
    .await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}
