//! What a process gives up before it becomes the interpreter that runs a stranger's code.

use std::{collections::BTreeMap, io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Address space, in bytes.
const MEMORY: u64 = 1 << 30;
/// Time on the processor, in seconds.
const CPU: u64 = 10;
/// Open files.
const FILES: u64 = 64;
/// Where libraries lie.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self"];

/// Takes the restrictions. Only `readable` and the system's libraries can be read afterwards; on a kernel without
/// Landlock, reading files stays allowed.
pub(crate) fn restrict(readable: &[PathBuf]) -> io::Result<()> {
    // Without this, a process whose parent was killed would run on for nobody.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, most) in
        [(Resource::As, MEMORY), (Resource::Nofile, FILES), (Resource::Fsize, 0), (Resource::Core, 0)]
    {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // The second limit ends a process that does not heed the first.
    setrlimit(Resource::Cpu, Rlimit { current: Some(CPU), maximum: Some(CPU + 1) })?;
    restrict_files(readable).map_err(io::Error::other)?;
    let filters = [no_clone3(), no_calls()];
    for filter in filters {
        let filter = filter.map_err(io::Error::other)?;
        seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn restrict_files(readable: &[PathBuf]) -> Result<(), RulesetError> {
    let abi = ABI::V1;
    let mut readable: Vec<PathBuf> =
        SYSTEM.iter().map(PathBuf::from).chain(readable.iter().cloned()).collect();
    readable.retain(|path| path.exists());
    let null: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules: RulesetCreated = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(&readable, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(["/dev/null", "/dev/urandom"], null))?;
    rules.restrict_self().map(drop)
}

/// Says that `clone3` does not exist: its flags lie in memory, where a filter cannot look. Libraries then use `clone`.
fn no_clone3() -> Result<BpfProgram, seccompiler::Error> {
    filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

/// Forbids the network, other processes, and changes of files and of the system.
fn no_calls() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    // A thread is a clone that shares its process; anything else is a process.
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
    filter(rules, libc::EPERM)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<BpfProgram, seccompiler::Error> {
    let forbid = SeccompAction::Errno(error as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, forbid, architecture)?.try_into()?)
}

/// `execve` is not among them, because the interpreter is yet to be started; it starts no process, and what it can start
/// lies among what can be read.
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
    libc::SYS_sendmmsg,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_setpriority,
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
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
];
