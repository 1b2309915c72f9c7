// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts: by the kernel, or by `fusermount3` for whoever may not.
//!
//! Invariants: only the file system that was mounted here is unmounted by [`Mount`]: its device
//! number must be that of the topmost mount at the path.
//!
//! Why not the mount code of the `fuser` crate: it unmounts by path alone, also what others have
//! mounted there since, tries once, and its errors name no cause.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::{DEVICE, HELPER, MountError};
use super::mounts;
use super::place::Place;
use super::unmount::{FS_TYPE, by_helper, detach};

/// The subtype of it, as fusermount3 wants it.
const SUBTYPE: &str = "larder";
/// The longest read and write.
pub const MOST_REQUEST: u32 = 1 << 20;
/// Lets other users in.
const ALL: &str = ",allow_other";

/// A mount of ours.
pub struct Mount {
    path: PathBuf,
    /// Of the file system; nothing where it could not be found out.
    device: Option<String>,
}

/// Mounts at a place, for this user or for all; what the kernel asks comes through the descriptor.
///
/// # Errors
/// What is missing, or who refuses.
pub fn mount(place: &Place, source: &str, all: bool) -> Result<(OwnedFd, Mount), MountError> {
    let fd = match mount_directly(place, source, all)? {
        Some(fd) => fd,
        None => mount_by_helper(place, source, all)?,
    };
    let device = mounts::top(&place.path).map(|mounted| mounted.device);
    Ok((fd, Mount { path: place.path.clone(), device }))
}

/// None: this process may not.
fn mount_directly(place: &Place, source: &str, all: bool) -> Result<Option<OwnedFd>, MountError> {
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
        if all { ALL } else { "" },
    );
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match rustix::mount::mount(source, &place.path, FS_TYPE, flags, options.as_c_str()) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoFuse),
        Err(e) => Err(MountError::Mount(e)),
    }
}

/// The helper mounts for users and sends the descriptor back over a socket, here its stdin.
fn mount_by_helper(place: &Place, source: &str, all: bool) -> Result<OwnedFd, MountError> {
    let sockets = UnixStream::pair().map_err(MountError::Socket)?;
    let (ours, its) = (sockets.0, OwnedFd::from(sockets.1));
    let options = format!(
        "fsname={source},subtype={SUBTYPE},nosuid,nodev,default_permissions{},max_read={MOST_REQUEST}",
        if all { ALL } else { "" },
    );
    let mut command = Command::new(HELPER);
    command.args(["-o", &options, "--"]).arg(&place.path).env("_FUSE_COMMFD", "0");
    let command = command.stdin(its).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(MountError::helper)?;
    // The command holds the other end of the socket.
    let _ = command.stdin(Stdio::null());
    let fd = receive(&ours);
    let ended = child.wait_with_output().map_err(MountError::Helper)?;
    fd.ok_or_else(|| {
        let words = String::from_utf8_lossy(&ended.stderr);
        let line = words.lines().next().unwrap_or("it sent no descriptor");
        MountError::HelperMount(line.to_owned())
    })
}

/// The descriptor that the helper sends; nothing when it ends without.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })
    .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// What an unmount led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is gone, or was gone already.
    Done,
    /// Somebody uses it.
    Busy,
}

impl Mount {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is what one sees at its path.
    fn is_on_top(&self) -> bool {
        let top = mounts::top(&self.path);
        top.is_some_and(|top| top.kind == FS_TYPE && Some(top.device) == self.device)
    }

    /// Unmounts unless somebody uses it.
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

    /// Takes it away from its path; who uses it may go on until the descriptor is closed.
    ///
    /// # Errors
    /// When the kernel does not want to.
    pub fn detach(&self) -> Result<(), MountError> {
        if self.is_on_top() { detach(&self.path) } else { Ok(()) }
    }
}
