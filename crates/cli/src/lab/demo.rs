// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder demo`: the main job end to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_bench::demo;
use larder_bench::demo::options::{DemoOptions, Part};
use larder_bench::demo::outcome::Interrupted;
use larder_bench::demo::postgres::setup::Scale;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit;

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartArg {
    /// A PostgreSQL trace over NBD, five ways
    Replay,
    /// SQLite in an ext4 on a loop device on a FUSE file, with and without Larder; needs root and
    /// is skipped, with a line that states the reason, where a requirement is missing
    Oltp,
    /// These two, one after the other
    All,
    /// PostgreSQL with Larder's library, and without, on a directory as slow as a modelled disk: a
    /// TPC-C mix; needs FUSE and PostgreSQL
    Postgres,
}

/// The parts of the demo, and their size.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The part to run
    #[arg(long, value_enum, default_value = "all")]
    pub part: PartArg,
    /// Directory for the files of the demo
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub dir: PathBuf,
    /// For postgres: larger and longer, for about two hours
    #[arg(long)]
    pub full: bool,
    /// For postgres: checkpoints every 300 s, and the kill in the middle of an interval, for half an hour
    #[arg(long, conflicts_with = "full")]
    pub restart: bool,
    /// For postgres: the model of the disk, as of larder slow-dir
    #[arg(long, value_name = "DEVICE", default_value = "cloud")]
    pub device: String,
    /// For postgres: the library [default: liblarder_pg.so beside this program]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// A signal ends the demo cleanly. A part that fails is the answer "no".
pub fn demo(args: &DemoArgs) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let (dir, json) = (args.dir.clone(), args.json);
    let parts = match args.part {
        PartArg::Replay => vec![Part::Replay],
        PartArg::Oltp => vec![Part::Oltp],
        PartArg::All => vec![Part::Replay, Part::Oltp],
        PartArg::Postgres => vec![Part::Postgres],
    };
    let scale = match (args.full, args.restart) {
        (true, _) => Scale::full(),
        (false, true) => Scale::restart(),
        (false, false) => Scale::default(),
    };
    let (library, device) = (args.library.clone(), args.device.clone());
    let postgres = Scale { library, device, ..scale };
    let options = DemoOptions { parts, dir, json, interrupted, postgres, ..DemoOptions::default() };
    // 128 + SIGINT, as for any program that a signal ends.
    let code = |e: &anyhow::Error| if e.is::<Interrupted>() { 130 } else { 1 };
    let answer_no = |e: anyhow::Error| exit::Coded { code: code(&e), message: format!("{e:#}") };
    Ok(demo::run(&options).map_err(answer_no)?)
}
