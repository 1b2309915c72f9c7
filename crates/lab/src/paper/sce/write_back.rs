// SPDX-License-Identifier: MIT OR Apache-2.0
//! S13 and S14: the other caches as write-back.

use anyhow::Result;

use super::super::{Asked, Found, Row};

const WHY: &str = "In write-back flashcache, bcache and EnhanceIO hold acknowledged data on flash with their \
                   metadata in memory, or in a journal that is not modelled, and admit every miss. The \
                   engine has no such mode: its write-back (prwc, proc) needs a journal and exchanges \
                   units in updates only, so under this load it would show PRWC and not these three. P3 \
                   and P6 compare it with write-through.";

/// The rows.
pub(super) fn rows(_: &Asked) -> Result<Found> {
    let rows = ["S13", "S14"].map(|id| Row::not_reproducible(id, WHY));
    Ok(Found { rows: rows.into_iter().collect::<Result<_>>()?, figures: Vec::new() })
}
