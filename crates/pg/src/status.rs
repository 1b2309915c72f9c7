// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the cache says of itself: one JSON object, which the view `larder_stat_cache` spreads into columns.

use larder_core::request::Errno;
use serde_json::{Value, json};

use crate::area::Mark;
use crate::error::Failure;
use crate::here::{self, Armed};
use crate::pool::Pool;

/// Brings to the disk what flash alone has; the pages that it had.
///
/// # Errors
/// If the disk fails.
pub fn flush() -> Result<u64, Errno> {
    let flush = |_: &Armed, pool: &Pool| {
        let dirty = pool.pages().status().dirty;
        pool.drain().map(|()| dirty).map_err(Failure::errno)
    };
    here::with(flush).unwrap_or(Ok(0))
}

/// The object. Counters count pages since the memory was made.
#[must_use]
pub fn json() -> Value {
    here::with(of).unwrap_or_else(|| json!({ "caching": false, "policy": null }))
}

fn of(armed: &Armed, pool: &Pool) -> Value {
    let area = pool.area();
    let log = pool.pages().status();
    let blocks = pool.pages().log().geometry().blocks;
    json!({
        "caching": pool.works(),
        "policy": armed.memory.shape().settings.policy.name(),
        "page_bytes": armed.page_bytes,
        "flash_pages": blocks,
        "pages_cached": log.valid,
        "pages_dirty": log.dirty,
        "reads": area.get(Mark::Reads),
        "hits": area.get(Mark::Hits),
        "writes": area.get(Mark::Writes),
        "writes_absorbed": area.get(Mark::Absorbed),
        "written_back": area.get(Mark::WrittenBack),
        "writes_entered": area.get(Mark::WritesEntered),
        "clean_entered": area.get(Mark::CleanEntered),
        "clean_kept": area.get(Mark::CleanKept),
        "clean_changed": area.get(Mark::CleanChanged),
        "clean_no_room": area.get(Mark::CleanNoRoom),
        "pages_written_to_flash": log.put,
        "writes_to_flash": log.batches,
        "pages_again": log.appended_again,
        "pages_left": pool.pages().log().host().pages_evicted(),
        "forks_retired": area.get(Mark::Retired),
        "starts": area.get(Mark::Starts),
    })
}
