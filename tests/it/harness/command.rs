//! `signalbox` as a process of its own, on a test's servers.

use std::process::Output;

use signalbox_config::Config;

use super::program;

/// The output and exit status of a command.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub errors: String,
    pub code: Option<i32>,
}

/// Runs `signalbox` with these arguments on the servers of `config`.
pub async fn signalbox(config: &Config, arguments: &[&str]) -> Said {
    let Output { status, stdout, stderr } = program(config).args(arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { out: text(stdout), errors: text(stderr), code: status.code() }
}

impl Said {
    /// The printed output; fails the test unless the command succeeded.
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
