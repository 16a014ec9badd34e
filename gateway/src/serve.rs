use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
};
use signalbox_blob_store::{BlobError, BlobStore};
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{DatabaseError, SharedServerClock};
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
    auth::{AgentTokens, ApiTokens, Credentials, HashError, Keys, Passwords, Sessions},
    client_address::TrustedProxies,
    connections::{Connections, accept, limit_body},
    consistency::ReadGate,
    context::frame,
    extraction::{REMEMBERING, upload_places},
    idempotency,
    identity::login_log,
    incomplete,
    limits::Limiter,
    monitoring::export::{EXPORTS, EXPORTS_EACH},
    openapi, paths,
    problem::{Problem, ProblemKind},
    readiness::Readiness,
    register::FOLLOWERS,
    replica, revocation,
    services::{
        agent_keys::AgentKeys,
        agent_work::AgentWork,
        backtests::Backtests,
        catalog::Catalogs,
        changes::ChangeFeed,
        commands::Commands,
        failed_logins::FailedLogins,
        known_series::KnownSeries,
        live_agents::LiveAgents,
        live_values::LiveValues,
        living_channels::LivingChannels,
        open_sockets::OpenSockets,
        pulse::Pulse,
        replica::{Database, Replica},
        shared_work::SharedWork,
        sso::SingleSignOn,
        wheels::Wheels,
    },
    shares::{Exports, Shares},
    state::{Parts, Services},
    tasks,
    throttle::{self, READS},
};

/// Wake-ups that a slow waiter may miss before it has to look by itself.
const WAKEUPS: usize = 4096;

/// How long a stopping gateway tries to write the failed logins that it has counted.
const LAST_ENTRIES: Duration = Duration::from_secs(2);

/// Why a gateway cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
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

/// Sandboxed child processes that parse untrusted uploads.
pub struct SandboxedParsers {
    /// Extracts documents; `None` if the sandbox cannot be started.
    pub documents: Option<Documents>,
    /// Describes plugin packages.
    pub plugins: Plugins,
}

/// Responds to a request that matches no route, by its method, path and headers; `None` leaves it to the 404.
pub type Pages = fn(&Method, &str, &HeaderMap) -> Option<Response<Bytes>>;

/// A gateway, ready to serve.
pub struct Gateway {
    state: Services,
    pages: Pages,
}

impl Gateway {
    /// Prepares a gateway: loads the keys that sign JWTs and opens the mailboxes.
    ///
    /// # Errors
    /// [`GatewayError`].
    #[boxed]
    pub async fn open(
        pool: PgPool,
        bus: Bus,
        blobs: BlobStore,
        clock: Clock,
        config: Config,
        parsers: SandboxedParsers,
        stop: CancellationToken,
    ) -> Result<Self, GatewayError> {
        let server_clock = SharedServerClock::read(&pool, &clock).await?;
        let issuer = config.identity.issuer.clone();
        let keys = Arc::new(Keys::open(pool.clone(), clock.clone(), server_clock.clone(), issuer).await?);
        let sessions = Arc::new(Sessions::new(pool.clone(), clock.clone(), server_clock.clone()));
        let api_tokens = Arc::new(ApiTokens::new(pool.clone(), clock.clone(), server_clock.clone()));
        let gate = Arc::new(ReadGate::new(pool.clone()));
        let state = Parts {
            credentials: Credentials {
                keys: keys.clone(),
                sessions: sessions.clone(),
                api_tokens: api_tokens.clone(),
            },
            keys,
            sessions,
            api_tokens,
            trusted_proxies: TrustedProxies(config.server.trusted_proxies.clone().into()),
            passwords: Passwords::new(config.identity.concurrent_hashes),
            sso: SingleSignOn::open(&config.sso, &clock)?.map(Arc::new),
            failed_logins: Arc::new(FailedLogins::default()),
            agent_tokens: AgentTokens::new(pool.clone(), clock.clone(), server_clock.clone()),
            limiter: Arc::new(Limiter::default()),
            connections: Arc::new(Connections::new(&config.server)),
            pulse: Arc::new(Pulse::new(pool.clone(), clock.clone())),
            jobs: Lookup::start(&pool),
            transfers: Lookup::start(&pool),
            mailbox: Mailbox::open(&bus).await?,
            agent_keys: Arc::new(AgentKeys::new(pool.clone())),
            live_agents: Arc::new(LiveAgents::default()),
            agent_work: AgentWork::default(),
            catalogs: Arc::new(Catalogs::new(pool.clone(), clock.clone(), gate.clone())),
            commands: Commands { bus: bus.clone(), gate: gate.clone(), clock: server_clock.clone() },
            gate,
            living_channels: Arc::new(LivingChannels::default()),
            known_series: Arc::new(KnownSeries::default()),
            live_values: Arc::new(LiveValues::default()),
            open_sockets: OpenSockets::new(config.limits.sockets_per_user),
            backtests: Arc::new(Backtests::default()),
            changes: Arc::new(ChangeFeed::default()),
            exports: Exports::new(Shares::new(EXPORTS_EACH, EXPORTS)),
            reads: Shares::new(config.limits.reads_per_user, READS)
                .with_budget(config.limits.read_seconds_per_user),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            log_moved: watch::Sender::new(0),
            documents: parsers.documents,
            plugins: parsers.plugins,
            wheels: Wheels(BlobStore::configured(&config.storage, "wheels")?),
            uploads: upload_places(),
            reading: SharedWork::default(),
            making: SharedWork::default(),
            remembering: Arc::new(Semaphore::new(REMEMBERING)),
            texts: Texts::new(pool.clone(), blobs.clone(), clock.clone(), &config.extraction),
            datapoint_ids: IdKey::load(&pool).await?,
            sealer: Sealer::open(&pool, &clock).await?,
            wakeups: broadcast::Sender::new(WAKEUPS),
            database: Database {
                clock: clock.clone(),
                primary: pool.clone(),
                replica: replica(&config, &pool)?.map(Arc::new),
            },
            readiness: OnceLock::new(),
            blobs,
            pool,
            bus,
            clock,
            server_clock,
            config: Arc::new(config),
            stop,
        };
        Ok(Self { state: Services::new(state), pages: |_, _, _| None })
    }

    /// The same gateway with the readiness of its process, which has other roles too.
    #[must_use]
    pub fn with_readiness(self, readiness: Readiness) -> Self {
        self.state.readiness.get_or_init(|| readiness);
        self
    }

    /// The same gateway, which responds with `pages` where no route matches.
    #[must_use]
    pub fn with_pages(self, pages: Pages) -> Self {
        Self { pages, ..self }
    }

    /// Serves on `listener` until the gateway has to stop, and then until running requests have ended, but no
    /// longer than configured.
    ///
    /// # Errors
    /// [`GatewayError`].
    #[boxed]
    pub async fn serve(self, listener: TcpListener) -> Result<(), GatewayError> {
        let Self { state, pages } = self;
        let router = router(state.clone(), pages)?;
        let (stop, drain) = (state.stop.clone(), Duration::from_secs(state.config.server.drain_seconds));
        let connections = Arc::clone(&state.connections);
        let background = tokio::spawn(tasks::run(state.clone()));
        accept(listener, MapRequestLayer::new(paths::normalise).layer(router), connections, stop, drain)
            .await;
        background.abort();
        let _ =
            timeout(LAST_ENTRIES, login_log::write_rest(&state.commands, &state.clock, &state.failed_logins))
                .await;
        Ok(())
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

fn router(state: Services, pages: Pages) -> Result<Router, GatewayError> {
    let (router, policies) = &*openapi::ROUTES;
    let router = router
        .clone()
        .merge(openapi::pages())
        .fallback(async move |request: Request| page(pages, &request))
        .method_not_allowed_fallback(|| async {
            Problem::new(
                ProblemKind::MethodNotAllowed,
                "method_not_allowed",
                "this path does not take this method",
            )
        })
        .layer(from_fn_with_state(state.clone(), idempotency::once))
        .layer(from_fn(incomplete::mark))
        .layer(from_fn_with_state(state.clone(), replica::settle))
        .layer(from_fn_with_state(state.clone(), throttle::limit))
        .layer(from_fn_with_state(state.clone(), revocation::cut_bodies))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(state.connections.clone(), limit_body))
        .layer(from_fn_with_state(state.clone(), frame))
        .layer(MapRequestLayer::new(|request: Request| policies.attach(request)));
    let router = match cors(&state.config.server.cors_origins)? {
        Some(cors) => router.layer(cors),
        None => router,
    };
    Ok(router.with_state(state))
}

/// The page for a request that matches no route, or the 404.
fn page(pages: Pages, request: &Request) -> Response {
    let page = pages(request.method(), request.uri().path(), request.headers());
    page.map_or_else(|| Problem::not_found("Resource").into_response(), |page| page.map(Body::from))
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
    let exposed = ["x-request-id", "x-total-count", "consistency", "incomplete"].map(HeaderName::from_static);
    // For the cookie that binds the code of a single sign-on to a browser; nothing else is authenticated by cookies.
    let layer = CorsLayer::new()
        .allow_credentials(true)
        .allow_origin(parsed)
        .allow_methods(methods)
        .allow_headers(allowed);
    Ok(Some(layer.expose_headers(exposed).max_age(Duration::from_secs(86_400))))
}

fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let text = cause.downcast_ref::<String>().cloned();
    let text =
        text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
    Problem::internal(&format!("a handler panicked: {text}")).into_response()
}
