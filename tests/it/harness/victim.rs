//! The second process of a service, which is killed and started again while a test runs.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_test_support::{free_address, patience};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::{RwLock, RwLockReadGuard},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{seconds, service::Process};

/// Most tests have begun their work by then, and few have ended.
const FIRST_KILL: Duration = Duration::from_secs(2);

/// Gateway, command handler and runner of read models in a runtime of its own, and workers if the test allows for it.
pub struct Victim {
    pub gateway: Arc<VictimGateway>,
    stop: CancellationToken,
    killer: JoinHandle<Life>,
}

/// What clients know of its gateway, as a load balancer knows it of those that it watches.
#[derive(Debug)]
pub struct VictimGateway {
    pub address: SocketAddr,
    is_away: AtomicBool,
    /// Held for reading while a write is on its way: who lost its answer may not repeat it, so that the test would end there.
    writes: RwLock<()>,
}

impl VictimGateway {
    /// Whether requests cannot reach it for the moment.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    /// Keeps it alive while a write is on its way to it.
    pub async fn write(&self) -> RwLockReadGuard<'_, ()> {
        self.writes.read().await
    }

    /// Sends nothing to it any more once no write is on its way. A killer who waited in line would hold up the writes behind it.
    async fn leave(&self) {
        loop {
            if let Ok(_none) = self.writes.try_write() {
                return self.is_away.store(true, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Victim {
    /// Starts it, and kills it every `period` from then on, the first time soon.
    pub async fn start(config: &Config, clock: &Clock, works: bool, period: Duration) -> Self {
        let address = free_address();
        let gateway =
            Arc::new(VictimGateway { address, is_away: AtomicBool::new(false), writes: RwLock::new(()) });
        let stop = CancellationToken::new();
        let (config, clock) = (config.clone(), clock.clone());
        let mut life = Life::begin(&config, &clock, works, address).await;
        let (condemned, stopped) = (gateway.clone(), stop.clone());
        let killer = tokio::spawn(async move {
            let mut rest = FIRST_KILL;
            let may_die = async |rest| {
                sleep(rest).await;
                condemned.leave().await;
            };
            while stopped.run_until_cancelled(may_die(rest)).await.is_some() {
                life.end();
                life = Life::begin(&config, &clock, works, address).await;
                condemned.is_away.store(false, Ordering::SeqCst);
                rest = period;
            }
            life
        });
        Self { gateway, stop, killer }
    }

    /// Kills it no more; the last one lives.
    pub async fn spare(self) -> Life {
        self.stop.cancel();
        self.killer.await.expect("nobody killed the second process any more: it did not start again")
    }
}

/// Takes the address, which whoever had it before may still be about to give up.
async fn bind(address: SocketAddr) -> std::net::TcpListener {
    let taken = async {
        loop {
            match std::net::TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(_taken) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let listener = timeout(patience(seconds(20)), taken).await.expect("the address stays taken");
    listener.set_nonblocking(true).unwrap();
    listener
}

/// From one start to the next end.
pub struct Life(Option<(Runtime, Process)>);

impl Life {
    async fn begin(config: &Config, clock: &Clock, works: bool, address: SocketAddr) -> Self {
        let listener = bind(address).await;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (config, clock) = (config.clone(), clock.clone());
        let process = runtime.spawn(async move {
            let mut process = Process::new(&config, &clock).await;
            process.take_inner_roles(works).await;
            process.serve_on(TcpListener::from_std(listener).unwrap()).await;
            process
        });
        Self(Some((runtime, process.await.unwrap())))
    }

    /// Ends it at once: whatever it was about to do is not done.
    fn end(&mut self) {
        if let Some((runtime, _)) = self.0.take() {
            runtime.shutdown_background();
        }
    }

    /// Ends it in good order.
    pub async fn stop(mut self) {
        if let Some((runtime, process)) = self.0.take() {
            runtime.spawn(process.stop()).await.unwrap();
            runtime.shutdown_background();
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end();
    }
}
