// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that study a trace. Results are numbers, or JSON text as the command line prints it.

use std::time::Instant;

use larder_lab::advise::{Asked, REQUESTS, advise as ask};
use larder_lab::hits::Hits;
use larder_lab::hits::replay::{Capacity, Policy, Replay, ReplayError, parse_unit};
use larder_lab::replays::{Replayed, trace_table};
use pyo3::prelude::*;

use crate::error::refused;
use crate::trace::Trace;
use crate::watch::Watch;

/// Accesses, units, misses, seconds.
pub(crate) type Counted = (u64, u64, u64, f64);

/// The bytes of a size, as 512MiB.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    larder_core::size::parse_size(text).map_err(refused)
}

fn named<'a, E: std::fmt::Display>(name: &'a str) -> impl Fn(E) -> PyErr + 'a {
    move |what| refused(format!("{name}: {what}"))
}

/// A replay of hits, from text as the command line accepts it.
pub(crate) fn replay(
    trace: &Trace,
    policy: Policy,
    unit: &str,
    capacity: &str,
) -> PyResult<Replay> {
    let unit_bytes = parse_unit(unit).map_err(named("unit"))?;
    let capacity = Capacity::parse(capacity).map_err(named("capacity"))?;
    Ok(Replay { trace: trace.inner(), policy, unit_bytes, capacity })
}

/// What a replay counted.
pub(crate) fn counted(
    trace: &Trace,
    begin: Instant,
    hits: Result<Hits, ReplayError>,
) -> PyResult<Counted> {
    let hits = hits.map_err(|error| replay_error(trace, &error))?;
    Ok((hits.accesses, hits.unique, hits.misses, begin.elapsed().as_secs_f64()))
}

/// Errors of the trace have its name.
pub(crate) fn replay_error(trace: &Trace, error: &ReplayError) -> PyErr {
    match error {
        ReplayError::Trace(_) | ReplayError::Empty(_) => refused(error),
        _ => refused(format!("{}: {error}", trace.name())),
    }
}

/// Hits and misses of a policy of the engine, or of Belady's.
#[pyfunction]
pub(crate) fn hits(
    py: Python<'_>,
    trace: &Trace,
    replacement: &str,
    unit: &str,
    capacity: &str,
    watch: &Watch,
) -> PyResult<Counted> {
    let policy = replacement.parse().map_err(named("replacement"))?;
    let replay = replay(trace, policy, unit, capacity)?;
    let begin = Instant::now();
    watch.run(py, || counted(trace, begin, replay.run(|_| ())))
}

/// The statistics of a trace.
#[pyfunction]
pub(crate) fn info(py: Python<'_>, trace: &Trace, exact: bool, watch: &Watch) -> PyResult<String> {
    let source = trace.inner();
    watch.run(py, || {
        let found = larder_trace::info::info(&source, exact, |_| ()).map_err(refused)?;
        if found.totals.all.requests == 0 {
            return Err(refused(format!(
                "{}: has no requests; accepted: at least one",
                trace.name()
            )));
        }
        Ok(larder_trace::info::json(&found).to_string())
    })
}

/// Settings of a simulation; the keys of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Simulated {
    preset: String,
    origin: Option<String>,
    flash: Option<String>,
    flash_size: Option<String>,
    unit: Option<String>,
    replacement: Option<String>,
    durability: Option<String>,
    speed: Option<f64>,
    outstanding: Option<u32>,
    warm_up: Option<f64>,
    requests: Option<u32>,
    seed: Option<i64>,
}

/// A file's trace through the engine in virtual time.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    trace: &Trace,
    settings: Simulated,
    watch: &Watch,
) -> PyResult<String> {
    let size = settings.flash_size.as_deref().map(Capacity::parse).transpose();
    let unit = settings.unit.as_deref().map(parse_unit).transpose();
    let replayed = Replayed {
        path: utf8(trace)?,
        read: trace.inner().options().clone(),
        system: settings.preset,
        origin: settings.origin,
        flash: settings.flash,
        unit_bytes: unit.map_err(named("unit"))?,
        replacement: settings.replacement,
        durability: settings.durability,
        flash_size: size.map_err(named("flash_size"))?,
        speed: settings.speed,
        outstanding: settings.outstanding,
        warm_up_share: settings.warm_up,
        requests: settings.requests,
        seed: settings.seed,
    };
    watch.run(py, || Ok(replayed.run().map_err(|e| refused(format!("{e:#}")))?.to_string()))
}

/// Settings of advice; the keys of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Advised {
    origin: String,
    flash: String,
    endurance: Option<String>,
    requests: Option<i64>,
    seed: i64,
    jobs: usize,
}

/// Advice for a file's trace.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    trace: &Trace,
    settings: Advised,
    watch: &Watch,
) -> PyResult<String> {
    let (source, endurance) = (trace.inner(), settings.endurance.as_deref().map(str::parse));
    let asked = Asked {
        name: trace.name(),
        trace_keys: trace_table(&utf8(trace)?, source.options()),
        trace: source,
        origin: settings.origin,
        flash: settings.flash,
        requests: settings.requests.unwrap_or(REQUESTS),
        endurance: endurance.transpose().map_err(named("endurance"))?,
        seed: settings.seed,
        jobs: Some(settings.jobs),
    };
    watch.run(py, || {
        let advice = ask(&asked).map_err(|e| refused(format!("{e:#}")))?;
        serde_json::to_string(&advice).map_err(refused)
    })
}

fn utf8(trace: &Trace) -> PyResult<String> {
    let path = trace.inner().path().to_str().map(str::to_owned);
    path.ok_or_else(|| refused(format!("{}: the path is not UTF-8; accepted: UTF-8", trace.name())))
}
