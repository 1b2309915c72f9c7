// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the requests of a replay come from: a file, or a load that is made on the way.
//!
//! Invariant: every call of [`Source::records`] gives the same requests, as a replay reads them twice.

use larder_trace::{Trace, TraceError};

use crate::load::trace::named::{Named, Requests};

/// The source, see the module.
pub(super) enum Source {
    /// A trace in a file.
    File(Trace),
    /// A load by name.
    Made {
        /// Which.
        load: &'static Named,
        /// Over so much data.
        data_bytes: u64,
        /// Of its draws.
        seed: u64,
    },
}

impl Source {
    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File(trace) => trace.path().display().to_string(),
            Self::Made { load, .. } => load.name.to_owned(),
        }
    }

    /// Its requests, from the first.
    ///
    /// # Errors
    /// The file cannot be opened, or its format is unknown.
    pub(super) fn records(&self) -> Result<Requests, TraceError> {
        match self {
            Self::File(trace) => Ok(Box::new(trace.records()?)),
            Self::Made { load, data_bytes, seed } => load.requests(*data_bytes, *seed),
        }
    }
}
