// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory on a modelled disk, served by a process of its own (`larder slow-dir`).
//!
//! Invariants: the mount goes with its guard on every path, and its server with it.
//!
//! Why a process of its own: its time does not mix with the demo's, and a demo that is killed leaves a mount that
//! answers until the next demo clears it. Why not [`Process`](crate::process::Process): that one ends with the demo, and
//! the next demo would not find the database's processes by a directory that is gone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::demo::slow_dir::STATS;
use crate::demo::system::{command, mounts};
use crate::process::tail;

const START_BOUND: Duration = Duration::from_secs(10);
const STOP_BOUND: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// What reached the disk of a part of the directory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct Traffic {
    /// Operations.
    pub reads: u64,
    /// Bytes.
    pub read_bytes: u64,
    /// Operations.
    pub writes: u64,
    /// Bytes.
    pub write_bytes: u64,
    /// Operations.
    pub flushes: u64,
}

impl Traffic {
    /// What came since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

/// The two parts that a cluster has.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct Counts {
    /// The data directory.
    pub data: Traffic,
    /// The log of changes.
    pub wal: Traffic,
}

#[derive(Deserialize)]
struct Stats {
    below: Counts,
}

/// See the module.
#[derive(Debug)]
pub struct Slow {
    child: Child,
    at: PathBuf,
}

impl Slow {
    /// Mounts `source` at `at`.
    ///
    /// # Errors
    /// It does not come up.
    pub fn mount(
        program: &Path,
        (device, seed): (&str, u64),
        (source, at): (&Path, &Path),
        log: &Path,
        stopped: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        let mut command: Command = command::command(&program.to_string_lossy());
        command.args(["slow-dir", "--no-sync", "--device", device, "--seed", &seed.to_string()]);
        command.arg(source).arg(at).stdout(Stdio::null()).stderr(File::create(log)?);
        let child = command.spawn().context("larder slow-dir")?;
        let mut slow = Self { child, at: at.to_owned() };
        let begin = Instant::now();
        while !at.join(STATS).is_file() {
            stopped()?;
            if slow.child.try_wait()?.is_some() {
                bail!("larder slow-dir ended{}", tail(log));
            }
            ensure!(begin.elapsed() < START_BOUND, "{} is not mounted in time", at.display());
            std::thread::sleep(POLL);
        }
        Ok(slow)
    }

    /// What has reached the disk so far.
    ///
    /// # Errors
    /// The server is gone.
    pub fn counts(&self) -> Result<Counts> {
        let text = std::fs::read(self.at.join(STATS)).context("the slow directory's counters")?;
        let stats: Stats =
            serde_json::from_slice(&text).context("the slow directory's counters")?;
        Ok(stats.below)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// A process still uses it.
    pub fn unmount(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let ended = command::wait(&mut self.child, STOP_BOUND, || Ok(()))?;
        ensure!(ended.is_some_and(|status| status.success()), "larder slow-dir did not end well");
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // The second signal does not wait for users.
        self.signal(Signal::TERM);
        self.signal(Signal::INT);
        if !matches!(command::wait(&mut self.child, Duration::from_secs(5), || Ok(())), Ok(Some(_)))
        {
            command::end(&mut self.child);
        }
        let _ = mounts::clear(&self.at);
    }
}
