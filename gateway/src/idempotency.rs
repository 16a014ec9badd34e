//! `Idempotency-Key`: the same POST twice is one.
//!
//! The first request with a key stores a seed from which all ids and command ids of the request are derived. Its
//! answer is kept for 24 h, sealed, because it may show a secret. If the gateway crashes in between, a repetition
//! runs again with the same seed, and the log recognises its commands. Tokens are not in kept answers: they are
//! derived from the request's own random secret, which is sealed and stored before the command is sent, so that such
//! a repetition shows the same token.
//!
//! Keys belong to the principal that was authenticated. Without a valid credential there is no answer from here, and neither
//! for a user whose role no longer suffices for the request.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{FromRef, FromRequestParts, Request, State},
    http::{HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use rand::{TryRngCore, rngs::OsRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_database::ops::idempotent_requests::{self as requests, RequestKey};
use signalbox_domain::{
    identity::Role,
    kernel::{AgentId, UserId},
};
use signalbox_sealing::Sealer;
use uuid::Uuid;

use crate::{
    answer::NotStored,
    auth::{AgentAuth, Reader, RequiredRole, keyed_hash, presented},
    client_address::ClientAddress,
    context_services::services,
    extract::{content, read_body},
    policy::{Policy, Repetition},
    problem::{Problem, ProblemKind},
    services::{auth::Keys, replica::Database},
    state::Services,
};

const KEY: &str = "idempotency-key";

/// Headers of answers of remote write that are kept with them.
const COUNTS: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

/// The seed of an idempotent request: equal for all its repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(pub(crate) Uuid);

/// The head of a kept answer; the body follows it.
#[derive(Debug, Serialize, Deserialize)]
struct AnswerHead {
    status: u16,
    content_type: Option<String>,
    location: Option<String>,
    #[serde(default)]
    etag: Option<String>,
    /// Counts of what was written, which senders of version 2 of remote write look for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counts: Vec<(String, String)>,
    /// The least role that the request needed.
    #[serde(default)]
    required: Option<Role>,
}

services! {
    /// Services that recognise requests that are sent again.
    Repetitions {
        clock: Clock,
        database: Database,
        keys: Arc<Keys>,
        sealer: Sealer,
    }
}

/// Answers a repeated POST as the first time.
pub(crate) async fn once(State(state): State<Services>, request: Request, next: Next) -> Response {
    let by_handler = Policy::of(request.extensions()).repetition == Repetition::ByHandler;
    if request.method() != Method::POST || !request.headers().contains_key(KEY) || by_handler {
        return next.run(request).await;
    }
    once_with_key(&state, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn once_with_key(state: &Services, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let is_open = Policy::of(&parts.extensions).is_open;
    let principal = match principal(&mut parts, state).await? {
        Principal::Anonymous(_) if !is_open => Principal::Refused,
        principal => principal,
    };
    let Some(name) = principal.name() else {
        // The handler refuses it, and leaves nothing behind.
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let keyed = Keyed::new(name, &principal, &parts)?;
    let body = read_body(Request::from_parts(parts.clone(), body)).await?;
    let repetitions = Repetitions::from_ref(state);
    match keyed.begin(&repetitions, &digest_of_content(&parts, &body).await).await? {
        Begun::Before(first) => Ok(first),
        Begun::Now(seed) => {
            parts.extensions.insert(Seed(seed));
            parts.extensions.insert(IdempotencyKey(keyed.key.clone()));
            parts.extensions.insert(keyed.clone());
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            keyed.keep(&repetitions, seed, response).await
        }
    }
}

/// The digest of a request. A client that repeats it may compress it in another way; the handler refuses a body that is not compressed.
async fn digest_of_content(parts: &Parts, body: &Bytes) -> Vec<u8> {
    let most = Policy::of(&parts.extensions).max_body;
    let content = content(&parts.headers, body.clone(), most).await;
    digest(&parts.uri, content.as_ref().unwrap_or(body))
}

/// The authenticated sender of a request: keys of one principal are unknown to the others.
enum Principal {
    User(UserId, Role),
    Agent(AgentId),
    /// No credential was sent.
    Anonymous(IpAddr),
    /// The credential is not valid.
    Refused,
}

impl Principal {
    fn role(&self) -> Option<Role> {
        if let Self::User(_, role) = self { Some(*role) } else { None }
    }

    fn name(&self) -> Option<String> {
        match self {
            Self::User(user, _) => Some(format!("user:{user}")),
            Self::Agent(agent) => Some(format!("agent:{agent}")),
            Self::Anonymous(address) => Some(format!("address:{address}")),
            Self::Refused => None,
        }
    }
}

async fn principal(parts: &mut Parts, state: &Services) -> Result<Principal, Problem> {
    let sends_header =
        parts.headers.contains_key(header::AUTHORIZATION) || parts.headers.contains_key("x-api-key");
    if !sends_header && presented(parts).is_none() {
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, state).await?;
        return Ok(Principal::Anonymous(address));
    }
    if let Some(Reader(current)) = unless_refused(Reader::from_request_parts(parts, state).await)? {
        return Ok(Principal::User(current.id, current.role));
    }
    let agent = unless_refused(AgentAuth::from_request_parts(parts, state).await)?;
    Ok(agent.map_or(Principal::Refused, |auth| Principal::Agent(auth.agent)))
}

/// A failure to look a credential up is not the same as a credential that is not valid.
fn unless_refused<T>(authenticated: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match authenticated {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.kind() == ProblemKind::Unauthenticated => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// The `Idempotency-Key` of a request, if it has one. Handlers that take large bodies ask for it themselves, after they have
/// authenticated the sender, and say what makes the request the same one when they have received it.
pub(crate) struct Once(pub(crate) Option<Keyed>);

/// The client's key of a request that must not be carried out twice.
#[derive(Debug, Clone)]
pub(crate) struct IdempotencyKey(pub(crate) String);

/// A request with an `Idempotency-Key`.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    principal: String,
    key: String,
    /// The sender's, if it is a user.
    role: Option<Role>,
    required: RequiredRole,
}

/// State of a request.
pub(crate) enum Begun {
    /// It was answered before, like this.
    Before(Response),
    /// It was not; this is the seed of its ids.
    Now(Uuid),
}

impl FromRequestParts<Services> for Once {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        if !parts.headers.contains_key(KEY) {
            return Ok(Self(None));
        }
        let principal = principal(parts, state).await?;
        let keyed = principal.name().map(|name| Keyed::new(name, &principal, parts));
        keyed.transpose().map(Self)
    }
}

impl Keyed {
    fn new(name: String, principal: &Principal, parts: &Parts) -> Result<Self, Problem> {
        let required = parts.extensions.get::<RequiredRole>().cloned().unwrap_or_default();
        Ok(Self { principal: name, key: key_of(parts)?, role: principal.role(), required })
    }

    fn request(&self) -> RequestKey<'_> {
        RequestKey { principal: &self.principal, key: &self.key }
    }

    /// Stores the request, which `digest` distinguishes from others.
    pub(crate) async fn begin(&self, repetitions: &Repetitions, digest: &[u8]) -> Result<Begun, Problem> {
        // Keyed, because a body may hold a password, which readers of the database must not be able to guess.
        let fingerprints = repetitions.keys.derive("idempotent request", digest);
        let newest = fingerprints.first().ok_or_else(|| Problem::internal(&"there is no signing key"))?;
        let (seed, now) = (repetitions.clock.new_id(), repetitions.clock.manual_time());
        let known = requests::begin(&repetitions.database.primary, self.request(), newest, seed, now).await?;
        if !fingerprints.iter().any(|fingerprint| known.fingerprint == fingerprint) {
            return Err(Problem::new(
                ProblemKind::KeyReused,
                "idempotency_key_reused",
                "this Idempotency-Key was used for another request: use a new one",
            ));
        }
        let Some(sealed) = &known.sealed_answer else { return Ok(Begun::Now(known.seed)) };
        let opened = repetitions.sealer.unseal_bytes(known.seed, sealed).await;
        let opened = opened.map_err(|error| Problem::internal(&error))?;
        let (required, answer) =
            read_answer(&opened).ok_or_else(|| Problem::internal(&"a kept answer is not readable"))?;
        if self.role.is_some_and(|role| Some(role) < required) {
            return Err(Problem::forbidden());
        }
        Ok(Begun::Before(answer))
    }

    /// The random secret of the request, equal for all its repetitions: it is sealed and stored before anything that follows
    /// from it is recorded, so that a repetition after a crash shows the same.
    async fn secret(&self, repetitions: &Repetitions, seed: Uuid) -> Result<[u8; 32], Problem> {
        let fresh = random_secret()?;
        let sealed =
            repetitions.sealer.seal_bytes(seed, &fresh).map_err(|error| Problem::internal(&error))?;
        let stored =
            requests::store_secret(&repetitions.database.primary, self.request(), seed, &sealed).await?;
        // Without a row, the key was given to another request a day later.
        let Some(stored) = stored else { return Ok(fresh) };
        let opened = repetitions.sealer.unseal_bytes(seed, &stored).await;
        let opened = opened.map_err(|error| Problem::internal(&error))?;
        opened
            .try_into()
            .map_err(|_| Problem::internal(&"the secret of a repeated request has a wrong length"))
    }

    /// Keeps the answer for repetitions of the request, if it is worth it and is not one that is computed again.
    pub(crate) async fn keep(
        &self,
        repetitions: &Repetitions,
        seed: Uuid,
        response: Response,
    ) -> Result<Response, Problem> {
        if response.extensions().get::<NotStored>().is_some() || !is_worth_keeping(response.status()) {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| Problem::internal(&error))?.to_bytes();
        let text = |name| {
            parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned)
        };
        let counts = COUNTS
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), parts.headers.get(name)?.to_str().ok()?.to_owned())));
        let head = AnswerHead {
            status: parts.status.as_u16(),
            content_type: text(header::CONTENT_TYPE),
            location: text(header::LOCATION),
            etag: text(header::ETAG),
            counts: counts.collect(),
            required: self.role.map(|_| self.required.get()),
        };
        let answer = write_answer(&head, &body).map_err(|error| Problem::internal(&error))?;
        let sealed =
            repetitions.sealer.seal_bytes(seed, &answer).map_err(|error| Problem::internal(&error))?;
        requests::store_answer(&repetitions.database.primary, self.request(), seed, &sealed).await?;
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

/// The secret of one request, from which the secrets follow that its answer shows. It is not kept but sealed, for 24 h, if the
/// request has an `Idempotency-Key`, and nowhere otherwise.
pub(crate) struct RequestSecret([u8; 32]);

impl RequestSecret {
    /// The secret of the request that makes `seed`.
    pub(crate) async fn of(
        keyed: Option<&Keyed>,
        repetitions: &Repetitions,
        seed: Uuid,
    ) -> Result<Self, Problem> {
        match keyed {
            Some(keyed) => keyed.secret(repetitions, seed).await.map(Self),
            None => random_secret().map(Self),
        }
    }

    /// The 256 bits for `purpose`.
    pub(crate) fn derive(&self, purpose: &str, resource: Uuid) -> Result<[u8; 32], Problem> {
        keyed_hash(&self.0, purpose, resource.as_bytes())
            .ok_or_else(|| Problem::internal(&"the hash function refuses a key"))
    }
}

fn random_secret() -> Result<[u8; 32], Problem> {
    let mut secret = [0; 32];
    OsRng.try_fill_bytes(&mut secret).map_err(|error| Problem::internal(&error))?;
    Ok(secret)
}

fn key_of(parts: &Parts) -> Result<String, Problem> {
    valid_key(parts.headers.get(KEY).and_then(|value| value.to_str().ok()))
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

/// Distinguishes the request for `uri`, path and query, with `body` from others.
pub(crate) fn digest(uri: &Uri, body: &[u8]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    hasher.update(uri.path());
    if let Some(query) = uri.query() {
        hasher.update(b"?");
        hasher.update(query);
    }
    hasher.update(b"\0");
    hasher.update(body);
    hasher.finalize().to_vec()
}

/// One line of JSON, then the body.
fn write_answer(head: &AnswerHead, body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut answer = serde_json::to_vec(head)?;
    answer.push(b'\n');
    answer.extend_from_slice(body);
    Ok(answer)
}

/// A kept answer, and the least role that its request needed.
fn read_answer(answer: &[u8]) -> Option<(Option<Role>, Response)> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let head: AnswerHead = serde_json::from_slice(&answer[..end]).ok()?;
    let status = StatusCode::from_u16(head.status).ok()?;
    let mut response = (status, answer[end + 1..].to_vec()).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    let kept = [
        (header::CONTENT_TYPE, &head.content_type),
        (header::LOCATION, &head.location),
        (header::ETAG, &head.etag),
    ];
    for (name, value) in kept {
        if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    for (name, value) in &head.counts {
        if let (Some(name), Ok(value)) =
            (COUNTS.into_iter().find(|known| known == name), HeaderValue::from_str(value))
        {
            response.headers_mut().insert(name, value);
        }
    }
    Some((head.required, response))
}

/// Refusals are kept out: the repetition may come with better rights, or when the service is better.
fn is_worth_keeping(status: StatusCode) -> bool {
    status.is_success()
}
