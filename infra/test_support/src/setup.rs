use std::{env, sync::LazyLock, time::Duration};

/// How much longer all may take than on a quiet machine: on a busy one a process stands still for seconds, and where nodes are
/// killed, waiting for a new leader comes on top.
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
    /// What `SIGNALBOX_TEST_SETUP` says: nothing, `scaled`, or `scaled-killed`.
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
            // While a cluster chooses a leader, which takes up to 9 s, nobody is served: one goes when the one before is back.
            "scaled-killed" => Self::Scaled { kills: Some(Duration::from_secs(30)) },
            other => panic!("SIGNALBOX_TEST_SETUP is {other}: it is scaled, scaled-killed, or not set"),
        }
    }
}

/// How long to wait in vain for what takes `bound` at most on a quiet machine.
pub fn patience(bound: Duration) -> Duration {
    bound * LONGER
}
