//! `signalbox` as a process of its own, on a test's servers.

use std::process::Output;

use signalbox_config::{Config, Storage};
use tokio::process::Command;

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub errors: String,
    pub code: Option<i32>,
}

/// Runs `signalbox` with these arguments on the servers of `config`.
pub async fn signalbox(config: &Config, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    command
        .args(arguments)
        .env_remove("SIGNALBOX_CONFIG")
        .env("DATABASE_URL", config.database.url.expose())
        .env("NATS_URL", config.nats.url.expose())
        .envs(storage_variables(&config.storage))
        .env("SIGNALBOX_DATABASE__REPLICA_URL", config.database.replica_url.expose())
        .env("SIGNALBOX_NATS__REPLICAS", config.nats.replicas.to_string())
        .kill_on_drop(true);
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { out: text(stdout), errors: text(stderr), code: status.code() }
}

/// What tells another process where files are.
pub fn storage_variables(storage: &Storage) -> [(&'static str, String); 6] {
    [
        ("SIGNALBOX_STORAGE__FOLDER", storage.folder.to_str().unwrap().to_owned()),
        ("SIGNALBOX_STORAGE__URL", storage.url.clone()),
        ("SIGNALBOX_STORAGE__ENDPOINT", storage.endpoint.clone()),
        ("SIGNALBOX_STORAGE__ACCESS_KEY_ID", storage.access_key_id.clone()),
        ("SIGNALBOX_STORAGE__SECRET_ACCESS_KEY", storage.secret_access_key.expose().to_owned()),
        ("SIGNALBOX_STORAGE__SEGMENT_MB", storage.segment_mb.to_string()),
    ]
}

impl Said {
    /// What was printed; fails the test unless all went well.
    #[track_caller]
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The lines that were printed, as JSON; fails the test unless all went well.
    #[track_caller]
    pub fn json_lines(self) -> Vec<serde_json::Value> {
        self.well().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
