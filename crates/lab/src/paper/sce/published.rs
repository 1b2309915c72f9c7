// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paper states of its configurations A (large) and B (small), by system.

/// The caches that the paper compares, ours first.
pub(super) const CACHES: [&str; 4] = ["sce", "flashcache", "bcache", "enhanceio"];
/// Transactions of ours for one that TPC-E counts ([`crate::load`]).
pub(super) const EACH_COUNTED: f64 = 10.0;
/// Transactions that TPC-E counts, a second, in the last hour (Table 1; SCE's by its ratios).
pub(super) const LARGE_TPSE: [(&str, f64); 6] = [
    ("all-flash", 87.9),
    ("sce", 82.6),
    ("flashcache", 56.9),
    ("enhanceio", 17.5),
    ("bcache", 17.3),
    ("no-cache", 11.2),
];
/// Read hits of the last hour in per cent (Table 1, Figure 7b).
pub(super) const LARGE_HITS: [(&str, f64); 4] =
    [("sce", 100.0), ("flashcache", 98.66), ("bcache", 96.75), ("enhanceio", 96.52)];
/// Response times over all-flash's (Figure 7c).
pub(super) const LARGE_RESPONSES: [(&str, f64); 4] =
    [("sce", 1.17), ("flashcache", 2.6), ("bcache", 11.0), ("enhanceio", 11.0)];
/// Read hits of the last hour in per cent (Figure 9b).
pub(super) const SMALL_HITS: [(&str, f64); 4] =
    [("sce", 91.1), ("bcache", 83.0), ("flashcache", 50.0), ("enhanceio", 25.0)];
/// Transactions under write-back for one under write-through (4.4).
pub(super) const BACK_GAINS: [(&str, f64); 3] =
    [("flashcache", 1.97), ("bcache", 1.83), ("enhanceio", 2.36)];
/// SCE's transactions for one of the best of them (4.4).
pub(super) const BACK_LEAD: f64 = 1.8;
/// What was changed of A's rows after a first run: see `fit.rs`.
pub(super) const A_CHANGED: &str = "the load, fitted to the comparison systems";
/// And of B's: see the module.
pub(super) const B_CHANGED: &str =
    "the scale, from 1/16 to 1/4, and the load, fitted to the comparison systems";
