//! System calls that are refused.

use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The filters, to be applied one after the other.
pub(crate) fn filters(becomes_another: bool) -> Result<[BpfProgram; 2], Error> {
    Ok([no_clone3()?, no_calls(becomes_another)?])
}

/// Says that `clone3` does not exist: its flags lie in memory, where a filter cannot look. Libraries then use `clone`.
fn no_clone3() -> Result<BpfProgram, Error> {
    filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn no_calls(becomes_another: bool) -> Result<BpfProgram, Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    if !becomes_another {
        rules.insert(libc::SYS_execve, Vec::new());
    }
    // A thread is a clone that shares its process; anything else is a process.
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64), 0)?]);
    // Limits and priority of others.
    rules.insert(libc::SYS_prlimit64, vec![when(0, SeccompCmpOp::Ne, 0)?]);
    let of_others = [when(0, SeccompCmpOp::Ne, libc::PRIO_PROCESS.into())?, when(1, SeccompCmpOp::Ne, 0)?];
    rules.insert(libc::SYS_setpriority, of_others.into());
    filter(rules, libc::EPERM)
}

/// Matches calls whose argument `number` compares so to `value`.
fn when(number: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    let length = match operator {
        SeccompCmpOp::MaskedEq(_) => SeccompCmpArgLen::Qword,
        _ => SeccompCmpArgLen::Dword,
    };
    Ok(SeccompRule::new(vec![SeccompCondition::new(number, length, operator, value)?])?)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<BpfProgram, Error> {
    let forbid = SeccompAction::Errno(error as u32);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, forbid, ARCH.try_into()?)?.try_into()?)
}

/// For the network, for other processes, and for changing files and the system.
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
    libc::SYS_recvmsg,
    libc::SYS_execveat,
    libc::SYS_recvfrom,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
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
