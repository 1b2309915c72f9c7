// SPDX-License-Identifier: MIT OR Apache-2.0
//! A database in a file system over Larder, with more data than it has memory.
//!
//! Purpose: the set-up of a user whose kernel lacks `nbd` and `ublk`. `larder serve` makes the
//! volume a FUSE file, a loop device with direct I/O makes that a block device, ext4 is on it, and
//! SQLite in it does point lookups and small updates ([`load`]). Twice: the slow device in
//! pass-through (`direct`), and behind Larder (`larder`).
//!
//! Invariants: both rows get the same treatment, and the second continues in the file system of the first.
//! After each, without Larder, the slow device's file is checked: `fsck`, SQLite's integrity
//! check, and as many updates as were acknowledged. What is mounted, attached or made is undone on
//! every path; what a killed demo left is cleared by the next ([`super::place`]). Where the machine
//! lacks something the part is skipped with a line that states what ([`needs`]).
//!
//! Why the file system is made without Larder: 200 MB of filling would go to the slow device's
//! model, and nothing is learnt from that.

pub mod database;
pub mod load;
pub mod memory;
pub mod needs;
pub mod report;
pub mod setup;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use larder_io::format_size;

use self::database::Client;
use self::memory::Memory;
use self::report::{OltpRow, WAYS};
use self::setup::{Scale, Setup};
use super::book::Book;
use super::device_file;
use super::options::DemoOptions;
use super::outcome::Skipped;
use super::place::Place;
use super::progress::Progress;
use super::report::Report;
use super::served::Served;
use super::served::row::Measured;
use super::served::way::Way;
use super::system::command;
use super::system::mounts::{self, Loop, Mounted};
use crate::process::tail;

/// How long the volume may take to appear as a file.
const FILE_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// The database's file in the file system.
const DATABASE: &str = "accounts.db";

/// Makes the file system and the database, and runs both rows.
///
/// # Errors
/// [`Skipped`] where the machine lacks something; else a row cannot be run, data is wrong or lost,
/// or the row without a cache is cached.
pub fn measure(options: &DemoOptions, progress: &mut Progress) -> Result<Report> {
    needs::check()?;
    let scale = &options.oltp;
    let place = Place::new(options, scale.volume_bytes + scale.flash_bytes)?;
    let mut oltp = Oltp { options, place, book: Book::new(scale.rows as usize), memory: None };
    progress.begin(&format!(
        "making a file system of {} with a database in {}",
        format_size(scale.volume_bytes),
        options.dir.display()
    ));
    let database_bytes = oltp.prepare()?;
    let run = |way: Way| oltp.row(way, progress).with_context(|| format!("row {}", way.name));
    let rows = WAYS.into_iter().map(run).collect::<Result<Vec<_>>>()?;
    report::report(&rows, &oltp.setup(database_bytes)?)
}

/// What the rows share.
struct Oltp<'a> {
    options: &'a DemoOptions,
    place: Place,
    book: Book,
    /// How the memory of the last row was bounded.
    memory: Option<String>,
}

/// From the server to the mounted file system; dropped from top to bottom.
struct Stack<'a> {
    mounted: Mounted,
    looped: Loop,
    served: Served<'a>,
}

impl Stack<'_> {
    /// Removes it, in order.
    fn take_down(self) -> Result<()> {
        self.mounted.unmount()?;
        self.looped.detach()?;
        self.served.stop()
    }
}

impl<'a> Oltp<'a> {
    fn stopped(&self) -> Result<()> {
        self.options.stopped()
    }

    fn scale(&self) -> &'a Scale {
        &self.options.oltp
    }

    /// Makes the devices' files, the file system and the database; the database's size.
    fn prepare(&self) -> Result<u64> {
        let stopped = || self.stopped();
        let (origin, flash) = (self.place.origin(), self.place.flash());
        device_file::make(&origin, self.scale().volume_bytes, |_, _| {}, stopped)?;
        device_file::make(&flash, self.scale().flash_bytes, |_, _| {}, stopped)?;
        std::fs::create_dir(self.place.mount_point())?;
        let looped = Loop::attach(&origin, stopped).map_err(|e| lacks("loop devices", &e))?;
        mounts::make(looped.device(), stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.place.mount_point(), stopped)
            .map_err(|e| lacks("to mount ext4", &e))?;
        let database = self.database();
        database::make(&database, self.scale().rows, stopped)?;
        let bytes = database.metadata().context("the database")?.len();
        mounted.unmount()?;
        looped.detach()?;
        Ok(bytes)
    }

    fn database(&self) -> PathBuf {
        self.place.mount_point().join(DATABASE)
    }

    fn setup(&self, database_bytes: u64) -> Result<Setup> {
        let version = command::run("sqlite3", ["-version"], FILE_BOUND, || self.stopped())?;
        Ok(Setup {
            sqlite: version.split(' ').next().unwrap_or_default().to_owned(),
            database_bytes,
            memory: self.memory.clone().unwrap_or_default(),
            profile: self.options.profile.clone(),
            seed: self.options.seed,
            scale: self.scale().clone(),
        })
    }

    /// Runs a row from a fresh server to the check of the slow device alone.
    fn row(&mut self, way: Way, progress: &mut Progress) -> Result<OltpRow> {
        let before = self.book.writes();
        let mut stack = self.build(way, progress)?;
        let scale = self.scale();
        let memory = Memory::limit(&scale.cgroups, scale.memory_bytes, &self.database())?;
        let measured = self.load(&mut stack.served, &memory, progress)?;
        self.memory = Some(memory.words());
        drop(memory);
        progress.update(|| "looking at the slow device alone".to_owned());
        stack.take_down()?;
        self.verify()?;
        report::row(&measured, self.book.writes() - before)
    }

    /// Serves the volume and mounts what is on it.
    fn build(&self, way: Way, progress: &mut Progress) -> Result<Stack<'a>> {
        let (volume, stopped) = (self.place.volume(), || self.stopped());
        let served = Served::start(self.options, &self.place, way, Some(&volume), progress)?;
        let (begin, bytes) = (Instant::now(), self.scale().volume_bytes);
        while !volume.metadata().is_ok_and(|meta| meta.len() == bytes) {
            ensure!(begin.elapsed() < FILE_BOUND, "{} does not appear", volume.display());
            std::thread::sleep(POLL);
        }
        let looped = Loop::attach(&volume, stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.place.mount_point(), stopped)?;
        Ok(Stack { mounted, looped, served })
    }

    /// Runs the load with clients of its own, and ends them.
    fn load(
        &self,
        served: &mut Served<'_>,
        memory: &Memory,
        progress: &mut Progress,
    ) -> Result<Measured> {
        let (log, scale) = (self.place.sockets().join("sqlite3.log"), self.scale());
        let explain = |error: anyhow::Error| match tail(&log).as_str() {
            "" => error,
            words => error.context(format!("sqlite3 failed{words}")),
        };
        served.load(scale.window, "tx/s", progress, |server, second| {
            let open = |_| Client::open(&self.database(), &log, |pid| memory.adopt(pid));
            let clients = (0..scale.clients).map(open).collect::<Result<Vec<_>>>();
            let (with, seed) = ((&self.book, memory), self.options.seed);
            clients
                .and_then(|c| load::run(c, with, (scale, seed), second, || server.kill()))
                .map_err(explain)
        })
    }

    /// Checks the slow device alone: no acknowledged write may be missing.
    fn verify(&self) -> Result<()> {
        let stopped = || self.stopped();
        let looped = Loop::attach(&self.place.origin(), stopped)?;
        mounts::check_clean(looped.device(), stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.place.mount_point(), stopped)?;
        database::verify(&self.database(), self.scale().rows, self.book.writes(), stopped)?;
        mounted.unmount()?;
        looped.detach()
    }
}

/// A failure before Larder is used: the machine lacks something.
fn lacks(what: &str, error: &anyhow::Error) -> anyhow::Error {
    let reason = format!("it needs {what}, and that failed ({error:#})");
    anyhow!(Skipped(reason))
}
