// SPDX-License-Identifier: MIT OR Apache-2.0
//! What volumes that share a flash came to.
//!
//! Of `volumes`, in order, and of `hit_ratio`, which is of all their reads: what the clients saw from the second turn of a
//! volume on, and `turn_hit_ratios` of every turn. Amounts are of the whole run and of all volumes.

use larder_core::config::Memory;
use larder_core::exec::SECOND;
use serde_json::{Value as Json, json};

use super::tally::{Arrangement, Tally, Totals, Turn, Volume};

pub(super) fn json(of: &Arrangement, tallies: &[Tally], totals: &Totals) -> Json {
    let counters = &totals.counters;
    let counted = tallies.iter().map(Tally::counted);
    let (reads, hits) =
        counted.fold((0, 0), |(reads, hits), t| (reads + t.reads, hits + t.read_hits));
    let volumes: Vec<Json> =
        of.parts.iter().zip(tallies).map(|(part, tally)| volume(part, tally)).collect();
    json!({
        "hit_ratio": hits as f64 / reads.max(1) as f64,
        "volumes": volumes,
        "reads": totals.requests.reads,
        "read_hits": totals.requests.read_hits,
        "writes": totals.requests.writes,
        "write_hits": totals.requests.write_hits,
        "flash_read_bytes": counters.flash_read_bytes,
        "flash_write_bytes": counters.flash_write_bytes,
        "origin_read_bytes": counters.origin_read_bytes,
        "origin_write_bytes": counters.origin_write_bytes,
        "population_bytes": counters.population_bytes,
        "populations": counters.populations,
        "evictions": counters.evictions,
        "memory_bytes": memory_bytes(of),
    })
}

fn volume(part: &Volume, tally: &Tally) -> Json {
    let counted = tally.counted();
    let seconds = (counted.samples * part.setup.sample) as f64 / SECOND as f64;
    json!({
        "hit_ratio": counted.hit_ratio(),
        "turn_hit_ratios": tally.turns.iter().map(Turn::hit_ratio).collect::<Vec<_>>(),
        "reads": counted.reads,
        "read_hits": counted.read_hits,
        "writes": counted.writes,
        "transactions_per_second": counted.transactions as f64 / seconds.max(f64::MIN_POSITIVE),
        "read_us_mean": tally.read_ns.mean_us(),
        "read_us_p99": tally.read_ns.quantile_us(0.99),
    })
}

/// Of the cache, or of all caches.
fn memory_bytes(of: &Arrangement) -> u64 {
    let memory = |data_bytes: u64, part: &Volume| {
        let setup = &part.setup;
        Memory::of(data_bytes, setup.flash_bytes, &setup.choices, &setup.limits, 1).worst_bytes()
    };
    match of.parts.first() {
        Some(first) if !of.apart => {
            memory(of.parts.iter().map(|part| part.setup.data_bytes).sum(), first)
        }
        _ => of.parts.iter().map(|part| memory(part.setup.data_bytes, part)).sum(),
    }
}
