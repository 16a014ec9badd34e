//! Untrusted input on kernels that lack a mechanism to confine its parsers, and how parsers are replaced.

use std::{fs, process::Command};

use serde_json::Value;
use signalbox_test_support::write_program;

use super::{
    documents::{EXTRACT, sample, send},
    plugins::WEATHER,
};
use crate::harness::{Answer, Wheel, World, eventually, seconds};

/// The system calls by which a process is confined; numbers are those of x86-64 and aarch64.
const LANDLOCK: &str = "444";
const SECCOMP: &str = "317 if platform.machine() == 'x86_64' else 277";

/// A program that becomes `signalbox` on a kernel that does not know `call`.
fn kernel_without(call: &str) -> String {
    let program = env!("CARGO_BIN_EXE_signalbox");
    format!(
        "#!/usr/bin/env -S python3 -I
import ctypes, os, platform, struct, sys
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
def step(code, yes, no, value):
    return struct.pack('HBBI', code, yes, no, value)
# Load the number; if it is the call's, answer ENOSYS; allow all others.
steps = step(0x20, 0, 0, 0) + step(0x15, 0, 1, {call}) + step(0x06, 0, 0, 0x00050000 | 38) + step(0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(steps, len(steps))
program = Program(len(steps) // 8, ctypes.cast(buffer, ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execv('{program}', ['{program}'] + sys.argv[1:])
"
    )
}

/// A service whose parsers and plugins run as `program`.
async fn world(program: &str, allow_unconfined: bool) -> World {
    World::with(|config| {
        config.extraction.parsers = 1;
        config.limits.anonymous_extractions_per_minute = 1000;
        config.sandbox.allow_unconfined = allow_unconfined;
        write_program(&config.storage.folder.join("program"), program);
    })
    .await
}

async fn upload(world: &World) -> Answer {
    Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).upload(&world.admin).await
}

fn detail(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    body["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_landlock_documents_are_read_and_plugins_refused() {
    let world = world(&kernel_without(LANDLOCK), false).await;
    for name in ["scan.pdf", "scan.png", "report.pdf", "letter.docx"] {
        let read = send(&world.anonymous(), EXTRACT, name, &sample(name)).await.expect(200);
        assert!(read["content"].as_str().unwrap().len() > 20, "{name}: {read}");
    }
    let refused = upload(&world).await;
    assert!(refused.status == 503 && detail(&refused).contains("Landlock"), "{}", refused.text());
    world.finish().await;
}

#[tokio::test]
async fn without_seccomp_strangers_and_plugins_are_refused() {
    let world = world(&kernel_without(SECCOMP), false).await;
    let document = sample("letter.docx");
    for path in [EXTRACT, "/api/v1/jobs"] {
        let refused = send(&world.anonymous(), path, "letter.docx", &document).await;
        assert!(refused.status == 503 && detail(&refused).contains("seccomp"), "{}", refused.text());
    }
    send(&world.admin, EXTRACT, "letter.docx", &document).await.expect(200);
    let refused = upload(&world).await;
    assert!(refused.status == 503 && detail(&refused).contains("seccomp"), "{}", refused.text());
    world.finish().await;
}

#[tokio::test]
async fn unconfined_parsers_can_be_allowed() {
    let world = world(&kernel_without(SECCOMP), true).await;
    send(&world.anonymous(), EXTRACT, "letter.docx", &sample("letter.docx")).await.expect(200);
    upload(&world).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn every_document_has_a_process_of_its_own() {
    let program = env!("CARGO_BIN_EXE_signalbox");
    let world = world(&format!("#!/bin/sh\necho $$ >> $0.started\nexec {program} \"$@\"\n"), false).await;
    for _ in 0..3 {
        // Another owner's text is not remembered for this one.
        let text = format!("text {}", world.clock.new_id());
        send(&world.admin, EXTRACT, "note.txt", text.as_bytes()).await.expect(200);
    }
    // One for each, and the one that waits for the next.
    let started = world.config.storage.folder.join("program.started");
    eventually(seconds(20), async || fs::read_to_string(&started).unwrap().lines().count() >= 4).await;
    world.finish().await;
}

#[test]
fn the_doctor_fails_on_a_kernel_that_cannot_confine() {
    let folder = tempfile::TempDir::new().unwrap();
    for (call, missing) in [(LANDLOCK, "Landlock"), (SECCOMP, "seccomp")] {
        write_program(&folder.path().join("program"), &kernel_without(call));
        let mut command = Command::new(folder.path().join("program"));
        command.args(["doctor", "--json"]).env_remove("SIGNALBOX_CONFIG");
        command.env("DATABASE_URL", "postgres://a@127.0.0.1:1/b").env("NATS_URL", "nats://127.0.0.1:1");
        command.env("SIGNALBOX_STORAGE__FOLDER", folder.path());
        let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let finding =
            report.as_array().unwrap().iter().find(|finding| finding["check"] == "sandbox").unwrap();
        assert_eq!(finding["verdict"], "failure", "{finding}");
        assert!(finding["found"].as_str().unwrap().contains(missing), "{finding}");
    }
}
