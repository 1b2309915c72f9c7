// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caches that may be tortured: presets, each with the kind of cache that it makes.

use larder_core::config::WritePolicy;

use super::kinds::{
    BALANCED, BALANCED_WRITE_BACK, EXTENDED, EXTENDED_VOLATILE, JOURNALED, Kind, LOG_BOUNDED,
    LOG_FULL, LOG_ORDERED, LOG_THROUGH, SYNCED, SYNCED_AT_ONCE, SYNCED_BY_EVICTION,
    UNLOGGED_WRITE_BACK, VOLATILE, WRITE_BACK,
};

/// A preset with a kind of cache that it makes.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    /// The preset's name.
    pub preset: &'static str,
    /// The kind.
    pub kind: &'static Kind,
    /// How many seeds of a row take it, of the sum of those that the row takes.
    pub weight: u32,
    /// The write policy of some of its volumes, instead of the preset's.
    pub also: Option<WritePolicy>,
}

const fn cache(preset: &'static str, kind: &'static Kind, weight: u32) -> Cache {
    Cache { preset, kind, weight, also: None }
}

impl Cache {
    const fn or(self, write: WritePolicy) -> Self {
        Self { also: Some(write), ..self }
    }
}

/// What may be tortured. A row of the swarm takes those of the kinds that it is about.
pub const CACHES: &[Cache] = &[
    cache("larder", &EXTENDED, 3).or(WritePolicy::WriteThrough),
    cache("larder", &EXTENDED_VOLATILE, 1).or(WritePolicy::WriteThrough),
    cache("larder", &BALANCED, 3).or(WritePolicy::WriteThrough),
    cache("prwc", &BALANCED_WRITE_BACK, 2),
    cache("prwc", &UNLOGGED_WRITE_BACK, 2),
    cache("sce", &JOURNALED, 12).or(WritePolicy::WriteThrough),
    cache("sce", &VOLATILE, 3).or(WritePolicy::WriteThrough),
    cache("prwc", &WRITE_BACK, 8),
    cache("proc", &JOURNALED, 3),
    cache("slru", &JOURNALED, 2),
    cache("slru", &VOLATILE, 1),
    cache("flashcache", &JOURNALED, 2),
    cache("flashcache", &VOLATILE, 1),
    cache("enhanceio", &JOURNALED, 1),
    cache("enhanceio", &VOLATILE, 1),
    cache("bcache", &JOURNALED, 1),
    cache("bcache", &VOLATILE, 1),
    cache("flashcache", &SYNCED, 2),
    cache("bcache", &SYNCED, 2),
    cache("enhanceio", &SYNCED, 1),
    cache("flashcache", &SYNCED_AT_ONCE, 1),
    cache("bcache", &SYNCED_AT_ONCE, 1),
    cache("flashcache", &SYNCED_BY_EVICTION, 1),
    cache("bcache", &SYNCED_BY_EVICTION, 1),
    cache("face", &LOG_FULL, 3),
    cache("face-basic", &LOG_FULL, 1),
    cache("face", &LOG_ORDERED, 3),
    cache("face-basic", &LOG_ORDERED, 1),
    cache("face", &LOG_BOUNDED, 3),
    cache("face-basic", &LOG_BOUNDED, 1),
    cache("face", &LOG_THROUGH, 3),
    cache("face-basic", &LOG_THROUGH, 1),
];
