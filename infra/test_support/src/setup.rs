use std::{env, sync::LazyLock, time::Duration};

/// Factor for all time limits: on a busy machine a process stands still for seconds, and where nodes are killed, the
/// election of a leader takes time too.
const LONGER: u32 = 3;

static SETUP: LazyLock<Setup> = LazyLock::new(Setup::from_environment);

/// On what the tests of this process run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    /// One nats-server, one PostgreSQL.
    Plain,
    /// Three nats-servers for each test; for all of them a PostgreSQL with a streaming replica, and an S3 server for files.
    Scaled {
        /// How often a node of each kind is killed, if it is.
        kills: Option<Duration>,
    },
}

impl Setup {
    /// The setup named by `SIGNALBOX_TEST_SETUP`: empty, `scaled`, or `scaled-killed`.
    pub fn of_this_run() -> Self {
        *SETUP
    }

    /// Whether there are several nodes of each kind.
    pub fn is_scaled(self) -> bool {
        matches!(self, Self::Scaled { .. })
    }

    /// How often a node of each kind is killed, if it is.
    pub fn kills(self) -> Option<Duration> {
        match self {
            Self::Scaled { kills } => kills,
            Self::Plain => None,
        }
    }

    fn from_environment() -> Self {
        match env::var("SIGNALBOX_TEST_SETUP").unwrap_or_default().as_str() {
            "" => Self::Plain,
            "scaled" => Self::Scaled { kills: None },
            // While a cluster elects a leader, which takes up to 9 s, it serves no client: a node is killed only when
            // the previous one is back.
            "scaled-killed" => Self::Scaled { kills: Some(Duration::from_secs(30)) },
            other => panic!("SIGNALBOX_TEST_SETUP is {other}: it is scaled, scaled-killed, or not set"),
        }
    }
}

/// The time limit for work that takes at most `bound` on a quiet machine.
pub fn time_limit(bound: Duration) -> Duration {
    bound * LONGER
}
