// SPDX-License-Identifier: MIT OR Apache-2.0
//! The statistics as SQL has them: JSON, from which the extension's views make rows.
//!
//! A reset sets the counters of the shared area to zero. The log's own counters also number its batches and are never set
//! back, so a reset notes them, and the views have the difference.
//!
//! Why JSON and no sets of rows: a set needs structures of the server that differ between its versions.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::area::{Area, Mark};
use crate::here::{self, Armed};
use crate::names::Number;
use crate::pool::Pool;
use crate::settings;
use crate::tally::{self, Operation};

/// The counters that a reset sets to zero. The server's starts are counted on.
const COUNTERS: [Mark; 14] = [
    Mark::Reads,
    Mark::Hits,
    Mark::Near,
    Mark::Writes,
    Mark::WritesEntered,
    Mark::Absorbed,
    Mark::WrittenBack,
    Mark::CleanEntered,
    Mark::CleanKept,
    Mark::CleanChanged,
    Mark::CleanNoRoom,
    Mark::CleanScanned,
    Mark::Retired,
    Mark::FlashBytes,
];

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// When counters began with zero, in seconds since 1970.
#[must_use]
pub fn reset_at(area: &Area) -> f64 {
    area.get(Mark::ResetAt) as f64 / 1e3
}

/// Counters begin with zero.
pub fn reset() {
    here::with(|_, pool| reset_of(pool));
}

fn reset_of(pool: &Pool) {
    let (area, log) = (pool.area(), pool.pages().status());
    COUNTERS.into_iter().for_each(|mark| area.set(mark, 0));
    area.tally().reset();
    area.set(Mark::ResetPut, log.put);
    area.set(Mark::ResetBatches, log.batches);
    area.set(Mark::ResetAgain, log.appended_again);
    area.set(Mark::ResetLeft, pool.pages().log().host().pages_evicted());
    area.set(Mark::ResetAt, now_ms());
}

/// Operations with their histograms, and what flash has endured; null if nothing is cached.
#[must_use]
pub fn io() -> Value {
    here::with(|_, pool| io_of(pool.area())).unwrap_or(Value::Null)
}

fn io_of(area: &Area) -> Value {
    let operation = |operation: Operation| {
        let calls = area.tally().calls(operation);
        let mut sum = 0;
        let bucket = |(bucket, count): (usize, &u64)| {
            sum += count;
            let limit = tally::limit_ns(bucket).map(|ns| ns as f64 / 1e9);
            json!({ "upto_seconds": limit, "calls": count, "calls_upto": sum })
        };
        let buckets: Vec<Value> = calls.buckets.iter().enumerate().map(bucket).collect();
        json!({
            "operation": operation.name(),
            "calls": sum,
            "bytes": calls.bytes,
            "seconds": calls.ns as f64 / 1e9,
            "buckets": buckets,
        })
    };
    json!({
        "operations": Operation::ALL.map(operation),
        "bytes_written": area.get(Mark::FlashBytes),
        "endurance_bytes": settings::endurance_bytes(),
        "seconds": now_ms().saturating_sub(area.get(Mark::ResetAt)) as f64 / 1e3,
        "stats_reset": reset_at(area),
    })
}

/// What flash has of the relations of a database, and of those that all databases share.
#[must_use]
pub fn relations(database: u32) -> Value {
    let of = |_: &Armed, pool: &Pool| relations_of(pool, database);
    here::with(of).unwrap_or_else(|| json!([]))
}

/// Figures of the files of a relation.
#[derive(Default)]
struct Figures {
    reads: u64,
    hits: u64,
    cached: u64,
    dirty: u64,
    pinned: u64,
}

fn relations_of(pool: &Pool, database: u32) -> Value {
    let area = pool.area();
    let mut relations: BTreeMap<(u32, u32), Figures> = BTreeMap::new();
    let mut numbers: BTreeMap<usize, (Number, (u32, u32))> = BTreeMap::new();
    for (number, extent) in area.names().numbers() {
        let fork = extent.fork;
        if ![0, database].contains(&fork.database) {
            continue;
        }
        let key = (fork.tablespace, fork.relation);
        let [reads, hits] = area.tally().reads(number.entry());
        let figures = relations.entry(key).or_default();
        figures.reads += reads;
        figures.hits += hits;
        figures.pinned = figures.pinned.max(area.pins().pages(&fork));
        numbers.insert(number.entry(), (number, key));
    }
    for (page, _, dirty) in pool.pages().log().valid_pages() {
        let number = Number::of_page(page).0;
        let found = numbers.get(&number.entry()).filter(|(now, _)| *now == number);
        if let Some(figures) = found.and_then(|(_, key)| relations.get_mut(key)) {
            figures.cached += 1;
            figures.dirty += u64::from(dirty);
        }
    }
    let row = |((tablespace, filenode), figures): ((u32, u32), Figures)| {
        json!({
            "tablespace": tablespace,
            "filenode": filenode,
            "reads": figures.reads,
            "hits": figures.hits,
            "pages_cached": figures.cached,
            "pages_dirty": figures.dirty,
            "pages_pinned": figures.pinned,
        })
    };
    relations.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use larder_core::pagelog::LogPolicy;

    use super::*;
    use crate::file::Fork;
    use crate::rig::{FORK, Place};

    #[test]
    fn relations_have_their_own_figures_and_a_new_file_begins_with_zero() {
        let place = Place::new();
        let run = place.start(LogPolicy::Bounded).unwrap();
        std::fs::create_dir_all(place.data.path().join("base/6")).unwrap();
        let (map, other) = (Fork { kind: 2, ..FORK }, Fork { database: 6, ..FORK });
        (0..3).for_each(|block| run.put(&FORK, block, 1));
        run.put(&map, 0, 1);
        run.put(&other, 0, 1);
        for block in [0, 1, 7] {
            let page = run.pool.page(&FORK, block).unwrap();
            let _ = run.pool.begin_read(page, crate::pool::Use::Access);
            let _ = crate::rig::fetch(&run.pool, page);
        }
        let found = relations_of(&run.pool, 5);
        let expected = json!([{
            "tablespace": 1663, "filenode": 100, "reads": 3, "hits": 2, "pages_cached": 4, "pages_dirty": 4,
            "pages_pinned": 0,
        }]);
        assert_eq!(found, expected);
        run.pool.drain().unwrap();
        assert_eq!(relations_of(&run.pool, 5)[0]["pages_dirty"], 0);
        run.pool.flash().retire(&FORK, 0);
        run.put(&FORK, 9, 1);
        let found = &relations_of(&run.pool, 5)[0];
        assert_eq!((&found["reads"], &found["pages_cached"]), (&json!(0), &json!(2)), "{found}");
    }

    #[test]
    fn a_reset_begins_with_zero_and_keeps_the_number_of_starts() {
        let place = Place::new();
        let run = place.start(LogPolicy::Bounded).unwrap();
        let area = run.pool.area();
        (0..20).for_each(|block| run.put(&FORK, block, 1));
        run.pool.flash().flush_log().unwrap();
        let before = io_of(area);
        assert!(before["bytes_written"].as_u64().unwrap() >= 20 * 8192, "{before}");
        let write = &before["operations"][1];
        assert_eq!(
            (&write["operation"], &write["bytes"]),
            (&json!("flash_write"), &before["bytes_written"])
        );
        assert_eq!(write["buckets"][tally::LIMITS]["calls_upto"], write["calls"]);
        area.count(Mark::Starts);
        reset_of(&run.pool);
        let after = io_of(area);
        assert_eq!(
            (&after["bytes_written"], &after["operations"][1]["calls"]),
            (&json!(0), &json!(0))
        );
        assert!(COUNTERS.iter().all(|mark| area.get(*mark) == 0) && area.get(Mark::Starts) > 0);
        assert_eq!(area.get(Mark::ResetPut), run.pool.pages().status().put);
        assert!(reset_at(area) > 1.7e9);
    }
}
