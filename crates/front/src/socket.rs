// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binds unix sockets: replaces a stale one, and gives the new one its mode and group before any client can connect.
//!
//! Invariants: a socket is never open to more users than [`Rights`] name. The kernel takes the mode of a new socket
//! file from the unbound socket, so the file is created with it; clients can connect only after `listen`, which is the
//! last step. A stale unix socket, on which no process listens, is replaced; a live one is refused. A file that is not
//! recognised as the new socket is neither changed nor removed.
//!
//! Why not a umask: it belongs to the whole process, and other threads create files.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use larder_volume::VolumeError;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// As many waiting clients as the system allows.
const BACKLOG: i32 = -1;

/// Which users may connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The mode of the socket; without one the umask decides.
    pub mode: Option<u32>,
    /// The group of the socket, if it is another than that of new files.
    pub group: Option<u32>,
}

/// Binds a unix socket, replacing a stale one, and listens.
///
/// # Errors
/// Another process listens there, the path is not a socket, or it cannot be bound.
pub fn bind_unix(path: &Path, rights: Rights) -> Result<UnixListener, VolumeError> {
    clear_unix(path)?;
    let fail = |e: io::Error| VolumeError::Usage(format!("{}: cannot listen: {e}", path.display()));
    create(path, rights).and_then(|socket| listen(socket, path, rights)).map_err(fail)
}

/// A socket with its file, to which no client can connect yet.
fn create(path: &Path, rights: Rights) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if let Some(mode) = rights.mode {
        // The group gets its rights when it is the right group.
        let first = if rights.group.is_some() { mode & 0o700 } else { mode };
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(first))?;
    }
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Gives a new socket its rights and lets clients connect.
fn listen(socket: OwnedFd, path: &Path, rights: Rights) -> io::Result<UnixListener> {
    let done = grant(path, rights).and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?));
    match done {
        Ok(()) => Ok(UnixListener::from(socket)),
        Err(e) => {
            if recognise(path).is_ok() {
                let _ = std::fs::remove_file(path);
            }
            Err(e)
        }
    }
}

/// The file of a new socket: another user who can write to the directory could put another file at the path.
fn recognise(path: &Path) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::Socket
        && found.st_uid == rustix::process::geteuid().as_raw();
    match is_ours {
        true => Ok((file, found)),
        false => Err(io::Error::other("another file took the place of the socket")),
    }
}

/// Gives a new socket its group, and the rights that the umask removed. Both through a descriptor, see [`recognise`].
fn grant(path: &Path, rights: Rights) -> io::Result<()> {
    let Some(mode) = rights.mode else { return Ok(()) };
    let (file, found) = recognise(path)?;
    if let Some(group) = rights.group.filter(|group| *group != found.st_gid) {
        let gid = Some(Gid::from_raw(group));
        rustix::fs::chownat(file.as_fd(), "", None, gid, AtFlags::EMPTY_PATH).map_err(|e| {
            let accepted = "accepted: a group of the user that runs the server";
            io::Error::new(e.kind(), format!("cannot give it the group {group}: {e}; {accepted}"))
        })?;
    }
    if found.st_mode & 0o777 != mode {
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Removes a stale unix socket.
pub(crate) fn clear_unix(path: &Path) -> Result<(), VolumeError> {
    let at = path.display();
    let fail = |e: io::Error| VolumeError::Usage(format!("{at}: cannot listen: {e}"));
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(VolumeError::Refused(format!("{at}: exists and is not a socket")));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(fail)?;
            }
            _ => {
                return Err(VolumeError::Refused(format!(
                    "{at}: another server listens there; stop it or choose another path"
                )));
            }
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(fail(e)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_or_a_file_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let live = bind_unix(&path, Rights::default()).unwrap();
        assert!(matches!(bind_unix(&path, Rights::default()), Err(VolumeError::Refused(_))));
        drop(live);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind_unix(&path, Rights::default()), Err(VolumeError::Refused(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_has_its_mode_whatever_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        let group = rustix::process::getegid().as_raw();
        for (name, mode, group) in
            [("a", 0o600, None), ("b", 0o666, None), ("c", 0o660, Some(group))]
        {
            let path = dir.path().join(name);
            let _socket = bind_unix(&path, Rights { mode: Some(mode), group }).unwrap();
            let found = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!(found.mode() & 0o777, mode, "{name}");
            assert!(UnixStream::connect(&path).is_ok());
        }
    }

    /// Before clients can connect: the file has its mode, less the umask, and nothing for a group that is not its own yet.
    #[test]
    fn a_socket_is_created_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode, group, first) in [("a", 0o600, None, 0o600), ("b", 0o660, Some(7), 0o600)]
        {
            let path = dir.path().join(name);
            let _socket = create(&path, Rights { mode: Some(mode), group }).unwrap();
            assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, first);
            assert!(UnixStream::connect(&path).is_err(), "it does not listen yet");
        }
    }

    #[test]
    fn a_file_that_took_the_place_of_a_socket_is_neither_changed_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let rights = Rights { mode: Some(0o660), group: None };
        let socket = create(&path, rights).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode();
        let before = mode();
        let refused = listen(socket, &path, rights).unwrap_err();
        assert!(refused.to_string().contains("took the place"), "{refused}");
        assert_eq!((std::fs::read(&path).unwrap(), mode()), (b"precious".to_vec(), before));
    }
}
