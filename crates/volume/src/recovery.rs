// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a start makes of a flash device: it goes on warm, or cold for a reason.

use larder_core::pagelog::OpenError;
use larder_core::request::Errno;

use super::kept::Kept;

/// What is on a flash device, or why it is not used.
pub(crate) enum Recovery {
    /// The volume id that it is labelled with, and what its metadata holds.
    Warm(u64, Kept),
    /// It is formatted anew, if it cannot have dirty data.
    Cold(Cold),
}

/// Why a flash starts cold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cold {
    #[error("it is new")]
    New,
    #[error("--format was given")]
    FormatGiven,
    #[error("it kept no journal")]
    NoJournal,
    /// Formatted for another cache: which, in the words of the settings.
    #[error("{0}")]
    Misfit(String),
    #[error("the state file names another flash, or an older formatting of it")]
    OtherFlash,
    #[error("there is no state file that names it")]
    Unnamed,
    #[error("it was detached, or failed, and writes went on without it")]
    OutOfUse,
    #[error("it was used under write-back")]
    WriteBack,
    #[error("the origin has another size")]
    OriginResized,
    #[error("the origin was written to while it was not served")]
    OriginChanged,
    #[error("it {0}")]
    Unreadable(#[from] Unreadable),
    #[error("it is as it was before the last start or stop, a copy that was put back")]
    PutBack,
}

/// Why metadata or page logs cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("holds no complete checkpoint")]
    NoCheckpoint,
    #[error("holds damaged metadata")]
    Damaged,
    #[error("cannot be read: {0}")]
    Read(Errno),
    #[error("holds a page log that cannot be used: {0}")]
    Log(OpenError),
    #[error("cannot be flushed: {0}")]
    Flush(Errno),
}
