// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a log as a whole, and of a page that is appended or read.
//!
//! A request on a page is answered with an [`Errno`], as by a device. These errors contain what a caller decides by or
//! reports.

use crate::request::Errno;

/// Why a log cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Neither log header is intact.
    #[error("both headers of the page log are damaged")]
    NoHeader,
    /// Durable positions are missing.
    #[error("the page log is damaged: it ends at block {end}, and was durable up to {durable}")]
    Missing {
        /// The end of the chain of batches.
        end: u64,
        /// The durable position.
        durable: u64,
    },
    /// Positions contradict each other.
    #[error("the page log is damaged: it begins at block {tail} and ends at block {end}")]
    Range {
        /// The tail.
        tail: u64,
        /// The end of the chain of batches.
        end: u64,
    },
    /// The device cannot be read.
    #[error("flash cannot be read at byte {offset}: {errno}")]
    Device {
        /// First byte of the read.
        offset: u64,
        /// The error.
        errno: Errno,
    },
    /// A device failed while dirty pages or tombstones were written to the origin.
    #[error("the origin cannot be brought up to date: {0}")]
    Origin(Errno),
    /// The header of the new generation cannot be written; the origin is up to date.
    #[error("flash cannot be written at byte {offset}: {errno}")]
    Header {
        /// First byte of the write.
        offset: u64,
        /// The error.
        errno: Errno,
    },
}

/// Why a log was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The next start is cold; no data is lost.
    #[error("the page log cannot be closed: {0}")]
    Cold(Errno),
    /// The log may hold dirty pages.
    #[error("the page log cannot be closed: {0}")]
    Dirty(Errno),
}

impl ReleaseError {
    /// The error of the device.
    #[must_use]
    pub fn errno(self) -> Errno {
        let (Self::Cold(errno) | Self::Dirty(errno)) = self;
        errno
    }
}

/// The missing resource for a new batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// All buffers are being written to flash.
    Buffer,
    /// The log is full up to its tail, or segments lag behind.
    Room,
}

/// Why a page was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// There is no room for it.
    Lack(Lack),
    /// The log has failed.
    Failed(Errno),
}

/// Why a page could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Its checksum does not match.
    Damaged,
    /// Flash returned an error.
    Device(Errno),
}
