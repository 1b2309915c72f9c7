// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder torture`: crashes and faults in virtual time, from seeds.
//!
//! Progress and violations go to stderr, the sum to stdout. A broken rule is the answer "no": its
//! seed, the history of the sector, and a short history that breaks the same rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use larder_core::exec::Nanos;
use larder_sim::torture::history::{Line, Violation};
use larder_sim::torture::mutants;
use larder_sim::torture::plan::Plan;
use larder_sim::torture::profile::Profile;
use larder_sim::torture::rows::{PROFILES, profile};
use larder_sim::torture::runner::{Outcome, Task, activate};
use larder_sim::torture::{run_traced, shrink::shrink};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::units::span;
use crate::{exit, out};

/// Seeds without `--runs` or `--for`.
const RUNS: u64 = 1_000;
/// Seeds in which a mutant must be caught.
const MUTANT_RUNS: u64 = 10_000;
/// Lines of a sector's history that are shown, the last ones.
const LINES: usize = 40;

/// Histories of crashes and faults.
#[derive(Args, Debug)]
pub struct TortureArgs {
    /// The first seed; equal seeds give equal runs on any machine
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Number of seeds [default: 1000, or no limit with --for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,
    /// Run for this span
    #[arg(long = "for", value_parser = span, value_name = "SPAN", conflicts_with = "runs")]
    pub span: Option<Nanos>,
    /// Profile of every seed; --help-all lists them [default: each seed picks one]
    #[arg(long, value_parser = row, value_name = "PROFILE")]
    pub profile: Option<&'static Profile>,
    /// Threads; results do not depend on them [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Do not search for a short history that breaks the same rule
    #[arg(long)]
    pub no_shrink: bool,
    /// Catch every named mutant of the engine (only in builds with --features mutants)
    #[arg(long, conflicts_with = "mutant")]
    pub mutants: bool,
    /// Torture this mutant (only in builds with --features mutants)
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<String>,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// The rows of the swarm, for the help.
pub fn profiles_help() -> String {
    let rows = PROFILES.iter().map(|p| format!("  {:<14} {}", p.name, p.what));
    let rows: Vec<_> = rows.collect();
    format!("Profiles:\n{}", rows.join("\n"))
}

/// A row of the swarm by name.
fn row(name: &str) -> Result<&'static Profile, String> {
    let names: Vec<_> = PROFILES.iter().map(|p| p.name).collect();
    profile(name).ok_or_else(|| format!("got '{name}', accepted {}", names.join(", ")))
}

/// Runs the command.
pub fn torture(args: &TortureArgs) -> Result<()> {
    if (args.mutants || args.mutant.is_some()) && !mutants::are_built() {
        bail!(
            "--mutant{}: needs a build with --features mutants",
            if args.mutants { "s" } else { "" }
        );
    }
    let mutant = args.mutant.as_deref().map(mutant).transpose()?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let span = args.span.map(|ns: Nanos| Duration::from_nanos(ns));
    let most = if span.is_some() { u64::MAX } else { RUNS };
    let task = Task {
        first_seed: args.seed,
        runs: args.runs.unwrap_or(if args.mutants { MUTANT_RUNS } else { most }),
        span,
        profile: args.profile,
        jobs: args.jobs.map_or_else(processors, |n| n as usize),
        mutant: None,
    };
    let (stop, by) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends it at once.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register_usize(signal, Arc::clone(&by), signal as usize)?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    if args.mutants {
        all_mutants(&task, &stop, args.json)?;
        return interrupted(&by);
    }
    let task = mutant.map_or_else(|| task.clone(), |name| mutants::with(name, &task));
    let outcome = mutants::torture_mutant(&task, &stop, |so_far| {
        out::tell!("{}", progress(so_far));
    });
    if outcome.short > 0 {
        out::tell!("{} histories were too short to count", outcome.short);
    }
    if let Some((seed, violation)) = outcome.violations.first() {
        tell_violation(&task, *seed, violation, !args.no_shrink);
    }
    report(&task, &outcome, args.json)?;
    if let Some((seed, violation)) = outcome.violations.first() {
        bail!(exit::Coded { code: 1, message: format!("seed {seed} breaks {violation}") });
    }
    interrupted(&by)
}

fn mutant(name: &str) -> Result<&'static str> {
    match mutants::named(name) {
        Some(name) => Ok(name),
        None => {
            let names: Vec<_> = mutants::names().collect();
            bail!("--mutant: got {name}, accepted {}", names.join(", "))
        }
    }
}

fn progress(outcome: &Outcome) -> String {
    let per_hour = outcome.seeds as f64 / outcome.seconds.max(1e-9) * 3600.0;
    format!(
        "{} seeds in {:.0} s, {per_hour:.0} an hour, {} crashes, {} recoveries, {} violations",
        outcome.seeds,
        outcome.seconds,
        outcome.seen.crashes,
        outcome.seen.recoveries,
        outcome.violations.len()
    )
}

fn report(task: &Task, outcome: &Outcome, json: bool) -> Result<()> {
    if !json {
        let last = task.first_seed.wrapping_add(outcome.seeds.max(1) - 1);
        let seeds = format!("seeds {} to {last}: {}", task.first_seed, progress(outcome));
        let seen = &outcome.seen;
        return out::line(format!(
            "{seeds}, {} requests, {} wrong sectors undetected by contract, digest {:016x}",
            seen.requests, seen.undetected, seen.digest
        ));
    }
    out::line(json!({
        "seeds": outcome.seeds,
        "first_seed": task.first_seed,
        "ops": outcome.seen.requests,
        "crashes": outcome.seen.crashes,
        "recoveries": outcome.seen.recoveries,
        "violations": outcome.violations.len(),
        "undetected_by_contract": outcome.seen.undetected,
        "seconds": outcome.seconds,
        "digest": format!("{:016x}", outcome.seen.digest),
    }))
}

/// A signal ends with its own code.
fn interrupted(by: &AtomicUsize) -> Result<()> {
    match by.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => {
            let message = "interrupted; what was done is above".to_owned();
            bail!(exit::Coded { code: 128 + signal as u8, message })
        }
    }
}

/// Prints what a person needs to understand a violation.
fn tell_violation(task: &Task, seed: u64, violation: &Violation, shrinks: bool) {
    activate(task.mutant);
    let plan = Plan::of(seed, task.profile);
    out::tell!("seed {seed} breaks {violation}");
    out::tell!("{}", plan.headline());
    let (_, lines) = run_traced(&plan);
    if let Some(sector) = violation.sector {
        let of_it: Vec<&Line> = lines.iter().filter(|l| l.concerns(sector)).collect();
        let shown = &of_it[of_it.len().saturating_sub(LINES)..];
        out::tell!(
            "the history of sector {sector}, the last {} of {} steps:",
            shown.len(),
            of_it.len()
        );
        shown.iter().for_each(|line| out::tell!("{line}"));
    }
    if let Some(short) = shrinks.then(|| shrink(&plan)).flatten() {
        out::tell!("a history of {} steps breaks the same rule:", short.lines.len());
        out::tell!("{}", short.plan.headline());
        short.lines.iter().for_each(|line| out::tell!("{line}"));
        out::tell!("{}", short.violation);
    }
    activate(None);
}

/// Every mutant must be caught.
fn all_mutants(task: &Task, stop: &AtomicBool, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    let mut survivors = Vec::new();
    for name in mutants::names() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let fate = mutants::fate(name, task, stop);
        if fate.seed.is_none() && stop.load(Ordering::Relaxed) {
            break;
        }
        let Some(seed) = fate.seed else {
            out::tell!("{name} is not caught, {:.1} s", fate.seconds);
            survivors.push(name);
            rows.push(json!({
                "name": name, "caught": false, "seed": null,
                "ops": fate.ops, "seconds": fate.seconds,
            }));
            continue;
        };
        out::tell!("{name}: seed {seed}, {:.1} s: {}", fate.seconds, fate.why);
        if !json {
            out::line(format!("{name:<28} seed {seed:>5} {:>7.1} s", fate.seconds))?;
        }
        rows.push(json!({
            "name": name, "caught": true, "seed": seed,
            "ops": fate.ops, "seconds": fate.seconds,
        }));
    }
    if json {
        out::line(serde_json::Value::Array(rows))?;
    }
    if !survivors.is_empty() {
        let message = format!("not caught: {}", survivors.join(", "));
        bail!(exit::Coded { code: 1, message });
    }
    Ok(())
}
