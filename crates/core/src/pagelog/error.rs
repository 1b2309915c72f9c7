// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a log as a whole, and with a page that enters or is read.
//!
//! A request on a page is answered with an [`Errno`], as a device answers it; these say more where the caller decides
//! by it, or reports it.

use crate::request::Errno;

/// Why a log cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Neither header is whole.
    #[error("the page log has no header that is whole")]
    NoHeader,
    /// Something that was durable is not there.
    #[error("the page log is damaged: it ends at block {end}, and was durable up to {durable}")]
    Missing {
        /// Where the chain of batches ends.
        end: u64,
        /// Where it should reach.
        durable: u64,
    },
    /// The device cannot be read.
    #[error("flash cannot be read at byte {offset}: {errno}")]
    Device {
        /// Where.
        offset: u64,
        /// How.
        errno: Errno,
    },
    /// The origin failed, or flash, while the origin was brought up to date.
    #[error("the origin cannot be brought up to date: {0}")]
    Origin(Errno),
    /// The origin is up to date where it has to be, but no new generation can begin.
    #[error("flash cannot be written at byte {offset}: {errno}")]
    Header {
        /// Where.
        offset: u64,
        /// How.
        errno: Errno,
    },
}

/// Why a log was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The next start is cold, and loses nothing.
    #[error("the page log cannot be closed: {0}")]
    Cold(Errno),
    /// The log may hold what the origin lacks.
    #[error("the page log cannot be closed: {0}")]
    Dirty(Errno),
}

impl ReleaseError {
    /// What the device said.
    #[must_use]
    pub fn errno(self) -> Errno {
        let (Self::Cold(errno) | Self::Dirty(errno)) = self;
        errno
    }
}

/// What a log that would grow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// All buffers are on their way to flash.
    Buffer,
    /// The front has not made room, or segments lag behind.
    Room,
}

/// Why a page did not enter at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEntered {
    /// There is no place for it at the moment.
    Lack(Lack),
    /// The log has failed.
    Failed(Errno),
}

/// Why the bytes of a page could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Flash returned others than were written.
    Damaged,
    /// Flash returned none.
    Device(Errno),
}
