// SPDX-License-Identifier: MIT OR Apache-2.0
//! PostgreSQL on a modelled slow disk, with and without flash behind its shared buffers: `make demo-postgres`.
//!
//! Purpose: what the library for PostgreSQL (`docs/postgresql.md`) is for. A database several times as large as shared
//! buffers, in a directory that is as slow as the model says ([`slow`]), the log of changes too; the TPC-C mix
//! ([`tpcc`]) on stock PostgreSQL, under each policy of the cache, and on stock PostgreSQL again with the memory that
//! the cache took.
//!
//! Invariants: every row begins from the same bytes, has the same load and settings, and the same time to warm up; the
//! time that counts has a whole checkpoint in it, from its begin to its flushes ([`Scale::restart`]: none). After each row,
//! all processes killed and recovered, the database is checked with the cache (the disk being quick) and then on the disk
//! alone, by stock PostgreSQL. Nothing is left behind but the JSON.
//!
//! Why loaded past the model: nothing is learnt from a slow load.

pub mod cluster;
pub mod place;
pub mod report;
pub mod row;
pub mod shared;
pub mod slow;
pub mod tools;
pub mod tpcc;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_io::format_size;
use serde_json::Value;

use self::cluster::{Cluster, Server};
use self::place::Place;
use self::report::Setup;
use self::row::{Kind, Measured, Row, Snapshot};
use self::slow::Slow;
use self::tools::Tools;
use self::tpcc::Tpcc;
use super::DemoOptions;
use super::oltp::command::run_command;
use super::progress::Progress;

/// The database.
const DATABASE: &str = "tpcc";
/// The model of a disk that takes no time.
const QUICK: &str = "none";
/// What a start after a kill has to replay.
const REPLAY: &str = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint from pg_control_checkpoint()";
/// A check of everything may take so long.
const CHECK_BOUND: Duration = Duration::from_secs(1800);

/// How large, and how long.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The library; without, the one beside this program.
    pub library: Option<PathBuf>,
    /// The model of the slow disk.
    pub device: String,
    /// Warehouses, of 105 MB each.
    pub warehouses: u32,
    /// Shared buffers.
    pub shared_buffers_bytes: u64,
    /// Flash, of the database.
    pub flash_ratio: f64,
    /// Clients.
    pub clients: usize,
    /// Seconds between checkpoints; all rows for each.
    pub checkpoint_seconds: Vec<u64>,
    /// Seconds of each row before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds of each row that count ...
    pub measured_seconds: u64,
    /// ... and intervals of checkpoints, at least. Behind them all of it is killed.
    pub measured_intervals: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            library: None,
            device: "cloud".to_owned(),
            warehouses: 6,
            shared_buffers_bytes: 32 << 20,
            flash_ratio: 0.2,
            clients: 8,
            checkpoint_seconds: vec![30],
            warm_up_seconds: 25,
            measured_seconds: 60,
            // A checkpoint is spread over almost all of the time until the next begins.
            measured_intervals: 2,
        }
    }
}

impl Scale {
    /// A larger one, for longer, with frequent and with rare checkpoints.
    #[must_use]
    pub fn full() -> Self {
        Self {
            warehouses: 20,
            shared_buffers_bytes: 64 << 20,
            checkpoint_seconds: vec![60, 300],
            warm_up_seconds: 240,
            measured_seconds: 300,
            ..Self::default()
        }
    }

    /// Killed in the middle of an interval that is as long as it is by default.
    #[must_use]
    pub fn restart() -> Self {
        Self {
            checkpoint_seconds: vec![300],
            measured_seconds: 150,
            measured_intervals: 0,
            ..Self::default()
        }
    }

    /// Seconds that count.
    fn measured_seconds(&self, checkpoint_seconds: u64) -> u64 {
        self.measured_seconds.max(self.measured_intervals * checkpoint_seconds)
    }
}

/// Makes the database and runs every row.
///
/// # Errors
/// [`Skipped`](super::oltp::needs::Skipped) where the machine lacks something; else a row cannot be run, data is wrong,
/// or a row without a cache is cached.
pub fn measure(options: &DemoOptions) -> Result<(Vec<Row>, Setup)> {
    let scale = &options.postgres;
    let library = match &scale.library {
        Some(library) => library.clone(),
        None => options.program()?.with_file_name("liblarder_pg.so"),
    };
    let tools = Tools::find(&library)?;
    let begin = Instant::now();
    // The database, its copy, and what is written meanwhile.
    let needed = u64::from(scale.warehouses) * (110 << 20) * 3 + (1 << 30);
    let place = Place::new(options, &tools, &library, needed)?;
    let tpcc = Tpcc::unpack(&place.scripts())?;
    let mut demo = Demo { options, tools: &tools, place: &place, tpcc, flash_bytes: 0 };
    let mut progress = Progress::new();
    let prepared = demo.prepare(&mut progress);
    // Whatever else went wrong when it was interrupted comes from that.
    let database_bytes = options.stopped().and(prepared)?;
    let mut rows: Vec<Row> = Vec::new();
    for seconds in &scale.checkpoint_seconds {
        let first = rows.len();
        for kind in Kind::all() {
            let memory = rows.iter().skip(first).map(|row| row.memory_bytes).max().unwrap_or(0);
            let run = demo.row(&kind, *seconds, memory, &mut progress);
            let run = run.with_context(|| format!("row {}", kind.name()));
            let mut row = options.stopped().and(run)?;
            if let Some(off) = rows.get(first) {
                row.compare(off);
            }
            rows.push(row);
        }
    }
    let setup = demo.setup(database_bytes)?;
    progress.begin(&format!("done after {:.0} s", begin.elapsed().as_secs_f64()));
    Ok((rows, setup))
}

/// What the rows share.
struct Demo<'a> {
    options: &'a DemoOptions,
    tools: &'a Tools,
    place: &'a Place,
    tpcc: Tpcc,
    flash_bytes: u64,
}

impl Demo<'_> {
    fn stopped(&self) -> Result<()> {
        self.options.stopped()
    }

    fn scale(&self) -> &Scale {
        &self.options.postgres
    }

    fn cluster(&self, home: PathBuf) -> Cluster<'_> {
        let (sockets, log) = (self.place.sockets(), self.place.log());
        Cluster { tools: self.tools, home, sockets, log }
    }

    /// Makes the cluster and loads it, on the directory itself; the database's size.
    fn prepare(&mut self, progress: &mut Progress) -> Result<u64> {
        let stopped = || self.options.stopped();
        progress.begin(&format!("loading {} warehouses", self.scale().warehouses));
        let cluster = self.cluster(self.place.source());
        cluster.create(stopped)?;
        self.place.owns(cluster.identifier()?)?;
        // Nothing of this is kept if the machine fails.
        let quick = [
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("max_wal_size", "4GB"),
            ("autovacuum", "off"),
        ];
        let mut settings: Vec<_> = quick.map(|(key, value)| (key, value.to_owned())).into();
        settings.push(("shared_buffers", "256MB".to_owned()));
        settings.push(("maintenance_work_mem", "256MB".to_owned()));
        let server = cluster.start(&settings, stopped)?;
        server.sql("postgres", &format!("create database {DATABASE}"))?;
        let said = self.tpcc.load((self.tools, &server), self.scale().warehouses, stopped)?;
        let size = server.sql(DATABASE, &format!("select pg_database_size('{DATABASE}')"))?;
        let bytes: u64 = size.parse().with_context(|| format!("a size: {size}"))?;
        server.sql(DATABASE, "create extension amcheck")?;
        server.stop(stopped)?;
        self.place.keep(stopped)?;
        let flash = (bytes as f64 * self.scale().flash_ratio) as u64;
        self.flash_bytes = flash.next_multiple_of(1 << 20);
        progress.begin(&said);
        Ok(bytes)
    }

    fn setup(&self, database_bytes: u64) -> Result<Setup> {
        let s = self.scale();
        Ok(Setup {
            postgresql: self.tools.version()?,
            warehouses: s.warehouses,
            database_bytes,
            shared_buffers_bytes: s.shared_buffers_bytes,
            flash_bytes: self.flash_bytes,
            device: s.device.clone(),
            seed: self.options.seed,
            clients: s.clients,
            warm_up_seconds: s.warm_up_seconds,
            measured_seconds: s.measured_seconds,
            measured_intervals: s.measured_intervals,
        })
    }

    /// What all rows have, but for shared buffers.
    fn settings(&self, checkpoint_seconds: u64, buffers: u64) -> Vec<(&'static str, String)> {
        let text = |value: &str| value.to_owned();
        vec![
            ("shared_buffers", format!("{}kB", buffers >> 10)),
            // There is no page cache above this disk.
            ("effective_cache_size", format!("{}kB", buffers >> 10)),
            ("checkpoint_timeout", format!("{checkpoint_seconds}s")),
            ("max_wal_size", text("4GB")),
            ("min_wal_size", text("256MB")),
            ("max_connections", text("60")),
            ("log_checkpoints", text("on")),
            ("fsync", text("on")),
            ("full_page_writes", text("on")),
        ]
    }

    /// Those of the cache.
    fn cached(&self, policy: &str) -> Result<Vec<(&'static str, String)>> {
        let text = |path: PathBuf| Ok::<_, anyhow::Error>(super::utf8(&path)?.to_owned());
        Ok(vec![
            ("shared_preload_libraries", text(self.place.library())?),
            ("larder.flash_directory", text(self.place.flash())?),
            ("larder.flash_size", format!("{}MB", self.flash_bytes >> 20)),
            ("larder.policy", policy.to_owned()),
        ])
    }

    fn mount(&self, device: &str) -> Result<Slow> {
        let program = self.options.program()?;
        let (source, at) = (self.place.source(), self.place.mount_point());
        let model = (device, self.options.seed);
        Slow::mount(&program, model, (&source, &at), &self.place.slow_log(), || self.stopped())
    }

    /// Runs a row from a fresh copy to the database checked on the disk alone.
    fn row(
        &self,
        kind: &Kind,
        checkpoint: u64,
        memory: u64,
        progress: &mut Progress,
    ) -> Result<Row> {
        let stopped = || self.stopped();
        let buffers = self.scale().shared_buffers_bytes;
        let buffers = if *kind == Kind::Grown { buffers + memory } else { buffers };
        let mut settings = self.settings(checkpoint, buffers);
        if let Kind::On(policy) = kind {
            self.place.make_flash(self.tools)?;
            settings.extend(self.cached(policy)?);
        }
        progress.begin(&format!(
            "{}: {} of shared buffers, checkpoints every {checkpoint} s",
            kind.name(),
            format_size(buffers)
        ));
        self.place.renew(stopped)?;
        let slow = self.mount(&self.scale().device)?;
        let cluster = self.cluster(self.place.mount_point());
        let server = cluster.start(&settings, stopped)?;
        if let Kind::On(_) = kind {
            let library = self.place.library();
            let library = super::utf8(&library)?.replace('\'', "''");
            let function = format!(
                "create function larder_status() returns text as '{library}', 'larder_status' language c strict"
            );
            server.sql(DATABASE, &function)?;
        }
        let (snapshots, load) = self.load(kind, checkpoint, (&server, &slow), progress)?;
        let memory_bytes = self.place.shared_bytes();
        progress.update(|| "killing all of it, and starting again".to_owned());
        let replay_bytes = number(&server, REPLAY)?;
        server.kill()?;
        let before = slow.counts()?;
        let server = cluster.start(&settings, stopped)?;
        let restart_seconds = server.ready.as_secs_f64();
        let restart_disk = slow.counts()?.data.since(&before.data);
        server.stop(stopped)?;
        slow.unmount()?;
        self.check(kind, &settings, progress)?;
        self.place.clear_flash()?;
        Row::new(Measured {
            kind: kind.clone(),
            checkpoint_seconds: checkpoint,
            shared_buffers_bytes: buffers,
            snapshots,
            load,
            memory_bytes,
            replay_bytes,
            restart_seconds,
            restart_disk,
        })
    }

    /// Warms up, and measures.
    fn load(
        &self,
        kind: &Kind,
        checkpoint: u64,
        (server, slow): (&Server<'_>, &Slow),
        progress: &mut Progress,
    ) -> Result<([Snapshot; 2], tpcc::Figures)> {
        let (stopped, s, seed) = (|| self.stopped(), self.scale(), self.options.seed);
        let (at, seconds) = ((self.tools, server), s.measured_seconds(checkpoint));
        progress.update(|| format!("{}: warming up for {} s", kind.name(), s.warm_up_seconds));
        self.tpcc.go(at, (s.warm_up_seconds, s.clients, seed), stopped)?;
        // The window begins at the same point of a checkpoint's time in each row.
        server.sql(DATABASE, "checkpoint")?;
        let before = snapshot(kind, server, slow)?;
        progress.update(|| format!("{}: measuring for {seconds} s", kind.name()));
        let figures = self.tpcc.go(at, (seconds, s.clients, seed + 1), stopped)?;
        let after = snapshot(kind, server, slow)?;
        Ok(([before, after], figures))
    }

    /// Checks the database with the cache, and on the disk alone.
    fn check(
        &self,
        kind: &Kind,
        settings: &[(&str, String)],
        progress: &mut Progress,
    ) -> Result<()> {
        let stopped = || self.stopped();
        progress.update(|| "checking the database".to_owned());
        if let Kind::On(_) = kind {
            let quick = self.mount(QUICK)?;
            let cluster = self.cluster(self.place.mount_point());
            let server = cluster.start(settings, stopped)?;
            self.tpcc.check((self.tools, &server), stopped).context("with the cache")?;
            server.stop(stopped)?;
            if *kind == Kind::On("full") {
                // Stock PostgreSQL is refused until the disk has what flash has.
                let through = ("larder.policy", "through".to_owned());
                let settings: Vec<_> = settings.iter().cloned().chain([through]).collect();
                cluster.start(&settings, stopped)?.stop(stopped)?;
            }
            quick.unmount()?;
        }
        let cluster = self.cluster(self.place.source());
        let server = cluster.start(&self.settings(3600, 256 << 20), stopped)?;
        self.tpcc.check((self.tools, &server), stopped).context("on the disk alone")?;
        let check = server.tool("pg_amcheck", &["-j", "2", "-d", DATABASE]);
        run_command(check, CHECK_BOUND, stopped).context("pg_amcheck")?;
        server.stop(stopped)
    }
}

/// All counters now.
fn snapshot(kind: &Kind, server: &Server<'_>, slow: &Slow) -> Result<Snapshot> {
    let cache: Option<Value> = match kind {
        Kind::On(_) => {
            let text = server.sql(DATABASE, "select larder_status()")?;
            Some(serde_json::from_str(&text).context("larder_status()")?)
        }
        _ => None,
    };
    let blocks_read = number(server, "select sum(blks_read)::bigint from pg_stat_database")?;
    Ok(Snapshot { disk: slow.counts()?, blocks_read, cache })
}

fn number(server: &Server<'_>, query: &str) -> Result<u64> {
    let text = server.sql(DATABASE, query)?;
    text.parse().with_context(|| format!("a number: {text}"))
}
