// SPDX-License-Identifier: MIT OR Apache-2.0
//! A setting that is rejected, by its key. The reader of a configuration file adds the file and the line; without them
//! the error names the flag.

use std::fmt::{Display, Formatter, Result};

use larder_volume::{BadValue, VolumeError};

/// The error. Its text is that of the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// The setting, as a key.
    pub key: String,
    /// The value, with words around it; empty where it adds nothing.
    pub value: String,
    /// Why it is rejected, and what is accepted.
    pub why: String,
    /// The exit code.
    pub code: u8,
}

impl BadSetting {
    /// A setting that is missing, or that excludes others.
    pub fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), value: String::new(), why: why.into(), code: 2 }
    }

    /// A setting with this value.
    pub fn of(key: impl Into<String>, value: impl Display, why: impl Into<String>) -> Self {
        Self { value: format!("got {value}, "), ..Self::new(key, why) }
    }

    /// The setting that an error is about, if it is about one.
    pub fn in_error(error: &anyhow::Error) -> Option<Self> {
        match error.downcast_ref::<VolumeError>() {
            Some(VolumeError::StateDirectory { directory, why }) => {
                Some(Self::of("state", directory.display(), why))
            }
            Some(VolumeError::Value(bad)) => Some(bad.clone().into()),
            _ => error.downcast_ref::<Self>().cloned(),
        }
    }

    /// The text where it is a key of a file.
    pub fn as_key(&self) -> String {
        format!("{}: {}{}", self.key, self.value, self.why)
    }
}

impl From<BadValue> for BadSetting {
    fn from(bad: BadValue) -> Self {
        Self::of(bad.key, bad.got, format!("accepted {}", bad.accepted))
    }
}

impl Display for BadSetting {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "--{}: {}{}", self.key.replace('_', "-"), self.value, self.why)
    }
}

impl std::error::Error for BadSetting {}
