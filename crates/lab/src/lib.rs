// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory: what is asked of the engine, and of models beside it, in virtual time.
//!
//! | the ... | module |
//! | --- | --- |
//! | runs described by files, one kind of scenario a folder | [`scenario`] |
//! | claims of the papers, beside what the scenarios give | [`paper`] |
//! | how large a flash pays off, from a trace | [`advise`] |
//! | every preset over many loads, origins and sizes, each beside the best other one | [`regret`] |
//! | loads: clients, replayed traces, generators | [`load`] |
//! | models of their own: hits alone; RAM over flash over a filer; a database over flash | [`hits`], [`hierarchy`], [`database`] |
//!
//! Why apart from `larder-sim`: that crate judges whether the engine is right, and this one measures
//! what it is worth.
#![forbid(unsafe_code)]

pub mod advise;
pub mod database;
pub mod hierarchy;
pub mod hits;
pub mod jobs;
pub mod latencies;
pub mod load;
pub mod paper;
pub mod regret;
pub mod replays;
pub mod scenario;

/// Tells of progress on standard error. Nobody may be there to read it any more: the work goes on all
/// the same.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
