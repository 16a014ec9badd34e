//! The process that becomes the interpreter.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use serde_json::json;

use crate::restrict::restrict;

/// Puts the SDK before all else, and describes.
const SCRIPT: &str = "import sys, runpy; sys.path.insert(0, sys.argv[1]); \
    runpy.run_module('signalbox_plugins.describe', run_name='__main__')";

/// Drops all rights that untrusted code must not have, and becomes `interpreter`; the request is read from standard
/// input, the answer is written to standard output. From then on only `readable` and the system's libraries can be
/// read. If the kernel lacks a restriction, the answer reports that instead, unless `allow_unconfined`.
///
/// # Errors
/// When a restriction cannot be taken, or the interpreter not be started.
pub fn run(
    interpreter: PathBuf,
    sdk: PathBuf,
    readable: &[PathBuf],
    allow_unconfined: bool,
) -> io::Result<()> {
    signalbox_confinement::close_inherited()?;
    if let Some(missing) = restrict(readable)?.missing().filter(|_| !allow_unconfined) {
        return io::stdout().write_all(json!({ "unconfined": missing }).to_string().as_bytes());
    }
    // -I: no environment, no folder of a user; -B: no compiled files.
    Err(Command::new(interpreter).args(["-I", "-B", "-c", SCRIPT]).arg(sdk).exec())
}
