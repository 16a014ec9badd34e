//! Restricts a process to the rights needed to parse untrusted input: limits its memory, and removes inherited
//! descriptors, the network, other processes, writing files, and reading files other than the system's own.
//!
//! Linux only: rlimits, Landlock, seccomp. [`Confinement::confine`] reports which of the last two hold, and the caller decides
//! whether that is enough.

mod calls;
mod idle;
mod processor_time;

use std::{fs, io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::{Deserialize, Serialize};

use crate::calls::Opening;
pub use crate::{
    idle::run_in_idle_time,
    processor_time::{ProcessorClock, worked_from_now},
};

/// Where libraries lie.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self"];
/// Devices that reveal nothing.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];
/// Open files.
const FILES: u64 = 64;

/// The rights that a process keeps.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// Files and folders that it reads, besides the system's libraries; those that are not there are passed over.
    pub readable: Vec<PathBuf>,
    /// Whether the process will execute another program, which must be readable.
    pub becomes_another: bool,
}

/// The kernel's mechanisms that hold for a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Only listed system calls are possible.
    pub seccomp: bool,
    /// Only listed files can be read, and signals stay inside.
    pub landlock: bool,
}

impl Protection {
    /// All of them.
    pub const FULL: Self = Self { seccomp: true, landlock: true };

    /// The missing mechanisms, in words; none if all hold.
    pub fn missing(self) -> Option<&'static str> {
        match (self.seccomp, self.landlock) {
            (true, true) => None,
            (true, false) => Some("this kernel does not offer Landlock"),
            (false, true) => Some("this kernel does not offer seccomp filters"),
            (false, false) => Some("this kernel offers neither seccomp filters nor Landlock"),
        }
    }
}

/// Closes all descriptors but standard input, output and error: those that the process was started with would stay usable.
/// To be called before the process opens any by itself.
///
/// # Errors
/// The descriptors cannot be listed.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: the call takes numbers alone. No descriptor above 2 has an owner in this process yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed == 0 {
        return Ok(());
    }
    // Before Linux 5.9.
    let open =
        fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in open.collect::<Vec<libc::c_int>>().into_iter().filter(|number| *number > 2) {
        // SAFETY: as above; the folder itself is closed already.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Forbids opening any file from now on, in all threads; for a process that has loaded what it needs and has no Landlock.
///
/// # Errors
/// The kernel refuses the filter.
pub fn forbid_opening() -> io::Result<()> {
    let filter = calls::no_opening().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)
}

impl Confinement {
    /// Takes everything else from this process, permanently. Landlock holds for the calling thread and those that it starts.
    ///
    /// # Errors
    /// The kernel refuses a restriction that it has. Some of them may hold then.
    pub fn confine(self) -> io::Result<Protection> {
        // Without this, a process whose parent was killed would continue to run.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for (resource, most) in [
            (Resource::As, self.memory_bytes),
            (Resource::Nofile, FILES),
            (Resource::Fsize, 0),
            (Resource::Core, 0),
        ] {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        let status = restrict_files(self.readable).map_err(io::Error::other)?;
        let landlock = status.ruleset != RulesetStatus::NotEnforced;
        let opening = match status.landlock {
            _ if !self.becomes_another || !landlock => Opening::Reading,
            LandlockStatus::Available { effective_abi: ABI::V1 | ABI::V2, .. } => Opening::NoTruncation,
            _ => Opening::Any,
        };
        let [first, second] = calls::filters(self.becomes_another, opening).map_err(io::Error::other)?;
        let seccomp = match seccompiler::apply_filter_all_threads(&first) {
            Ok(()) => true,
            Err(seccompiler::Error::Prctl(_) | seccompiler::Error::Seccomp(_)) => false,
            Err(error) => return Err(io::Error::other(error)),
        };
        if seccomp {
            seccompiler::apply_filter_all_threads(&second).map_err(io::Error::other)?;
        }
        Ok(Protection { seccomp, landlock })
    }
}

/// Applies the newest version known here, as far as the kernel supports it.
fn restrict_files(readable: Vec<PathBuf>) -> Result<RestrictionStatus, RulesetError> {
    let abi = ABI::V9;
    let system = SYSTEM.iter().map(PathBuf::from);
    let readable: Vec<_> = system.chain(readable).filter(|path| path.exists()).collect();
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(&readable, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
    rules.restrict_self()
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
        process::{Command, ExitStatus, Output},
        thread,
    };

    use super::*;

    const ADDRESS: &str = "ADDRESS_OF_A_LISTENER";
    const FILE: &str = "PATH_OF_A_FILE";
    const CASE: &str = "CASE";

    /// Restrictions hold for a whole process, so a test starts itself again, with `CASE` set.
    fn again(name: &str, case: &str, variables: &[(&str, &str)]) -> Output {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", &format!("tests::{name}"), "--nocapture"]).env(CASE, case);
        child.envs(variables.iter().copied()).output().unwrap()
    }

    fn passed(output: &Output) {
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("everything was refused"), "{said}{errors}");
    }

    fn confine() -> Protection {
        Confinement { memory_bytes: 1 << 32, readable: Vec::new(), becomes_another: false }.confine().unwrap()
    }

    fn refused(error: io::Error) {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    }

    #[test]
    fn a_confined_process_has_no_network_no_files_and_no_other_processes() {
        if let (Ok(address), Ok(file)) = (env::var(ADDRESS), env::var(FILE)) {
            return inside(&address, &file);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let variables = [(ADDRESS, address.as_str()), (FILE, file.path().to_str().unwrap())];
        let name = "a_confined_process_has_no_network_no_files_and_no_other_processes";
        passed(&again(name, "", &variables));
        // The one from before it was confined.
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    fn inside(address: &str, file: &str) {
        drop(TcpStream::connect(address).unwrap());
        fs::read(file).unwrap();
        confine();
        refused(TcpStream::connect(address).unwrap_err());
        refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        refused(std::os::unix::net::UnixStream::connect("/nowhere").unwrap_err());
        refused(Command::new("/usr/bin/true").spawn().unwrap_err());
        refused(fs::remove_file(file).unwrap_err());
        // On a kernel without Landlock, files may be opened.
        if let Err(error) = fs::read(file) {
            refused(error);
        }
        // Opened for writing by nothing, in whatever mode: not the system's, if its permissions allow it, either.
        for path in [file, "/usr/bin/true", "/dev/null"] {
            refused(fs::OpenOptions::new().write(true).open(path).unwrap_err());
            refused(fs::OpenOptions::new().read(true).write(true).truncate(true).open(path).unwrap_err());
        }
        // As parsers do: threads, some of them with a lower priority.
        thread::spawn(|| rustix::process::nice(5).unwrap()).join().unwrap();
        refused(rustix::process::setpriority_user(rustix::process::getuid(), 19).unwrap_err().into());
        thread::spawn(|| run_in_idle_time(None).unwrap()).join().unwrap();
        // They know how long each of them has worked.
        let clock = thread::spawn(|| ProcessorClock::of_this_thread().unwrap()).join().unwrap();
        assert_ne!(clock, ProcessorClock::of_this_thread().unwrap());
        ProcessorClock::of_this_thread().unwrap().read().unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        refused(run_in_idle_time(Some(parent)).unwrap_err());
        println!("everything was refused");
    }

    /// `tgkill`, which the standard library does not offer.
    fn signal(process: u32, thread: u32, signal: i32) -> io::Result<()> {
        // SAFETY: the call takes numbers alone.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn a_confined_process_signals_itself_alone() {
        let name = "a_confined_process_signals_itself_alone";
        match env::var(CASE).as_deref() {
            Ok("others") => {
                let parent = rustix::process::getppid().unwrap();
                let number = parent.as_raw_nonzero().get() as u32;
                // Signal 0 is not delivered; it tests whether another one could be.
                signal(number, number, 0).unwrap();
                confine();
                refused(signal(number, number, 0).unwrap_err());
                refused(rustix::process::test_kill_process(parent).unwrap_err().into());
                println!("everything was refused");
            }
            Ok("itself") => {
                confine();
                std::process::abort();
            }
            _ => {
                passed(&again(name, "others", &[]));
                let status: ExitStatus = again(name, "itself", &[]).status;
                let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                assert_eq!(signal, Some(libc::SIGABRT));
            }
        }
    }

    #[test]
    fn descriptors_of_the_parent_are_closed() {
        let name = "descriptors_of_the_parent_are_closed";
        if env::var(CASE).as_deref() == Ok("child") {
            let number: i32 = env::var(FILE).unwrap().parse().unwrap();
            let path = format!("/proc/self/fd/{number}");
            assert!(fs::read_link(&path).unwrap().to_str().unwrap().contains("inherited"));
            close_inherited().unwrap();
            assert!(fs::read_link(&path).is_err());
            println!("everything was refused");
            return;
        }
        let file = tempfile::Builder::new().prefix("inherited").tempfile().unwrap();
        // Without close-on-exec, as C libraries open files.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        passed(&again(name, "child", &[(FILE, &file.as_raw_fd().to_string())]));
    }

    /// Makes `call` unknown to this process, as on a kernel that does not have it.
    fn without(call: i64) {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
        let rules = [(call, Vec::new())].into_iter().collect();
        let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
        let arch = env::consts::ARCH.try_into().unwrap();
        let filter: BpfProgram =
            SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap().try_into().unwrap();
        seccompiler::apply_filter_all_threads(&filter).unwrap();
    }

    #[test]
    fn missing_mechanisms_are_reported() {
        let name = "missing_mechanisms_are_reported";
        match env::var(CASE).as_deref() {
            Ok("landlock") => {
                without(libc::SYS_landlock_create_ruleset);
                assert_eq!(confine(), Protection { seccomp: true, landlock: false });
                let read = fs::read("/etc/hostname");
                assert!(!read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied));
                forbid_opening().unwrap();
                refused(fs::read("/etc/hostname").unwrap_err());
                refused(thread::spawn(|| fs::read_dir("/usr").map(drop)).join().unwrap().unwrap_err());
                println!("everything was refused");
            }
            Ok("seccomp") => {
                without(libc::SYS_seccomp);
                assert!(!confine().seccomp);
                println!("everything was refused");
            }
            _ => {
                passed(&again(name, "landlock", &[]));
                passed(&again(name, "seccomp", &[]));
            }
        }
    }
}
