// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a part of the demo ends, other than with rows or a failure.

use std::fmt;

/// The demo was ended by [`DemoOptions::interrupted`](super::options::DemoOptions::interrupted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; the demo's servers are stopped and its files removed")
    }
}

impl std::error::Error for Interrupted {}

/// The machine lacks what the part needs; the text names it in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}
