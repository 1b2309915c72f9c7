// SPDX-License-Identifier: MIT OR Apache-2.0
//! `quiesce`: holds the writes of a volume while a command takes a snapshot of its origin.
//!
//! A snapshot counts only if the command ended before the hold did; otherwise the exit code is 1.

use std::process::{Command as Process, ExitStatus};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::control::quiesce::quiesce as hold;
use larder_front::control::wire::Command;
use serde_json::json;

use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::whole_seconds;
use crate::out;

/// `quiesce`.
#[derive(Args, Debug)]
pub struct QuiesceArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// How long writes are held at most, in whole seconds
    #[arg(long = "for", default_value = "10s", value_parser = whole_seconds, value_name = "SPAN")]
    pub hold: Nanos,
    /// Time limit until they are held, in whole seconds
    #[arg(long, default_value = "30s", value_parser = whole_seconds, value_name = "SPAN")]
    pub bound: Nanos,
    /// The command to run meanwhile; without one writes are held for the whole time
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<String>,
}

/// Holds writes, and runs the command.
pub fn quiesce(args: &QuiesceArgs) -> Result<()> {
    let seconds = |span: Nanos| span / 1_000_000_000;
    let (hold_seconds, bound_seconds) = (seconds(args.hold), seconds(args.bound));
    let ask = Command::Quiesce { hold_seconds, bound_seconds };
    let during = || run(&args.command, Duration::from_nanos(args.hold));
    let (ended, value) = hold(&args.control.socket()?, &ask, during).map_err(Coded::from)?;
    let expired = value["expired"].as_bool().unwrap_or(true);
    if args.control.json {
        let code = ended.as_ref().ok().and_then(|status| status.as_ref()?.code());
        out::line(json!({
            "held_seconds": value["held_seconds"], "expired": expired, "exit_code": code,
        }))?;
    }
    let no = |message: String| Coded { code: 1, message };
    match ended {
        Err(e) => bail!(Coded { code: 2, message: format!("{}: {e}", args.command.join(" ")) }),
        Ok(Some(status)) if !status.success() => {
            bail!(no(format!("{}: {status}", args.command.join(" "))))
        }
        Ok(Some(_)) if expired => bail!(no(format!(
            "the hold ended after {hold_seconds} s, before the command: what it took is not the state of one moment; accepted: a longer --for"
        ))),
        Ok(_) if args.control.json => Ok(()),
        Ok(_) => {
            let held = value["held_seconds"].as_f64().unwrap_or(0.0);
            out::line(format!("writes were held for {held:.3} s"))
        }
    }
}

/// Runs the command with this process's input and output, or waits.
fn run(command: &[String], hold: Duration) -> std::io::Result<Option<ExitStatus>> {
    match command {
        [] => {
            out::tell!("writes are held for {} s", hold.as_secs());
            std::thread::sleep(hold);
            Ok(None)
        }
        [program, words @ ..] => Process::new(program).args(words).status().map(Some),
    }
}
