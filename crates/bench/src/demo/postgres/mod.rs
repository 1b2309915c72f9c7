// SPDX-License-Identifier: MIT OR Apache-2.0
//! PostgreSQL on a modelled slow disk, with and without flash behind its shared buffers: `make demo-postgres`.
//!
//! Purpose: what the library for PostgreSQL (`docs/postgresql.md`) is for. A database several times as large as shared
//! buffers, in a directory that is as slow as the model ([`slow`]), the log of changes too; the TPC-C mix
//! ([`tpcc`]) on stock PostgreSQL, under each policy of the cache, and on stock PostgreSQL again with the memory that
//! the cache took.
//!
//! Invariants: every row begins from the same bytes, has the same load and settings, and the same time to warm up; the
//! measured time has a whole checkpoint in it, from its begin to its flushes
//! ([`Scale::restart`](setup::Scale::restart): none). After each row all processes are killed and recovered. Then the
//! database is checked with the cache (on a quick disk), and on the disk alone by stock PostgreSQL. Only the JSON
//! remains.
//!
//! Why the database is loaded without the model: a slow load shows nothing.

pub mod cluster;
pub mod directories;
pub mod report;
pub mod row;
pub mod setup;
pub mod shared;
pub mod slow;
pub mod tools;
pub mod tpcc;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use larder_io::format_size;
use serde_json::Value;

use self::cluster::{Cluster, DATABASE, Server};
use self::directories::Directories;
use self::row::{Kind, Measured, PostgresRow, Snapshot};
use self::setup::{Scale, Setup};
use self::slow::Slow;
use self::tools::Tools;
use self::tpcc::Tpcc;
use super::options::DemoOptions;
use super::place::utf8;
use super::progress::Progress;
use super::report::Report;
use super::system::command::run_command;

/// The model of a disk that takes no time.
const QUICK: &str = "none";
/// What a start after a kill has to replay.
const REPLAY: &str = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint from pg_control_checkpoint()";
/// A check of everything may take so long.
const CHECK_BOUND: Duration = Duration::from_secs(1800);

/// Makes the database and runs every row.
///
/// # Errors
/// [`Skipped`](super::outcome::Skipped) where the machine lacks something; else a row cannot be run, data is wrong,
/// or a row without a cache is cached.
pub fn measure(options: &DemoOptions, progress: &mut Progress) -> Result<Report> {
    let scale = &options.postgres;
    let library = match &scale.library {
        Some(library) => library.clone(),
        None => options.program()?.with_file_name("liblarder_pg.so"),
    };
    let tools = Tools::find(&library)?;
    // The database, its copy, and what is written meanwhile.
    let needed = u64::from(scale.warehouses) * (110 << 20) * 3 + (1 << 30);
    let place = Directories::new(options, &tools, &library, needed)?;
    let tpcc = Tpcc::unpack(&place.scripts())?;
    let mut demo = Demo { options, tools: &tools, place: &place, tpcc, flash_bytes: 0 };
    let database_bytes = demo.prepare(progress)?;
    let mut rows: Vec<PostgresRow> = Vec::new();
    for table in scale.tables() {
        let first = rows.len();
        for (kind, seconds) in table {
            let memory = rows.iter().skip(first).map(|row| row.memory_bytes).max().unwrap_or(0);
            let row = demo.row(&kind, seconds, memory, progress);
            let mut row = row.with_context(|| format!("row {}", kind.name()))?;
            if let Some(off) = rows.get(first) {
                row.compare(off);
            }
            rows.push(row);
        }
    }
    report::report(&rows, &demo.setup(database_bytes)?)
}

/// What the rows share.
struct Demo<'a> {
    options: &'a DemoOptions,
    tools: &'a Tools,
    place: &'a Directories,
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
        // These files need not survive a crash of the machine.
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
        Ok(Setup {
            postgresql: self.tools.version()?,
            database_bytes,
            flash_bytes: self.flash_bytes,
            seed: self.options.seed,
            scale: self.scale().clone(),
        })
    }

    /// The settings of all rows, except shared buffers.
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
        let text = |path: PathBuf| Ok::<_, anyhow::Error>(utf8(&path)?.to_owned());
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
    ) -> Result<PostgresRow> {
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
            let library = utf8(&library)?.replace('\'', "''");
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
        PostgresRow::new(Measured {
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
        progress
            .update(|| format!("{}: warming up for {} s", kind.name(), s.window.warm_up_seconds));
        self.tpcc.go(at, (s.window.warm_up_seconds, s.clients, seed), stopped)?;
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
                // Stock PostgreSQL is refused until flash has no dirty pages.
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
