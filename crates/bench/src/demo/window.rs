// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a row runs, and the part of it that counts.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

/// Both spans follow each other from the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Seconds before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds that count.
    pub measured_seconds: u64,
}

impl Window {
    /// Seconds from the first request to the end.
    #[must_use]
    pub fn end_seconds(self) -> u64 {
        self.warm_up_seconds + self.measured_seconds
    }

    /// What counts, since the first request.
    #[must_use]
    pub fn span(self) -> Range<Duration> {
        Duration::from_secs(self.warm_up_seconds)..Duration::from_secs(self.end_seconds())
    }
}
