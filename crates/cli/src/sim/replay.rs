// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --trace T --preset P`: flags as a scenario of the kind `volume` with the load `trace`.
//!
//! Why a scenario: what flags can say a file can, and the other way round, and there is one way to
//! run it.

use anyhow::{Context, Result};
use clap::Args;
use larder_lab::hits::replay::Capacity;
use larder_lab::scenario::Scenario;
use toml::Value;

use super::SimArgs;
use super::hits::capacity;
use crate::args::DurabilityArg;
use crate::units::ratio;

/// How a trace is replayed, with full timing.
#[derive(Args, Debug)]
#[command(next_help_heading = "A trace under a preset (--trace TRACE --preset NAME)")]
pub struct ReplayArgs {
    /// Replay the trace over modelled devices behind this cache: a name as in `larder presets`, or
    /// no-cache, or all-flash
    #[arg(long, value_name = "NAME", requires = "trace")]
    pub preset: Option<String>,
    /// The slow device's model [default: san-1g]
    #[arg(long, value_name = "PROFILE", requires = "preset")]
    pub origin_profile: Option<String>,
    /// The flash device's model [default: ssd-s3500]
    #[arg(long, value_name = "PROFILE", requires = "preset")]
    pub flash_profile: Option<String>,
    /// Flash for cached data: bytes, as 64GiB, or a share of the trace's different units
    /// [default: 10%]
    #[arg(long, value_name = "SIZE", value_parser = capacity, requires = "preset")]
    pub flash_size: Option<Capacity>,
    /// What of the metadata outlives a crash [default: the preset's]
    #[arg(long, value_name = "DURABILITY", requires = "preset")]
    pub durability: Option<DurabilityArg>,
    /// Requests come at the recorded times, so many times as fast [default: 1, of a trace with times]
    #[arg(long, value_name = "FACTOR", requires = "preset", conflicts_with = "outstanding")]
    pub speed: Option<f64>,
    /// So many requests are under way, whatever the recorded times are [default: 8, of a trace
    /// without times]
    #[arg(long, value_name = "N", requires = "preset")]
    pub outstanding: Option<u32>,
    /// The share of the requests that comes before anything is counted [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = ratio, requires = "preset")]
    pub warm_up: Option<f64>,
    /// Only the first so many requests
    #[arg(long, value_name = "N", requires = "preset")]
    pub requests: Option<u32>,
}

/// The scenario that the flags describe.
pub(super) fn scenario(args: &SimArgs, preset: &str) -> Result<Scenario> {
    let (replay, path) = (&args.replay, args.trace.as_deref().context("--preset needs --trace")?);
    let path = path.to_str().context("--trace: is no UTF-8, as a scenario must be")?;
    let text = |value: &Option<String>| value.as_deref().map(Value::from);
    let (mut mib, mut share) = (None, None);
    match replay.flash_size {
        Some(Capacity::Bytes(bytes)) => mib = Some(bytes as f64 / f64::from(1 << 20)),
        Some(Capacity::Millionths(of)) => share = Some(f64::from(of) / 1e6),
        None => {}
    }
    let durability = replay.durability.map(|durability| match durability {
        DurabilityArg::Volatile => "volatile",
        DurabilityArg::Journal => "journal",
        DurabilityArg::Log => "log",
    });
    let settings = [
        ("kind", Some("volume".into())),
        ("load", Some("trace".into())),
        ("system", Some(preset.into())),
        ("origin", text(&replay.origin_profile)),
        ("flash", text(&replay.flash_profile)),
        ("unit_kib", args.unit.map(|bytes| Value::Integer((bytes >> 10) as i64))),
        ("replacement", text(&args.replacement)),
        ("durability", durability.map(Value::from)),
        ("trace.path", Some(path.into())),
        ("trace.flash_mib", mib.map(Value::Float)),
        ("trace.flash_share", share.map(Value::Float)),
        ("trace.speed", replay.speed.map(Value::Float)),
        ("trace.outstanding", replay.outstanding.map(|n| i64::from(n).into())),
        ("trace.warm_up_share", replay.warm_up.map(Value::Float)),
        ("trace.requests", replay.requests.map(|n| i64::from(n).into())),
    ];
    let mut scenario = Scenario::parse(path, "")?;
    for (key, value) in settings {
        if let Some(value) = value {
            scenario.set(key, value)?;
        }
    }
    for (key, value) in args.read.keys() {
        scenario.set(&format!("trace.{key}"), value)?;
    }
    Ok(scenario)
}
