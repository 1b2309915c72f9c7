// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replacement policies against miss ratios that other programs computed from the shipped
//! trace (libcachesim 0.3.5, and exact simulations), to the fourth digit.
#![allow(clippy::unwrap_used)]

use larder_core::preset::ReplacementChoice;
use larder_sim::hits::HitCache;
use larder_trace::Records;

/// Capacity in pages, and the miss ratios of FIFO, LRU, CLOCK, ARC, S3-FIFO and SIEVE.
const REFERENCE: [(u32, [f64; 6]); 4] = [
    (990, [0.985, 0.9851, 0.9851, 0.9184, 0.9013, 0.9374]),
    (4954, [0.5701, 0.5529, 0.5636, 0.568, 0.7946, 0.8395]),
    (9908, [0.4968, 0.464, 0.4752, 0.4839, 0.4807, 0.7501]),
    (24771, [0.3818, 0.3451, 0.3554, 0.3587, 0.313, 0.5638]),
];

const POLICIES: [ReplacementChoice; 6] = [
    ReplacementChoice::Fifo,
    ReplacementChoice::Lru,
    ReplacementChoice::Clock,
    ReplacementChoice::Arc,
    ReplacementChoice::S3Fifo,
    ReplacementChoice::Sieve,
];

fn accesses() -> Vec<u64> {
    Records::shipped().unwrap().flat_map(|record| record.unwrap().pages()).collect()
}

#[test]
fn every_policy_has_the_reference_miss_ratio() {
    let accesses = accesses();
    assert_eq!(accesses.len(), 476_972);
    for (capacity, expected) in REFERENCE {
        for (policy, expected) in POLICIES.into_iter().zip(expected) {
            let mut cache = HitCache::new(policy, capacity);
            for page in &accesses {
                cache.access(*page);
            }
            let found = cache.hits().miss_ratio();
            assert!(
                (found - expected).abs() < 0.000_06,
                "{policy:?} at {capacity}: {found}, not {expected}"
            );
        }
    }
}

/// Sets of 512 pages with LRU each do nearly as well as one LRU over all.
#[test]
fn lru_in_large_sets_is_within_a_point_of_lru() {
    use larder_core::preset::{Placement, preset};
    let flashcache = preset("flashcache").unwrap().choices();
    assert!(matches!(flashcache.placement, Placement::Sets { ways: 512, .. }));
    let capacity = 512 * 48;
    let mut whole = HitCache::new(ReplacementChoice::Lru, capacity);
    let mut sets: Vec<_> = (0..48).map(|_| HitCache::new(ReplacementChoice::Lru, 512)).collect();
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
