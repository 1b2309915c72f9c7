// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replacement policies against miss ratios that other programs computed from the shipped
//! trace (libcachesim 0.3.5, and exact simulations).
//!
//! With `LARDER_TRACES` naming a directory of `NAME.btr.zst` files and their
//! `reference_miss_ratios.json`, all that is there is compared too.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use larder_core::config::{ReplacementChoice, WithPolicy};
use larder_core::policy::replacement::{Lru, Replacement};
use larder_lab::hits::belady::Future;
use larder_lab::hits::replay::{Capacity, Policy, Replay};
use larder_lab::hits::{HitCache, Hits};
use larder_trace::{Options, Records, Trace};

/// Who is compared, by the reference's names, and how far a miss ratio may be off: half of the last
/// digit where the reference is exact or the variant is the same to the last decision, a point
/// where it differs in details.
const POLICIES: [(&str, Policy, f64); 9] = [
    ("FIFO", Policy::Engine(ReplacementChoice::Fifo), 0.000_06),
    ("LRU", Policy::Engine(ReplacementChoice::Lru), 0.000_06),
    ("CLOCK", Policy::Engine(ReplacementChoice::Clock), 0.000_06),
    ("ARC", Policy::Engine(ReplacementChoice::Arc), 0.000_06),
    ("2Q", Policy::Engine(ReplacementChoice::TwoQ), 0.000_06),
    ("LIRS", Policy::Engine(ReplacementChoice::Lirs), 0.01),
    ("S3FIFO", Policy::Engine(ReplacementChoice::S3Fifo), 0.01),
    ("SIEVE", Policy::Engine(ReplacementChoice::Sieve), 0.000_06),
    ("Belady", Policy::Belady, 0.000_06),
];

/// Capacity in pages, and the miss ratios in the order of [`POLICIES`].
const REFERENCE: [(u32, [f64; 9]); 4] = [
    (990, [0.985, 0.9851, 0.9851, 0.9184, 0.9128, 0.9164, 0.9013, 0.9374, 0.62]),
    (4954, [0.5701, 0.5529, 0.5636, 0.568, 0.589, 0.8245, 0.7946, 0.8395, 0.3755]),
    (9908, [0.4968, 0.464, 0.4752, 0.4839, 0.4265, 0.7207, 0.4807, 0.7501, 0.3032]),
    (24771, [0.3818, 0.3451, 0.3554, 0.3587, 0.332, 0.5359, 0.313, 0.5638, 0.2274]),
];

fn accesses() -> Vec<u64> {
    Records::shipped().unwrap().flat_map(|record| record.unwrap().pages()).collect()
}

struct Run<'a>(&'a [u64], u32);

impl WithPolicy for Run<'_> {
    type Out = Hits;

    fn with<P: Replacement + 'static>(self, policy: P) -> Hits {
        let mut cache = HitCache::new(policy, self.1);
        cache.access_all(self.0);
        cache.hits()
    }
}

fn hits(policy: Policy, accesses: &[u64], capacity: u32) -> Hits {
    match policy {
        Policy::Engine(choice) => choice.with(capacity, capacity, 4096, Run(accesses, capacity)),
        Policy::Belady => {
            let mut future = Future::default();
            accesses.iter().for_each(|page| future.push(*page));
            future.replay(capacity)
        }
    }
}

#[test]
fn every_policy_has_the_reference_miss_ratio() {
    let accesses = accesses();
    for (capacity, expected) in REFERENCE {
        for ((name, policy, tolerance), expected) in POLICIES.into_iter().zip(expected) {
            let found = hits(policy, &accesses, capacity);
            assert_eq!((found.accesses, found.unique), (476_972, 99_084));
            let found = found.miss_ratio();
            let near = (found - expected).abs() < tolerance;
            assert!(near, "{name} at {capacity}: {found}, not {expected}");
        }
    }
}

/// All rows are checked before the test fails, so that one run reports everything.
#[test]
fn other_traces_have_their_reference_miss_ratios() {
    let Some(dir) = std::env::var_os("LARDER_TRACES") else {
        eprintln!("skipped: LARDER_TRACES names no directory of traces");
        return;
    };
    let dir = Path::new(&dir);
    let text = std::fs::read_to_string(dir.join("reference_miss_ratios.json")).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(!rows.is_empty());
    let mut wrong = Vec::new();
    for row in &rows {
        let name = row["trace"].as_str().unwrap();
        let trace = Trace::new(&dir.join(format!("{name}.btr.zst")), Options::default());
        // Not its share: the reference rounds that to the nearest page.
        let capacity = Capacity::Bytes(row["cache_pages"].as_u64().unwrap() * 4096);
        for (key, policy, tolerance) in POLICIES {
            // The reference's S3-FIFO admits no page (1.0) where its small queue has one entry.
            if key == "S3FIFO" && row["cache_pages"].as_u64() < Some(20) {
                continue;
            }
            let trace = trace.clone();
            let found = Replay { trace, policy, unit_bytes: 4096, capacity }.run(|_| {}).unwrap();
            assert_eq!(row["unique"].as_u64(), Some(found.unique));
            let (found, expected) = (found.miss_ratio(), row[key].as_f64().unwrap());
            let off = (found - expected).abs();
            let pages = &row["cache_pages"];
            println!("{name} {pages} {key} {found:.4} {expected} {off:.4}");
            if off >= tolerance {
                wrong.push(format!("{name} {pages} {key}: {found:.4}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Sets of 512 pages with LRU each do nearly as well as one LRU over all.
#[test]
fn lru_in_large_sets_is_within_a_point_of_lru() {
    use larder_core::config::{Placement, preset};
    let flashcache = preset("flashcache").unwrap().choices();
    assert!(matches!(flashcache.placement, Placement::Sets { ways: 512, .. }));
    let lru = |capacity| HitCache::new(Lru::new(capacity, capacity), capacity);
    let mut whole = lru(512 * 48);
    let mut sets: Vec<_> = (0..48).map(|_| lru(512)).collect();
    let hashed = Placement::Sets { ways: 512, hashed: true };
    let mut misses = 0;
    for page in accesses() {
        whole.access(page);
        let set = hashed.set_of((page % (1 << 32)) as u32, 48);
        misses += u64::from(!sets[set as usize].access(page));
    }
    let whole = whole.hits();
    let difference = (misses as f64 - whole.misses as f64) / whole.accesses as f64;
    assert!(difference.abs() < 0.01, "{difference}");
}
