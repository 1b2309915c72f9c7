// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes mounts away: by the kernel, or by `fusermount3` for whoever may not.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// The type that our mounts have in `mount` and `/proc/mounts`.
pub const FS_TYPE: &str = "fuse.larder";
/// The program that mounts and unmounts for users.
pub(super) const HELPER: &str = "fusermount3";

/// Takes whatever is mounted at a path away from it.
///
/// # Errors
/// When the kernel does not want to.
pub fn detach(path: &Path) -> Result<(), String> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(path, &["-u", "-z"]),
        Err(e) => Err(e.to_string()),
    }
}

/// Has the helper unmount what is at a path.
pub(super) fn by_helper(path: &Path, flags: &[&str]) -> Result<(), String> {
    let mut command = Command::new(HELPER);
    let command = command.args(flags).arg("--").arg(path).stdin(Stdio::null());
    let ended = command.output().map_err(missing_helper)?;
    if ended.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&ended.stderr).lines().next().unwrap_or(HELPER).to_owned())
}

/// What to tell of a helper that cannot be started.
pub(super) fn missing_helper(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("not permitted to mount, and {HELPER} is missing (Debian's package fuse3)")
        }
        _ => format!("{HELPER}: {error}"),
    }
}
