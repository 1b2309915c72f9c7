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
use crate::listen::{Listen, ListenSpec, Listener, Secure};
use crate::nbd::export::Exports;
use crate::socket::Rights;
use crate::ublk::{Controller, UblkDoor};
use crate::vhost_user::VhostUserDoor;

/// An open door.
pub enum Door {
    /// A socket for NBD clients.
    Socket(Listener),
    /// A file, over FUSE.
    File(Box<FuseDoor>),
    /// A block device.
    Block(Box<UblkDoor>),
    /// A disk of a virtual machine.
    Guest(Box<VhostUserDoor>),
}

/// What opens the doors that need more than a socket.
pub struct Openers {
    /// Mounts files.
    pub mounter: Arc<dyn Mounter>,
    /// Adds block devices, if a door is one.
    pub ublk: Option<Arc<Controller>>,
}

impl Door {
    /// Whether a device that is there now would prevent a door of the volume. Changes nothing.
    ///
    /// # Errors
    /// It would.
    pub fn check(
        Listen { grant, spec }: &Listen,
        volume: &Volume,
        openers: &Openers,
    ) -> Result<(), VolumeError> {
        match (spec, &openers.ublk) {
            (ListenSpec::Ublk(id), Some(controller)) => {
                UblkDoor::check(*id, volume, *grant, controller)
            }
            _ => Ok(()),
        }
    }

    /// Opens a door. An export's index is that of its volume. `secure` is the TLS of sockets, `rights` are those of unix
    /// sockets.
    ///
    /// # Errors
    /// The address cannot be bound, the path cannot be mounted, or the device cannot be had.
    pub fn open(
        Listen { grant, spec }: &Listen,
        volumes: Arc<Vec<Arc<Volume>>>,
        exports: Arc<Exports>,
        secure: Option<Secure>,
        rights: Rights,
        openers: &Openers,
    ) -> Result<Self, VolumeError> {
        let single = || match (volumes.as_slice(), exports.get(0)) {
            ([volume], Some(export)) => Ok((volume, export)),
            _ => Err(VolumeError::Usage(format!(
                "{spec}: serves a single volume; accepted: one of its own for each volume"
            ))),
        };
        match spec {
            ListenSpec::Unix(_) | ListenSpec::Tcp(_) => {
                Ok(Self::Socket(Listener::start_secure(spec, volumes, exports, secure, rights)?))
            }
            ListenSpec::Fuse(path) => {
                let (volume, export) = single()?;
                Ok(Self::File(Box::new(FuseDoor::open(path, volume, export, &openers.mounter)?)))
            }
            ListenSpec::Ublk(id) => {
                let Some(controller) = &openers.ublk else {
                    return Err(VolumeError::Usage(format!("{spec}: was not prepared")));
                };
                Ok(Self::Block(Box::new(UblkDoor::open(*id, single()?.0, *grant, controller)?)))
            }
            ListenSpec::VhostUser(path) => {
                let door = VhostUserDoor::open(path, single()?.0, *grant, rights)?;
                Ok(Self::Guest(Box::new(door)))
            }
        }
    }

    /// The socket's address.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Socket(listener) => Some(listener.address()),
            Self::File(_) | Self::Block(_) | Self::Guest(_) => None,
        }
    }

    /// The text with which a client names an export.
    #[must_use]
    pub fn words(&self, export: &str) -> String {
        match self {
            Self::Socket(listener) => listener.uri(export).to_string(),
            Self::File(door) => format!("fuse:{}", door.file().display()),
            Self::Block(door) => door.device().display().to_string(),
            Self::Guest(door) => format!("vhost-user:{}", door.path().display()),
        }
    }

    /// The volume of a file, device or disk; `None` for a socket, whose clients choose theirs.
    #[must_use]
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Socket(_) => None,
            Self::File(door) => Some(door.volume()),
            Self::Block(door) => Some(door.volume()),
            Self::Guest(door) => Some(door.volume()),
        }
    }

    /// Closes doors in parallel, within `bound`: new clients are rejected, and users of files have half of `bound` to
    /// close them. `hurry` returns whether to stop waiting.
    pub fn close(doors: Vec<Self>, bound: Duration, hurry: impl Fn() -> bool + Sync) {
        let hurry = &hurry;
        // Sockets are closed here.
        let doors: Vec<_> =
            doors.into_iter().filter(|door| !matches!(door, Self::Socket(_))).collect();
        std::thread::scope(|scope| {
            for door in doors {
                let name = "larder-close".to_owned();
                let close = move || match door {
                    Self::Socket(listener) => drop(listener),
                    Self::File(door) => door.close(bound, hurry),
                    Self::Block(door) => door.close(bound),
                    Self::Guest(door) => door.close(bound),
                };
                // Without a thread the door is dropped, which closes it without waiting.
                if let Err(e) = std::thread::Builder::new().name(name).spawn_scoped(scope, close) {
                    tracing::error!("cannot start a thread: {e}");
                }
            }
        });
    }
}
