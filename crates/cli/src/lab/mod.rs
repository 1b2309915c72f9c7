// SPDX-License-Identifier: MIT OR Apache-2.0
//! The laboratory: commands that measure, model and check, but do not serve a volume.
//!
//! A build without the feature `lab` leaves all of them out, for a distribution that wants the server alone. No other
//! module depends on this one, except the list of commands.

mod advise;
mod bench;
mod demo;
mod paper;
mod regret;
mod sim;
mod slow_dir;
mod torture;
pub mod trace_gen;

use anyhow::Result;
use clap::Subcommand;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    /// Advise whether a flash cache pays off for a trace or a served volume, and how large
    Advise(Box<advise::AdviseArgs>),
    /// Run scenarios in virtual time, replay a trace under a preset, or count hits and misses
    Sim(Box<sim::args::SimArgs>),
    /// Reproduce the claims of the papers, with a verdict for each
    Paper(paper::PaperArgs),
    /// Show a cache at work end to end, on files that the command makes itself
    Demo(demo::DemoArgs),
    /// Mount a directory on a modelled slow disk, to try a database on it
    #[command(after_long_help = slow_dir::HELP)]
    SlowDir(slow_dir::SlowDirArgs),
    /// Check the engine under crashes and faults in virtual time, from seeds
    #[command(after_long_help = torture::profiles_help())]
    Torture(torture::TortureArgs),
    /// Measure side by side with the bare device or a comparison system
    Bench(bench::BenchArgs),
}

/// Runs a command.
pub fn run(command: &LabCommand) -> Result<()> {
    match command {
        LabCommand::Advise(args) => advise::advise(args),
        LabCommand::Sim(args) => sim::sim(args),
        LabCommand::Paper(args) => paper::paper(args),
        LabCommand::Demo(args) => demo::demo(args),
        LabCommand::SlowDir(args) => slow_dir::slow_dir(args),
        LabCommand::Torture(args) => torture::torture(args),
        LabCommand::Bench(args) => bench::bench(args),
    }
}
