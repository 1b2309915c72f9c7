// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice from a trace: whether a flash cache pays, how large, in which mode, and how long flash
//! lasts.
//!
//! The miss-ratio curve of LRU ([`larder_trace::info`]) shows what any cache could hold; points with
//! full timing (`points.rs`) show what a client would wait. From these follow, by the rules of
//! [`knee`] and [`endurance`], a size and a preset, and the configuration that serves them (`words.rs`).
//!
//! Invariants: advice follows from the trace, the flags and the seed alone; what was left out or
//! assumed is said with it; "no" is an answer.

mod advice;
pub mod endurance;
mod entrants;
pub mod knee;
mod picture;
mod points;
mod words;

use anyhow::{Result, bail};
use larder_core::config::preset;
use larder_core::format::label::HEADER_BYTES;
use larder_trace::PAGE_BYTES;
use larder_trace::info::{Info, Progress, info};

pub use self::advice::{Advice, Advised, Misses};
use self::endurance::Wear;
use self::entrants::{Entrant, entrants};
use self::knee::Candidate;
pub use self::picture::page;
use self::points::{Alone, MIB};
pub use self::points::{Asked, REQUESTS};
use self::words::seconds;
pub use self::words::{other, size};
pub use crate::replays::Point;
use crate::scenario::volume::plan;

/// Worker threads for whose metadata there is room: the most that serving starts by itself.
const WORKERS: u32 = 4;
/// Sizes of the miss-ratio curve: so many, each half of the next, and one between any two.
const CURVE: u32 = 10;

/// Looks at a trace.
///
/// # Errors
/// The trace is malformed or empty, or there is no such device profile.
pub fn advise(asked: &Asked) -> Result<Advice> {
    let tell = |told| match told {
        Progress::Requests { pass, requests } => {
            crate::tell!("{}: pass {pass} of 2: {requests} requests", asked.name);
        }
        Progress::Exact(_) | Progress::TooLarge(_) => {}
    };
    let found = info(&asked.trace, false, tell)?;
    if found.totals.all.requests == 0 {
        bail!("{}: has no requests; accepted: at least one", asked.name);
    }
    let alone = points::alone(asked)?;
    let entrants = entrants(&alone);
    let (mut points, mut candidates, mut best) = (Vec::new(), Vec::new(), Vec::new());
    for entrant in &entrants {
        let all = alone.behind(asked, entrant.preset, &entrant.settings)?;
        let savings: Vec<f64> = all.iter().map(|p| alone.point.us() - p.us()).collect();
        if let Some(place) = knee::knee(&savings) {
            let advised = advised(asked, &alone, entrant, &all[place]);
            candidates.push(candidate(&alone, entrant, &advised));
            best.push(advised);
        }
        points.extend(all);
    }
    let chosen = knee::choose(&candidates);
    let pays = chosen.is_some_and(|place| candidates[place].pays);
    let advised = chosen.map(|place| best.swap_remove(place));
    let assumptions = words::assumptions(asked, &found, &alone, &entrants);
    Ok(Advice {
        requests: found.totals.all.requests,
        replayed_requests: alone.requests,
        write_ratio: found.totals.all.writes as f64 / found.totals.all.requests as f64,
        footprint_bytes: found.reuse.unique * PAGE_BYTES,
        touched_unit_bytes: alone.touched_bytes,
        duration_seconds: seconds(&found),
        keeps_times: alone.timed,
        pays,
        verdict: words::verdict(pays, &alone.point, advised.as_ref()),
        toml: advised.as_ref().map(|a| words::configuration(asked, pays, a)),
        others: best,
        advised,
        miss_ratio_curve: curve(&found, alone.touched_bytes),
        alone: alone.point,
        points,
        assumptions,
    })
}

fn advised(asked: &Asked, alone: &Alone, entrant: &Entrant, point: &Point) -> Advised {
    let factor = |of: fn(&Point) -> Option<f64>| Some(of(&alone.point)? / of(point)?);
    let saved = point.origin_operations as f64 / alone.point.origin_operations.max(1) as f64;
    let device_bytes = device_bytes(&point.system, alone.origin_bytes, point.flash_bytes);
    let endurance = asked.endurance.unwrap_or_default();
    Advised {
        warning: entrant.warning,
        update_seconds: entrant.update_seconds,
        device_bytes,
        read_factor: factor(|p| p.read_us_mean),
        write_factor: factor(|p| p.write_us_mean),
        origin_operations_saved_ratio: 1.0 - saved,
        wear: Wear::of(
            point.flash_write_bytes as f64,
            point.span_seconds,
            point.write_amplification,
            device_bytes,
            endurance,
        ),
        point: point.clone(),
    }
}

fn candidate(alone: &Alone, entrant: &Entrant, advised: &Advised) -> Candidate {
    Candidate {
        share: entrant.share,
        us: advised.point.us(),
        pays: knee::pays(points::means(&alone.point), points::means(&advised.point)),
        years: advised.wear.years,
    }
}

/// Bytes of a flash device with so many bytes of slots: the label and the journal come first.
fn device_bytes(system: &str, origin_bytes: u64, slot_bytes: u64) -> u64 {
    let metadata = |choices| plan(&choices, origin_bytes, slot_bytes, WORKERS).slots_at;
    let before = preset(system).map_or(0, |preset| HEADER_BYTES + metadata(preset.choices()));
    (before + slot_bytes).next_multiple_of(MIB)
}

/// LRU, exactly where that is known, else from the sample.
fn curve(found: &Info, touched_bytes: u64) -> Vec<Misses> {
    let curve = if found.reuse.exact { &found.reuse.curve } else { &found.sampled };
    let all = touched_bytes.max(PAGE_BYTES);
    let sizes = (0..CURVE).rev().flat_map(|n| [(all >> n) / 4 * 3, all >> n]);
    let misses = |bytes: u64| Misses {
        flash_bytes: bytes,
        miss_ratio: curve.miss_ratio(bytes / PAGE_BYTES),
    };
    sizes.filter(|bytes| *bytes >= PAGE_BYTES).map(misses).collect()
}

#[cfg(test)]
mod tests {
    use larder_core::config::DEFAULT_PRESET;

    use super::*;

    #[test]
    fn a_device_has_room_for_label_and_metadata_too() {
        let (origin, slots) = (1 << 40, 64 << 30);
        let volatile = device_bytes("slru", origin, slots);
        assert_eq!(volatile, HEADER_BYTES + slots);
        for journaled in [DEFAULT_PRESET, "prwc"] {
            let bytes = device_bytes(journaled, origin, slots);
            assert!(bytes > volatile && bytes < slots + slots / 50, "{journaled}: {bytes}");
            assert_eq!(bytes % MIB, 0);
        }
    }
}
