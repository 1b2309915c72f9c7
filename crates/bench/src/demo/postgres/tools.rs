// SPDX-License-Identifier: MIT OR Apache-2.0
//! PostgreSQL's programs, and the user that they run as.
//!
//! Invariants: a server never runs as root: root gives it to the user `postgres`. What is missing is said in one line,
//! before anything is made.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{Gid, Uid};

use crate::demo::outcome::Skipped;
use crate::demo::system::command::{self, run_command};

/// Where Debian has each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user whose servers root runs.
const USER: &str = "postgres";
/// Versions that the library is for.
const OLDEST: u32 = 15;
const NEWEST: u32 = 18;
/// What must be there.
const PROGRAMS: [&str; 7] =
    ["initdb", "postgres", "pg_isready", "pg_controldata", "pg_amcheck", "psql", "pgbench"];
const BOUND: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
    /// Whom servers belong to, if that is not this process's user.
    owner: Option<(u32, u32)>,
}

impl Tools {
    /// Looks for all of it.
    ///
    /// # Errors
    /// [`Skipped`] with what is missing and how it is had.
    pub fn find(library: &Path) -> Result<Self> {
        let skipped = |what: String| anyhow!(Skipped(what));
        if !Path::new("/dev/fuse").exists() {
            bail!(skipped("it needs /dev/fuse (modprobe fuse)".to_owned()));
        }
        if !library.is_file() {
            let what = format!("{} is not there (make build-postgres)", library.display());
            bail!(skipped(what));
        }
        let bin = bin().ok_or_else(|| {
            let what = format!(
                "it needs PostgreSQL {OLDEST} to {NEWEST} with pgbench and pg_amcheck (apt-get install postgresql)"
            );
            skipped(what)
        })?;
        let root = rustix::process::geteuid().is_root();
        if !root && command::find("fusermount3").is_none() {
            let what = "without root it needs fusermount3 (apt-get install fuse3)";
            bail!(skipped(what.to_owned()));
        }
        let owner = if root { Some(owner().map_err(skipped)?) } else { None };
        Ok(Self { bin, owner })
    }

    /// The version, as `postgres --version` prints it.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn version(&self) -> Result<String> {
        let said = run_command(self.command("postgres", &["--version"]), BOUND, || Ok(()))?;
        Ok(said.split(' ').nth(2).unwrap_or(&said).to_owned())
    }

    /// A program of PostgreSQL, as this process's user.
    #[must_use]
    pub fn command(&self, program: &str, words: &[&str]) -> Command {
        self.prepared(&self.bin.join(program), words)
    }

    /// Any program that finds PostgreSQL's.
    #[must_use]
    pub fn prepared(&self, program: &Path, words: &[&str]) -> Command {
        let mut path = self.bin.as_os_str().to_owned();
        path.push(":");
        path.push(command::path());
        let mut command = command::command(&program.to_string_lossy());
        command.args(words).env("PATH", path).current_dir("/");
        command
    }

    /// A program of PostgreSQL, as the user that servers belong to.
    #[must_use]
    pub fn as_owner(&self, program: &str, words: &[&str]) -> Command {
        let mut command = self.command(program, words);
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives what is at a path to that user.
    ///
    /// # Errors
    /// It cannot be given.
    pub fn give(&self, path: &Path) -> Result<()> {
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::chown(path, uid, gid).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Checks that that user can get to a directory.
    ///
    /// # Errors
    /// It cannot.
    pub fn reach(&self, directory: &Path) -> Result<()> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        let mut command = self.prepared(Path::new("test"), &["-x"]);
        command.arg(directory).uid(uid).gid(gid);
        ensure!(
            run_command(command, BOUND, || Ok(())).is_ok(),
            "{}: the user {USER}, which runs the server, cannot enter it; use --dir to name another place",
            directory.display()
        );
        Ok(())
    }
}

/// The newest that the library is for.
fn bin() -> Option<PathBuf> {
    let debian = |version| Path::new(VERSIONS).join(format!("{version}/bin"));
    let mut places: Vec<PathBuf> = (OLDEST..=NEWEST).rev().map(debian).collect();
    places.extend(command::find("pg_config").and_then(|config| {
        let said = command::run(config.to_str()?, ["--bindir"], BOUND, || Ok(())).ok()?;
        Some(PathBuf::from(said))
    }));
    places.into_iter().find(|bin| PROGRAMS.iter().all(|program| bin.join(program).is_file()))
}

fn owner() -> Result<(u32, u32), String> {
    let id = |flag| -> Option<u32> {
        command::run("id", [flag, USER], BOUND, || Ok(())).ok()?.parse().ok()
    };
    let found = id("-u").zip(id("-g"));
    found.ok_or_else(|| {
        format!("root runs no server, and there is no user {USER} (apt-get install postgresql)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_one_line() {
        let error = Tools::find(Path::new("/nowhere/liblarder_pg.so")).unwrap_err();
        let line = format!("{error:#}");
        assert!(error.is::<Skipped>() && !line.contains('\n'), "{line}");
    }
}
