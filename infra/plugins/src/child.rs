//! The process that becomes the interpreter.

use std::{convert::Infallible, io, os::unix::process::CommandExt, path::PathBuf, process::Command};

use crate::restrict::restrict;

/// Puts the SDK before all else, and describes.
const SCRIPT: &str = "import sys, runpy; sys.path.insert(0, sys.argv[1]); \
    runpy.run_module('signalbox_plugins.describe', run_name='__main__')";

/// Gives up what a stranger's code must not have, and becomes `interpreter`; the question comes over standard input, the
/// answer goes to standard output. Only `readable` and the system's libraries can be read from then on.
///
/// # Errors
/// When a restriction cannot be taken, or the interpreter not be started.
pub fn run(interpreter: PathBuf, sdk: PathBuf, readable: &[PathBuf]) -> io::Result<Infallible> {
    restrict(readable)?;
    // -I: no environment, no folder of a user; -B: no compiled files.
    Err(Command::new(interpreter).args(["-I", "-B", "-c", SCRIPT]).arg(sdk).exec())
}
