//! What a parsing process gives up before it sees a document: memory and time without limit, the network, new processes,
//! writing files, and reading files other than the system's own.

use std::{collections::BTreeMap, io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use rustix::{
    process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit},
    time::{ClockId, clock_gettime},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::{engines::Places, reader::Limits};

/// Where libraries, fonts and language data lie.
const SYSTEM: [&str; 7] =
    ["/usr", "/lib", "/lib64", "/etc/fonts", "/etc/ld.so.cache", "/proc/self", "/dev/null"];
/// Open files of a child.
const FILES: u64 = 64;

/// Takes the restrictions that hold for all documents. On a kernel without Landlock, reading files stays allowed.
pub(super) fn restrict(places: &Places, limits: Limits) -> io::Result<()> {
    // Without this, a child whose parent was killed would finish its document for nobody.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set(Resource::As, limits.memory_bytes)?;
    set(Resource::Nofile, FILES)?;
    set(Resource::Fsize, 0)?;
    set(Resource::Core, 0)?;
    restrict_files(places)?;
    let program = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(io::Error::other)
}

/// Allows `seconds` more on the processor. The kernel ends the process after that.
pub(super) fn allow_cpu(seconds: u64) -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec;
    let current = u64::try_from(used).unwrap_or(0) + seconds + 1;
    let maximum = getrlimit(Resource::Cpu).maximum;
    setrlimit(Resource::Cpu, Rlimit { current: Some(current), maximum })?;
    Ok(())
}

fn set(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

fn restrict_files(places: &Places) -> io::Result<()> {
    let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    readable.extend(places.pdfium.clone());
    readable.extend(places.tessdata.clone());
    readable.retain(|path| path.exists());
    let abi = ABI::V1;
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(&readable, AccessFs::from_read(abi))))
        .and_then(|rules| rules.restrict_self());
    restricted.map(drop).map_err(io::Error::other)
}

/// Forbids, with `EPERM`, what a parser has no need for.
fn filter() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    // A thread is a clone that shares memory; anything else is a process.
    let shares_nothing = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64),
        0,
    )?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![shares_nothing])?]);
    // Limits of another process.
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![other])?]);
    let forbid = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, forbid, architecture)?;
    Ok(filter.try_into()?)
}

/// System calls for the network, for other processes, and for changing the system.
const FORBIDDEN: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_reboot,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

#[cfg(test)]
mod tests {
    use std::{
        env, fs,
        net::{TcpListener, TcpStream},
        process::Command,
    };

    use super::*;

    const ADDRESS: &str = "ADDRESS_OF_A_LISTENER";
    const FILE: &str = "PATH_OF_A_FILE";

    /// What is taken is taken from a whole process, so this test starts itself again.
    #[test]
    fn a_child_has_no_network_no_files_and_no_other_processes() {
        if let (Ok(address), Ok(file)) = (env::var(ADDRESS), env::var(FILE)) {
            return inside(&address, &file);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args([
            "--exact",
            "sandbox::restrict::tests::a_child_has_no_network_no_files_and_no_other_processes",
        ]);
        child.env(ADDRESS, listener.local_addr().unwrap().to_string()).env(FILE, file.path());
        let output = child.arg("--nocapture").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("everything was refused"), "{said}");
        // The one from before it was restricted.
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    fn inside(address: &str, file: &str) {
        drop(TcpStream::connect(address).unwrap());
        fs::read(file).unwrap();
        let limits = Limits {
            memory_bytes: 1 << 32,
            cpu_seconds: 10,
            wall_seconds: 10,
            max_pages: 1,
            max_pixels: 1,
            threads: 1,
        };
        restrict(&Places::default(), limits).unwrap();
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        refused(TcpStream::connect(address).unwrap_err());
        refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        refused(std::os::unix::net::UnixStream::connect("/nowhere").unwrap_err());
        refused(Command::new("/usr/bin/true").spawn().unwrap_err());
        refused(fs::remove_file(file).unwrap_err());
        // On a kernel without Landlock, files may be opened.
        if let Err(error) = fs::read(file) {
            refused(error);
            refused(fs::write(file, b"x").unwrap_err());
        }
        println!("everything was refused");
    }
}
