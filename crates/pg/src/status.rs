// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status of the cache: one JSON object, whose keys are the columns of the view `larder_stat_cache`.

use larder_core::request::Errno;
use serde_json::{Value, json};

use crate::area::Mark;
use crate::error::Failure;
use crate::here::{self, Armed};
use crate::pool::Pool;
use crate::process::MayFail;
use crate::settings::Refused;
use crate::statistics;

/// Writes all dirty pages from flash to the disk; returns their number.
///
/// # Errors
/// If the disk fails, or the statement is canceled while it waits for flash.
pub fn flush() -> Result<u64, Failure> {
    let _may_fail = MayFail::new();
    let flush = |_: &Armed, pool: &Pool| {
        let dirty = pool.pages().status().dirty;
        pool.drain().map(|()| dirty)
    };
    here::with(flush).unwrap_or(Ok(0))
}

/// The object. Counters count pages since the memory was created.
#[must_use]
pub fn json() -> Value {
    let reason = || json!({ "caching": false, "reason": here::reason(), "policy": null });
    here::with(of).unwrap_or_else(reason)
}

/// The reason in a status if nothing is cached.
#[must_use]
pub fn reason(status: &Value) -> Option<&str> {
    status["reason"].as_str()
}

fn of(armed: &Armed, pool: &Pool) -> Value {
    let area = pool.area();
    let log = pool.pages().status();
    let blocks = pool.pages().log().geometry().blocks;
    let reason = why_not(pool).or_else(|| {
        let why = "flash does not answer in larder.flash_timeout; the disk is used until it does";
        pool.is_overdue().then(|| why.to_owned())
    });
    json!({
        "caching": reason.is_none(),
        "reason": reason,
        "policy": pool.policy().name(),
        "page_bytes": armed.page_bytes,
        "flash_pages": blocks,
        "pages_cached": log.valid,
        "pages_dirty": log.dirty,
        "reads": area.get(Mark::Reads),
        "hits": area.get(Mark::Hits),
        "hits_page_cache": area.get(Mark::Near),
        "writes": area.get(Mark::Writes),
        "writes_absorbed": area.get(Mark::Absorbed),
        "written_back": area.get(Mark::WrittenBack),
        "writes_entered": area.get(Mark::WritesEntered),
        "clean_entered": area.get(Mark::CleanEntered),
        "clean_kept": area.get(Mark::CleanKept),
        "clean_changed": area.get(Mark::CleanChanged),
        "clean_no_room": area.get(Mark::CleanNoRoom),
        "clean_scanned": area.get(Mark::CleanScanned),
        "pages_written_to_flash": log.put.saturating_sub(area.get(Mark::ResetPut)),
        "writes_to_flash": log.batches.saturating_sub(area.get(Mark::ResetBatches)),
        "pages_again": log.appended_again.saturating_sub(area.get(Mark::ResetAgain)),
        "pages_left": pool
            .pages()
            .log()
            .host()
            .pages_evicted()
            .saturating_sub(area.get(Mark::ResetLeft)),
        "forks_retired": area.get(Mark::Retired),
        "starts": area.get(Mark::Starts),
        "stats_reset": statistics::reset_at(area),
    })
}

/// Why a cache that exists is not used.
#[must_use]
pub fn why_not(pool: &Pool) -> Option<String> {
    match pool.area().get(Mark::Failed) {
        0 if pool.works() => None,
        0 => Some("larder.disable() was called; larder.enable() uses flash again".to_owned()),
        errno => {
            let errno = Errno(errno as i32);
            Some(format!(
                "flash failed while the server ran ({errno}); the next start tries it again"
            ))
        }
    }
}

/// Disables the cache in all processes; flash keeps its pages.
///
/// # Errors
/// What failed, and what to do.
pub fn disable() -> Result<(), Refused> {
    let _may_fail = MayFail::new();
    let disable = |armed: &Armed, pool: &Pool| {
        if armed.policy().is_part() {
            let hint = "Set larder.policy to through or bounded and restart the server; the start writes all pages to the disk.";
            return Err(Refused::new(
                "larder.policy is full: flash is a part of the database",
                hint,
            ));
        }
        pool.disable().map_err(|error| {
            Refused::new(
                format!("the cache stays enabled: {error}"),
                "Check the disk and the SSD, then retry.",
            )
        })
    };
    here::with(disable).unwrap_or_else(|| Err(nothing_cached()))
}

/// Enables it again.
///
/// # Errors
/// What failed, and what to do.
pub fn enable() -> Result<(), Refused> {
    let enable = |_: &Armed, pool: &Pool| {
        pool.enable();
        why_not(pool)
            .map_or(Ok(()), |why| Err(Refused::new(why, "Check the SSD, then restart the server.")))
    };
    here::with(enable).unwrap_or_else(|| Err(nothing_cached()))
}

/// Why a server without a cache refuses a statement.
#[must_use]
pub fn nothing_cached() -> Refused {
    Refused::new(format!("nothing is cached: {}", here::reason()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_cache_states_the_reason() {
        let status = json();
        assert_eq!(status["caching"], false);
        assert!(reason(&status).is_some_and(|why| why.contains("not loaded")), "{status}");
        let why = "flash in \"/ssd\" cannot be used: Permission denied (os error 13)";
        here::set_reason(why);
        assert_eq!(reason(&json()), Some(why));
    }
}
