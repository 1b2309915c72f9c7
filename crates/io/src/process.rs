// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a serving process requests from the kernel for itself (design rule 11).
//!
//! The kernel may write dirty pages to a block device in userspace in order to free memory. The process must then not
//! wait for memory to be freed: it is marked as an I/O flusher, and its touched memory is locked. Both need privileges,
//! and matter only where the volume is mounted on the same machine; without them the process serves nevertheless.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Protects the write path as far as privileges allow, and logs what they do not allow.
pub fn guard_write_path() {
    let unlimited = Rlimit { current: None, maximum: None };
    let limit = getrlimit(Resource::Memlock);
    // Under a limit a later allocation would fail instead of being swapped, so memory is not locked.
    if limit.current.is_some() && setrlimit(Resource::Memlock, unlimited).is_err() {
        tracing::debug!("memory is not locked: RLIMIT_MEMLOCK cannot be raised");
    } else if let Err(e) =
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
    {
        tracing::debug!("memory is not locked: {e}");
    }
}

/// Memory available without swapping, in bytes, if the system reports it.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Marks the calling thread as one that block devices need for progress: it does not wait for its own device when
/// memory is short. Each worker calls this for itself.
pub fn mark_io_thread() {
    if let Err(e) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("not marked as an I/O thread: {e}");
    }
}
