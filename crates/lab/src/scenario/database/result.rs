// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run of a database gives, as JSON.
//!
//! `tpmc` New-Orders a minute; `flash_hit_ratio` of the pages that the pool had to fetch; `write_reduction`
//! 1 - (pages written to disk) / (changed pages that left the pool or were checkpointed), as FaCE 6.3 has it;
//! `stale_ratio` the part of the flash in use that holds versions that are not the last; `flash` and `disk`: rates
//! and `utilisation`, the part of the time with operations in flight. `flash.sequential_ratio` is the part
//! of the writes that begin where the last one ended. `all_..` count from the first transaction on. `restart` (after `crash = "crash"`): times in
//! seconds at full size, which are those of the run divided by the scale, as all that is read then shrinks
//! with it.

use larder_core::exec::{Nanos, SECOND};
use serde_json::{Value as Json, json};

use crate::database::{Outcome, PAGE_BYTES, Restart, Spec, Tally};

fn seconds(span: Nanos) -> f64 {
    span as f64 / SECOND as f64
}

fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

fn device(tally: &Tally, span: Nanos) -> Json {
    let seconds = seconds(span).max(1e-9);
    json!({
        "reads_per_second": tally.reads as f64 / seconds,
        "writes_per_second": tally.writes as f64 / seconds,
        "read_bytes_per_second": tally.read_bytes as f64 / seconds,
        "written_bytes_per_second": tally.written_bytes as f64 / seconds,
        "pages_per_second": (tally.read_bytes + tally.written_bytes) as f64 / PAGE_BYTES as f64 / seconds,
        "mean_write_kib": ratio(tally.written_bytes, tally.writes) / 1024.0,
        "sequential_ratio": ratio(tally.sequential_writes, tally.writes),
        "utilisation": ratio(tally.busy_ns, span),
    })
}

fn restart(restart: &Restart, spec: &Spec, part: f64) -> Json {
    let full = |span: Nanos| seconds(span) / part;
    let span = spec.crash.map_or(1.0, |crash| seconds(crash.span).max(1e-9));
    let after = restart.new_orders.iter().map(|count| *count as f64 * 60.0 / span);
    json!({
        "seconds": full(restart.directory_ns + restart.redo_ns),
        "directory_seconds": full(restart.directory_ns),
        "directory_mib": restart.directory_bytes as f64 / part / f64::from(1 << 20),
        "redo_seconds": full(restart.redo_ns),
        "redo_changes": restart.changes,
        "redo_fetches": restart.redo_fetches,
        "redo_flash_ratio": ratio(restart.redo_flash_hits, restart.redo_fetches),
        "stop_seconds": full(restart.stop_ns),
        "after_tpmc": after.collect::<Vec<f64>>(),
        "wrong": restart.wrong,
    })
}

pub(super) fn json(spec: &Spec, outcome: &Outcome, part: f64) -> Json {
    let (pool, frames) = (&outcome.pool, &outcome.frames);
    let written = outcome.disk.written_bytes / PAGE_BYTES;
    let wear = outcome.wear.map(|wear| wear.write_amplification());
    json!({
        "seconds": seconds(outcome.span_ns),
        "transactions": outcome.transactions,
        "tpmc": outcome.new_orders as f64 * 60.0 / seconds(outcome.span_ns).max(1e-9),
        "pool_hit_ratio": 1.0 - ratio(pool.misses, pool.accesses),
        "misses_per_transaction": ratio(pool.misses, outcome.transactions),
        "flash_hit_ratio": ratio(pool.flash_hits, pool.misses),
        "dirty_left": pool.dirty_left,
        "disk_pages_written": written,
        "write_reduction": 1.0 - ratio(written, pool.dirty_left),
        "flash_pages": spec.flash_pages,
        "flash_used_ratio": ratio(frames.used, frames.all),
        "flash_dirty_ratio": ratio(frames.dirty, frames.all),
        "stale_ratio": ratio(frames.stale, frames.used),
        "filled_laps": outcome.filled_laps,
        "entered": outcome.entered,
        "disk": device(&outcome.disk, outcome.span_ns),
        "flash": device(&outcome.flash, outcome.span_ns),
        "write_amplification": wear,
        "all_dirty_left": outcome.totals.0,
        "all_disk_pages_written": outcome.totals.1,
        "wrong": pool.wrong,
        "restart": outcome.restart.as_ref().map(|r| restart(r, spec, part)),
    })
}
