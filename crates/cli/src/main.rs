// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `larder` command.

mod advise;
mod args;
mod config;
mod exit;
mod manual;
mod metrics;
mod notify;
mod operate;
mod out;
mod paper;
mod serve;
mod settings;
mod sim;
mod slow_dir;
mod top;
mod torture;
mod trace;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use larder_bench::bench::{self, BenchOptions};
use larder_bench::demo::postgres::Scale;
use larder_bench::demo::{self, DemoOptions, Part};
use larder_front::control::wire::Command as Control;
use larder_report::{self as report, About};
use signal_hook::consts::{SIGINT, SIGTERM};
use tracing_subscriber::EnvFilter;

use crate::args::{BenchArgs, Cli, Command, DemoArgs, PartArg};

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
        Command::Check(args) => operate::check(&args),
        Command::Size(args) => operate::size(&args),
        Command::Presets { json } => operate::presets(json),
        Command::Torture(args) => torture::torture(&args),
        Command::Trace(command) => trace::trace(&command),
        Command::Sim(args) => sim::sim(&args),
        Command::Paper(args) => paper::paper(&args),
        Command::Advise(args) => advise::advise(&args),
        Command::Bench(args) => bench(&args),
        Command::Demo(args) => demo(&args),
        Command::SlowDir(args) => slow_dir::slow_dir(&args),
        Command::Man { dir } => manual::man(&dir),
        Command::Completions { shell } => manual::completions(shell),
    }
}

/// Prints the rows, as a table or as JSON.
fn bench(args: &BenchArgs) -> Result<()> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let options = BenchOptions { dir, quick: args.quick, json: args.json, larder: None };
    let found = bench::run(&args.names, &options)?;
    if let Some(path) = &args.report {
        let quick = if args.quick { " --quick" } else { "" };
        let names = args.names.join(" ");
        let about = About {
            title: format!("Larder: {names}"),
            command: format!("larder bench {names}{quick} --report {}", path.display()),
            seeds: if args.quick { "1" } else { "1 to 3" }.to_owned(),
        };
        let rows = report::Part::table(bench::sheet(&found.rows));
        let html = report::html(&about, &[report::Part::of(found.figures), rows]);
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        out::line(serde_json::to_string(&found.rows)?)?;
    } else {
        bench::print_table(&found.rows);
    }
    Ok(())
}

/// A signal ends the demo in good order; what fails in it is the answer "no".
fn demo(args: &DemoArgs) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let (dir, json) = (args.dir.clone(), args.json);
    let part = match args.part {
        PartArg::Replay => Part::Replay,
        PartArg::Oltp => Part::Oltp,
        PartArg::All => Part::All,
        PartArg::Postgres => Part::Postgres,
    };
    let scale = match (args.full, args.restart) {
        (true, _) => Scale::full(),
        (false, true) => Scale::restart(),
        (false, false) => Scale::default(),
    };
    let (library, device) = (args.library.clone(), args.device.clone());
    let postgres = Scale { library, device, ..scale };
    let options = DemoOptions { part, dir, json, interrupted, postgres, ..DemoOptions::default() };
    // 128 + SIGINT, as for any program that a signal ends.
    let code = |e: &anyhow::Error| if e.is::<demo::Interrupted>() { 130 } else { 1 };
    let answer_no = |e: anyhow::Error| exit::Coded { code: code(&e), message: format!("{e:#}") };
    Ok(demo::run(&options).map_err(answer_no)?)
}
