// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: each command with the arguments that its module defines.
//!
//! `--help` lists the settings that most uses need, `--help-all` every setting: an argument with `hide_short_help` is in
//! the second alone. Groups and examples are added in `help.rs`.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use crate::check::CheckArgs;
use crate::control::ControlArgs;
use crate::heat::HeatCommand;
#[cfg(feature = "lab")]
use crate::lab::LabCommand;
use crate::operate::{AttachArgs, BoundArgs, ResizeArgs, StatusArgs};
use crate::quiesce::QuiesceArgs;
use crate::ranges::{ExcludeArgs, RangesArgs, ScrubArgs, WarmArgs};
use crate::serve::args::ServeArgs;
use crate::serve::helper::COMMAND;
use crate::serve::helper::process::HelperArgs;
use crate::set::SetArgs;
use crate::size::SizeArgs;
use crate::top::TopArgs;
use crate::trace::TraceCommand;

/// A flash cache in userspace: slow storage and a local SSD go in, a fast block device comes out.
#[derive(Parser, Debug)]
#[command(
    name = "larder",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_flag = true
)]
pub struct Cli {
    /// Print the settings that most uses need
    #[arg(long, short, action = ArgAction::HelpShort, global = true, display_order = 1000)]
    help: Option<bool>,
    /// Print every setting
    #[arg(long, action = ArgAction::HelpLong, global = true, display_order = 1001)]
    help_all: Option<bool>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a slow device behind a flash cache
    Serve(Box<ServeArgs>),
    /// Report what a flash device holds and what a start with it would do
    Check(CheckArgs),
    /// Show the state of a server
    Status(StatusArgs),
    /// Show the counters of a server
    Stats(ControlArgs),
    /// Watch servers live: rates, hit ratio, devices, state
    Top(TopArgs),
    /// Make every acknowledged write durable on the origin
    Flush(BoundArgs),
    /// Stop using the flash device and release it; the volume stays in service
    Detach(BoundArgs),
    /// Start caching on a flash device
    Attach(AttachArgs),
    /// Use a larger or smaller part of the flash device, without a stop
    Resize(ResizeArgs),
    /// Count how much of a volume, of ranges of it or of files on it is on flash
    Cached(RangesArgs),
    /// Copy a volume, ranges of it or files on it to flash before clients read them
    Warm(WarmArgs),
    /// Remove a volume, ranges of it or files on it from flash, and write back what is dirty
    Evict(RangesArgs),
    /// Read what flash has back, and compare it with its checksums (--verify)
    Scrub(ScrubArgs),
    /// Keep a volume, ranges of it or files on it on flash: they are copied, and not evicted
    Pin(RangesArgs),
    /// Let ranges or files that are pinned be evicted again
    Unpin(RangesArgs),
    /// Keep a volume, ranges of it or files on it out of flash
    Exclude(ExcludeArgs),
    /// Write the list of what a cache holds, and warm another cache from it
    #[command(subcommand)]
    Heat(HeatCommand),
    /// Hold writes while a command takes a snapshot of the origin, which has everything then
    Quiesce(QuiesceArgs),
    /// Show the settings of a server that may change while it serves, and change them
    Set(SetArgs),
    /// Compute the memory that a cache needs
    Size(SizeArgs),
    /// List the presets: each is five choices under a name
    Presets {
        /// Print one JSON value
        #[arg(long)]
        json: bool,
    },
    /// Describe, convert, generate and record traces of block requests
    #[command(subcommand)]
    Trace(TraceCommand),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(LabCommand),
    /// Mount and unmount files for the server that started it
    #[command(hide = true, name = COMMAND)]
    Helper(HelperArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}
