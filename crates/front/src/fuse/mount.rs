// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounting, by the kernel or by `fusermount3` for unprivileged users.
//!
//! Invariant: [`Mount`] unmounts only the file system that was mounted here: its device number must be that of the
//! topmost mount at the path.
//!
//! Why not the mount code of the `fuser` crate: it unmounts by path alone, including file systems that others mounted
//! there since; it tries once; and its errors state no cause.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::descriptor;
use super::error::{DEVICE, HELPER, MountError};
use super::mounts;
use super::place::Place;
use super::unmount::{FS_TYPE, by_helper, detach};

/// The subtype that fusermount3 sets.
const SUBTYPE: &str = "larder";
/// The longest read and write.
pub const MOST_REQUEST: u32 = 1 << 20;
/// Mount option: other users may access the file system.
const ALL: &str = ",allow_other";

/// What the users of a mount may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Users other than that of this process have access.
    pub all: bool,
    /// Nothing can be changed.
    pub read_only: bool,
}

/// A mount made by this process.
pub struct Mount {
    path: PathBuf,
    /// The device number of the file system; `None` if it could not be determined.
    device: Option<String>,
}

/// Mounts at `place`. The returned descriptor receives the kernel's requests.
///
/// # Errors
/// The FUSE device or the helper is missing, or one of them refuses the mount.
pub fn mount(place: &Place, source: &str, terms: Terms) -> Result<(OwnedFd, Mount), MountError> {
    let fd = match mount_directly(place, source, terms)? {
        Some(fd) => fd,
        None => mount_by_helper(place, source, terms)?,
    };
    let device = mounts::top(&place.path).map(|mounted| mounted.device);
    Ok((fd, Mount { path: place.path.clone(), device }))
}

/// None: this process may not.
fn mount_directly(
    place: &Place,
    source: &str,
    terms: Terms,
) -> Result<Option<OwnedFd>, MountError> {
    let device = match File::options().read(true).write(true).open(DEVICE) {
        Ok(device) => device,
        Err(e) => match e.kind() {
            io::ErrorKind::NotFound => return Err(MountError::NoDevice),
            io::ErrorKind::PermissionDenied => return Ok(None),
            _ => return Err(MountError::Device(e)),
        },
    };
    let options = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions{},max_read={MOST_REQUEST}",
        device.as_raw_fd(),
        place.mode,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if terms.all { ALL } else { "" },
    );
    let options = std::ffi::CString::new(options)?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, terms.read_only);
    match rustix::mount::mount(source, &place.path, FS_TYPE, flags, options.as_c_str()) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoFuse),
        Err(e) => Err(MountError::Mount(e)),
    }
}

/// Mounts with the helper, which returns the descriptor over a socket, here its stdin.
fn mount_by_helper(place: &Place, source: &str, terms: Terms) -> Result<OwnedFd, MountError> {
    let sockets = UnixStream::pair().map_err(MountError::Socket)?;
    let (ours, its) = (sockets.0, OwnedFd::from(sockets.1));
    let options = format!(
        "fsname={source},subtype={SUBTYPE},nosuid,nodev,default_permissions{}{},max_read={MOST_REQUEST}",
        if terms.all { ALL } else { "" },
        if terms.read_only { ",ro" } else { "" },
    );
    let mut command = Command::new(HELPER);
    command.args(["-o", &options, "--"]).arg(&place.path).env("_FUSE_COMMFD", "0");
    let command = command.stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(MountError::helper)?;
    // The command still holds the helper's end of the socket.
    let _ = command.stdin(Stdio::null());
    // Without a descriptor the helper has failed, and states why.
    let fd = descriptor::receive(&ours, &mut [0]).ok().and_then(|(_, fd)| fd);
    let ended = child.wait_with_output().map_err(MountError::Helper)?;
    fd.ok_or_else(|| {
        let words = String::from_utf8_lossy(&ended.stderr);
        let line = words.lines().next().unwrap_or("the helper sent no descriptor");
        MountError::HelperMount(line.to_owned())
    })
}

/// The result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The file system is unmounted, now or earlier.
    Done,
    /// The file system is in use.
    Busy,
}

impl Mount {
    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the topmost mount at its path.
    fn is_on_top(&self) -> bool {
        let top = mounts::top(&self.path);
        top.is_some_and(|top| top.kind == FS_TYPE && Some(top.device) == self.device)
    }

    /// Unmounts, unless the file system is in use.
    pub fn unmount(&self) -> Unmounted {
        if !self.is_on_top() {
            return Unmounted::Done;
        }
        let done = match rustix::mount::unmount(&self.path, UnmountFlags::NOFOLLOW) {
            Ok(()) => true,
            Err(Errno::PERM) => by_helper(&self.path, &["-u", "-q"]).is_ok(),
            Err(_) => false,
        };
        if done { Unmounted::Done } else { Unmounted::Busy }
    }

    /// Detaches the mount from its path; users continue until the descriptor is closed.
    ///
    /// # Errors
    /// The kernel or the helper fails to unmount it.
    pub fn detach(&self) -> Result<(), MountError> {
        if self.is_on_top() { detach(&self.path) } else { Ok(()) }
    }
}
