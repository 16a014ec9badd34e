//! The system calls that a confined process may make. All others fail with `EPERM`.
//!
//! The list was made by recording what the parsers (PDFium, Tesseract, ours) and Python's discovery of plugins call, on glibc, and
//! by adding what other versions of glibc use for the same functions, on x86-64 and aarch64.

use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Which files may be opened, as far as flags decide. Landlock decides by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// For reading.
    Reading,
    /// In any mode that does not truncate: before its ABI 3, Landlock allows truncation.
    NoTruncation,
    /// In any mode.
    Any,
}

/// The filters, to be applied one after the other.
pub(crate) fn filters(becomes_another: bool, opening: Opening) -> Result<[BpfProgram; 2], Error> {
    Ok([absent()?, allowed(becomes_another, opening)?])
}

/// Forbids opening any more files.
pub(crate) fn no_opening() -> Result<BpfProgram, Error> {
    let rules = OPENING.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, ARCH.try_into()?)?.try_into()?)
}

/// Answers that a call does not exist, so that libraries use an older one: the flags of `clone3` and `openat2` are in
/// memory, which a filter cannot read.
fn absent() -> Result<BpfProgram, Error> {
    let rules = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, ARCH.try_into()?)?.try_into()?)
}

fn allowed(becomes_another: bool, opening: Opening) -> Result<BpfProgram, Error> {
    let mut rules: Rules = ALLOWED.iter().chain(ABSENT).map(|call| (*call, Vec::new())).collect();
    if becomes_another {
        rules.insert(libc::SYS_execve, Vec::new());
    }
    let forbidden = match opening {
        Opening::Reading => libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC,
        Opening::NoTruncation => libc::O_TRUNC,
        Opening::Any => 0,
    };
    rules.insert(libc::SYS_openat, vec![masked(2, forbidden as u64, 0)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![masked(1, forbidden as u64, 0)?]);
    // A clone that shares its process is a thread; others are processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    // `abort` signals its own thread.
    rules.insert(libc::SYS_tgkill, vec![equal(0, u64::from(std::process::id()))?]);
    // Limits and priority of this process and its threads.
    rules.insert(libc::SYS_prlimit64, vec![equal(0, 0)?]);
    let own_priority =
        vec![condition(0, SeccompCmpOp::Eq, libc::PRIO_PROCESS.into())?, condition(1, SeccompCmpOp::Eq, 0)?];
    rules.insert(libc::SYS_setpriority, vec![SeccompRule::new(own_priority)?]);
    let idle =
        vec![condition(0, SeccompCmpOp::Eq, 0)?, condition(1, SeccompCmpOp::Eq, libc::SCHED_IDLE as u64)?];
    rules.insert(libc::SYS_sched_setscheduler, vec![SeccompRule::new(idle)?]);
    // Not F_SETOWN, which has signals sent to another process.
    rules.insert(libc::SYS_fcntl, any_of(1, FCNTL)?);
    // Whether a descriptor is a terminal, how much can be read from it, and its close-on-exec flag.
    rules.insert(libc::SYS_ioctl, any_of(1, IOCTL)?);
    rules.insert(libc::SYS_prctl, any_of(0, PRCTL)?);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    Ok(SeccompFilter::new(rules, refuse, SeccompAction::Allow, ARCH.try_into()?)?.try_into()?)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    let length = match operator {
        SeccompCmpOp::MaskedEq(_) => SeccompCmpArgLen::Qword,
        _ => SeccompCmpArgLen::Dword,
    };
    Ok(SeccompCondition::new(argument, length, operator, value)?)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(mask), value)?])?)
}

fn equal(argument: u8, value: u64) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])?)
}

fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Error> {
    values.iter().map(|value| equal(argument, *value)).collect()
}

const FCNTL: &[u64] = &[
    libc::F_DUPFD as u64,
    libc::F_DUPFD_CLOEXEC as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
];

/// TCGETS, FIONREAD, FIOCLEX and FIONCLEX; they are the same on both architectures.
const IOCTL: &[u64] = &[0x5401, 0x541b, 0x5451, 0x5450];

const PRCTL: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_SET_VMA as u64,
    // For the filter that forbids opening.
    libc::PR_SET_NO_NEW_PRIVS as u64,
];

/// Newer calls than the first kernels with Landlock have, and those whose arguments cannot be filtered.
const ABSENT: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2, libc::SYS_futex_waitv, libc::SYS_mseal];

/// Every way to open a file or a folder.
const OPENING: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
];

const ALLOWED: &[i64] = &[
    // Descriptors that are there.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_fadvise64,
    // Listing of files and folders.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // Threads and signals of this process.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    // Time, random numbers, and the process's own ids.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    // It can only restrict further.
    libc::SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getrlimit,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
];
