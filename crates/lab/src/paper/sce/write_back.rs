// SPDX-License-Identifier: MIT OR Apache-2.0
//! S13 and S14: the other caches as write-back.

use anyhow::Result;

use super::super::{Asked, Found, Row};

const WHY: &str = "flashcache, bcache and EnhanceIO as write-back keep what was acknowledged on flash \
                   under metadata that is in memory, or in a journal that is not modelled, and admit on \
                   every miss. The engine has no such path, and is not to have one: its write-back \
                   (prwc, proc) needs a journal and units that change sides in an update only, and under \
                   this load it would say something of PRWC, not of these three. P3 and P6 compare it \
                   with write-through.";

/// The rows.
pub(super) fn rows(_: &Asked) -> Result<Found> {
    let rows = ["S13", "S14"].map(|id| Row::not_reproducible(id, WHY));
    Ok(Found { rows: rows.into_iter().collect::<Result<_>>()?, figures: Vec::new() })
}
