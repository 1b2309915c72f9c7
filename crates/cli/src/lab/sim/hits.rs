// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --hits`: hits and misses of a replacement policy over a trace.

use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use larder_io::{format_size, rough_size};
use larder_lab::hits::replay::{Capacity, Policy, Replay, Told};
use larder_trace::{PAGE_BYTES, Trace};
use serde_json::json;

use super::args::SimArgs;
use crate::out;
use crate::setting::BadSetting;

/// Runs the command.
pub(super) fn hits(args: &SimArgs) -> Result<()> {
    let (Some(trace), Some(policy), Some(capacity)) =
        (&args.trace, &args.replacement, args.capacity)
    else {
        bail!("--hits needs --trace, --replacement and --capacity");
    };
    let policy = policy.parse::<Policy>().map_err(|why| anyhow!("--replacement: {why}"))?;
    let unit_bytes = args.unit.unwrap_or(PAGE_BYTES);
    if let Capacity::Bytes(bytes) = capacity
        && bytes < unit_bytes
    {
        let (bytes, unit) = (format_size(bytes), format_size(unit_bytes));
        let why = format!("accepted at least one unit, {unit}, or a share as 5%");
        bail!(BadSetting::of("capacity", bytes, why));
    }
    let trace = Trace::new(trace, args.read.options());
    let replay = Replay { trace, policy, unit_bytes, capacity };
    let begin = Instant::now();
    let told = |told| match told {
        Told::Accesses(n) => out::tell!("{n} accesses, {:.0} s", begin.elapsed().as_secs_f64()),
        Told::Memory(bytes) => {
            out::tell!("belady keeps the trace: takes up to {} of memory", rough_size(bytes));
        }
    };
    let hits = replay.run(told).map_err(|e| anyhow!("{e}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    let per_second = hits.accesses as f64 / seconds.max(1e-9);
    if args.json {
        return out::line(json!({
            "accesses": hits.accesses,
            "unique": hits.unique,
            "misses": hits.misses,
            "miss_ratio": hits.miss_ratio(),
            "accesses_per_second": per_second,
            "wall_seconds": seconds,
        }));
    }
    out::line(format!(
        "{} accesses to {} units, {} misses, miss ratio {:.4}; {:.1} million accesses/s, {seconds:.2} s",
        hits.accesses,
        hits.unique,
        hits.misses,
        hits.miss_ratio(),
        per_second / 1e6
    ))
}
