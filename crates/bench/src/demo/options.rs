// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the demo runs, and where.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::outcome::Interrupted;
use super::{oltp, postgres, replay};

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A trace over NBD.
    Replay,
    /// A database in a file system.
    Oltp,
    /// PostgreSQL with the library on a slow directory.
    Postgres,
}

impl Part {
    /// The file of its rows.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Replay => "demo.json",
            Self::Oltp => "oltp.json",
            Self::Postgres => "postgres.json",
        }
    }
}

/// What the demo runs, and where.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Which parts, in this order.
    pub parts: Vec<Part>,
    /// Where the files of rows are written, and below it, in `work`, the files that stand for
    /// devices.
    pub dir: PathBuf,
    /// Print the rows as one JSON value instead of the tables.
    pub json: bool,
    /// The `larder` to start as a server; without, this very program.
    pub larder: Option<PathBuf>,
    /// The model of the slow device below served volumes, a `slow+` profile.
    pub profile: String,
    /// Its seed, and that of the loads.
    pub seed: u64,
    /// Further flags of `larder serve` in the rows named `larder`.
    pub larder_flags: Vec<String>,
    /// How the trace is replayed.
    pub replay: replay::setup::Scale,
    /// Sizes and spans of the database in a file system.
    pub oltp: oltp::setup::Scale,
    /// Sizes and spans of PostgreSQL.
    pub postgres: postgres::setup::Scale,
    /// Set by a signal handler to end the demo; it then fails with [`Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            parts: vec![Part::Replay, Part::Oltp],
            dir: PathBuf::from("target/demo"),
            json: false,
            larder: None,
            profile: "cloud".to_owned(),
            seed: 1,
            larder_flags: Vec::new(),
            replay: replay::setup::Scale::default(),
            oltp: oltp::setup::Scale::default(),
            postgres: postgres::setup::Scale::default(),
            interrupted: Arc::default(),
        }
    }
}

impl DemoOptions {
    /// Fails once the demo must end.
    pub(super) fn stopped(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::SeqCst), Interrupted);
        Ok(())
    }

    /// The program of servers.
    pub(super) fn program(&self) -> Result<PathBuf> {
        self.larder
            .clone()
            .map_or_else(|| std::env::current_exe().context("the path of this program"), Ok)
    }
}
