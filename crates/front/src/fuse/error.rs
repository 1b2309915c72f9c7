// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of mounting and unmounting.

use std::io;

use rustix::io::Errno;

/// The device that connects a FUSE server to the kernel.
pub(super) const DEVICE: &str = "/dev/fuse";
/// The program that mounts and unmounts for unprivileged users.
pub(super) const HELPER: &str = "fusermount3";

/// An error of a mount. Each message is one line that callers print after the path.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The FUSE module is not loaded.
    #[error("{DEVICE} is missing; load the module fuse")]
    NoDevice,
    /// The FUSE device cannot be opened.
    #[error("{DEVICE}: {0}")]
    Device(io::Error),
    /// The kernel was built without FUSE.
    #[error("this kernel has no FUSE")]
    NoFuse,
    /// The kernel refuses the mount.
    #[error("the mount failed: {0}")]
    Mount(Errno),
    /// A mount option contains a zero byte.
    #[error(transparent)]
    Options(#[from] std::ffi::NulError),
    /// Only the helper may mount, and it is not installed.
    #[error("not permitted to mount, and {HELPER} is missing (Debian's package fuse3)")]
    NoHelper,
    /// The helper cannot be run.
    #[error("{HELPER}: {0}")]
    Helper(io::Error),
    /// The socket to the helper cannot be created.
    #[error(transparent)]
    Socket(io::Error),
    /// The helper refuses the mount.
    #[error("not permitted to mount there: {0}")]
    HelperMount(String),
    /// The kernel and the server do not agree on a FUSE protocol version.
    #[error("the FUSE handshake with the kernel failed: {0}")]
    Handshake(io::Error),
    /// The export name is not a valid file name.
    #[error("the export name {0:?} cannot be a file name; accepted: a file as PATH")]
    ExportName(String),
    /// The kernel refuses to unmount.
    #[error(transparent)]
    Unmount(Errno),
    /// The helper refuses to unmount.
    #[error("{0}")]
    HelperUnmount(String),
    /// Another process was asked to unmount, and failed.
    #[error("{0}")]
    Asked(String),
}

impl MountError {
    /// The error of a helper that cannot be started.
    pub(super) fn helper(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoHelper,
            _ => Self::Helper(error),
        }
    }
}
