// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace that is being written, with lines of progress.
//!
//! Invariant: however the command ends, except by SIGKILL and SIGHUP, there is either the whole trace under its name, or
//! no file.
//!
//! Why a thread for signals and no flag that is checked between two requests: the command may wait for a pipe, or skip
//! millions of requests of other devices, and must end at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use larder_trace::{Format, Record, Writer};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::out;

/// The interval between two lines of progress.
pub const TELL_EVERY: Duration = Duration::from_secs(2);

/// The trace.
pub struct Output {
    path: PathBuf,
    writer: Writer,
    written: u64,
    told: Instant,
}

impl Output {
    /// Begins one; a signal removes what there is of it and ends the command. SIGHUP is left as it
    /// was, so that a long one can be left to itself under `nohup`.
    pub fn create(path: &Path, format: Option<Format>) -> Result<Self> {
        // As if the first signal had come already.
        Self::create_until(path, format, &[SIGINT, SIGTERM], Arc::new(AtomicBool::new(true)))
    }

    /// Begins one whose command ends in good order when the first of these signals has set `stop`;
    /// a second one does not wait for that.
    pub fn create_until(
        path: &Path,
        format: Option<Format>,
        signals: &[i32],
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        // Before there is a file, so that none is left by a signal in between.
        let mut signals = Signals::new(signals)?;
        let writer = Writer::create(path, format)?;
        let part = writer.part().to_owned();
        std::thread::Builder::new().name("larder-signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if stop.swap(true, Ordering::SeqCst) {
                    let _ = std::fs::remove_file(&part);
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), writer, written: 0, told: Instant::now() })
    }

    /// Adds requests.
    pub fn write(&mut self, records: &[Record]) -> Result<()> {
        for record in records {
            self.writer.write(record)?;
        }
        let before = self.written / 1024;
        self.written += records.len() as u64;
        if self.written / 1024 > before && self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            out::tell!("{} requests", self.written);
        }
        Ok(())
    }

    /// Requests written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The trace is complete.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()?;
        out::tell!("{}: {} requests", self.path.display(), self.written);
        Ok(())
    }
}
