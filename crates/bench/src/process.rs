// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `larder serve` process of our own: the one way in which the demo, the benches and the tests start a server.
//!
//! Purpose: starts it, waits until it is ready at every door, signals it, waits for its end, and has what it wrote to
//! standard error.
//!
//! Invariants: the process ends with its guard, on every path, panics included, and the kernel ends it when the
//! thread that started it is gone. Every wait has a bound.
//!
//! Why a process group of its own: Ctrl-C shall reach the program that started it alone, which then stops it in order.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};

/// This process, and those that it starts, may open as many files as the system permits.
pub(crate) fn permit_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If not, what needs more fails with the limit in its message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What a server writes for each door that it opened, before the door's address.
const READY: &str = "larder: ready at ";
/// Time between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(5);
/// So much of a failed server's last words is shown.
const LAST_WORDS_BYTES: usize = 2048;

/// See the module.
#[derive(Debug)]
pub struct Process {
    child: Child,
    exit: Option<ExitStatus>,
    log: PathBuf,
    /// How long it may take to stop when it is dropped, before it is killed.
    grace: Duration,
}

impl Process {
    /// Starts a command; what it writes to standard error goes to `log`. When dropped it is stopped, and killed after
    /// `grace`.
    ///
    /// # Errors
    /// It cannot be started, or the log cannot be made.
    pub fn spawn(command: &mut Command, log: &Path, grace: Duration) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).process_group(0);
        die_with_parent(command);
        let program = command.get_program().to_owned();
        let failed = || format!("cannot start {}", Path::new(&program).display());
        let child = command.spawn().with_context(failed)?;
        Ok(Self { child, exit: None, log: log.to_owned(), grace })
    }

    /// Waits until it is ready at so many doors; its exit, if it ended instead. an error of `stopped` ends the wait.
    ///
    /// # Errors
    /// It is not ready in time, or `stopped` returns an error.
    pub fn wait_until_ready(
        &mut self,
        doors: usize,
        bound: Duration,
        stopped: impl Fn() -> Result<()>,
    ) -> Result<Option<ExitStatus>> {
        let begin = Instant::now();
        while self.addresses().len() < doors {
            stopped()?;
            if let Some(exit) = self.try_wait()? {
                return Ok(Some(exit));
            }
            if begin.elapsed() > bound {
                bail!("not ready within {} s{}", bound.as_secs(), tail(&self.log));
            }
            std::thread::sleep(POLL);
        }
        Ok(None)
    }

    /// Where it is ready, in the order of the doors.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let log = self.log();
        log.lines().filter_map(|line| line.strip_prefix(READY)).map(str::to_owned).collect()
    }

    /// What it wrote to standard error so far, in whole lines.
    #[must_use]
    pub fn log(&self) -> String {
        let mut bytes = std::fs::read(&self.log).unwrap_or_default();
        bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of that, for an error.
    #[must_use]
    pub fn last_words(&self) -> String {
        tail(&self.log)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, unless it has ended; nothing is lost if it does just now.
    pub fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().context("cannot read the state of larder serve")?;
        }
        Ok(self.exit)
    }

    /// Waits for its end, for so long at the most.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn wait(&mut self, bound: Duration) -> Result<Option<ExitStatus>> {
        let begin = Instant::now();
        while self.try_wait()?.is_none() && begin.elapsed() < bound {
            std::thread::sleep(POLL);
        }
        Ok(self.exit)
    }

    /// A figure in bytes that the system reports of its memory, by its key: `VmRSS` is the resident memory.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn memory_bytes(&self, key: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        parse_memory(&text, key).with_context(|| format!("{path} has no {key}"))
    }

    /// Its proportional set size in bytes: a page that several processes have counts in equal parts.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn proportional_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        parse_memory(&text, "Pss").with_context(|| format!("{path} has no Pss"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.grace > Duration::ZERO {
            self.signal(Signal::TERM);
        }
        if !matches!(self.wait(self.grace), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The end of a log, indented; empty if there is none.
pub(crate) fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORDS_BYTES)..]);
    match text.trim() {
        "" => String::new(),
        text => format!("; its last words:\n  {}", text.replace('\n', "\n  ")),
    }
}

fn parse_memory(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Lets the kernel stop the process when the thread that starts it ends, however that comes.
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before the line above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))
        }
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing, takes no lock and touches no memory but its own captured process id.
    unsafe { command.pre_exec(before_exec) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_size_is_read() {
        let text = "Name:\tlarder\nVmHWM:\t   99 kB\nVmRSS:\t   12 kB\n";
        assert_eq!(parse_memory(text, "VmRSS"), Some(12 << 10));
        assert_eq!(parse_memory("Name:\tx\n", "VmRSS"), None);
    }
}
