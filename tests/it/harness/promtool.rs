//! Debian's promtool, which tests alerting rules by itself.

use std::path::Path;

use tokio::process::Command;

use super::{Folder, prometheus::program};

/// Runs `tests` on `rules`, which they name `rules.yml`; its report when it finds a difference.
pub async fn test_rules(rules: &str, tests: &str) -> Result<(), String> {
    let folder = Folder::new();
    folder.write("rules.yml", rules);
    folder.write("tests.yml", tests);
    test_file(&folder.path("tests.yml")).await
}

/// Whether the rules in `file` are valid; the report when they are not.
pub async fn check_rules(file: &Path) -> Result<(), String> {
    run(&["check", "rules"], file).await
}

/// Runs the tests in `file`, which names its rules; its report when it finds a difference.
pub async fn test_file(file: &Path) -> Result<(), String> {
    run(&["test", "rules"], file).await
}

async fn run(arguments: &[&str], file: &Path) -> Result<(), String> {
    let run = Command::from(program("promtool")).args(arguments).arg(file).output().await;
    let run = run.expect("promtool is installed by tools/bootstrap tests");
    match run.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()),
    }
}
