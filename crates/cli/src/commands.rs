// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, as users, scripts and man pages know it: each command with the arguments that its own module
//! defines.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::advise::AdviseArgs;
use crate::bench::BenchArgs;
use crate::check::CheckArgs;
use crate::control::ControlArgs;
use crate::demo::DemoArgs;
use crate::operate::{AttachArgs, BoundArgs};
use crate::paper::PaperArgs;
use crate::serve::args::ServeArgs;
use crate::sim::args::SimArgs;
use crate::size::SizeArgs;
use crate::slow_dir::{self, SlowDirArgs};
use crate::top::TopArgs;
use crate::torture::{self, TortureArgs};
use crate::trace::TraceCommand;

/// A flash cache in userspace: slow storage and a local SSD go in, a fast block device comes out.
#[derive(Parser, Debug)]
#[command(name = "larder", version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a slow device behind a flash cache
    Serve(Box<ServeArgs>),
    /// Show what a serving process is doing
    Status(ControlArgs),
    /// Show the counters of a serving process
    Stats(ControlArgs),
    /// Watch serving processes live: rates, hit ratio, devices, state
    Top(TopArgs),
    /// Make everything answered so far durable on the origin
    Flush(BoundArgs),
    /// Go on without the flash device, and let go of it
    Detach(BoundArgs),
    /// Cache on a (new) flash device
    Attach(AttachArgs),
    /// Say what is on a flash device, and what a start would make of it
    Check(CheckArgs),
    /// Compute the memory that a cache needs, before anything is created
    Size(SizeArgs),
    /// Show the presets: each is five choices
    Presets {
        /// One JSON value on stdout
        #[arg(long)]
        json: bool,
    },
    /// Crash and fault the engine in virtual time, from seeds, and judge what it does
    #[command(after_help = torture::profiles_help())]
    Torture(TortureArgs),
    /// Look at traces of block requests; convert, make and record them
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run scenarios in virtual time, replay a trace under a preset, or count its hits and misses
    Sim(Box<SimArgs>),
    /// Say from a trace whether a flash cache pays, how large, and in which mode
    Advise(AdviseArgs),
    /// Reproduce the papers: a verdict for every claim
    Paper(PaperArgs),
    /// Measure, side by side with the bare device or a peer
    Bench(BenchArgs),
    /// Show the main job end to end, on files that it makes itself
    Demo(DemoArgs),
    /// Mount a directory on a modelled slow disk, to try a database on it
    #[command(after_help = slow_dir::HELP)]
    SlowDir(SlowDirArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// Where
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}
