// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of `larder advise`, and the replay that they ask for.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use larder_core::exec::Nanos;
use larder_lab::advise::endurance::Endurance;
use larder_lab::advise::{Advice, Asked, REQUESTS, advise as ask, page};
use larder_lab::replays::trace_table;
use larder_report::About;

use crate::control::ControlArgs;
use crate::out;
use crate::trace::read::ReadArgs;
use crate::units::{jobs, span};

/// The trace and the devices.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// The trace; without one the advice is for a served volume
    #[arg(long, value_name = "TRACE", requires_all = ["origin_profile", "flash_profile"])]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub read: ReadArgs,
    #[command(flatten)]
    pub control: ControlArgs,
    /// Of a served volume: only the requests of the last part of the flight recorder, as 60s
    #[arg(long, value_name = "SPAN", value_parser = span, conflicts_with = "trace", requires = "origin_profile")]
    pub last: Option<Nanos>,
    /// Of a served volume: the requests before the last alarm
    #[arg(long, conflicts_with = "trace", requires = "origin_profile")]
    pub alarm: bool,
    /// Model of the slow device, as san-1g or hdd-7200 (docs/simulation.md lists all), or a device file
    #[arg(long, value_name = "PROFILE", requires = "flash_profile")]
    pub origin_profile: Option<String>,
    /// Model of the flash device, as ssd-s3500, or a device file; models that end in -ftl include write amplification
    #[arg(long, value_name = "PROFILE", requires = "origin_profile")]
    pub flash_profile: Option<String>,
    /// Rated endurance: bytes written, as 600TB, or drive writes a day for five years [default: 1DWPD]
    #[arg(long, value_name = "TBW|DWPD", value_parser = str::parse::<Endurance>)]
    pub endurance: Option<Endurance>,
    /// Requests to replay at most for each point
    #[arg(
        long, value_name = "N", default_value_t = REQUESTS,
        value_parser = clap::value_parser!(i64).range(1..),
    )]
    pub requests: i64,
    /// Seed; equal seeds give equal advice on any machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: i64,
    /// Threads; results do not depend on them [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Also write one HTML file with both curves and all numbers
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Requests that are replayed, and the devices.
pub(super) struct Replayed<'a> {
    /// What they are called in messages.
    pub name: String,
    pub path: &'a Path,
    pub origin: &'a str,
    pub flash: &'a str,
}

impl AdviseArgs {
    /// The models of origin and flash.
    pub(super) fn profiles(&self) -> Option<(&str, &str)> {
        self.origin_profile.as_deref().zip(self.flash_profile.as_deref())
    }

    /// Replays requests with full timing, and writes the report.
    pub(super) fn replay(&self, replayed: Replayed<'_>) -> Result<Advice> {
        let Replayed { name, path, origin, flash } = replayed;
        let text =
            path.to_str().context("the path of the trace is no UTF-8, as a scenario must be")?;
        let advice = ask(&Asked {
            trace: larder_trace::Trace::new(path, self.read.options()),
            trace_keys: trace_table(text, &self.read.options()),
            origin: origin.to_owned(),
            flash: flash.to_owned(),
            requests: self.requests,
            endurance: self.endurance,
            seed: self.seed,
            jobs: self.jobs,
            name: name.clone(),
        })?;
        if let Some(path) = &self.report {
            let about = About {
                title: format!("Larder: advice for {name}"),
                command: out::command_line(),
                seeds: self.seed.to_string(),
            };
            let html = page(&about, &advice);
            std::fs::write(path, html)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(advice)
    }
}
