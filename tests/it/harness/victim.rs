//! The second process of a service, which is killed and started again while a test runs.

use std::{
    fs::File,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_test_support::{free_address, time_limit};
use tokio::{
    net::{TcpListener, TcpStream},
    process::Child,
    runtime::{Builder, Runtime},
    sync::{RwLock, RwLockReadGuard},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{ADMIN, Client, PASSWORD, program, seconds, separate::terminate, service::Process};

/// Most tests have begun their work by then, and few have ended.
const FIRST_KILL: Duration = Duration::from_millis(500);

/// A second process with a gateway, a command handler and a runner of read models.
pub struct Victim {
    stop: CancellationToken,
    killer: JoinHandle<Option<ProcessRun>>,
}

/// The role of that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VictimKind {
    /// The program with all roles, killed with SIGKILL.
    Program,
    /// Threads of the test, which end in the middle of whatever they do: only they can live by a clock that the test holds. They
    /// have no workers, whose claims would never lapse then.
    Threads,
}

/// The address of its gateway, which clients watch as a load balancer does.
#[derive(Debug)]
pub struct VictimGateway {
    pub address: SocketAddr,
    is_away: AtomicBool,
    /// Held for reading while a request is on its way that cannot be repeated: if its answer were lost, its outcome would be
    /// unknown, and the test would end there.
    unrepeatable: RwLock<()>,
}

impl VictimGateway {
    /// One that does not run yet.
    pub fn new() -> Self {
        Self { address: free_address(), is_away: AtomicBool::new(true), unrepeatable: RwLock::new(()) }
    }

    /// Whether requests cannot reach it for the moment.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    /// Keeps it alive while a request is on its way to it that cannot be repeated.
    pub async fn spare(&self) -> RwLockReadGuard<'_, ()> {
        self.unrepeatable.read().await
    }

    /// Sends nothing to it any more once no such request is on its way. A killer who waited in line would hold up those behind it.
    async fn leave(&self) {
        loop {
            if let Ok(_none) = self.unrepeatable.try_write() {
                return self.is_away.store(true, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Victim {
    /// Starts it, kills it soon after, and again every `period`.
    pub async fn start(
        kind: VictimKind,
        gateway: Arc<VictimGateway>,
        config: &Config,
        clock: &Clock,
        period: Duration,
    ) -> Self {
        let stop = CancellationToken::new();
        let (config, clock, stopped) = (config.clone(), clock.clone(), stop.clone());
        let test = thread::current().name().unwrap_or_default().to_owned();
        let mut run = ProcessRun::begin(kind, &config, &clock, gateway.address).await;
        let killer = tokio::spawn(async move {
            let mut rest = FIRST_KILL;
            loop {
                gateway.is_away.store(false, Ordering::SeqCst);
                let condemned = async {
                    sleep(rest).await;
                    gateway.leave().await;
                };
                if stopped.run_until_cancelled(condemned).await.is_none() {
                    return Some(run);
                }
                run.end().await;
                eprintln!("killed the second process of {test}: {kind:?}");
                let next = ProcessRun::begin(kind, &config, &clock, gateway.address);
                run = stopped.run_until_cancelled(next).await?;
                rest = period;
            }
        });
        Self { stop, killer }
    }

    /// Kills it no more; returns the one that lives, if it does not just start.
    pub async fn spare(self) -> Option<ProcessRun> {
        self.stop.cancel();
        self.killer.await.expect("the second process is not killed any more: it did not start again")
    }
}

/// From one start to the next end.
pub enum ProcessRun {
    Program(Child),
    Threads(Background, Box<Process>),
}

impl ProcessRun {
    async fn begin(kind: VictimKind, config: &Config, clock: &Clock, address: SocketAddr) -> Self {
        match kind {
            VictimKind::Program => Self::Program(begin_program(config, address).await),
            VictimKind::Threads => {
                let (runtime, process) = begin_threads(config, clock, address).await;
                Self::Threads(runtime, process)
            }
        }
    }

    /// Ends it at once, without its pending work.
    async fn end(self) {
        if let Self::Program(mut child) = self {
            child.kill().await.unwrap();
        }
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        match self {
            Self::Program(mut child) => {
                terminate(&child).await;
                let status = timeout(time_limit(seconds(20)), child.wait()).await;
                let status = status.expect("the second process did not stop").unwrap();
                assert!(status.success(), "the second process ended with {status}");
            }
            Self::Threads(runtime, process) => runtime.get().spawn(process.stop()).await.unwrap(),
        }
    }
}

async fn begin_program(config: &Config, address: SocketAddr) -> Child {
    let log = config.storage.folder.join("second-process.log");
    let mut command = program(config);
    command
        .arg("serve")
        .env("SIGNALBOX_SERVER__ADDRESS", address.to_string())
        .env("SIGNALBOX_ADMIN_EMAIL", ADMIN)
        .env("SIGNALBOX_ADMIN_PASSWORD", PASSWORD)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap());
    if config.extraction.parsers == 0 {
        // The first process has no document parsers either. With such an address, this one has none.
        command.env("SIGNALBOX_EXTRACTION__TIKA_URL", "no address");
    }
    let mut child = command.spawn().unwrap();
    let ready = async {
        let client = Client::new(address);
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the second process ended with {status}: {}", std::fs::read_to_string(&log).unwrap());
            }
            if TcpStream::connect(address).await.is_ok() && client.get("/readyz").await.status == 200 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(time_limit(seconds(20)), ready).await.expect("the second process does not become ready");
    child
}

async fn begin_threads(config: &Config, clock: &Clock, address: SocketAddr) -> (Background, Box<Process>) {
    let listener = bind(address).await;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = Background(Some(runtime));
    let (config, clock) = (config.clone(), clock.clone());
    let process = runtime.get().spawn(async move {
        let mut process = Process::new(&config, &clock).await;
        process.take_inner_roles(false).await;
        process.serve_on(TcpListener::from_std(listener).unwrap()).await;
        process
    });
    let process = process.await.unwrap();
    (runtime, Box::new(process))
}

/// A runtime that ends with whatever runs in it, without waiting.
pub struct Background(Option<Runtime>);

impl Background {
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds the address, which its previous owner may still be about to release.
async fn bind(address: SocketAddr) -> std::net::TcpListener {
    let taken = async {
        loop {
            match std::net::TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(_taken) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let listener = timeout(time_limit(seconds(20)), taken).await.expect("the address stays taken");
    listener.set_nonblocking(true).unwrap();
    listener
}
