use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router, ServiceExt,
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue, Method, Uri, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
};
use signalbox_blob_store::{BlobError, BlobStore};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::DatabaseError;
use signalbox_datapoint_log::IdKey;
use signalbox_documents::Documents;
use signalbox_messaging::{Bus, BusError, Mailbox};
use signalbox_openid::SettingsError;
use signalbox_plugins::Plugins;
use signalbox_projections::Lookup;
use signalbox_sealing::{SealError, Sealer};
use signalbox_texts::Texts;
use sqlx::PgPool;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, broadcast, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::{Layer, util::MapRequestLayer};
use tower_http::{catch_panic::CatchPanicLayer, cors::CorsLayer};

use crate::{
    auth::{AgentTokens, ApiTokens, HashError, Keys, Passwords, Sessions},
    consistency::ReadGate,
    context::frame,
    docs,
    extraction::{REMEMBERING, UPLOADS},
    health::{self, Pulse},
    idempotency,
    identity::sso::SingleSignOn,
    limits::Limiter,
    metrics,
    monitoring::{catalog::Catalogs, export::EXPORTS, live::LiveValues, open_sockets::OpenSockets},
    problem::{Problem, ProblemKind},
    register::FOLLOWERS,
    replica::{self, Replica},
    state::{AppState, State},
    tasks, throttle,
    transfer::{agent_keys::AgentKeys, live::LiveAgents},
};

/// Wake-ups that a slow waiter may miss before it has to look by itself.
const WAKEUPS: usize = 4096;

/// Why a gateway cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The description of the interface cannot be written down.
    #[error("the description of the interface cannot be written: {0}")]
    Description(#[from] serde_json::Error),
    /// The database failed.
    #[error("the gateway cannot read the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The replica cannot be used.
    #[error("database.replica_url: {0}")]
    Replica(#[from] DatabaseError),
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// No passwords can be hashed.
    #[error(transparent)]
    Passwords(#[from] HashError),
    /// Secrets cannot be sealed.
    #[error(transparent)]
    Sealing(#[from] SealError),
    /// The socket failed.
    #[error("the gateway cannot serve: {0}")]
    Serve(#[from] std::io::Error),
    /// The place of wheels cannot be used.
    #[error("the place of plugin packages cannot be used: {0}")]
    Wheels(#[from] BlobError),
    /// Single sign-on is not set up as it has to be.
    #[error(transparent)]
    SingleSignOn(#[from] SettingsError),
    /// A web origin is not one.
    #[error("server.cors_origins: {0} is not an origin such as https://example.org")]
    Origin(String),
}

/// Who looks at what strangers send, in processes that can do nothing else.
pub struct Inspectors {
    /// Reads documents; none where that cannot be started.
    pub documents: Option<Documents>,
    /// Looks at packages of plugins.
    pub plugins: Plugins,
}

/// A gateway, ready to serve.
pub struct Gateway {
    state: AppState,
}

impl Gateway {
    /// Prepares a gateway: loads the keys that sign JWTs and opens the mailboxes.
    ///
    /// # Errors
    /// [`GatewayError`].
    pub async fn open(
        pool: PgPool,
        bus: Bus,
        blobs: BlobStore,
        clock: Clock,
        config: Config,
        inspectors: Inspectors,
        stop: CancellationToken,
    ) -> Result<Self, GatewayError> {
        let state = State {
            keys: Keys::open(pool.clone(), clock.clone(), config.identity.issuer.clone()).await?,
            passwords: Passwords::new(config.identity.concurrent_hashes)?,
            sessions: Sessions::new(pool.clone(), clock.clone()),
            sso: SingleSignOn::open(&config.sso, &clock)?,
            api_tokens: ApiTokens::new(pool.clone(), clock.clone()),
            agent_tokens: AgentTokens::new(pool.clone(), clock.clone()),
            limiter: Limiter::default(),
            pulse: Pulse::new(clock.now()),
            gate: ReadGate::new(pool.clone()),
            jobs: Lookup::start(&pool),
            transfers: Lookup::start(&pool),
            mailbox: Mailbox::open(&bus).await?,
            agent_keys: AgentKeys::default(),
            live_agents: LiveAgents::default(),
            catalogs: Catalogs::default(),
            live_values: LiveValues::default(),
            open_sockets: OpenSockets::default(),
            exports: Arc::new(Semaphore::new(EXPORTS)),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            log_moved: watch::Sender::new(0),
            documents: inspectors.documents,
            plugins: inspectors.plugins,
            wheels: BlobStore::configured(&config.storage, "wheels")?,
            uploads: Semaphore::new(UPLOADS),
            remembering: Arc::new(Semaphore::new(REMEMBERING)),
            texts: Texts::new(pool.clone(), blobs.clone(), clock.clone(), &config.extraction),
            datapoint_ids: IdKey::load(&pool).await?,
            sealer: Sealer::open(&pool, &clock).await?,
            wakeups: broadcast::Sender::new(WAKEUPS),
            replica: replica(&config, &pool)?,
            blobs,
            pool,
            bus,
            clock,
            config,
            stop,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Serves on `listener` until the gateway is told to stop, and then until running requests have ended, but no
    /// longer than configured.
    ///
    /// # Errors
    /// [`GatewayError`].
    pub async fn serve(self, listener: TcpListener) -> Result<(), GatewayError> {
        let Self { state } = self;
        let router = router(state.clone())?;
        let (stop, drain) = (state.stop.clone(), Duration::from_secs(state.config.server.drain_seconds));
        let background = tokio::spawn(tasks::run(state));
        let service = MapRequestLayer::new(normalise).layer(router);
        let service = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(service);
        let stopping = stop.clone();
        let serving =
            axum::serve(listener, service).with_graceful_shutdown(async move { stopping.cancelled().await });
        let serving = serving.into_future();
        tokio::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => served,
            () = stop.cancelled() => timeout(drain, &mut serving).await.unwrap_or(Ok(())),
        };
        background.abort();
        Ok(served?)
    }
}

/// The replica that is configured, if one is. It may be away; an address that is none is an error.
fn replica(config: &Config, primary: &PgPool) -> Result<Option<Replica>, GatewayError> {
    let url = &config.database.replica_url;
    if url.is_empty() {
        return Ok(None);
    }
    let pool = signalbox_database::replica(url.expose(), config.database.max_connections)?;
    Ok(Some(Replica::follow(pool, primary)))
}

fn router(state: AppState) -> Result<Router, GatewayError> {
    let (routes, description) = docs::described_routes().split_for_parts();
    let router = routes
        .merge(docs::pages(description)?)
        .fallback(|| async { Problem::not_found("Resource") })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                ProblemKind::MethodNotAllowed,
                "method_not_allowed",
                "this path does not take this method",
            )
        })
        .layer(from_fn_with_state(state.clone(), idempotency::once))
        .layer(from_fn_with_state(state.clone(), replica::settle))
        .layer(from_fn_with_state(state.clone(), throttle::limit))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(state.clone(), frame));
    let router = match cors(&state.config.server.cors_origins)? {
        Some(cors) => router.layer(cors),
        None => router,
    };
    Ok(router.with_state(state))
}

fn cors(origins: &[String]) -> Result<Option<CorsLayer>, GatewayError> {
    if origins.is_empty() {
        return Ok(None);
    }
    let parsed: Result<Vec<HeaderValue>, _> = origins.iter().map(|origin| origin.parse()).collect();
    let parsed = parsed.map_err(|_| GatewayError::Origin(origins.join(", ")))?;
    let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];
    let names = ["x-request-id", "idempotency-key", "if-match", "x-api-key"].map(HeaderName::from_static);
    let allowed = names.into_iter().chain([header::CONTENT_TYPE, header::AUTHORIZATION]).collect::<Vec<_>>();
    let exposed = ["x-request-id", "x-total-count", "consistency"].map(HeaderName::from_static);
    let layer = CorsLayer::new().allow_origin(parsed).allow_methods(methods).allow_headers(allowed);
    Ok(Some(layer.expose_headers(exposed).max_age(Duration::from_secs(86_400))))
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text = cause.downcast_ref::<String>().cloned();
    let text =
        text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
    Problem::internal(&format!("a handler panicked: {text}")).into_response()
}

/// `/api/api/…` is `/api/…`, because service 1's base address may be read as ending in `/api`; a trailing slash is
/// served like none.
fn normalise(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path();
    let shorter = path.strip_prefix("/api/api/").map(|rest| format!("/api/{rest}"));
    let shorter = shorter.as_deref().unwrap_or(path);
    let trimmed = if shorter.len() > 1 && !shorter.starts_with("/api/docs") {
        shorter.trim_end_matches('/')
    } else {
        shorter
    };
    let wanted = if trimmed.is_empty() { "/" } else { trimmed };
    if wanted != path {
        let with_query = match request.uri().query() {
            Some(query) => format!("{wanted}?{query}"),
            None => wanted.to_owned(),
        };
        if let Ok(uri) = with_query.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Routes that serve orchestrators.
pub(crate) fn health_routes() -> utoipa_axum::router::OpenApiRouter<AppState> {
    use utoipa_axum::routes;
    utoipa_axum::router::OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::root_health))
        .routes(routes!(health::v1_health))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::info))
        .routes(routes!(metrics::show))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_generously() {
        for (given, expected) in [
            ("/api/api/info", "/api/info"),
            ("/api/jobs/", "/api/jobs"),
            ("/api/api/jobs/?limit=1", "/api/jobs?limit=1"),
            ("/", "/"),
            ("/api/docs/", "/api/docs/"),
        ] {
            let request = Request::builder().uri(given).body(Body::empty()).unwrap();
            assert_eq!(normalise(request).uri().to_string(), expected);
        }
    }
}
