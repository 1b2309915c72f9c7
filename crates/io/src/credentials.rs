// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which user and groups the other end of a unix socket had when it connected.
//!
//! Invariant: the kernel states both (`SO_PEERCRED`, `SO_PEERGROUPS`); nothing that the peer sends is used.
//!
//! Why not the group database: a service manager may give a process groups that the database does not list for its
//! user.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The most supplementary groups of a process (`NGROUPS_MAX`).
const MOST_GROUPS: usize = 65_536;

/// The user and the groups of the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The effective user.
    pub user: u32,
    /// The effective group, and the supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The other end of a connection.
    ///
    /// # Errors
    /// The kernel does not state them.
    pub fn of(stream: &UnixStream) -> Result<Self> {
        let own = effective(stream)?;
        let mut groups = supplementary(stream)?;
        groups.push(own.gid);
        Ok(Self { user: own.uid, groups })
    }

    /// The effective user of the other end.
    ///
    /// # Errors
    /// The kernel does not state it.
    pub fn user_of(stream: &UnixStream) -> Result<u32> {
        Ok(effective(stream)?.uid)
    }
}

/// The process, and its effective user and group.
///
/// Why not by rustix: its type has no process 0, which is that of a peer outside this PID namespace.
#[allow(unsafe_code)]
fn effective(stream: &UnixStream) -> Result<libc::ucred> {
    let mut own = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&own) as libc::socklen_t;
    // SAFETY: the descriptor is open for the call, and the kernel writes at most `len` bytes, all of them within `own`, in which
    // any bytes are valid.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut own).cast(),
            &raw mut len,
        )
    };
    if code == 0 { Ok(own) } else { Err(Error::last_os_error()) }
}

/// The supplementary groups. Most processes have a few: the buffer grows when the kernel reports that it is too short.
#[allow(unsafe_code)]
fn supplementary(stream: &UnixStream) -> Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the descriptor is open for the call, and the kernel writes at most `len` bytes, all of them within
        // `groups`; any bytes are valid group numbers.
        let code = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<libc::gid_t>();
        if code == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        if count > MOST_GROUPS {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;

    #[test]
    fn a_socket_of_this_process_has_its_user_and_groups() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Credentials::of(&one).unwrap();
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        let own = rustix::process::getgroups().unwrap();
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
        assert!(own.iter().all(|group| peer.groups.contains(&group.as_raw())), "{peer:?} {own:?}");
    }
}
