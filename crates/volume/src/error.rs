// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a volume cannot be started or changed, with the exit code.

use std::path::PathBuf;

use larder_core::request::Errno;
use larder_io::{DriverError, OpenError};

/// A value that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: got {got}, accepted {accepted}")]
pub struct BadValue {
    /// The setting, as a key of a configuration.
    pub key: &'static str,
    /// The value.
    pub got: String,
    /// What is accepted.
    pub accepted: String,
}

/// What went wrong; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// An invalid setting.
    #[error("{0}")]
    Usage(String),
    /// The same, by its key.
    #[error(transparent)]
    Value(#[from] BadValue),
    /// The directory of state files cannot be used.
    #[error("--state {}: {why}", directory.display())]
    StateDirectory {
        /// The directory, or the file in it.
        directory: PathBuf,
        /// Why, and what is accepted.
        why: String,
    },
    /// A device that cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The ring cannot be set up.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A device failed.
    #[error("{device}: {doing} failed: {errno}")]
    Device {
        /// The device.
        device: String,
        /// What was being done.
        doing: &'static str,
        /// The error.
        errno: Errno,
    },
    /// Refused for safety.
    #[error("{0}")]
    Refused(String),
    /// It did not happen in time.
    #[error("{0}")]
    TooSlow(String),
    /// A worker thread ended by itself: no thread serves its units.
    #[error("the volume lost a worker {0} and is not served; restart the process")]
    WorkerLost(&'static str),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl VolumeError {
    /// The exit code of a command that ends with this error: 2 bad input, 3 a device or the system
    /// failed, 4 refused.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Value(_) | Self::StateDirectory { .. } => 2,
            Self::Open(OpenError::InUse { .. } | OpenError::NotPrivate { .. })
            | Self::Refused(_) => 4,
            Self::Open(_) => 2,
            Self::Driver(_)
            | Self::Device { .. }
            | Self::TooSlow(_)
            | Self::WorkerLost(_)
            | Self::Thread(_) => 3,
        }
    }
}
