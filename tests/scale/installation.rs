use std::time::Duration;

use anyhow::{Context as _, ensure};
use sqlx::PgPool;

use crate::{
    holder,
    system::{Api, Program, Role, Servers, Signalbox, wait_until},
};

const WHOLE: Duration = Duration::from_secs(60);

/// The parts to kill, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    ActiveProjections,
    HungProjections,
    Scheduler,
    JetStreamLeader,
    Replica,
    Gateway,
    Commands,
}

impl Part {
    pub const ALL: [Self; 7] = [
        Self::ActiveProjections,
        Self::HungProjections,
        Self::Scheduler,
        Self::JetStreamLeader,
        Self::Replica,
        Self::Gateway,
        Self::Commands,
    ];
}

/// The parts to restart.
pub enum Gone {
    Process(usize),
    Stopped(usize),
    Nats(usize),
    Replica,
}

struct Slot {
    role: Role,
    settings: Signalbox,
    running: Program,
}

/// Two processes of each role, and the servers that they stand on.
pub struct Installation {
    slots: Vec<Slot>,
    pub gateways: [Api; 2],
    pub pool: PgPool,
    // After the processes, which use them.
    pub servers: Servers,
}

impl Installation {
    pub async fn start() -> anyhow::Result<Self> {
        let servers = Servers::start_scaled().await?;
        let pool = servers.database().await?;
        let mut slots = Vec::new();
        for role in [Role::Commands, Role::Projections, Role::Workers].into_iter().flat_map(|role| [role; 2])
        {
            let settings = Signalbox::new(&servers, role)?;
            let running = settings.start()?;
            slots.push(Slot { role, settings, running });
        }
        let mut gateways = Vec::new();
        for _ in 0..2 {
            let settings = Signalbox::new(&servers, Role::Gateway)?;
            let (running, api) = settings.start_and_log_in().await?;
            slots.push(Slot { role: Role::Gateway, settings, running });
            gateways.push(api);
        }
        let gateways = [gateways[0].clone(), gateways[1].clone()];
        Ok(Self { slots, gateways, pool, servers })
    }

    /// Kills or stops `part`; returns its name and what to put back.
    pub async fn disturb(&mut self, part: Part) -> anyhow::Result<(&'static str, Gone)> {
        Ok(match part {
            Part::ActiveProjections => {
                ("active projection runner", self.kill(self.holder("projection.transfer").await?))
            }
            Part::HungProjections => {
                let index = self.holder("projection.transfer").await?;
                self.slots[index].running.pause();
                ("active projection runner, stopped", Gone::Stopped(index))
            }
            Part::Scheduler => {
                ("scheduler and its other workers", self.kill(self.holder("worker.scheduler").await?))
            }
            Part::JetStreamLeader => {
                let jetstream = self.servers.jetstream().await?;
                let stream = jetstream.get_stream("EVENTS").await?;
                let cluster = stream.cached_info().cluster.as_ref().context("no cluster")?;
                let leader = cluster.leader.clone().context("no leader")?;
                ("JetStream leader", Gone::Nats(self.servers.kill_nats(&leader)?))
            }
            Part::Replica => {
                self.servers.kill_replica()?;
                ("replica of PostgreSQL", Gone::Replica)
            }
            Part::Gateway => ("gateway", self.kill(self.first(Role::Gateway)?)),
            Part::Commands => ("command handler", self.kill(self.first(Role::Commands)?)),
        })
    }

    /// Puts back what is gone.
    pub async fn mend(&mut self, gone: Gone) -> anyhow::Result<()> {
        match gone {
            Gone::Process(index) => {
                let slot = &mut self.slots[index];
                slot.running = slot.settings.start()?;
            }
            Gone::Stopped(index) => self.slots[index].running.resume(),
            Gone::Nats(index) => self.servers.start_nats(index).await?,
            Gone::Replica => self.servers.start_replica().await?,
        }
        Ok(())
    }

    /// Waits until every part does its work again.
    pub async fn until_whole(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.slots {
            ensure!(slot.running.is_running(), "a process has ended by itself:\n{}", slot.running.said());
        }
        for gateway in &self.gateways {
            wait_until("the gateway being ready", WHOLE, || async {
                Ok(gateway.answer(reqwest::Method::GET, "/readyz", None).await.is_ok())
            })
            .await?;
            wait_until("the replica being read", WHOLE, || async {
                let numbers = gateway.answer(reqwest::Method::GET, "/metrics", None).await?;
                Ok(String::from_utf8_lossy(&numbers).contains("signalbox_replica_serves 1"))
            })
            .await?;
        }
        let jetstream = self.servers.jetstream().await?;
        wait_until("every copy of the streams", WHOLE, || async {
            let stream = jetstream.get_stream("EVENTS").await?;
            let copies = stream.cached_info().cluster.iter().flat_map(|cluster| &cluster.replicas);
            Ok(copies.filter(|copy| copy.current).count() == 2)
        })
        .await?;
        // Two runners of read models and two workers, each with a connection for its leases.
        wait_until("every process standing by", WHOLE, || async {
            let sessions = "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND application_name = 'signalbox leases'";
            Ok(sqlx::query_scalar::<_, i64>(sessions).fetch_one(&self.pool).await? == 4)
        })
        .await
    }

    /// The processes' last output.
    pub fn said(&self) -> String {
        let said = self.slots.iter().map(|slot| format!("--- {:?} said\n{}", slot.role, slot.running.said()));
        said.collect::<Vec<_>>().join("\n")
    }

    fn kill(&mut self, index: usize) -> Gone {
        self.slots[index].running.kill();
        Gone::Process(index)
    }

    async fn holder(&self, lease: &str) -> anyhow::Result<usize> {
        let processes: Vec<_> = self.slots.iter().map(|slot| slot.running.pid()).collect();
        let holder = holder::of(&self.pool, lease, &processes).await?;
        self.slots.iter().position(|slot| slot.running.pid() == holder).context("an unknown process")
    }

    fn first(&self, role: Role) -> anyhow::Result<usize> {
        self.slots.iter().position(|slot| slot.role == role).context("no such process")
    }
}
