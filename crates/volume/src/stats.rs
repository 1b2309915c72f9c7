// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to `stats`.

use larder_core::config::Memory;
use larder_core::desk::Requests;
use larder_core::shard::CacheStatus;
use larder_core::stats::Counters;
use serde::Serialize;

use super::latency::Latencies;

/// What a worker holds for clients.
pub(crate) struct Clients {
    pub bytes: u64,
    /// Memory of what is noted of their requests.
    pub noted_bytes: u64,
    pub kept_bytes: u64,
}

/// What a worker counts of the clients of a volume.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    pub requests: Requests,
    pub latencies: Latencies,
}

/// The counters of a volume, or of all volumes of a cache, since the start. What is not counted by volume is that of the
/// cache.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Client requests.
    #[serde(flatten)]
    pub requests: Requests,
    /// Operations of the engine for them.
    #[serde(flatten)]
    pub counters: Counters,
    /// Slots.
    pub units_total: u64,
    /// Slots in use; of a volume that shares its cache: with its units.
    pub units_used: u64,
    /// Units with dirty data: none in a clean cache.
    pub units_dirty: u64,
    /// Under the write policy `ordered`: for how long the oldest change has waited for the origin.
    pub origin_behind_ns: u64,
    /// Units on flash that a rule keeps there, of all volumes.
    pub units_pinned: u64,
    /// Bytes that the budget of flash writes leaves at this moment, or that are owed to it if negative; null without one.
    pub flash_write_left_bytes: Option<i64>,
    /// Memory of maps, slots, bitmaps, buffers and the recorder, with client_bytes and kept_bytes.
    pub memory_bytes: u64,
    /// Memory of connections and of their requests in flight.
    pub client_bytes: u64,
    /// Buffers that workers keep for reuse.
    pub kept_bytes: u64,
    /// How often a request of a client waited for memory, in all volumes of the process.
    pub memory_waits: u64,
    /// `caching`, `pass-through`, `suspended`, `detaching` or `failed`.
    pub state: &'static str,
    /// Latencies of requests.
    #[serde(skip)]
    pub latencies: Latencies,
    /// Whether a shard bypasses flash because an operation is overdue.
    #[serde(skip)]
    pub(crate) suspended: bool,
}

impl Stats {
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            requests: Requests::default(),
            counters: Counters::default(),
            units_total: 0,
            units_used: 0,
            units_dirty: 0,
            origin_behind_ns: 0,
            units_pinned: 0,
            flash_write_left_bytes: None,
            memory_bytes: memory.full_bytes(),
            client_bytes: 0,
            kept_bytes: 0,
            memory_waits: 0,
            state: "",
            latencies: Latencies::default(),
            suspended: false,
        }
    }

    pub(crate) fn add(
        &mut self,
        tally: &Tally,
        counters: Counters,
        cache: Option<CacheStatus>,
        clients: Clients,
    ) {
        self.client_bytes += clients.bytes;
        self.kept_bytes += clients.kept_bytes;
        self.memory_bytes += clients.bytes + clients.kept_bytes + clients.noted_bytes;
        self.requests += tally.requests;
        self.latencies += &tally.latencies;
        self.counters += counters;
        if let Some(cache) = cache {
            self.units_total += cache.units_total;
            self.units_used += cache.units_used;
            self.units_dirty += cache.units_dirty;
            self.origin_behind_ns = self.origin_behind_ns.max(cache.behind);
            self.units_pinned += cache.units_kept;
            self.memory_bytes += cache.bitmap_bytes;
            self.suspended |= cache.suspended;
        }
    }
}
