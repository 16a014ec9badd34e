//! `signalbox doctor` reports each problem with its remedy.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::World;

fn doctor(database: &str, bus: &str, folder: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    command.arg("doctor").args(arguments).env_remove("SIGNALBOX_CONFIG");
    command.env("DATABASE_URL", database).env("NATS_URL", bus).env("SIGNALBOX_STORAGE__FOLDER", folder);
    command.output().unwrap()
}

/// Verdict and text of the report's line about `check`.
fn finding(report: &Value, check: &str) -> (String, String) {
    let line = report.as_array().unwrap().iter().find(|finding| finding["check"] == check);
    let line = line.unwrap_or_else(|| panic!("{check} is not in {report}"));
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("found") + " " + &text("mend"))
}

#[tokio::test]
async fn a_sound_installation_is_found_sound_but_for_what_the_tests_switch_off() {
    let world = World::with_own_bus(|_| {}).await;
    let folder = TempDir::new().unwrap();
    let (database, bus) = (world.config.database.url.expose(), world.config.nats.url.expose());
    let output = doctor(database, bus, folder.path().to_str().unwrap(), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for check in ["database", "clock", "schema", "read models", "bus", "storage"] {
        assert_eq!(finding(&report, check).0, "ok", "{report}");
    }
    let (verdict, text) = finding(&report, "durability");
    assert_eq!((verdict.as_str(), output.status.code()), ("failure", Some(1)));
    assert!(text.contains("fsync") && text.contains("set fsync = on"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing");
    world.finish().await;
}

#[test]
fn what_cannot_be_reached_is_said_and_the_rest_is_looked_at_all_the_same() {
    let output = doctor("postgres://a:secret@127.0.0.1:1/b", "nats://127.0.0.1:1", "/nowhere", &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "FAILURE  database     PostgreSQL cannot be reached",
        "FAILURE  bus",
        "FAILURE  storage      /nowhere cannot be written",
        "documents",
        "plugins",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}
