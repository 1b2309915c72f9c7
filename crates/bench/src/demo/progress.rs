// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the demo goes, on standard error: one line that changes on a terminal, a line every few
//! seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two lines where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    /// Columns of the line that is on the terminal.
    shown: usize,
    last: Option<Instant>,
}

impl Progress {
    /// To standard error as it is.
    #[must_use]
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: 0, last: None }
    }

    /// Something begins; always a line of its own.
    pub fn begin(&mut self, what: &str) {
        self.end();
        larder_lab::tell!("demo: {what}");
        self.last = Some(Instant::now());
    }

    /// The step continues.
    pub fn update(&mut self, how: impl FnOnce() -> String) {
        if self.terminal {
            let line = how();
            let width = line.chars().count();
            // Written over what was there; nothing is lost if it cannot be.
            let _ = write!(std::io::stderr(), "\r  {line:<0$}", self.shown.max(width));
            self.shown = width;
        } else if self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            larder_lab::tell!("  {}", how());
            self.last = Some(Instant::now());
        }
    }

    /// Ends the changing line, so that others may write.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) > 0 {
            larder_lab::tell!("");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
