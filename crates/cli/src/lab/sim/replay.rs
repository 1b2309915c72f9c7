// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --trace T --preset P`: flags as a scenario of the kind `volume` with the load `trace`.

use anyhow::{Context, Result};
use larder_lab::replays::Replayed;

use super::args::SimArgs;
use crate::choices::DurabilityArg;

/// The replay that the flags describe.
pub(super) fn replayed(args: &SimArgs, preset: &str) -> Result<Replayed> {
    let (replay, path) = (&args.replay, args.trace.as_deref().context("--preset needs --trace")?);
    let path = path.to_str().context("--trace: is no UTF-8, as a scenario must be")?;
    let durability = replay.durability.map(|durability| match durability {
        DurabilityArg::Volatile => "volatile",
        DurabilityArg::Journal => "journal",
        DurabilityArg::Log => "log",
    });
    Ok(Replayed {
        path: path.to_owned(),
        read: args.read.options(),
        system: preset.to_owned(),
        origin: replay.origin_profile.clone(),
        flash: replay.flash_profile.clone(),
        unit_bytes: args.unit,
        replacement: args.replacement.clone(),
        durability: durability.map(str::to_owned),
        flash_size: replay.flash_size,
        speed: replay.speed,
        outstanding: replay.outstanding,
        warm_up_share: replay.warm_up,
        requests: replay.requests,
        seed: None,
    })
}
