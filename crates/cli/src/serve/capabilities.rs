// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capabilities that a process keeps. A server of root, and one to which its unit gave more, drops all others.
//!
//! Invariants: a thread inherits the capabilities of the thread that starts it, so the process drops them while it has
//! one thread, beside that of the ublk driver's commands, which drops others. A dropped capability is removed from all sets. The bounding set needs CAP_SETPCAP; a process without it
//! relies on `PR_SET_NO_NEW_PRIVS`, with which no program that it executes gains a capability.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// Of a server: files of other users, the group of a control socket, ports below 1024, memory that is locked, and its
/// threads as I/O flushers.
pub const OF_SERVER: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);

/// Of the helper: mounting, at places that its user may not reach.
pub const OF_HELPER: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Of the thread that commands the ublk driver.
pub const OF_CONTROLLER: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Drops all capabilities of this thread except these. If it drops any, programs that it executes inherit none of the
/// ambient set.
///
/// # Errors
/// The kernel or a filter of system calls forbids it.
pub fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    let held = capabilities(None)?;
    if kept.contains(held.permitted | held.inheritable) {
        return Ok(());
    }
    clear_ambient_capability_set()?;
    let permitted = held.permitted & kept;
    let effective = held.effective & kept;
    set_capabilities(
        None,
        CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() },
    )
}

/// Removes all capabilities except these from those that programs can gain which this process executes. Does nothing
/// without the right to do so.
pub fn bound(kept: CapabilitySet) {
    for (_, capability) in (!kept).iter_names() {
        if capability_is_in_bounding_set(capability) == Ok(true) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}
