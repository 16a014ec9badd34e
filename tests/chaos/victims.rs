use std::time::Duration;

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio::time::{Instant, sleep};

use crate::{
    system::{AgentAccount, AgentSettings, Api, Program, Role, Servers, Signalbox},
    work::Progress,
};

/// The next one is killed when so many seconds have passed, even if nothing has moved since the last.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The parts to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Process(usize),
    Nats,
    Postgres,
}

/// A process that is started again whenever it is gone.
struct Slot {
    name: String,
    settings: Settings,
    running: Program,
}

enum Settings {
    Server(Signalbox),
    Agent(AgentSettings),
}

impl Settings {
    fn start(&self) -> anyhow::Result<Program> {
        match self {
            Self::Server(settings) => settings.start(),
            Self::Agent(settings) => settings.start(),
        }
    }
}

/// All processes of the system under test.
pub struct Victims {
    slots: Vec<Slot>,
    /// The agents' accounts and roots.
    pub agents: Vec<(AgentAccount, AgentSettings)>,
    /// The gateways, logged in.
    pub gateways: [Api; 2],
    /// Number of processes that ended without being killed.
    pub ended_by_themselves: usize,
}

impl Victims {
    /// Starts two gateways, two processes of workers, one of each other role, and three agents.
    pub async fn start(servers: &Servers) -> anyhow::Result<Self> {
        let mut slots = Vec::new();
        for (name, role) in [
            ("Commands", Role::Commands),
            ("Projections", Role::Projections),
            ("Workers 1", Role::Workers),
            ("Workers 2", Role::Workers),
        ] {
            let settings = Signalbox::new(servers, role)?;
            let running = settings.start()?;
            slots.push(Slot { name: name.to_owned(), settings: Settings::Server(settings), running });
        }
        let mut gateways = Vec::new();
        for number in 1..=2 {
            let settings = Signalbox::new(servers, Role::Gateway)?;
            let (running, api) = settings.start_and_log_in().await?;
            slots.push(Slot {
                name: format!("Gateway {number}"),
                settings: Settings::Server(settings),
                running,
            });
            gateways.push(api);
        }
        let [first, second] = [gateways[0].clone(), gateways[1].clone()];
        let mut agents = Vec::new();
        for (name, gateway, transport) in
            [("press", &first, "websocket"), ("archive", &second, "polling"), ("laser", &second, "auto")]
        {
            let account = first.add_agent(name).await?;
            let settings = AgentSettings::new(servers.folder(), name, gateway.address, &account, transport)?;
            let running = settings.start()?;
            let name = format!("Agent {name}");
            slots.push(Slot { name, settings: Settings::Agent(settings.clone()), running });
            agents.push((account, settings));
        }
        Ok(Self { slots, agents, gateways: [first, second], ended_by_themselves: 0 })
    }

    /// Kills every process `rounds` times while `work` is done, spread evenly over them.
    pub async fn disturb(
        &mut self,
        servers: &mut Servers,
        work: &impl Progress,
        rounds: u64,
        seed: u64,
        wiped: bool,
    ) -> anyhow::Result<()> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut kinds: Vec<_> = (0..self.slots.len()).map(Kind::Process).collect();
        kinds.extend([Kind::Nats, Kind::Postgres]);
        let kills = rounds as usize * kinds.len();
        for round in 0..rounds as usize {
            kinds.shuffle(&mut random);
            for (index, kind) in kinds.iter().enumerate() {
                let done = work.count() * (round * kinds.len() + index) / kills;
                self.wait_for_progress(work, done).await?;
                self.kill(servers, *kind, wiped).await?;
            }
        }
        Ok(())
    }

    /// The processes' last output.
    pub fn said(&self) -> String {
        let said = self.slots.iter().map(|slot| format!("--- {} said\n{}", slot.name, slot.running.said()));
        said.collect::<Vec<_>>().join("\n")
    }

    /// Starts again what has ended.
    pub fn tend(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.slots {
            if !slot.running.is_running() {
                println!("{} has ended by itself:\n{}", slot.name, slot.running.said());
                self.ended_by_themselves += 1;
                slot.running = slot.settings.start()?;
            }
        }
        Ok(())
    }

    async fn wait_for_progress(&mut self, work: &impl Progress, done: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + PROGRESS_TIMEOUT;
        while Instant::now() < deadline {
            self.tend()?;
            // The database may be the one that was killed.
            if work.completed().await.is_ok_and(|completed| completed >= done) {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn kill(&mut self, servers: &mut Servers, kind: Kind, wiped: bool) -> anyhow::Result<()> {
        let start = Instant::now();
        let name = match kind {
            Kind::Nats => {
                servers.crash_nats(wiped).await?;
                "nats-server"
            }
            Kind::Postgres => {
                servers.crash_postgres().await?;
                "PostgreSQL"
            }
            Kind::Process(index) => {
                let slot = &mut self.slots[index];
                slot.running.kill();
                slot.running = slot.settings.start()?;
                &slot.name
            }
        };
        println!("killed and started again: {name} ({:.2?})", start.elapsed());
        Ok(())
    }
}
