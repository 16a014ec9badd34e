//! The rights that a parsing process drops before it sees a document.

use std::{io, path::PathBuf};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use signalbox_confinement::{Confinement, Protection};

use crate::{engines::Places, reader::Limits};

/// Where fonts are described.
const FONTS: &str = "/etc/fonts";

/// Takes the restrictions, and reports which the kernel has.
pub(super) fn restrict(places: &Places, limits: Limits) -> io::Result<Protection> {
    let engines = [&places.pdfium, &places.tessdata].into_iter().flatten().cloned();
    let readable = engines.chain([PathBuf::from(FONTS)]).collect();
    Confinement { memory_bytes: limits.memory_bytes, readable, becomes_another: false }.confine()
}

/// Allows `seconds` more on the processor. The kernel ends the process after that.
pub(super) fn allow_cpu(seconds: u64) -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec;
    let current = u64::try_from(used).unwrap_or(0) + seconds + 1;
    let maximum = getrlimit(Resource::Cpu).maximum;
    setrlimit(Resource::Cpu, Rlimit { current: Some(current), maximum })?;
    Ok(())
}
