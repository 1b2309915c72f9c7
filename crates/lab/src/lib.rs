// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory: experiments with the engine, and with models beside it, in virtual time.
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
//! Why apart from `larder-sim`: that crate judges whether the engine is correct, and this one measures
//! its benefit.
#![forbid(unsafe_code)]

pub mod advise;
pub mod database;
pub mod device;
pub mod hierarchy;
pub mod hits;
pub mod jobs;
pub mod latencies;
pub mod load;
pub mod paper;
pub mod regret;
pub mod replays;
pub mod scenario;

/// Prints progress on standard error, except in work that has a watch ([`larder_trace::watch`]), which shows its own. If the
/// reader is gone, the work continues without it.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if larder_trace::watch::current().is_none() {
            let _ = writeln!(std::io::stderr(), $($words)*);
        }
    }};
}
