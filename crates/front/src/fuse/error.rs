// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a file system is not mounted, or stays mounted.

use std::io;

use rustix::io::Errno;

/// What the kernel is asked with.
pub(super) const DEVICE: &str = "/dev/fuse";
/// The program that mounts and unmounts for users.
pub(super) const HELPER: &str = "fusermount3";

/// See the module. Each is one line that follows a path.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// FUSE is not loaded.
    #[error("{DEVICE} is missing; load the module fuse")]
    NoDevice,
    /// The FUSE device cannot be opened.
    #[error("{DEVICE}: {0}")]
    Device(io::Error),
    /// FUSE was not built.
    #[error("this kernel has no FUSE")]
    NoFuse,
    /// The kernel refuses the mount.
    #[error("cannot mount there: {0}")]
    Mount(Errno),
    /// A name of the mount has a zero byte.
    #[error(transparent)]
    Options(#[from] std::ffi::NulError),
    /// Only the helper may mount, and it is not installed.
    #[error("not permitted to mount, and {HELPER} is missing (Debian's package fuse3)")]
    NoHelper,
    /// The helper cannot be run.
    #[error("{HELPER}: {0}")]
    Helper(io::Error),
    /// There is no socket to the helper.
    #[error(transparent)]
    Socket(io::Error),
    /// The helper refuses the mount.
    #[error("not permitted to mount there: {0}")]
    HelperMount(String),
    /// The kernel and the file system do not agree on a protocol.
    #[error("the kernel's greeting failed: {0}")]
    Greeting(io::Error),
    /// A file in a directory cannot have the name.
    #[error("the export's name {0:?} cannot be a file's; use a file")]
    ExportName(String),
    /// The kernel refuses to unmount.
    #[error(transparent)]
    Unmount(Errno),
    /// The helper refuses to unmount.
    #[error("{0}")]
    HelperUnmount(String),
}

impl MountError {
    /// The helper was not started.
    pub(super) fn helper(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoHelper,
            _ => Self::Helper(error),
        }
    }
}
