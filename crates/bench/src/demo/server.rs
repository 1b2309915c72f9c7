// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `larder serve` process of the demo's own.
//!
//! Purpose: starts it on files and sockets of the demo, asks its control socket for counters, stops
//! it and looks at its exit code.
//!
//! Invariants: those of [`Process`]; what it wrote to standard error is part of the message when it
//! fails.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_front::control::client;
use larder_front::control::wire::Command as Asked;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::uri::{Address, Uri};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::process::Process;

/// How long a server may take until it serves.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long a control request may take.
const ASK_BOUND: Duration = Duration::from_secs(12);
/// How long a server may take to stop: longer than it allows itself.
const STOP_BOUND: Duration = Duration::from_secs(40);
/// How long a server whose demo fails may take to stop before it is killed.
const DROP_BOUND: Duration = Duration::from_secs(3);
/// How long the end of one that cut a connection may take.
const END_BOUND: Duration = Duration::from_millis(10);
/// How long a connection may be silent while an answer is due.
const NBD_BOUND: Duration = Duration::from_secs(30);

/// The counters of a server since its start, as `larder stats --json` gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stats {
    /// Client reads.
    pub reads: u64,
    /// Client reads served wholly from flash.
    pub read_hits: u64,
    /// Client writes.
    pub writes: u64,
    /// Bytes of client reads.
    pub read_bytes: u64,
    /// Bytes of client writes.
    pub write_bytes: u64,
    /// Bytes read from flash.
    pub flash_read_bytes: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// Bytes read from the origin, population included.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub origin_write_bytes: u64,
    /// Memory that the server accounts for; not cumulative.
    pub memory_bytes: u64,
}

impl Stats {
    /// What was counted since `before`; memory is as it is now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_hits: self.read_hits.saturating_sub(before.read_hits),
            writes: self.writes.saturating_sub(before.writes),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            flash_read_bytes: self.flash_read_bytes.saturating_sub(before.flash_read_bytes),
            flash_write_bytes: self.flash_write_bytes.saturating_sub(before.flash_write_bytes),
            origin_read_bytes: self.origin_read_bytes.saturating_sub(before.origin_read_bytes),
            origin_write_bytes: self.origin_write_bytes.saturating_sub(before.origin_write_bytes),
            memory_bytes: self.memory_bytes,
        }
    }

    /// The share of reads served wholly from flash; 0 without reads. Counters of several threads are
    /// not of the same instant, so in a short span there may seem to be more hits than reads.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        (self.read_hits as f64 / self.reads.max(1) as f64).min(1.0)
    }
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The `larder` program.
    pub program: PathBuf,
    /// Its flags, without those for sockets.
    pub flags: Vec<String>,
    /// Where its sockets and its log go.
    pub dir: PathBuf,
    /// What they are called.
    pub name: &'static str,
}

/// A running server, see the module.
#[derive(Debug)]
pub struct Server {
    process: Process,
    control: PathBuf,
    socket: PathBuf,
}

impl Server {
    /// Starts a server and waits until it serves; an error of `stopped` ends the wait.
    ///
    /// # Errors
    /// It cannot be started, ends, or does not serve in time.
    pub fn start(spec: &Spec, stopped: impl Fn() -> Result<()>) -> Result<Self> {
        let path = |suffix: &str| spec.dir.join(format!("{}.{suffix}", spec.name));
        let (control, socket) = (path("control"), path("nbd"));
        let mut command = Command::new(&spec.program);
        command.arg("serve").args(&spec.flags);
        command.arg("--listen").arg(format!("nbd+unix:{}", socket.display()));
        command.arg("--control").arg(&control).arg("--state").arg(spec.dir.join("state"));
        let mut process = Process::spawn(&mut command, &path("log"), DROP_BOUND)?;
        let doors = 1 + spec.flags.iter().filter(|flag| *flag == "--listen").count();
        if let Some(exit) = process.wait_until_ready(doors, START_BOUND, stopped)? {
            bail!("larder serve ended with {exit} at its start{}", process.last_words());
        }
        Ok(Self { process, control, socket })
    }

    /// Its counters.
    ///
    /// # Errors
    /// It does not answer, or not with counters.
    pub fn stats(&self) -> Result<Stats> {
        let value = self.ask(Asked::Stats)?;
        serde_json::from_value(value).context("the answer to `larder stats` is not understood")
    }

    /// Asks as `larder status` and `larder stats` do, but not for ever.
    fn ask(&self, command: Asked) -> Result<Value> {
        let (path, (answer, answered)) = (self.control.clone(), channel());
        let body = move || drop(answer.send(client::ask(&path, &command, |_| {})));
        std::thread::Builder::new().name("demo-ask".to_owned()).spawn(body)?;
        let late = |_| anyhow!("the control socket did not answer within {ASK_BOUND:?}");
        answered.recv_timeout(ASK_BOUND).map_err(late)?.map_err(|failed| anyhow!(failed.message))
    }

    /// A connection to its only volume.
    ///
    /// # Errors
    /// It is not served.
    pub fn connect(&self) -> Result<Client, ClientError> {
        let address = Address::Unix(self.socket.clone());
        let options = Options { io_timeout: Some(NBD_BOUND), ..Options::default() };
        Client::connect(&Uri { address, export: String::new(), tls: None }, &options)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its resident memory, now.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn rss_bytes(&self) -> Result<u64> {
        self.process.memory_bytes("VmRSS")
    }

    /// Stops it and checks that it ended well.
    ///
    /// # Errors
    /// It did not stop in time, or with another code than 0.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM);
        let Some(exit) = self.process.wait(STOP_BOUND)? else {
            let words = self.process.last_words();
            bail!("larder serve did not stop within {} s{words}", STOP_BOUND.as_secs());
        };
        ensure!(exit.success(), "larder serve ended with {exit}{}", self.process.last_words());
        Ok(())
    }

    /// Kills it, so that clients that wait for its answers get an error; its exit is reported by [`Self::explain`].
    pub fn kill(&self) {
        self.process.signal(Signal::KILL);
    }

    /// The error of something asked of the server, with how it ended if it did.
    #[must_use]
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        // A client may notice the lost connection before the system reports the exit.
        match self.process.wait(END_BOUND) {
            Ok(Some(exit)) => {
                let words = self.process.last_words();
                error.context(format!("larder serve ended with {exit}{words}"))
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    /// A "larder" that runs a line of shell instead.
    fn spec(dir: &Path, line: &str) -> Spec {
        let program = dir.join("larder");
        std::fs::write(&program, format!("#!/bin/sh\n{line}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        Spec { program, flags: Vec::new(), dir: dir.to_owned(), name: "test" }
    }

    #[test]
    fn a_server_that_ends_at_once_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec(dir.path(), "echo this is why >&2; exit 4");
        let error = Server::start(&spec, || Ok(())).unwrap_err().to_string();
        assert!(error.contains("exit status: 4") && error.contains("this is why"), "{error}");
    }

    #[test]
    fn one_that_does_not_serve_is_killed_when_the_demo_stops() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let line = format!("echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 1000", pid.display());
        let spec = spec(dir.path(), &line);
        let stopped = || if pid.exists() { Err(anyhow!("interrupted")) } else { Ok(()) };
        let error = Server::start(&spec, stopped).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        let pid = std::fs::read_to_string(&pid).unwrap();
        assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
    }

    #[test]
    fn counters_are_told_apart_and_memory_is_as_it_is() {
        let before = Stats { reads: 10, read_hits: 1, memory_bytes: 7, ..Stats::default() };
        let after = Stats { reads: 30, read_hits: 16, memory_bytes: 5, ..Stats::default() };
        let span = after.since(&before);
        assert_eq!((span.reads, span.memory_bytes), (20, 5));
        assert!((span.hit_ratio() - 0.75).abs() < 1e-9);
        assert!(Stats::default().hit_ratio().abs() < 1e-9);
    }
}
