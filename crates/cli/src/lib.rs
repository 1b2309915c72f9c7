// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `larder` command, all but `main`: a library, so that the fuzz targets reach the configuration.

mod check;
mod choices;
mod commands;
mod control;
mod curve;
mod drives;
mod exit;
mod heat;
mod help;
#[cfg(feature = "lab")]
mod lab;
mod manual;
mod metrics;
mod notify;
mod operate;
mod out;
mod presets;
mod quiesce;
mod ranges;
mod serve;
mod set;
mod setting;
mod size;
mod top;
mod trace;
mod units;
mod usage;
mod workers;
mod write_back;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};
use larder_front::control::wire::Command as Control;

use crate::commands::{Cli, Command};

#[cfg(feature = "fuzz")]
pub use crate::serve::config::fuzz as configuration;

/// Runs the command that the words of the process name.
#[must_use]
pub fn larder() -> ExitCode {
    let (mut cli, words) = (help::command(), std::env::args_os().collect::<Vec<_>>());
    let matches = cli.try_get_matches_from_mut(&words);
    let parsed = matches.and_then(|m| Ok((Cli::from_arg_matches(&m)?, m)));
    let (given, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => return usage(&e.format(&mut cli), &cli, &words),
    };
    out::log_to_stderr();
    match run(given.command, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            out::complain!("{e:#}");
            ExitCode::from(exit::code(&e))
        }
    }
}

/// Prints help and version to standard output; an error of the command line gets one line on standard error.
fn usage(error: &clap::Error, cli: &clap::Command, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    out::complain!("{}", usage::line(error, cli, words));
    ExitCode::from(2)
}

fn run(command: Command, matches: &ArgMatches) -> Result<()> {
    match command {
        Command::Serve(args) => {
            let given = matches.subcommand_matches("serve");
            serve::serve(*args, given.context("is the subcommand")?)
        }
        Command::Check(args) => check::check(&args),
        Command::Status(args) => operate::status(&args),
        Command::Stats(args) => operate::stats(&args),
        Command::Top(args) => top::top(&args),
        Command::Flush(args) => {
            operate::bounded(&args, |bound_seconds| Control::Flush { bound_seconds }, "flushed")
        }
        Command::Detach(args) => {
            operate::bounded(&args, |bound_seconds| Control::Detach { bound_seconds }, "detached")
        }
        Command::Attach(args) => operate::attach(&args),
        Command::Resize(args) => operate::resize(&args),
        Command::Cached(args) => ranges::cached(&args),
        Command::Warm(args) => ranges::warm(&args),
        Command::Evict(args) => ranges::evict(&args),
        Command::Scrub(args) => ranges::scrub(&args),
        Command::Pin(args) => ranges::pin(&args),
        Command::Unpin(args) => ranges::unpin(&args),
        Command::Exclude(args) => ranges::exclude(&args),
        Command::Heat(command) => heat::heat(&command),
        Command::Quiesce(args) => quiesce::quiesce(&args),
        Command::Set(args) => set::set(&args),
        Command::Size(args) => size::size(&args),
        Command::Presets { json } => presets::presets(json),
        Command::Trace(command) => trace::trace(&command),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(&command),
        Command::Helper(args) => serve::helper::process::run(&args),
        Command::Man { dir } => manual::man(&dir),
        Command::Completions { shell } => manual::completions(shell),
    }
}
