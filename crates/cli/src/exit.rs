// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 success; 1 the answer is "no"; 2 bad usage or input; 3 a device or the system failed; 4 refused.

use larder_front::control::client::Failed;
use larder_volume::VolumeError;

use crate::setting::BadSetting;

/// An error with an exit code of its own.
#[derive(Debug, Default)]
pub struct Coded {
    /// The code.
    pub code: u8,
    /// One line.
    pub message: String,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

impl From<Failed> for Coded {
    fn from(Failed { code, message }: Failed) -> Self {
        Self { code, message }
    }
}

/// A device or the system failed.
pub fn failed(message: &str) -> Coded {
    Coded { code: 3, message: message.to_owned() }
}

/// The exit code of an error; an unclassified error is bad input.
pub fn code(error: &anyhow::Error) -> u8 {
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return coded.code;
    }
    if let Some(bad) = error.downcast_ref::<BadSetting>() {
        return bad.code;
    }
    error.downcast_ref::<VolumeError>().map_or(2, VolumeError::exit_code)
}
