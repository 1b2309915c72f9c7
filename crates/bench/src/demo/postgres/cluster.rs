// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PostgreSQL cluster: made, configured, started, asked, stopped, killed.
//!
//! Invariants: only processes whose working directory is this cluster's data directory are ever signalled: a server's
//! all are there, and no other server's. A guard ends them on every path, first in the server's own way, so that it takes
//! its shared memory away.
//!
//! The log of changes lies in `wal` beside `data`, by a relative link: the cluster can then be used below any path.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::tools::Tools;
use crate::demo::system::command::{run_command, wait};
use crate::demo::system::processes::end_below;
use crate::process::tail;

/// A clean stop writes all that is dirty, to a slow disk.
const STOP_BOUND: Duration = Duration::from_secs(300);
const START_BOUND: Duration = Duration::from_secs(900);
const SQL_BOUND: Duration = Duration::from_secs(600);
/// How long a server may take to end in a hurry.
const HURRY_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// The configuration that is written for each start.
const CONFIGURATION: &str = "demo.conf";
/// The demo's database.
pub const DATABASE: &str = "tpcc";
/// The superuser, whichever user runs the server.
const SUPERUSER: &str = "postgres";

/// Where a cluster is.
#[derive(Clone, Debug)]
pub struct Cluster<'a> {
    /// PostgreSQL.
    pub tools: &'a Tools,
    /// `data` and `wal` are in it.
    pub home: PathBuf,
    /// For the socket.
    pub sockets: PathBuf,
    /// The server's messages.
    pub log: PathBuf,
}

impl Cluster<'_> {
    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Makes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self, stopped: impl Fn() -> Result<()>) -> Result<()> {
        let (data, wal) = (self.data(), self.home.join("wal"));
        let words = ["-N", "-k", "-A", "trust", "-U", SUPERUSER, "--no-locale", "-E", "UTF8"];
        let mut command = self.tools.as_owner("initdb", &words);
        command.arg("-D").arg(&data).arg("-X").arg(&wal);
        run_command(command, SQL_BOUND, stopped)?;
        fs::remove_file(data.join("pg_wal"))?;
        std::os::unix::fs::symlink("../wal", data.join("pg_wal"))?;
        let main = data.join("postgresql.conf");
        let text = fs::read_to_string(&main)? + &format!("\ninclude '{CONFIGURATION}'\n");
        fs::write(&main, text)?;
        Ok(())
    }

    /// The number that no other cluster has.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn identifier(&self) -> Result<u64> {
        let mut command = self.tools.command("pg_controldata", &[]);
        command.arg(self.data());
        let text = run_command(command, SQL_BOUND, || Ok(()))?;
        let line = text.lines().find_map(|l| l.strip_prefix("Database system identifier:"));
        line.and_then(|n| n.trim().parse().ok()).context("no system identifier in pg_controldata")
    }

    /// Starts it with these settings; returns when it takes connections.
    ///
    /// # Errors
    /// It does not.
    pub fn start(
        &self,
        settings: &[(&str, String)],
        stopped: impl Fn() -> Result<()>,
    ) -> Result<Server<'_>> {
        let sockets = self.sockets.display().to_string();
        let own = [("listen_addresses", String::new()), ("unix_socket_directories", sockets)];
        let line =
            |(key, value): &(&str, String)| format!("{key} = '{}'\n", value.replace('\'', "''"));
        let text: String = own.iter().chain(settings).map(line).collect();
        fs::write(self.data().join(CONFIGURATION), text)?;
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.tools.as_owner("postgres", &["-D"]);
        command.arg(self.data()).stdout(log.try_clone()?).stderr(log);
        let begin = Instant::now();
        let child = command.spawn().context("postgres")?;
        let mut server = Server { cluster: self, child, since: begin, ready: Duration::ZERO };
        loop {
            stopped()?;
            if server.child.try_wait()?.is_some() {
                bail!("the server ended{}", tail(&self.log));
            }
            let asked = server.tool("pg_isready", &["-q"]);
            if run_command(asked, SQL_BOUND, || Ok(())).is_ok() {
                break;
            }
            ensure!(
                begin.elapsed() < START_BOUND,
                "the server takes no connections{}",
                tail(&self.log)
            );
            std::thread::sleep(POLL);
        }
        server.ready = begin.elapsed();
        Ok(server)
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server<'a> {
    cluster: &'a Cluster<'a>,
    child: Child,
    since: Instant,
    /// How long it took from its start until it took connections.
    pub ready: Duration,
}

impl Server<'_> {
    /// A program that asks this server, about the demo's database.
    #[must_use]
    pub fn tool(&self, program: &str, words: &[&str]) -> Command {
        self.aimed(self.cluster.tools.command(program, words))
    }

    /// The same of any program.
    #[must_use]
    pub fn aimed(&self, mut command: Command) -> Command {
        command.env("PGHOST", &self.cluster.sockets).env("PGPORT", "5432");
        command.env("PGUSER", SUPERUSER).env("PGDATABASE", DATABASE);
        command.env("TMPDIR", &self.cluster.sockets).env_remove("PGOPTIONS");
        command
    }

    /// What a statement returns.
    ///
    /// # Errors
    /// It fails.
    pub fn sql(&self, database: &str, text: &str) -> Result<String> {
        let words = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text];
        let said = run_command(self.tool("psql", &words), SQL_BOUND, || Ok(()));
        said.with_context(|| format!("{} s after its start", self.since.elapsed().as_secs()))
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// It does not stop, or not in order.
    pub fn stop(mut self, stopped: impl Fn() -> Result<()>) -> Result<()> {
        // Sessions are ended.
        self.signal(Signal::INT);
        let ended = wait(&mut self.child, STOP_BOUND, stopped)?;
        let log = tail(&self.cluster.log);
        ensure!(
            ended.is_some_and(|status| status.success()),
            "the server did not stop in order{log}"
        );
        Ok(())
    }

    /// Kills all of its processes at once, and waits until they are gone.
    ///
    /// # Errors
    /// One does not go.
    pub fn kill(mut self) -> Result<()> {
        let _ = self.child.kill();
        end_below(&self.cluster.data())?;
        let _ = self.child.wait();
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.signal(Signal::QUIT);
            let _ = wait(&mut self.child, HURRY_BOUND, || Ok(()));
        }
        let _ = self.child.kill();
        let _ = end_below(&self.cluster.data());
        let _ = self.child.wait();
    }
}
