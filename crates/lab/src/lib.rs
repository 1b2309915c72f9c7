// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory: what is asked of the engine in virtual time.
#![forbid(unsafe_code)]

pub mod advise;
pub mod database;
pub mod desktop;
pub mod hierarchy;
pub mod jobs;
pub mod latencies;
pub mod paper;
pub mod scenario;
pub mod volume;

/// Tells of progress on standard error. Nobody may be there to read it any more: the work goes on all
/// the same.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
