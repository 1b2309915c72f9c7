// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo behind `larder demo` and `make demo`: the main job end to end, on files that it makes
//! itself, in under three minutes.
//!
//! Purpose: two parts. The first needs no root: the same requests against the same data, served five ways: the slow device alone
//! (`no-cache`), behind Larder (`larder`), behind the same engine with the choices of two caches
//! that the paper compares with (`flashcache`, `bcache`), and flash alone (`all-flash`). Each is a
//! fresh `larder serve` process of its own; [`mod@replay`] drives it, [`row`] is what comes out.
//! The second is [`oltp`]: a database in a file system on a volume. A third, by itself, is [`postgres`]: PostgreSQL with
//! the library, on a directory of [`slow_dir`].
//!
//! Invariants: every row gets the same treatment. The rows go on from one another on one origin
//! file, and [`book`] knows what every page of it must hold, so a write that one of them lost is
//! found, by a read or when the whole file is read back after the row. Nothing is left behind but
//! the JSON: files go with their directory, servers with their guard.
//!
//! Why a modelled device: a demo must run where there is no SAN or cloud volume, and a figure
//! should not depend on whose disk is slow today.

pub mod book;
pub mod content;
pub mod files;
pub mod oltp;
pub mod postgres;
pub mod progress;
pub mod replay;
pub mod report;
pub mod row;
pub mod server;
pub mod slow_dir;
pub mod tally;
pub mod workload;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_io::format_size;
use larder_trace::{Records, Trace};
use serde_json::Value;

use self::book::Book;
use self::files::Files;
use self::oltp::needs::Skipped;
use self::progress::Progress;
use self::replay::{Plan, replay};
use self::report::Setup;
use self::row::{FIRST_SECONDS, Kind, Measured, Row};
use self::server::{Server, Spec, Stats};

use self::workload::Workload;

const OLTP_FILE: &str = "oltp.json";
const POSTGRES_FILE: &str = "postgres.json";
const TRACE_NAME: &str = "a PostgreSQL 15 trace below 8 MB of shared buffers, zipf updates";
/// The most connections, and the most requests that one keeps open: a client that sends without
/// reading could lock up with the server beyond.
const MOST: usize = 64;

/// Which parts are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A trace over NBD.
    Replay,
    /// A database in a file system.
    Oltp,
    /// The first two, one after the other.
    All,
    /// PostgreSQL with the library on a slow directory.
    Postgres,
}

/// What the demo does, and where.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Which parts.
    pub part: Part,
    /// Where `demo.json` and `oltp.json` are written, and below it, in `work`, the files that stand
    /// for devices.
    pub dir: PathBuf,
    /// Print the rows as one JSON value instead of the table.
    pub json: bool,
    /// The `larder` to start as a server; without, this very program.
    pub larder: Option<PathBuf>,
    /// A trace, see `docs/traces.md`; without, our own.
    pub trace: Option<PathBuf>,
    /// The model of the slow device, a `slow+` profile.
    pub profile: String,
    /// Its seed.
    pub seed: u64,
    /// Further flags of `larder serve` in the row with the cache.
    pub larder_flags: Vec<String>,
    /// Size of the flash; without, larger than the volume by an eighth.
    pub flash_bytes: Option<u64>,
    /// Connections.
    pub connections: usize,
    /// Requests that each keeps open.
    pub depth: usize,
    /// Seconds of each row before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds of each row that count.
    pub measured_seconds: u64,
    /// A FLUSH follows after so many writes to the log.
    pub flush_every: u64,
    /// Sizes and spans of the second part.
    pub oltp: oltp::Scale,
    /// The same of the third.
    pub postgres: postgres::Scale,
    /// Set by a signal handler to end the demo; it then fails with [`Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            part: Part::All,
            dir: PathBuf::from("target/demo"),
            json: false,
            larder: None,
            trace: None,
            profile: "cloud".to_owned(),
            seed: 1,
            larder_flags: Vec::new(),
            flash_bytes: None,
            connections: 4,
            depth: 2,
            warm_up_seconds: 12,
            measured_seconds: 9,
            flush_every: 16,
            oltp: oltp::Scale::default(),
            postgres: postgres::Scale::default(),
            interrupted: Arc::default(),
        }
    }
}

impl DemoOptions {
    /// Fails once the demo is to end.
    fn stopped(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::SeqCst), Interrupted);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        for (what, value) in [("connections", self.connections), ("requests open", self.depth)] {
            ensure!((1..=MOST).contains(&value), "{value} {what}; accepted are 1 to {MOST}");
        }
        let seconds = self.warm_up_seconds + self.measured_seconds;
        ensure!(
            self.measured_seconds >= 1 && seconds >= FIRST_SECONDS && self.flush_every >= 1,
            "{seconds} s a row, {} of them measured, a flush every {} writes; accepted are at \
             least {FIRST_SECONDS} s, 1 s and 1 write",
            self.measured_seconds,
            self.flush_every
        );
        Ok(())
    }

    /// The program of servers.
    fn program(&self) -> Result<PathBuf> {
        self.larder
            .clone()
            .map_or_else(|| std::env::current_exe().context("the path of this program"), Ok)
    }

    /// A file behind the model of the slow device.
    fn slow(&self, file: &Path) -> Result<String> {
        Ok(format!("slow+{}?profile={}&seed={}", utf8(file)?, self.profile, self.seed))
    }

    fn plan(&self) -> Plan {
        Plan {
            depth: self.depth,
            warm_up: Duration::from_secs(self.warm_up_seconds),
            measured: Duration::from_secs(self.measured_seconds),
            flush_every: self.flush_every,
        }
    }
}

/// The demo was ended by [`DemoOptions::interrupted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; the demo's servers are stopped and its files removed")
    }
}

impl std::error::Error for Interrupted {}

/// Runs the demo: progress to standard error, tables or JSON to standard output, the rows to
/// `demo.json` and `oltp.json`. Where the machine lacks what the second part needs, a line says so.
///
/// # Errors
/// A row cannot be run, what was read or is on the origin is wrong, or the row without a cache is
/// cached.
pub fn run(options: &DemoOptions) -> Result<()> {
    let mut values = Vec::new();
    if options.part == Part::Postgres {
        let _ = std::fs::remove_file(options.dir.join(POSTGRES_FILE));
        let (rows, setup) = postgres::measure(options)?;
        let json = postgres::report::json(&rows, &setup)?;
        tell(options, POSTGRES_FILE, &json, || postgres::report::text(&rows, &setup))?;
        values.extend(json);
    }
    if matches!(options.part, Part::Replay | Part::All) {
        let (rows, setup) = measure(options)?;
        let json = report::json(&rows, &setup)?;
        tell(options, "demo.json", &json, || report::text(&rows, &setup))?;
        values.extend(json);
    }
    if matches!(options.part, Part::Oltp | Part::All) {
        values.extend(run_oltp(options)?);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&values)?);
    }
    Ok(())
}

/// Runs the second part, or says why not; its rows.
fn run_oltp(options: &DemoOptions) -> Result<Vec<Value>> {
    // Rows of another time would pass for those of this one.
    let _ = std::fs::remove_file(options.dir.join(OLTP_FILE));
    match oltp::measure(options) {
        Ok((rows, setup)) => {
            let json = oltp::report::json(&rows, &setup)?;
            tell(options, OLTP_FILE, &json, || oltp::report::text(&rows, &setup))?;
            Ok(json)
        }
        Err(error) if error.is::<Skipped>() => {
            larder_lab::tell!("demo: the second part (a database over FUSE) is skipped: {error:#}");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Writes rows to their file and, unless all is to be JSON, a table to standard output.
fn tell(
    options: &DemoOptions,
    name: &str,
    json: &[Value],
    text: impl FnOnce() -> String,
) -> Result<()> {
    let path = options.dir.join(name);
    report::write(&path, &serde_json::to_string_pretty(json)?)?;
    if !options.json {
        println!("{}\n", text());
    }
    larder_lab::tell!("demo: rows are in {}", path.display());
    Ok(())
}

/// A path as an argument of `larder serve` must be.
fn utf8(path: &Path) -> Result<&str> {
    path.to_str().context("the path of --dir is not UTF-8")
}

/// Makes the files and runs every row.
///
/// # Errors
/// As for [`run`].
pub fn measure(options: &DemoOptions) -> Result<(Vec<Row>, Setup)> {
    options.check()?;
    let begin = Instant::now();
    let (workload, trace) = load(options)?;
    let flash_bytes = options.flash_bytes.unwrap_or(workload.volume_bytes / 8 * 9);
    let flash_bytes = flash_bytes.next_multiple_of(workload::EXTENT_BYTES);
    let setup = setup(options, &workload, trace, flash_bytes);
    let demo = Demo {
        options,
        files: Files::new(&options.dir.join("work"), workload.volume_bytes + flash_bytes)?,
        book: Book::new(workload.pages()),
        workload,
    };
    let mut progress = Progress::new();
    progress.begin(&format!(
        "making an origin of {} and a flash of {} in {}",
        format_size(demo.workload.volume_bytes),
        format_size(flash_bytes),
        options.dir.display()
    ));
    let stopped = || options.stopped();
    let initial = |page, into: &mut [u8]| content::fill(page, 0, into);
    files::make(&demo.files.origin(), demo.workload.volume_bytes, initial, stopped)?;
    files::make(&demo.files.flash(), flash_bytes, |_, _| {}, stopped)?;
    let run = |kind: Kind| {
        let result = demo.row(kind, &mut progress);
        // Whatever else went wrong when it was interrupted comes from that.
        options.stopped().and(result).with_context(|| format!("row {}", kind.name()))
    };
    let rows = Kind::ALL.into_iter().map(run).collect::<Result<Vec<_>>>()?;
    progress.begin(&format!("done after {:.0} s", begin.elapsed().as_secs_f64()));
    Ok((rows, setup))
}

/// The workload and the name of its trace.
fn load(options: &DemoOptions) -> Result<(Workload, String)> {
    let name = options.trace.as_ref().map_or(TRACE_NAME.to_owned(), |p| p.display().to_string());
    let records = match &options.trace {
        Some(path) => Trace::new(path, larder_trace::Options::default()).records(),
        None => Records::shipped(),
    };
    let workload = records.map_err(Into::into).and_then(Workload::from_trace);
    Ok((workload.with_context(|| format!("trace {name}"))?, name))
}

fn setup(o: &DemoOptions, workload: &Workload, trace: String, flash_bytes: u64) -> Setup {
    Setup {
        trace,
        trace_requests: workload.steps.len(),
        trace_writes: workload.writes,
        volume_bytes: workload.volume_bytes,
        touched_bytes: workload.touched_bytes,
        flash_bytes,
        profile: o.profile.clone(),
        seed: o.seed,
        larder_flags: o.larder_flags.join(" "),
        connections: o.connections,
        depth: o.depth,
        warm_up_seconds: o.warm_up_seconds,
        measured_seconds: o.measured_seconds,
        flush_every: o.flush_every,
    }
}

/// What the rows share.
struct Demo<'a> {
    options: &'a DemoOptions,
    files: Files,
    book: Book,
    workload: Workload,
}

impl Demo<'_> {
    /// Runs a row from a fresh server to the file read back.
    fn row(&self, kind: Kind, progress: &mut Progress) -> Result<Row> {
        let stopped = || self.options.stopped();
        if kind == Kind::AllFlash {
            // The same data, served without the model.
            std::fs::rename(self.files.origin(), self.files.all_flash())?;
        }
        let spec = self.spec(kind)?;
        progress.begin(&format!("{}: larder serve {}", kind.name(), spec.flags.join(" ")));
        let mut server = Server::start(&spec, stopped)?;
        let connect = |_| Ok(server.connect()?);
        let clients = (0..self.options.connections).map(connect).collect::<Result<Vec<_>>>()?;
        let plan = self.options.plan();
        let mut samples = vec![server.stats()?];
        let mut answered = 0;
        let second = |second, now| {
            stopped()?;
            let (stats, before) = (server.stats()?, samples.last().copied().unwrap_or_default());
            let (iops, hits) = (now - std::mem::replace(&mut answered, now), stats.since(&before));
            progress.update(|| self.line(kind, second, iops, &hits));
            samples.push(stats);
            Ok(())
        };
        let tally = replay(clients, &self.workload.steps, &self.book, plan, second)
            .map_err(|error| server.explain(error))?;
        let rss_bytes = server.rss_bytes()?;
        server.stop()?;
        let window = plan.window().start.as_secs()..plan.window().end.as_secs();
        let row =
            Row::new(&Measured { kind, tally: &tally, samples: &samples, window, rss_bytes })?;
        progress.update(|| "reading the whole origin back".to_owned());
        files::verify(&self.truth(kind), &self.book, stopped)?;
        Ok(row)
    }

    fn line(&self, kind: Kind, second: u64, iops: u64, stats: &Stats) -> String {
        let end = self.options.warm_up_seconds + self.options.measured_seconds;
        let warming = second <= self.options.warm_up_seconds;
        let phase = if warming { "warm-up" } else { "measuring" };
        let hits = match kind {
            _ if kind.preset().is_none() => String::new(),
            _ => format!(", {:.1} % hits", stats.hit_ratio() * 100.0),
        };
        format!("{} {second}/{end} s, {phase}: {iops} IOPS{hits}", kind.name())
    }

    /// The file that holds the truth in a row.
    fn truth(&self, kind: Kind) -> PathBuf {
        match kind {
            Kind::AllFlash => self.files.all_flash(),
            _ => self.files.origin(),
        }
    }

    fn spec(&self, kind: Kind) -> Result<Spec> {
        let truth = self.truth(kind);
        let origin = match kind {
            Kind::AllFlash => utf8(&truth)?.to_owned(),
            _ => self.options.slow(&truth)?,
        };
        let mut flags = vec!["--origin".to_owned(), origin];
        if let Some(preset) = kind.preset() {
            let flash = self.files.flash();
            flags.extend(["--flash", utf8(&flash)?, "--preset", preset].map(str::to_owned));
            // The file was the flash of the row before.
            flags.push("--format".to_owned());
            if kind == Kind::Larder {
                flags.extend_from_slice(&self.options.larder_flags);
            }
        }
        let program = self.options.program()?;
        Ok(Spec { program, flags, dir: self.files.sockets().to_owned(), name: kind.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_trace_is_as_described() {
        let (workload, _) = load(&DemoOptions::default()).unwrap();
        assert_eq!((workload.steps.len(), workload.writes), (238_118, 95_213));
        assert_eq!(workload.touched_bytes, 99_084 * 4096);
        assert_eq!(workload.volume_bytes, (689 + 51) << 20);
    }

    #[test]
    fn what_cannot_be_run_is_refused_at_once() {
        let refused = |change: fn(&mut DemoOptions)| {
            let mut options = DemoOptions::default();
            change(&mut options);
            format!("{:#}", measure(&options).unwrap_err())
        };
        assert!(refused(|o| o.connections = 0).contains("1 to 64"));
        assert!(refused(|o| o.depth = 65).contains("1 to 64"));
        assert!(refused(|o| o.measured_seconds = 0).contains("at least 5 s"));
        assert!(refused(|o| o.trace = Some("/nowhere".into())).contains("trace /nowhere"));
    }

    #[test]
    fn an_interrupted_demo_says_so_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // A read of one page, so that it fits where the tests of a small machine run.
        let record = [&[0; 16][..], &4096_u32.to_le_bytes(), &[0; 4]].concat();
        let trace = dir.path().join("small.btr.zst");
        std::fs::write(&trace, zstd::encode_all(&record[..], 1).unwrap()).unwrap();
        let options = DemoOptions {
            dir: dir.path().to_owned(),
            part: Part::Replay,
            trace: Some(trace),
            ..DemoOptions::default()
        };
        options.interrupted.store(true, Ordering::SeqCst);
        let error = run(&options).unwrap_err();
        assert!(error.is::<Interrupted>(), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path().join("work")).unwrap().count(), 0);
    }
}
