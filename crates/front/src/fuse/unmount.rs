// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes mounts away: by the kernel, or by `fusermount3` for whoever may not.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::error::{HELPER, MountError};

/// The type that our mounts have in `mount` and `/proc/mounts`.
pub const FS_TYPE: &str = "fuse.larder";

/// Takes whatever is mounted at a path away from it.
///
/// # Errors
/// When the kernel does not want to.
pub fn detach(path: &Path) -> Result<(), MountError> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(path, &["-u", "-z"]),
        Err(e) => Err(MountError::Unmount(e)),
    }
}

/// Has the helper unmount what is at a path.
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
