// SPDX-License-Identifier: MIT OR Apache-2.0
//! S13 and S14: the other caches as write-back.

use anyhow::Result;

use super::super::{Asked, Row};

const WHY: &str = "The presets flashcache, bcache and enhanceio write through, and the engine does not offer \
                   write-back that admits every miss and keeps its metadata in memory.";

/// The rows.
pub(super) fn rows(_: &Asked) -> Result<Vec<Row>> {
    let rows = ["S13", "S14"].map(|id| Row::not_measured(id, WHY));
    rows.into_iter().collect()
}
