// SPDX-License-Identifier: MIT OR Apache-2.0
//! A front door of a volume, of any kind: what `--listen` opens.
//!
//! Invariants: an open door is closed on every path; sockets are closed before the wait for users of a mount.

use std::sync::Arc;
use std::time::Duration;

use larder_nbd::uri::Address;
use larder_volume::{Volume, VolumeError};

use crate::fuse::FuseDoor;
use crate::fuse::mounter::Mounter;
use crate::listen::{ListenSpec, Listener, Secure};
use crate::nbd::export::Exports;
use crate::socket::Rights;

/// An open door.
pub enum Door {
    /// A socket for NBD clients.
    Socket(Listener),
    /// A file, over FUSE.
    File(Box<FuseDoor>),
}

impl Door {
    /// Opens a door. An export's index is that of its volume. `secure` is the TLS of sockets, `rights` are those of unix
    /// sockets, and `mounter` mounts files.
    ///
    /// # Errors
    /// The address cannot be bound, or the path cannot be mounted.
    pub fn open(
        spec: &ListenSpec,
        volumes: Arc<Vec<Arc<Volume>>>,
        exports: Arc<Exports>,
        secure: Option<Secure>,
        rights: Rights,
        mounter: &Arc<dyn Mounter>,
    ) -> Result<Self, VolumeError> {
        let ListenSpec::Fuse(path) = spec else {
            let listener = Listener::start_secure(spec, volumes, exports, secure, rights)?;
            return Ok(Self::Socket(listener));
        };
        match (volumes.as_slice(), exports.get(0)) {
            ([volume], Some(export)) => {
                Ok(Self::File(Box::new(FuseDoor::open(path, volume, export, mounter)?)))
            }
            _ => Err(VolumeError::Usage(format!(
                "{spec}: serves a single volume; accepted: one fuse:PATH for each volume"
            ))),
        }
    }

    /// The socket's address.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Socket(listener) => Some(listener.address()),
            Self::File(_) => None,
        }
    }

    /// The text with which a client names an export.
    #[must_use]
    pub fn words(&self, export: &str) -> String {
        match self {
            Self::Socket(listener) => listener.uri(export).to_string(),
            Self::File(door) => format!("fuse:{}", door.file().display()),
        }
    }

    /// The volume of a file; `None` for a socket, whose clients choose theirs.
    #[must_use]
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Socket(_) => None,
            Self::File(door) => Some(door.volume()),
        }
    }

    /// Closes doors in parallel, within `bound`: new clients are rejected, and users of files have half of `bound` to
    /// close them. `hurry` returns whether to stop waiting.
    pub fn close(doors: Vec<Self>, bound: Duration, hurry: impl Fn() -> bool + Sync) {
        let hurry = &hurry;
        let files: Vec<_> = doors.into_iter().filter_map(Self::file).collect();
        std::thread::scope(|scope| {
            for door in files {
                let name = "larder-close".to_owned();
                let close = move || door.close(bound, hurry);
                // Without a thread the door is dropped, which closes it without waiting.
                if let Err(e) = std::thread::Builder::new().name(name).spawn_scoped(scope, close) {
                    tracing::error!("cannot start a thread: {e}");
                }
            }
        });
    }

    /// The file; closes a socket.
    fn file(self) -> Option<Box<FuseDoor>> {
        match self {
            Self::Socket(_) => None,
            Self::File(door) => Some(door),
        }
    }
}
