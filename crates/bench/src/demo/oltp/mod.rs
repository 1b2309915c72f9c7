// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second part of the demo: a database in a file system over Larder, with more data than it
//! has memory.
//!
//! Purpose: the way a user of a kernel without `nbd` and `ublk` goes. `larder serve` makes the
//! volume a FUSE file, a loop device with direct I/O makes that a block device, ext4 is on it, and
//! SQLite in it does point lookups and small updates ([`load`]). Twice: the slow device in
//! pass-through (`direct`), and behind Larder (`larder`).
//!
//! Invariants: both rows get the same treatment and go on from one another in one file system.
//! After each, Larder gone, the slow device's file alone is looked at: `fsck`, SQLite's integrity
//! check, and as many updates as were acknowledged. What is mounted, attached or made is undone on
//! every path; what a killed demo left is cleared by the next ([`super::files`]). Where the machine
//! lacks something the part is skipped with a line that says what ([`needs`]).
//!
//! Why the file system is made without Larder: 200 MB of filling would go to the slow device's
//! model, and nothing is learnt from that.

pub mod command;
pub mod database;
pub mod load;
pub mod memory;
pub mod mounts;
pub mod needs;
pub mod report;
pub mod row;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use larder_io::format_size;

use self::database::Client;
use self::load::Plan;
use self::memory::Memory;
use self::mounts::{Loop, Mounted};
use self::needs::Skipped;
use self::report::Setup;
use self::row::{Kind, Measured, Row};
use super::DemoOptions;
use super::book::Book;
use super::files::{self, Files};
use super::progress::Progress;
use super::server::{Server, Spec, Stats};
use super::tally::Tally;
use crate::process::tail;

/// How long the volume may take to appear as a file.
const FILE_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// The database's file in the file system.
const DATABASE: &str = "accounts.db";

/// How large, and how long.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The size of the flash.
    pub flash_bytes: u64,
    /// Rows of the table, four to a page of 4 KiB.
    pub rows: u32,
    /// The memory that the database is allowed, page cache included.
    pub memory_bytes: u64,
    /// Clients.
    pub clients: usize,
    /// Seconds of each row before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds of each row that count.
    pub measured_seconds: u64,
    /// Where cgroups are.
    pub cgroups: PathBuf,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            volume_bytes: 256 << 20,
            flash_bytes: 288 << 20,
            rows: 192 << 10,
            memory_bytes: 24 << 20,
            clients: 4,
            warm_up_seconds: 8,
            measured_seconds: 8,
            cgroups: PathBuf::from(memory::CGROUPS),
        }
    }
}

/// Makes the file system and the database, and runs both rows.
///
/// # Errors
/// [`Skipped`] where the machine lacks something; else a row cannot be run, data is wrong or lost,
/// or the row without a cache is cached.
pub fn measure(options: &DemoOptions) -> Result<(Vec<Row>, Setup)> {
    needs::check()?;
    let begin = Instant::now();
    let scale = &options.oltp;
    let files = Files::new(&options.dir.join("work"), scale.volume_bytes + scale.flash_bytes)?;
    let oltp = Oltp { options, files, book: Book::new(scale.rows as usize) };
    let mut progress = Progress::new();
    progress.begin(&format!(
        "making a file system of {} with a database in {}",
        format_size(scale.volume_bytes),
        options.dir.display()
    ));
    let prepared = oltp.prepare();
    // Whatever else went wrong when it was interrupted comes from that.
    let database_bytes = options.stopped().and(prepared)?;
    let mut memory_words = String::new();
    let mut run = |kind: Kind| {
        let result = oltp.row(kind, &mut memory_words, &mut progress);
        options.stopped().and(result).with_context(|| format!("row {}", kind.name()))
    };
    let rows = Kind::ALL.into_iter().map(&mut run).collect::<Result<Vec<_>>>()?;
    let setup = oltp.setup(database_bytes, memory_words)?;
    drop(oltp);
    progress.begin(&format!("done after {:.0} s", begin.elapsed().as_secs_f64()));
    Ok((rows, setup))
}

/// What the rows share.
struct Oltp<'a> {
    options: &'a DemoOptions,
    files: Files,
    book: Book,
}

/// From the server to the mounted file system; dropped from top to bottom.
struct Stack {
    mounted: Mounted,
    looped: Loop,
    server: Server,
}

impl Stack {
    /// Takes it down in order.
    fn take_down(self) -> Result<()> {
        self.mounted.unmount()?;
        self.looped.detach()?;
        self.server.stop()
    }
}

impl Oltp<'_> {
    fn stopped(&self) -> Result<()> {
        self.options.stopped()
    }

    fn scale(&self) -> &Scale {
        &self.options.oltp
    }

    /// Makes the devices' files, the file system and the database; the database's size.
    fn prepare(&self) -> Result<u64> {
        let stopped = || self.stopped();
        let (origin, flash) = (self.files.origin(), self.files.flash());
        files::make(&origin, self.scale().volume_bytes, |_, _| {}, stopped)?;
        files::make(&flash, self.scale().flash_bytes, |_, _| {}, stopped)?;
        std::fs::create_dir(self.files.mount_point())?;
        let looped = Loop::attach(&origin, stopped).map_err(|e| lacks("loop devices", &e))?;
        mounts::make(looped.device(), stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.files.mount_point(), stopped)
            .map_err(|e| lacks("to mount ext4", &e))?;
        let database = self.database();
        database::make(&database, self.scale().rows, stopped)?;
        let bytes = database.metadata().context("the database")?.len();
        mounted.unmount()?;
        looped.detach()?;
        Ok(bytes)
    }

    fn database(&self) -> PathBuf {
        self.files.mount_point().join(DATABASE)
    }

    fn setup(&self, database_bytes: u64, memory: String) -> Result<Setup> {
        let (o, s) = (self.options, self.scale());
        let version = command::run("sqlite3", ["-version"], FILE_BOUND, || self.stopped())?;
        Ok(Setup {
            sqlite: version.split(' ').next().unwrap_or_default().to_owned(),
            rows: s.rows,
            database_bytes,
            memory_bytes: s.memory_bytes,
            memory,
            volume_bytes: s.volume_bytes,
            flash_bytes: s.flash_bytes,
            profile: o.profile.clone(),
            seed: o.seed,
            clients: s.clients,
            warm_up_seconds: s.warm_up_seconds,
            measured_seconds: s.measured_seconds,
        })
    }

    /// Runs a row from a fresh server to the slow device looked at alone.
    fn row(&self, kind: Kind, memory_words: &mut String, progress: &mut Progress) -> Result<Row> {
        let spec = self.spec(kind)?;
        progress.begin(&format!("{}: larder serve {}", kind.name(), spec.flags.join(" ")));
        let before = self.updates();
        let mut stack = self.build(&spec)?;
        let memory =
            Memory::limit(&self.scale().cgroups, self.scale().memory_bytes, &self.database())?;
        *memory_words = memory.words();
        let mut samples = vec![stack.server.stats()?];
        let result = self.load(kind, &stack.server, &memory, &mut samples, progress);
        let tally = result.map_err(|e| stack.server.explain(e))?;
        let rss_bytes = stack.server.rss_bytes()?;
        drop(memory);
        progress.update(|| "looking at the slow device alone".to_owned());
        stack.take_down()?;
        self.verify()?;
        let warm_up = self.scale().warm_up_seconds;
        let window = warm_up..warm_up + self.scale().measured_seconds;
        let (tally, updates) = (&tally, self.updates() - before);
        Row::new(&Measured { kind, tally, samples: &samples, window, rss_bytes, updates })
    }

    /// Updates that were acknowledged so far.
    fn updates(&self) -> u64 {
        let rows = self.scale().rows as usize;
        self.book.completed(0, rows).into_iter().map(u64::from).sum()
    }

    fn spec(&self, kind: Kind) -> Result<Spec> {
        let mut flags = vec!["--origin".to_owned(), self.options.slow(&self.files.origin())?];
        if kind == Kind::Larder {
            flags.extend(["--flash".to_owned(), super::utf8(&self.files.flash())?.to_owned()]);
            flags.extend_from_slice(&self.options.larder_flags);
        }
        let file = self.files.volume();
        flags.extend(["--listen".to_owned(), format!("fuse:{}", super::utf8(&file)?)]);
        let program = self.options.program()?;
        Ok(Spec { program, flags, dir: self.files.sockets().to_owned(), name: kind.name() })
    }

    /// Serves the volume and mounts what is on it.
    fn build(&self, spec: &Spec) -> Result<Stack> {
        let stopped = || self.stopped();
        let server = Server::start(spec, stopped)?;
        let volume = self.files.volume();
        let (begin, bytes) = (Instant::now(), self.scale().volume_bytes);
        while !volume.metadata().is_ok_and(|meta| meta.len() == bytes) {
            ensure!(begin.elapsed() < FILE_BOUND, "{} does not appear", volume.display());
            std::thread::sleep(POLL);
        }
        let looped = Loop::attach(&volume, stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.files.mount_point(), stopped)?;
        Ok(Stack { mounted, looped, server })
    }

    /// Runs the load with clients of its own, and ends them.
    fn load(
        &self,
        kind: Kind,
        server: &Server,
        memory: &Memory,
        samples: &mut Vec<Stats>,
        progress: &mut Progress,
    ) -> Result<Tally> {
        let log = self.files.sockets().join("sqlite3.log");
        let explain = |error: anyhow::Error| match tail(&log).as_str() {
            "" => error,
            words => error.context(format!("sqlite3 failed{words}")),
        };
        let open = |_| Client::open(&self.database(), &log, |pid| memory.adopt(pid));
        let opened = (0..self.scale().clients).map(open).collect::<Result<Vec<_>>>();
        let (mut clients, conversations): (Vec<_>, Vec<_>) =
            opened.map_err(explain)?.into_iter().unzip();
        let warm_up = Duration::from_secs(self.scale().warm_up_seconds);
        let end = warm_up + Duration::from_secs(self.scale().measured_seconds);
        let plan =
            Plan { rows: self.scale().rows, seed: self.options.seed, window: (warm_up, end) };
        let mut answered = 0;
        let second = |second, now| {
            self.stopped()?;
            let (stats, before) = (server.stats()?, samples.last().copied().unwrap_or_default());
            let (tps, span) = (now - std::mem::replace(&mut answered, now), stats.since(&before));
            progress.update(|| self.line(kind, second, tps, &span));
            samples.push(stats);
            Ok(())
        };
        let with = (&self.book, memory);
        let tally = load::run(&mut clients, conversations, with, plan, second, || server.kill());
        let tally = tally.map_err(explain)?;
        for client in clients {
            client.close().map_err(explain)?;
        }
        Ok(tally)
    }

    fn line(&self, kind: Kind, second: u64, tps: u64, stats: &Stats) -> String {
        let warm_up = self.scale().warm_up_seconds;
        let end = warm_up + self.scale().measured_seconds;
        let phase = if second <= warm_up { "warm-up" } else { "measuring" };
        let hits = match kind {
            Kind::Direct => String::new(),
            Kind::Larder => format!(", {:.1} % hits", stats.hit_ratio() * 100.0),
        };
        let reads = stats.origin_read_bytes >> 10;
        let name = kind.name();
        format!(
            "{name} {second}/{end} s, {phase}: {tps} tx/s, {reads} KiB read from the device{hits}"
        )
    }

    /// Looks at the slow device alone: nothing that was acknowledged may be missing.
    fn verify(&self) -> Result<()> {
        let stopped = || self.stopped();
        let looped = Loop::attach(&self.files.origin(), stopped)?;
        mounts::check_clean(looped.device(), stopped)?;
        let mounted = Mounted::mount(looped.device(), &self.files.mount_point(), stopped)?;
        database::verify(&self.database(), self.scale().rows, self.updates(), stopped)?;
        mounted.unmount()?;
        looped.detach()
    }
}

/// What failed where Larder has no part in it yet: the machine lacks that.
fn lacks(what: &str, error: &anyhow::Error) -> anyhow::Error {
    let reason = format!("it needs {what}, and that failed ({error:#})");
    anyhow!(Skipped(reason))
}
