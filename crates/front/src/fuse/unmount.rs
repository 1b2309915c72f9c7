// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unmounting, by the kernel or by `fusermount3` for unprivileged users.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::error::{HELPER, MountError};

/// The type of Larder's mounts in `mount` and `/proc/mounts`.
pub const FS_TYPE: &str = "fuse.larder";

/// Detaches the topmost mount from a path.
///
/// # Errors
/// The kernel or the helper fails to unmount it.
pub fn detach(path: &Path) -> Result<(), MountError> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(path, &["-u", "-z"]),
        Err(e) => Err(MountError::Unmount(e)),
    }
}

/// Unmounts a path with the helper.
pub(super) fn by_helper(path: &Path, flags: &[&str]) -> Result<(), MountError> {
    let mut command = Command::new(HELPER);
    let command = command.args(flags).arg("--").arg(path).stdin(Stdio::null());
    let ended = command.output().map_err(MountError::helper)?;
    if ended.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&ended.stderr);
    Err(MountError::HelperUnmount(words.lines().next().unwrap_or(HELPER).to_owned()))
}
