// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines that a setting gets that cannot be.

use std::fmt::Display;

/// A value that cannot be, and what would be accepted.
pub(super) fn bad<T>(key: &str, value: impl Display, accepted: impl Display) -> Result<T, String> {
    Err(format!("{key} = '{value}' cannot be; accepted: {accepted}"))
}

/// The value, if it lies in the range.
pub(super) fn in_range<T: PartialOrd + Display>(
    key: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, String> {
    if (&least..=&most).contains(&&value) {
        return Ok(value);
    }
    bad(key, value, format!("{least} to {most}"))
}
