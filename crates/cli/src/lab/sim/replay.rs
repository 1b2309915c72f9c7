// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --trace T --preset P`: flags as a scenario of the kind `volume` with the load `trace`.
//!
//! Why a scenario: flags and files then have the same settings and the same code that runs them.

use anyhow::{Context, Result};
use larder_lab::hits::replay::Capacity;
use larder_lab::scenario::Scenario;
use toml::Value;

use super::args::SimArgs;
use crate::choices::DurabilityArg;

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
    for (key, value) in super::args::trace_keys(&args.read) {
        scenario.set(&format!("trace.{key}"), value)?;
    }
    Ok(scenario)
}
