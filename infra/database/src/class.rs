use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

/// Server-side settings that let PostgreSQL notice a client whose network went silent, and release its locks.
const SERVER_KEEPALIVE: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "10000"),
];
/// The client waits longer than the server, so that a slow statement ends with the server's error.
const MARGIN: Duration = Duration::from_secs(1);

/// How long a connection's statements may take. The server enforces the limit by `statement_timeout`; the client closes a
/// connection that exceeds it by a second without any sign of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Requests and commands, whose callers wait.
    Interactive,
    /// Projections and workers, which repeat a failed step.
    Background,
    /// Streams of rows that are read as fast as a client takes them.
    Export,
    /// Migrations, rebuilds, import and export of the whole log.
    Maintenance,
}

impl Class {
    const ALL: [Self; 4] = [Self::Interactive, Self::Background, Self::Export, Self::Maintenance];

    /// Limit of one statement.
    pub const fn statement_timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Interactive => 10,
            Self::Background => 60,
            Self::Export => 300,
            Self::Maintenance => 4 * 3600,
        })
    }

    /// Limit of the time between two statements of one transaction: a client that stops there releases its locks.
    pub const fn idle_in_transaction_timeout(self) -> Duration {
        match self {
            Self::Interactive | Self::Background => Duration::from_secs(10),
            Self::Export | Self::Maintenance => Duration::from_secs(300),
        }
    }

    pub(crate) fn deadline(self) -> Duration {
        self.statement_timeout() + MARGIN
    }

    /// Whether its owner may be idle for long between statements, so that silence proves little.
    pub(crate) fn may_idle(self) -> bool {
        matches!(self, Self::Export | Self::Maintenance)
    }

    fn application_name(self) -> &'static str {
        match self {
            Self::Interactive => "signalbox",
            Self::Background => "signalbox background",
            Self::Export => "signalbox export",
            Self::Maintenance => "signalbox maintenance",
        }
    }

    pub(crate) fn of(options: &PgConnectOptions) -> Self {
        let name = options.get_application_name();
        Self::ALL
            .into_iter()
            .find(|class| name == Some(class.application_name()))
            .unwrap_or(Self::Interactive)
    }

    pub(crate) fn apply(self, options: PgConnectOptions) -> PgConnectOptions {
        options.application_name(self.application_name()).options(SERVER_KEEPALIVE).options(self.settings())
    }

    /// The same limits for the rest of a transaction.
    pub(crate) fn set_local(self) -> String {
        let settings = self.settings().map(|(name, value)| format!("SET LOCAL {name} = {value}"));
        settings.join("; ")
    }

    fn settings(self) -> [(&'static str, u128); 2] {
        [
            ("statement_timeout", self.statement_timeout().as_millis()),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_timeout().as_millis()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_their_class() {
        for class in Class::ALL {
            assert_eq!(Class::of(&class.apply(PgConnectOptions::new())), class);
        }
    }
}
