//! Debian's promtool, which tests alerting rules by itself.

use tokio::process::Command;

use super::{Folder, prometheus::program};

/// Runs `tests` on `rules`, which they name `rules.yml`; its report when it finds a difference.
pub async fn test_rules(rules: &str, tests: &str) -> Result<(), String> {
    let folder = Folder::new();
    folder.write("rules.yml", rules);
    folder.write("tests.yml", tests);
    let mut command = Command::from(program("promtool"));
    let run = command.args(["test", "rules", &folder.text("tests.yml")]).output().await;
    let run = run.expect("promtool is installed by tools/bootstrap tests");
    match run.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()),
    }
}
