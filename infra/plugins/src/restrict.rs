//! The rights that a process drops before it becomes the interpreter that runs untrusted code.

use std::{io, path::PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use signalbox_confinement::{Confinement, Protection};

/// Address space, in bytes.
const MEMORY: u64 = 1 << 30;
/// Time on the processor, in seconds.
const CPU: u64 = 10;

/// Takes the restrictions, and reports which the kernel has. Only `readable` and the system's libraries can be read afterwards.
pub(crate) fn restrict(readable: &[PathBuf]) -> io::Result<Protection> {
    // The second limit kills a process that ignores the first.
    setrlimit(Resource::Cpu, Rlimit { current: Some(CPU), maximum: Some(CPU + 1) })?;
    Confinement { memory_bytes: MEMORY, readable: readable.to_vec(), becomes_another: true }.confine()
}
