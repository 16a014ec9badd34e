//! Servers, a running service, an admin who is logged in, and short ways to what most tests need.

use std::{
    net::SocketAddr,
    panic::Location,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::{Config, Secret};
use signalbox_gateway::{FirstAdmin, ensure_admin};
use signalbox_messaging::Mailbox;
use signalbox_test_support::{S3Server, Setup, TestServers, time_limit};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::{
    Client, Folder, ReadModels, Victim, VictimGateway, VictimKind, eventually, eventually_some, seconds,
    service::Process, signalbox,
};

/// E-mail address of the admin of every test.
pub const ADMIN: &str = "admin@example.org";
/// Password of every user of every test.
pub const PASSWORD: &str = "a long enough password";

/// One test's service.
pub struct World {
    pub servers: TestServers,
    pub config: Config,
    pub clock: Clock,
    pub address: SocketAddr,
    pub admin: Client,
    pub read_models: ReadModels,
    main: Process,
    others: Vec<Process>,
    /// The second process, if this run kills it.
    victim: Option<Victim>,
    folder: TempDir,
}

/// An agent as the service knows it, with a token.
#[derive(Debug, Clone)]
pub struct AgentAccount {
    pub id: i64,
    pub token_id: i64,
    pub token: String,
}

/// The initial state of a service.
enum Beginning<'a> {
    Empty,
    /// Empty, and its time is the test's: claims of a crashed worker may never expire.
    ByClock,
    /// Empty, and its workers are processes that the test starts.
    WithoutWorkers,
    /// Empty, and its workers are in one process, whatever the other tests of this run have.
    WithOneWorker,
    /// Empty, and only the test disturbs its nats-servers.
    WithOwnBus,
    /// The log of another one, in which the token is an admin's.
    Archive(&'a Path, &'a str),
}

impl Beginning<'_> {
    /// The role of the second process in a run that kills it; none if the test kills for itself.
    fn kind_of_victim(&self) -> Option<VictimKind> {
        match self {
            Self::Empty | Self::Archive(..) => Some(VictimKind::Program),
            Self::ByClock | Self::WithoutWorkers | Self::WithOneWorker => Some(VictimKind::Threads),
            Self::WithOwnBus => None,
        }
    }
}

impl World {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A service whose configuration `adjust` has changed.
    pub async fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        Self::begin(Clock::system(), adjust, Beginning::Empty).await
    }

    /// A service that lives by `clock` and whose workers are processes that the test starts.
    pub async fn without_workers(clock: Clock, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::begin(clock, adjust, Beginning::WithoutWorkers).await
    }

    /// A service that lives by `clock` and whose workers are in one process, so that a test can keep all of them busy.
    pub async fn with_one_worker(clock: Clock, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::begin(clock, adjust, Beginning::WithOneWorker).await
    }

    /// A service whose test kills its nats-servers.
    pub async fn with_own_bus(adjust: impl FnOnce(&mut Config)) -> Self {
        Self::begin(Clock::system(), adjust, Beginning::WithOwnBus).await
    }

    /// A service that lives by `clock`, which the test moves.
    pub async fn at(clock: Clock, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::begin(clock, adjust, Beginning::ByClock).await
    }

    /// A service that starts with the log of another one, in which `token` is an admin's. There is no login, so that
    /// nothing is added to the log.
    pub async fn of_archive(archive: &Path, token: &str) -> Self {
        Self::begin(Clock::system(), |_| {}, Beginning::Archive(archive, token)).await
    }

    async fn begin(clock: Clock, adjust: impl FnOnce(&mut Config), beginning: Beginning<'_>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let servers = match beginning {
            Beginning::WithOwnBus => TestServers::start_with_own_nats().await,
            _ => TestServers::start().await,
        };
        let folder = TempDir::new().unwrap();
        let mut config = Config::load(None, &Default::default()).unwrap();
        config.storage.folder = folder.path().to_owned();
        config.database.url = Secret::new(servers.database_url.clone());
        config.database.replica_url = Secret::new(servers.replica_url.clone().unwrap_or_default());
        config.nats.url = Secret::new(servers.nats_url.clone());
        config.nats.replicas = servers.nats.size();
        config.limits.logins_per_account = 1000;
        config.limits.logins_per_address = 1000;
        config.limits.request_burst = 100_000;
        config.limits.read_seconds_per_user = 0;
        config.egress.allowed_networks = vec!["127.0.0.0/8".to_owned()];
        let is_scaled = Setup::of_this_run().is_scaled();
        if is_scaled {
            S3Server::shared().await.configure(&mut config.storage, &S3Server::unique_prefix());
            // Files of tests have several segments, too.
            config.storage.segment_mb = 1;
        }
        adjust(&mut config);
        if let Beginning::Archive(archive, _) = beginning {
            signalbox(&config, &["log", "import", archive.to_str().unwrap()]).await.well();
            // No read model shows its users yet.
            let password_file = folder.path().join("password-of-none");
            let first = FirstAdmin { email: None, password: None, password_file: password_file.clone() };
            let new = ensure_admin(&servers.pool, &servers.bus, &clock, first).await.unwrap();
            assert!(new.is_none() && !password_file.exists(), "the log has users");
        }
        let mut main = Process::new(&config, &clock).await;
        main.take_inner_roles(!matches!(beginning, Beginning::WithoutWorkers)).await;
        let address = main.serve().await;
        let (mut gateways, mut others, mut condemned) = (vec![address], Vec::new(), None);
        if is_scaled {
            // Two of each role, as different processes have them.
            let works = !matches!(beginning, Beginning::WithoutWorkers | Beginning::WithOneWorker);
            let kind = beginning.kind_of_victim();
            if let (Some(period), Some(kind)) = (Setup::of_this_run().kills(), kind) {
                let gateway = Arc::new(VictimGateway::new());
                gateways.push(gateway.address);
                condemned = Some((kind, gateway, period));
                if works && kind == VictimKind::Threads {
                    let mut third = Process::new(&config, &clock).await;
                    third.work().await;
                    others.push(third);
                }
            } else {
                let mut second = Process::new(&config, &clock).await;
                second.take_inner_roles(works).await;
                gateways.push(second.serve().await);
                others.push(second);
            }
        }
        let first = FirstAdmin {
            email: Some(ADMIN.to_owned()),
            password: Some(Secret::new(PASSWORD.to_owned())),
            password_file: folder.path().join("admin-password"),
        };
        let read_models = ReadModels::of(&servers);
        let outlived = condemned.as_ref().map(|(_, gateway, _)| gateway.clone());
        let anonymous = Client::of(&gateways).that_sees_its_writes(&read_models).that_outlives(outlived);
        if !matches!(beginning, Beginning::Archive(..)) {
            // A login would have failed until now.
            assert_eq!(anonymous.get("/readyz").await.status, 503);
            let new = ensure_admin(&main.pool, &main.bus, &clock, first).await.unwrap();
            let new = new.expect("there was no user before");
            assert!(new.made_password.is_none(), "a password that was given is not to be shown");
        }
        let victim = match condemned {
            Some((kind, gateway, period)) => {
                Some(Victim::start(kind, gateway, &config, &clock, period).await)
            }
            None => None,
        };
        eventually(seconds(10), async || anonymous.get("/readyz").await.status == 200).await;
        let admin = match beginning {
            Beginning::Archive(_, token) => {
                // A service is ready while it still reads a long log.
                read_models.show_all().await;
                anonymous.with_token(token)
            }
            // Other gateways would count it a moment later, when a test has started to count logins.
            _ => Client::new(address).log_in(ADMIN, PASSWORD).await.at(&anonymous),
        };
        Self { servers, config, clock, address, admin, read_models, main, others, victim, folder }
    }

    /// A client without credentials.
    pub fn anonymous(&self) -> Client {
        self.admin.anonymous()
    }

    /// The admin at one gateway that is never killed, whatever the other tests of this run have: for state that each
    /// gateway keeps by itself, and for files that it removes, which stay if it crashes before.
    pub fn at_one_gateway(&self) -> Client {
        self.admin.at(&Client::new(self.address))
    }

    /// Starts another gateway on the same servers and folder; returns a client of it without credentials.
    pub async fn another_gateway(&mut self) -> Client {
        let clock = self.clock.clone();
        self.another_gateway_by(&clock).await
    }

    /// Starts another gateway, on a machine with this clock.
    pub async fn another_gateway_by(&mut self, clock: &Clock) -> Client {
        Client::new(self.another_process_by(clock).await.serve().await)
    }

    /// Starts another gateway with a storage folder of its own, as on another machine.
    pub async fn gateway_elsewhere(&mut self, folder: &Folder) -> Client {
        Client::new(self.another_process_in(folder.path("")).await.serve().await)
    }

    /// Another process with connections of its own that does nothing yet; stopped with the world.
    pub async fn another_process(&mut self) -> &mut Process {
        self.another_process_in(self.config.storage.folder.clone()).await
    }

    /// Such a process, on a machine with this clock.
    pub async fn another_process_by(&mut self, clock: &Clock) -> &mut Process {
        let process = Process::new(&self.config, clock).await;
        self.others.push(process);
        self.others.last_mut().unwrap()
    }

    /// Such a process with a storage folder of its own, as on another machine.
    pub async fn another_process_in(&mut self, folder: PathBuf) -> &mut Process {
        let mut config = self.config.clone();
        config.storage.folder = folder;
        let process = Process::new(&config, &self.clock).await;
        self.others.push(process);
        self.others.last_mut().unwrap()
    }

    /// Stops the process that was started last.
    pub async fn stop_last(&mut self) {
        self.others.pop().unwrap().stop().await;
    }

    /// Makes a user with [`PASSWORD`] and logs it in.
    pub async fn user(&self, name: &str, role: &str) -> Client {
        let user = json!({"email": email(name), "username": name, "password": PASSWORD, "role": role});
        self.admin.post("/api/v1/users", user).await.expect(201);
        self.anonymous().log_in(name, PASSWORD).await
    }

    /// Makes an agent with a token.
    pub async fn agent(&self, name: &str) -> AgentAccount {
        let agent = self.admin.post("/api/agents", json!({ "name": name })).await.expect(201);
        let id = agent["id"].as_i64().unwrap();
        let token = self.admin.post("/api/tokens", json!({"name": name, "agent_id": id})).await.expect(201);
        AgentAccount {
            id,
            token_id: token["token"]["id"].as_i64().unwrap(),
            token: token["value"].as_str().unwrap().to_owned(),
        }
    }

    /// A client that speaks as `agent`.
    pub fn as_agent(&self, agent: &AgentAccount) -> Client {
        self.anonymous().with_token(&agent.token)
    }

    /// Makes a transfer and returns its integer.
    pub async fn transfer(
        &self,
        from: &AgentAccount,
        to: &AgentAccount,
        source: &str,
        destination: &str,
    ) -> i64 {
        let transfer = json!({"source_agent_id": from.id, "destination_agent_id": to.id,
            "source_path": source, "destination_path": destination});
        self.admin.post("/api/transfers", transfer).await.expect(201)["id"].as_i64().unwrap()
    }

    /// Waits until transfer `id` meets the condition; returns it.
    #[track_caller]
    pub fn until_transfer(
        &self,
        id: i64,
        mut is_so: impl FnMut(&Value) -> bool,
    ) -> impl Future<Output = Value> {
        let place = Location::caller();
        async move {
            let path = format!("/api/transfers/{id}");
            let mut last = Value::Null;
            let found = async {
                loop {
                    last = self.admin.get(&path).await.expect(200);
                    if is_so(&last) {
                        return;
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            };
            if timeout(time_limit(seconds(40)), found).await.is_err() {
                panic!(
                    "{place}: timed out; the transfer is {last} after\n{}",
                    self.events_of("transfer").await
                );
            }
            last
        }
    }

    /// Waits until transfer `id` has ended; returns it.
    #[track_caller]
    pub fn until_ended(&self, id: i64) -> impl Future<Output = Value> {
        self.until_transfer(id, |transfer| transfer["phase"] == "done")
    }

    /// Waits until transfer `id` is in `phase`; returns it.
    #[track_caller]
    pub fn until_phase(&self, id: i64, phase: &'static str) -> impl Future<Output = Value> {
        self.until_transfer(id, move |transfer| transfer["phase"] == phase)
    }

    /// Waits until `agent` has `status`; returns it.
    #[track_caller]
    pub fn until_agent(&self, agent: &AgentAccount, status: &'static str) -> impl Future<Output = Value> {
        let path = format!("/api/agents/{}", agent.id);
        eventually_some(seconds(20), async move || {
            let agent = self.admin.get(&path).await.expect(200);
            (agent["status"] == status).then_some(agent)
        })
    }

    /// Waits until agents have taken all their mail and said so.
    pub async fn until_mail_is_gone(&self) {
        let mailbox = Mailbox::open(&self.servers.bus).await.unwrap();
        eventually(seconds(20), async || mailbox.size().await.is_ok_and(|size| size == 0)).await;
    }

    /// How many events there are, those apart that a login leaves for people to read, failed ones too.
    pub async fn count_all_events(&self) -> i64 {
        let count = "SELECT count(*) FROM events
             WHERE NOT (event_type = 'log_entry_written' AND payload->>'source' = 'auth')";
        sqlx::query_scalar(count).fetch_one(&self.servers.pool).await.unwrap()
    }

    /// The position of the newest event.
    pub async fn position(&self) -> i64 {
        let newest = "SELECT max(position) FROM events";
        sqlx::query_scalar(newest).fetch_one(&self.servers.pool).await.unwrap()
    }

    /// Drops the answers that the service keeps for repeated requests, as if their gateways had crashed before they
    /// could keep them.
    pub async fn lose_kept_answers(&self) {
        let lost = sqlx::query("UPDATE ops.idempotent_requests SET sealed_answer = NULL");
        lost.execute(&self.servers.pool).await.unwrap();
    }

    /// How many events of `event_type` the log holds.
    pub async fn count_events(&self, event_type: &str) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM events WHERE event_type = $1");
        count.bind(event_type).fetch_one(&self.servers.pool).await.unwrap()
    }

    /// Reports of `agent` on transfers that had ended.
    pub async fn late_reports(&self, agent: &AgentAccount) -> i64 {
        let count = sqlx::query_scalar(
            "SELECT count(*) FROM events e JOIN read.agents a ON a.id::text = e.payload->>'agent'
              WHERE e.event_type = 'late_report_received' AND a.number = $1",
        );
        count.bind(agent.id).fetch_one(&self.servers.pool).await.unwrap()
    }

    /// The log's events of aggregates of `kind`, one line each; for the message of a failed assertion.
    pub async fn events_of(&self, kind: &str) -> String {
        let statement =
            "SELECT to_char(recorded_at, 'HH24:MI:SS.MS ') || event_type || ' ' || (metadata->>'actor')
            || ' ' || payload::text FROM events WHERE aggregate_type = $1 ORDER BY position";
        let lines: Vec<String> =
            sqlx::query_scalar(statement).bind(kind).fetch_all(&self.servers.pool).await.unwrap();
        lines.join("\n")
    }

    /// The parts that the workers of the first process have, for one that a test steps by hand.
    pub async fn worker_parts(&self) -> signalbox_workers::Parts {
        self.main.worker_parts().await
    }

    /// Of these, the one that every worker has.
    pub async fn worker_context(&self) -> signalbox_workers::Context {
        self.worker_parts().await.context
    }

    /// Where the first process keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Names of the staged files, wherever the service keeps them.
    pub async fn staged_files(&self) -> Vec<String> {
        match self.config.storage.url.is_empty() {
            true => self.local_files(),
            false => S3Server::shared().await.files(&self.config.storage, "blobs").await,
        }
    }

    /// Names of the staged files that are on this machine's disk.
    pub fn local_files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().join("blobs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => found.push(path.file_name().unwrap().to_string_lossy().into_owned()),
                }
            }
        }
        found
    }

    /// Ends the test; fails it when work is left behind.
    pub async fn finish(self) {
        let Self { servers, main, others, victim, folder, .. } = self;
        let spared = match victim {
            Some(victim) => victim.spare().await,
            None => None,
        };
        servers.finish().await;
        if let Some(run) = spared {
            run.stop().await;
        }
        for process in others.into_iter().chain([main]) {
            process.stop().await;
        }
        drop(folder);
    }

    /// Ends the test where mail for agents that are away is meant to stay.
    pub async fn finish_with_mail(self) {
        if let Some(victim) = self.victim
            && let Some(run) = victim.spare().await
        {
            run.stop().await;
        }
        for process in self.others.into_iter().chain([self.main]) {
            process.stop().await;
        }
    }
}

/// The e-mail address of user `name`.
pub fn email(name: &str) -> String {
    format!("{name}@example.org")
}
