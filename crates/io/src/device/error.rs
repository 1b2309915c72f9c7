// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of opening a device, one line each.

use larder_core::request::Errno;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path does not exist.
    #[error("device '{device}': no such file; accepted: an existing file or block device")]
    NotFound {
        /// The device as the user named it.
        device: String,
    },
    /// Another process holds it, this one opened it twice, or it is mounted.
    #[error(
        "device '{device}': in use by another process (or mounted, or given twice); a device \
         serves one cache at a time"
    )]
    InUse {
        /// The device as the user named it.
        device: String,
    },
    /// Another user owns it, or may read or write it.
    #[error("device '{device}': {why}; a device with cached data gives no access to other users")]
    NotPrivate {
        /// The device as the user named it.
        device: String,
        /// The file or directory, and what is accepted.
        why: String,
    },
    /// A directory, a pipe, a terminal and the like.
    #[error("device '{device}': is {what}; accepted: a regular file or a block device")]
    NotADevice {
        /// The device as the user named it.
        device: String,
        /// What it is instead.
        what: &'static str,
    },
    /// The device is smaller than a block.
    #[error("device '{device}': holds {bytes} bytes; accepted: at least one block of {block}")]
    TooSmall {
        /// The device as the user named it.
        device: String,
        /// What it holds.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The device in memory is too large for its table.
    #[error("device '{device}': is too large; accepted: memory of up to {}", crate::format_size(*most))]
    TooLarge {
        /// The device as the user named it.
        device: String,
        /// The most.
        most: u64,
    },
    /// The export of a server cannot be reached or used.
    #[error("device '{device}': {why}")]
    Remote {
        /// The device as the user named it.
        device: String,
        /// The cause, and what is accepted.
        why: String,
    },
    /// The profile of `slow+` does not exist, or its file is malformed.
    #[error("device '{device}': {error}")]
    Profile {
        /// The device as the user named it.
        device: String,
        /// What is wrong and what is accepted.
        error: String,
    },
    /// A system call failed.
    #[error("device '{device}': cannot {action}: {}", std::io::Error::from_raw_os_error(errno.0))]
    System {
        /// The device as the user named it.
        device: String,
        /// The action that failed.
        action: &'static str,
        /// The error.
        errno: Errno,
    },
}
