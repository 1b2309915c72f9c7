// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `larder` command.

mod advise;
mod bench;
mod check;
mod choices;
mod commands;
mod control;
mod demo;
mod exit;
mod manual;
mod metrics;
mod notify;
mod operate;
mod out;
mod paper;
mod presets;
mod serve;
mod setting;
mod sim;
mod size;
mod slow_dir;
mod top;
mod torture;
mod trace;
mod units;
mod workers;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use larder_front::control::wire::Command as Control;
use tracing_subscriber::EnvFilter;

use crate::commands::{Cli, Command};

fn main() -> ExitCode {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|m| Ok((Cli::from_arg_matches(&m)?, m)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => return usage(&e.format(&mut command)),
    };
    let filter = EnvFilter::try_from_env("LARDER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // With nobody to read the log there is nobody to complain to either.
        .log_internal_errors(false)
        .init();
    match run(cli.command, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            out::tell!("{e:#}");
            ExitCode::from(exit::code(&e))
        }
    }
}

/// Help and version go to stdout; a slip gets one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let line = text.lines().take_while(|l| !l.is_empty()).map(str::trim).collect::<Vec<_>>();
    let line = line.join(" ");
    out::tell!("{}; see larder --help", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}

fn run(command: Command, matches: &ArgMatches) -> Result<()> {
    match command {
        Command::Serve(args) => {
            let given = matches.subcommand_matches("serve");
            serve::serve(*args, given.context("is the subcommand")?)
        }
        Command::Status(args) => operate::show(&args, &Control::Status),
        Command::Stats(args) => operate::show(&args, &Control::Stats),
        Command::Top(args) => top::top(&args),
        Command::Flush(args) => {
            operate::bounded(&args, |bound_seconds| Control::Flush { bound_seconds }, "flushed")
        }
        Command::Detach(args) => {
            operate::bounded(&args, |bound_seconds| Control::Detach { bound_seconds }, "detached")
        }
        Command::Attach(args) => operate::attach(&args),
        Command::Check(args) => check::check(&args),
        Command::Size(args) => size::size(&args),
        Command::Presets { json } => presets::presets(json),
        Command::Torture(args) => torture::torture(&args),
        Command::Trace(command) => trace::trace(&command),
        Command::Sim(args) => sim::sim(&args),
        Command::Paper(args) => paper::paper(&args),
        Command::Advise(args) => advise::advise(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::SlowDir(args) => slow_dir::slow_dir(&args),
        Command::Man { dir } => manual::man(&dir),
        Command::Completions { shell } => manual::completions(shell),
    }
}
