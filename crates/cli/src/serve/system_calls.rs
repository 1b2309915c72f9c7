// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that a server does not make after its start: the kernel refuses them (seccomp).
//!
//! Purpose: an attacker who controls the process through a fault in it executes nothing, changes no mount, namespace,
//! user, module or clock, and neither signals, traces nor limits another process; and has fewer parts of the kernel to
//! attack. Sockets stay usable: what other processes do for their clients, they do for this one too.
//!
//! Invariants: it holds for all threads and is never lifted. A refused call fails with EPERM and ends nothing, so that a
//! library that makes one without need continues. New namespaces are refused to `clone`; `clone3` fails as on a kernel
//! without it (ENOSYS), because filters do not see its flags, and the C library then calls `clone`. On x86-64 the same
//! calls are refused under their x32 numbers.
//!
//! Why a list of what is denied, and not of what is allowed: what the C library, the resolver and the allocator call
//! depends on their versions. A call that is missing in such a list would fail first on a path that is seldom used, on
//! the machine of a user. The unit allows a list (`SystemCallFilter=`), where the administrator can extend it.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Refused with EPERM.
const DENIED: &[c_long] = &[
    // Programs and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Mounts, roots, namespaces, device nodes, files by handle.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Users, groups, capabilities, keys.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Code in the kernel, and parts of it that attacks use.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_personality,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    // Newer than the constants: lsm_set_self_attr, open_tree_attr, file_setattr. All processors have these numbers.
    460,
    467,
    469,
];

/// Those of this processor.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// The bit of x32 numbers, and the numbers that only x32 has.
const X32: c_long = 0x4000_0000;
const X32_ONLY: std::ops::RangeInclusive<c_long> = 512..=547;

/// Requests of `ioctl` that type into a terminal or change a console.
const TYPES: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Flags of `clone` for new namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Refuses them to all threads. Returns whether the kernel can, and a filter can be made for this processor.
///
/// # Errors
/// The kernel has seccomp, and rejects the filters.
pub fn deny() -> Result<bool, seccompiler::Error> {
    if TargetArch::try_from(std::env::consts::ARCH).is_err() {
        return Ok(false);
    }
    for filter in filters()? {
        match apply_filter_all_threads(&filter) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(e)) if is_missing(&e) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Whether the kernel was built without seccomp or its filters.
fn is_missing(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

/// The filters. Each has one action.
fn filters() -> Result<[BpfProgram; 2], seccompiler::Error> {
    let mut denied: BTreeMap<c_long, Vec<SeccompRule>> =
        DENIED.iter().chain(DENIED_HERE).map(|call| (*call, Vec::new())).collect();
    if cfg!(target_arch = "x86_64") {
        let natives = denied.keys().copied().chain([libc::SYS_clone, libc::SYS_clone3]);
        let all: Vec<c_long> = natives.chain(X32_ONLY).collect();
        denied.extend(all.into_iter().map(|call| (call | X32, Vec::new())));
    }
    let namespaces = NAMESPACES.into_iter().map(namespace).collect::<Result<_, _>>()?;
    denied.insert(libc::SYS_clone, namespaces);
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        denied.insert(call, vec![rule(0, SeccompCmpOp::Ne, own)?]);
    }
    // 0 is this process.
    denied.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0)?]);
    let types = TYPES.into_iter().map(|request| rule(1, SeccompCmpOp::Eq, request));
    denied.insert(libc::SYS_ioctl, types.collect::<Result<_, _>>()?);
    let unseen = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([filter(denied, libc::EPERM)?, filter(unseen, libc::ENOSYS)?])
}

/// Matches calls by the lower half of one argument.
fn rule(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Matches a `clone` with this flag.
fn namespace(flag: i32) -> Result<SeccompRule, seccompiler::Error> {
    let flag = u64::from(flag.cast_unsigned());
    let (argument, masked) = (0, SeccompCmpOp::MaskedEq(flag));
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, masked, flag)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn filter(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::Error> {
    let action = SeccompAction::Errno(errno.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, action, machine)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};
    use rustix::process::{Resource, getpid, getppid, getrlimit, prlimit, test_kill_process};

    use super::*;

    /// In a thread of its own: the filters of a thread stay.
    #[test]
    fn what_is_denied_fails_and_threads_still_start() {
        let filtered = || {
            filters().unwrap().iter().for_each(|f| seccompiler::apply_filter(f).unwrap());
            assert_eq!(unmount("/nowhere", UnmountFlags::NOFOLLOW), Err(Errno::PERM));
            let executed = Command::new("/bin/true").spawn();
            assert_eq!(executed.unwrap_err().raw_os_error(), Some(libc::EPERM));
            // By `clone`, without namespaces.
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            assert!(std::fs::read("/proc/self/status").is_ok());
            let (own, parent) = (getpid(), getppid().unwrap());
            assert_eq!(test_kill_process(parent), Err(Errno::PERM));
            assert_eq!(test_kill_process(own), Ok(()));
            assert!(prlimit(None, Resource::Nofile, getrlimit(Resource::Nofile)).is_ok());
            let limit = getrlimit(Resource::Nofile);
            assert_eq!(prlimit(Some(parent), Resource::Nofile, limit).err(), Some(Errno::PERM));
        };
        std::thread::spawn(filtered).join().unwrap();
    }

    /// One BPF program has at most 4,096 instructions.
    #[test]
    fn the_filters_fit() {
        assert!(filters().unwrap().iter().all(|f| f.len() <= 4096));
    }
}
