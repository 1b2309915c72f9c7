// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server process for tests: any failure fails the test.

use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use larder_bench::process::Process;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::command::{Ended, PATIENCE, code, larder};

/// A server process; it is killed when dropped.
pub struct Server {
    process: Process,
    /// The directory of its log.
    _dir: TempDir,
}

impl Server {
    /// Starts `larder` with these arguments and waits until all its listeners are ready.
    pub fn start(words: &[String]) -> Self {
        Self::try_start(words).unwrap_or_else(|ended| panic!("{words:?}: {ended:?}"))
    }

    /// As [`start`](Self::start); returns how it ended if it did not become ready.
    pub fn try_start(words: &[String]) -> Result<Self, Ended> {
        Self::try_start_at(words, words.iter().filter(|w| *w == "--listen").count())
    }

    /// As [`start`](Self::start), by a configuration with `doors` listeners.
    pub fn start_config(config: &Path, doors: usize) -> Self {
        let words = ["serve".to_owned(), config.to_str().unwrap().to_owned()];
        Self::try_start_at(&words, doors).unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    fn try_start_at(words: &[String], doors: usize) -> Result<Self, Ended> {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let process = Process::spawn(&mut larder(words), &log, Duration::ZERO).unwrap();
        let mut server = Self { process, _dir: dir };
        match server.process.wait_until_ready(doors, PATIENCE, || Ok(())).unwrap() {
            Some(exit) => Err(server.ended(exit)),
            None => Ok(server),
        }
    }

    /// Starts on devices whose last server was just killed; the kernel may need a moment to end its operations and
    /// locks.
    pub fn restart(words: &[String]) -> Self {
        let begin = Instant::now();
        loop {
            match Self::try_start(words) {
                Ok(server) => return server,
                Err(ended) => {
                    let locked = ended.code == 4 && ended.err.contains("in use");
                    assert!(locked && begin.elapsed() < PATIENCE, "{ended:?}");
                }
            }
        }
    }

    fn ended(&self, exit: ExitStatus) -> Ended {
        Ended { code: code(exit), out: String::new(), err: self.log() }
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The addresses at which it is ready, in the order of the listeners.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.process.addresses()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Whether it is running.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until it ends.
    pub fn wait(&mut self, patience: Duration) -> Ended {
        let exit = self.process.wait(patience).unwrap();
        let exit = exit.unwrap_or_else(|| panic!("still there: {}", self.log()));
        self.ended(exit)
    }

    /// Sends SIGKILL and waits.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait(PATIENCE).code, 128 + 9);
    }

    /// Sends SIGTERM; the server must exit with success.
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.wait(PATIENCE);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!ended.err.contains("panicked"), "{ended:?}");
        ended
    }

    /// A value in bytes from `/proc/PID/status`.
    #[must_use]
    pub fn memory(&self, key: &str) -> u64 {
        self.process.memory_bytes(key).unwrap()
    }
}

/// A value of `/proc/PID/status` of each thread of a process.
pub fn of_threads(pid: u64, key: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let value = |thread: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    };
    threads.filter_map(value).collect()
}

/// The only child process of a process.
pub fn only_child(pid: u64) -> Pid {
    let is_child = |entry: &std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        text.lines().any(|line| line == format!("PPid:\t{pid}"))
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(is_child);
    let pids: Vec<i32> =
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    assert_eq!(pids.len(), 1, "children of {pid}: {pids:?}");
    Pid::from_raw(pids[0]).unwrap()
}
