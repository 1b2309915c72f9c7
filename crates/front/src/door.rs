// SPDX-License-Identifier: MIT OR Apache-2.0
//! A way into a volume, of whatever kind: what `--listen` opens.
//!
//! Invariants: a door that was opened is closed on every path; sockets are closed before a mount
//! in use is waited for.

use std::sync::Arc;
use std::time::Duration;

use larder_nbd::uri::Address;
use larder_volume::seat::Seats;
use larder_volume::{Volume, VolumeError};

use crate::fuse::FuseDoor;
use crate::listen::{ListenSpec, Listener, Secure};
use crate::nbd::export::Exports;

/// An open door.
pub enum Door {
    /// A socket for NBD clients.
    Socket(Listener),
    /// A file, by FUSE.
    File(Box<FuseDoor>),
}

impl Door {
    /// Opens it; an export's place is its volume's. TLS is for sockets, if it is given.
    ///
    /// # Errors
    /// When the address cannot be bound, or nothing can be mounted there.
    pub fn open(
        spec: &ListenSpec,
        volumes: Arc<Vec<Arc<Volume>>>,
        exports: Arc<Exports>,
        seats: Seats,
        secure: Option<Secure>,
    ) -> Result<Self, VolumeError> {
        let ListenSpec::Fuse(path) = spec else {
            let listener = Listener::start_secure(spec, volumes, exports, seats, secure)?;
            return Ok(Self::Socket(listener));
        };
        match volumes.as_slice() {
            [volume] => Ok(Self::File(Box::new(FuseDoor::open(path, volume)?))),
            _ => Err(VolumeError::Usage(format!(
                "{spec}: is one volume; accepted: a file of its own for each"
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

    /// How a client names it.
    #[must_use]
    pub fn words(&self, export: &str) -> String {
        match self {
            Self::Socket(listener) => listener.uri(export).to_string(),
            Self::File(door) => format!("fuse:{}", door.file().display()),
        }
    }

    /// The volume of a file; clients of a socket choose theirs.
    #[must_use]
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Socket(_) => None,
            Self::File(door) => Some(door.volume()),
        }
    }

    /// Closes doors side by side, within `bound`: no client comes in any more, and users of files
    /// have until half of it to go. `hurry` is asked whether to wait no longer.
    pub fn close(doors: Vec<Self>, bound: Duration, hurry: impl Fn() -> bool + Sync) {
        let hurry = &hurry;
        let files: Vec<_> = doors.into_iter().filter_map(Self::file).collect();
        std::thread::scope(|scope| {
            for door in files {
                let name = "larder-close".to_owned();
                let close = move || door.close(bound, hurry);
                // A door that no thread closes is dropped, which closes it without waiting.
                if let Err(e) = std::thread::Builder::new().name(name).spawn_scoped(scope, close) {
                    tracing::error!("cannot start a thread: {e}");
                }
            }
        });
    }

    /// The file; a socket is closed.
    fn file(self) -> Option<Box<FuseDoor>> {
        match self {
            Self::Socket(_) => None,
            Self::File(door) => Some(door),
        }
    }
}
