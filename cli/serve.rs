use std::{
    env, io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signalbox_blob_store::{BlobStore, CheckError};
use signalbox_clock::Clock;
use signalbox_config::{Config, Secret};
use signalbox_database::{Class, Host, pool_of};
use signalbox_documents::Documents;
use signalbox_egress::{Egress, Policy};
use signalbox_firmware::Updates;
use signalbox_gateway::{
    FirstAdmin, Gateway, NewAdmin, Operations, Readiness, SandboxedParsers, ensure_admin, serve_operations,
};
use signalbox_mail::Mailer;
use signalbox_messaging::{Bus, Mailbox};
use signalbox_plugins::Plugins;
use signalbox_sealing::Sealer;
use signalbox_telemetry::{Traces, start_traces};
use signalbox_texts::Texts;
use signalbox_workers::{Context, Parts, Senders};
use sqlx::PgPool;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::OnceCell,
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::setup;

/// How long an address is tried that is in use: a process that was killed holds it until the last of its threads has ended.
const ADDRESS_HELD: Duration = Duration::from_secs(2);
/// How often clock and disk of this machine are checked.
const HOST_CHECK: Duration = Duration::from_secs(10);

/// Which roles this process takes.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A role; may be repeated. All of them, if absent.
    #[arg(long = "role", value_enum)]
    roles: Vec<Role>,
}

/// A part of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// HTTP and sockets.
    Gateway,
    /// Command handlers.
    Commands,
    /// Read models.
    Projections,
    /// Dispatch, schedules, webhooks, documents, firmware, sweeps.
    Workers,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Commands => "commands",
            Self::Projections => "projections",
            Self::Workers => "workers",
        }
    }
}

/// All roles.
pub(crate) const ALL: [Role; 4] = [Role::Commands, Role::Projections, Role::Workers, Role::Gateway];

/// A service that runs in this process.
pub(crate) struct Service {
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    traces: Traces,
}

/// Signals that ask to stop, handled from the creation of this value.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn register() -> io::Result<Self> {
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt? })
    }

    /// Waits for one.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Serves the roles until a signal asks to stop.
pub(crate) async fn run(config: Config, args: ServeArgs) -> anyhow::Result<()> {
    let roles = if args.roles.is_empty() { ALL.to_vec() } else { args.roles };
    let mut signals = Signals::register()?;
    let mut service = tokio::select! {
        started = start(&config, &roles) => started?,
        // A service that is still starting has no work to finish.
        () = signals.received() => return Ok(()),
    };
    service.until_stopped(&mut signals).await
}

async fn start(config: &Config, roles: &[Role]) -> anyhow::Result<Service> {
    raise_file_limit();
    let pool = setup::database(config).await?;
    signalbox_database::migrate(&pool).await?;
    let bus = setup::bus(config).await?;
    let listener = listen(config, roles).await?;
    let stop = CancellationToken::new();
    let service = Service::start(config, roles, pool.clone(), bus.clone(), listener, &stop).await?;
    if roles.contains(&Role::Commands)
        && let Some(NewAdmin { login, made_password }) = first_admin(config, &pool, &bus).await?
    {
        match made_password {
            Some(password) => println!("The first admin is {login} with password {}", password.expose()),
            None => println!("The first admin is {login} with the password that was given"),
        }
    }
    Ok(service)
}

/// Raises the limit of open files to the hard limit: each client connection is one.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

/// The socket of the gateway, taken before anything else is started.
pub(crate) async fn listen(config: &Config, roles: &[Role]) -> anyhow::Result<Option<TcpListener>> {
    if !roles.contains(&Role::Gateway) {
        return Ok(None);
    }
    bind(config.server.address, "SIGNALBOX_SERVER__ADDRESS").await.map(Some)
}

async fn bind(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < ADDRESS_HELD => {
                sleep(Duration::from_millis(20)).await;
            }
            bound => {
                return bound.with_context(|| {
                    format!("the address {address} cannot be used: stop what uses it, or set {setting} to another one")
                });
            }
        }
    }
}

/// Starts the extraction of documents. Without it, files and sensors still work.
async fn documents(config: &Config) -> Option<Documents> {
    let started = match env::current_exe() {
        Ok(program) => Documents::start(&config.extraction, program).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let documents = started
        .inspect_err(|error| tracing::error!(error, "documents cannot be read on this machine"))
        .ok()?
        .allow_unconfined(config.sandbox.allow_unconfined);
    for note in documents.offer().await.notes {
        tracing::warn!(note, "not everything is installed that documents may need");
    }
    Some(documents)
}

/// Opens the file store. A bucket that cannot be reached yet does not prevent the start; one in which uploads could
/// mix does.
async fn blobs(config: &Config) -> anyhow::Result<BlobStore> {
    let folder = &config.storage.folder;
    // Also with a bucket: uploads of documents and copies of packages pass through it.
    std::fs::create_dir_all(folder).with_context(|| {
        format!("the folder {} cannot be made: choose another one with storage.folder", folder.display())
    })?;
    let blobs = BlobStore::configured(&config.storage, "blobs").with_context(|| {
        format!("the folder {} or the bucket cannot be used for files", config.storage.folder.display())
    })?;
    match blobs.check().await {
        Ok(()) => {}
        Err(error @ (CheckError::Unconditional | CheckError::Altered)) => {
            return Err(error)
                .context("files cannot be kept in the bucket of storage.url: take another server");
        }
        Err(error) => {
            tracing::error!(%error, "the bucket of storage.url cannot be used now; `signalbox doctor` says more");
        }
    }
    Ok(blobs)
}

/// Creates the first admin if there is no user; returns login and password of a new one.
pub(crate) async fn first_admin(
    config: &Config,
    pool: &PgPool,
    bus: &Bus,
) -> anyhow::Result<Option<NewAdmin>> {
    let admin = FirstAdmin {
        email: env::var("SIGNALBOX_ADMIN_EMAIL").ok(),
        password: env::var("SIGNALBOX_ADMIN_PASSWORD").ok().map(Secret::new),
        password_file: password_file(config),
    };
    Ok(ensure_admin(pool, bus, &Clock::system(), admin).await?)
}

/// Where a random admin password is kept.
pub(crate) fn password_file(config: &Config) -> PathBuf {
    config.storage.folder.join("admin-password")
}

/// Observes the process's dependencies until `stop`.
async fn observe(readiness: Readiness, stop: CancellationToken) -> anyhow::Result<()> {
    tokio::select! { () = readiness.run() => {}, () = stop.cancelled() => {} }
    Ok(())
}

/// Reports faults of this machine's clock and disk until `stop`.
async fn check_host(pool: PgPool, folder: PathBuf, stop: CancellationToken) -> anyhow::Result<()> {
    let mut host = Host::default();
    let check = async {
        loop {
            if let Err(error) = host.check(&pool, &folder).await {
                tracing::debug!(%error, "clock and disk were not checked");
            }
            sleep(HOST_CHECK).await;
        }
    };
    tokio::select! { () = check => {}, () = stop.cancelled() => {} }
    Ok(())
}

impl Service {
    /// Starts the roles.
    pub(crate) async fn start(
        config: &Config,
        roles: &[Role],
        pool: PgPool,
        bus: Bus,
        listener: Option<TcpListener>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
        let traces = start_traces(&config.telemetry, &names, clock.new_id())?;
        let mut tasks = JoinSet::new();
        // Opened and checked once for all roles that need them.
        let files = OnceCell::new();
        // Steps of projections and workers may take longer than queries of requests, and must not take their
        // connections.
        let background = pool_of(&pool, Class::Background);
        for role in roles {
            let (bus, clock, stop) = (bus.clone(), clock.clone(), stop.clone());
            let pool = match role {
                Role::Projections | Role::Workers => background.clone(),
                Role::Commands | Role::Gateway => pool.clone(),
            };
            match role {
                Role::Commands => {
                    tasks.spawn(async move { Ok(signalbox_commands::run(pool, bus, clock, stop).await?) });
                }
                Role::Projections => {
                    tasks.spawn(async move {
                        signalbox_projections::keep_up(pool, bus, stop).await;
                        Ok(())
                    });
                }
                Role::Workers => {
                    let mailbox = Mailbox::open(&bus).await?;
                    let policy = Policy::allowing(&config.egress.allowed_networks);
                    let policy = policy.context("egress.allowed_networks")?;
                    let egress_without_loopback = Egress::new(policy.clone().without_loopback())?;
                    let egress = Egress::new(policy)?;
                    let sealer = Sealer::open(&pool, &clock).await?;
                    let firmware = Updates::new(config.storage.folder.join("updates"), &config.firmware)?;
                    // Apart from those of the gateway, so that jobs do not keep quick calls waiting.
                    let documents = documents(config).await;
                    let (blobs, config) =
                        (files.get_or_try_init(|| blobs(config)).await?.clone(), config.clone());
                    let texts = Texts::new(pool.clone(), blobs.clone(), clock.clone(), &config.extraction);
                    let mailer = Mailer::new(&config.mail)?.map(Arc::new);
                    let senders = Senders { sealer, egress, egress_without_loopback, mailer };
                    let context = Context::new(pool, bus, clock);
                    let parts =
                        Parts { context, mailbox, blobs, documents, texts, firmware, senders, config };
                    tasks.spawn(async move {
                        signalbox_workers::run(parts, stop).await;
                        Ok(())
                    });
                }
                Role::Gateway => {}
            }
        }
        let has_background = roles.iter().any(|role| matches!(role, Role::Projections | Role::Workers));
        let others = if has_background { vec![("background_database", background)] } else { Vec::new() };
        let readiness = Readiness::new(pool.clone(), others, bus.clone(), clock.clone(), stop.clone());
        tasks.spawn(observe(readiness.clone(), stop.clone()));
        tasks.spawn(check_host(pool.clone(), config.storage.folder.clone(), stop.clone()));
        if let Some(address) = config.server.metrics_address {
            let listener = bind(address, "SIGNALBOX_SERVER__METRICS_ADDRESS").await?;
            let operations = Operations { readiness: readiness.clone(), stop: stop.clone() };
            let settings = config.server.clone();
            tasks.spawn(async move {
                serve_operations(listener, &settings, operations).await;
                Ok(())
            });
        }
        if let Some(listener) = listener {
            let documents = documents(config).await;
            let program = env::current_exe().context("the path of this program is not known")?;
            let folder = config.storage.folder.join("plugins");
            let (python, allow_unconfined) = (config.plugins.python.clone(), config.sandbox.allow_unconfined);
            let plugins = Plugins::new(folder, program, python, allow_unconfined);
            let parsers = SandboxedParsers { documents, plugins };
            let blobs = files.get_or_try_init(|| blobs(config)).await?.clone();
            let gateway =
                Gateway::open(pool, bus, blobs, clock, config.clone(), parsers, stop.clone()).await?;
            let gateway = gateway.with_readiness(readiness).with_pages(signalbox_console::respond);
            tasks.spawn(async move { Ok(gateway.serve(listener).await?) });
        }
        Ok(Self { tasks, stop: stop.clone(), traces })
    }

    /// Waits for a signal, or for a role that ends by itself, and then for all roles to end.
    pub(crate) async fn until_stopped(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let first = tokio::select! {
            () = signals.received() => None,
            ended = self.tasks.join_next() => ended,
        };
        self.stop.cancel();
        let mut result = first.map_or(Ok(()), |ended| ended?);
        while let Some(ended) = self.tasks.join_next().await {
            result = result.and(ended?);
        }
        std::mem::take(&mut self.traces).stop().await;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As that of a process that was killed and has not ended.
    #[tokio::test]
    async fn an_address_that_becomes_free_is_taken() {
        let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = held.local_addr().unwrap();
        let (bound, ()) = tokio::join!(bind(address, "SIGNALBOX_SERVER__ADDRESS"), async { drop(held) });
        assert_eq!(bound.unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn an_address_that_stays_in_use_is_refused_with_its_setting() {
        let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = held.local_addr().unwrap();
        let refused = bind(address, "SIGNALBOX_SERVER__ADDRESS").await.unwrap_err().to_string();
        assert!(refused.contains("set SIGNALBOX_SERVER__ADDRESS to another one"), "{refused}");
    }
}
