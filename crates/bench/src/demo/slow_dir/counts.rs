// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reached the modelled disk: operations and bytes, in all and by what lies at the top of the directory.
//!
//! Invariants: an operation counts when it is answered, and once, however many extents it spans.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

/// The file at the top that has the counters; no listing shows it.
pub const STATS: &str = ".slow-stats";

/// The most entries at the top that are counted by name; the others are counted together.
const MOST_GROUPS: usize = 64;
/// What those are called.
const OTHERS: &str = "...";

/// Counters of a part of the directory.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub write_bytes: AtomicU64,
    pub flushes: AtomicU64,
}

impl Counts {
    pub fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn written(&self, bytes: u64) {
        self.writes.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn flushed(&self) {
        self.flushes.fetch_add(1, Relaxed);
    }

    fn figures(&self) -> [(&'static str, u64); 5] {
        [
            ("reads", self.reads.load(Relaxed)),
            ("read_bytes", self.read_bytes.load(Relaxed)),
            ("writes", self.writes.load(Relaxed)),
            ("write_bytes", self.write_bytes.load(Relaxed)),
            ("flushes", self.flushes.load(Relaxed)),
        ]
    }
}

/// All counters, by the name of the entry at the top.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<BTreeMap<OsString, Arc<Counts>>>);

impl Groups {
    /// The counters of what lies below an entry at the top.
    pub fn named(&self, name: &OsStr) -> Arc<Counts> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = match groups.len() < MOST_GROUPS || groups.contains_key(name) {
            true => name,
            false => OsStr::new(OTHERS),
        };
        Arc::clone(groups.entry(name.to_owned()).or_default())
    }

    /// One JSON object: the sums, and `below` with those of each entry.
    pub fn json(&self, device: &str) -> Value {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Map<String, Value> = Map::new();
        let mut below = Map::new();
        let mut sums = Counts::default().figures();
        for (name, counts) in groups.iter() {
            let figures = counts.figures();
            sums.iter_mut().zip(figures).for_each(|(sum, (_, more))| sum.1 += more);
            let group: Map<_, _> =
                figures.map(|(key, n)| (key.to_owned(), json!(n))).into_iter().collect();
            if figures.iter().any(|(_, n)| *n > 0) {
                below.insert(name.to_string_lossy().into_owned(), Value::Object(group));
            }
        }
        all.insert("device".to_owned(), json!(device));
        all.extend(sums.map(|(key, n)| (key.to_owned(), json!(n))));
        all.insert("below".to_owned(), Value::Object(below));
        Value::Object(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_entries() {
        let groups = Groups::default();
        groups.named(OsStr::new("data")).read(8192);
        groups.named(OsStr::new("data")).written(100);
        groups.named(OsStr::new("wal")).written(50);
        groups.named(OsStr::new("wal")).flushed();
        let json = groups.json("cloud");
        assert_eq!((&json["reads"], &json["write_bytes"]), (&json!(1), &json!(150)));
        assert_eq!(json["below"]["wal"]["flushes"], 1);
        assert_eq!(json["below"]["data"]["read_bytes"], 8192);
        for number in 0..1000 {
            groups.named(OsStr::new(&number.to_string())).flushed();
        }
        let json = groups.json("cloud");
        assert_eq!(json["flushes"], 1001);
        assert!(json["below"].as_object().unwrap().len() <= MOST_GROUPS + 1);
    }
}
