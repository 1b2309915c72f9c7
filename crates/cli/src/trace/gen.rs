// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace gen`: traces of loads whose laws are known.
//!
//! A kind is a variant of [`Kind`], its flags, and an arm of [`records`]. Nothing of a trace is
//! kept in memory; what a generator itself needs is said where it is large.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use larder_core::exec::Nanos;
use larder_io::rough_size;
use larder_sim::load::desktop::{DAYS, USERS};
use larder_sim::load::trace::{Begin, Pace, desktop, oltp, plain, tpcc};
use larder_sim::load::{Pattern, WALK_PAGES, WRITES_PER_READ};
use larder_trace::{DEVICE_BYTES, Format, Record, Writer};

use crate::out;
use crate::units::{format_span, ratio, size, span};

/// What to make, and where.
#[derive(Args, Debug)]
pub struct GenArgs {
    /// The load.
    #[command(subcommand)]
    pub kind: Kind,
    /// Where to; a name that ends in .zst is compressed
    #[arg(long, value_name = "FILE", global = true)]
    pub out: Option<PathBuf>,
    /// btr, csv, fio or oracleGeneral [default: as the name of FILE says]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name, global = true)]
    pub format: Option<Format>,
    /// Equal seeds give equal bytes on any machine
    #[arg(long, value_name = "N", default_value_t = 0, global = true)]
    pub seed: u64,
    /// At most so many requests [default: 1000000; without bound where the load has an end of its
    /// own, and with --for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), global = true)]
    pub requests: Option<u64>,
    /// Only requests of the trace's first so long a time
    #[arg(long = "for", value_name = "SPAN", value_parser = span, global = true)]
    pub span: Option<Nanos>,
}

/// The loads.
#[derive(Subcommand, Debug)]
pub enum Kind {
    /// OLTP like TPC-E: 87 % reads of 4 KiB, walks within popular regions of 1 MiB
    ///
    /// The load of the benches, which stands in for that of S-CAVE/SCE (sections 2 and 4.1: mix,
    /// page, 160 GiB of data, four clients). 160 GiB are 10 GiB here. Regions and Zipf 0.9 are
    /// ours; docs/traces.md says what each was chosen by.
    Oltp(OltpArgs),
    /// TPC-C below a database's buffer pool: what the pool does not have is read, what was changed
    /// is written late
    ///
    /// The transactions and laws of access of the TPC-C standard, revision 5.11 (clauses 2.1.6,
    /// 2.4 to 2.8, 5.2.3), over rows as large as in clause 4.2.2, in a pool under LRU with
    /// PostgreSQL's rules for writing. FaCE (section 6.1) has 500 warehouses, a pool of 200 MB,
    /// pages of 4 KiB and 50 clients: that is --warehouses 500.
    Tpcc(TpccArgs),
    /// Ten days of a desktop, with backups that scan all of it
    ///
    /// Coverages and shares of writes are those of PRWC's five users (section 3.2, Figure 10); a GB
    /// of the paper is 256 MiB and a day six hours. The backup is that of section 3.4. Times within a day
    /// are ours: the paper gives none.
    Desktop(DesktopArgs),
    /// Blocks by popularity, which falls as a power of the rank
    Zipf(ZipfArgs),
    /// Any block, all alike
    Uniform(PlainArgs),
    /// All blocks once, one after the other
    Sequential(PlainArgs),
    /// All blocks, one after the other, again and again
    Loop(PlainArgs),
}

/// When transactions come.
#[derive(Args, Debug)]
#[command(next_help_heading = "Times")]
pub struct PaceArgs {
    /// Transactions a second, however many are under way, with exponential gaps, in place of
    /// clients who wait
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with_all = ["clients", "think"])]
    pub rate: Option<f64>,
}

/// Flags of `oltp`.
#[derive(Args, Debug)]
pub struct OltpArgs {
    /// Where requests go
    #[arg(long, value_enum, default_value = "regions")]
    pub pattern: PatternArg,
    /// Data, at least 1MiB
    #[arg(long, value_name = "SIZE", value_parser = data, default_value = "10GiB")]
    pub data: u64,
    /// Walks of a transaction: each reads four neighbouring pages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 1)]
    pub walks: u32,
    /// Share of requests that read; what is written was read by the same transaction
    #[arg(long, value_name = "SHARE", value_parser = reads, default_value = "87%")]
    pub reads: f64,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", value_parser = clients, default_value_t = 4)]
    pub clients: u32,
    /// Mean time from a transaction's end to the next one's begin (half to one and a half times)
    #[arg(long, value_name = "SPAN", value_parser = think, default_value = "4ms")]
    pub think: Nanos,
    /// How long a read takes, which the transaction waits for; 100us is flash
    #[arg(long, value_name = "SPAN", value_parser = service, default_value = "100us")]
    pub service: Nanos,
    #[command(flatten)]
    pub pace: PaceArgs,
}

/// Where requests of `oltp` go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatternArg {
    /// Walks within runs of 64 KiB of popular regions of 1 MiB
    Regions,
    /// Every page has a popularity of its own, and popular ones lie anywhere
    Scattered,
}

/// Flags of `tpcc`.
#[derive(Args, Debug)]
pub struct TpccArgs {
    /// Warehouses, some 105 MB each; FaCE has 500, and 50 are its tenth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(tpcc::MOST_WAREHOUSES)), default_value_t = 50)]
    pub warehouses: u32,
    /// The pool, at least 64 pages [default: 400KiB a warehouse, which is FaCE's 200 MB of 500]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub pool: Option<u64>,
    /// Page, a power of two from 4KiB to 64KiB; FaCE has 4KiB
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = "4KiB")]
    pub page: u64,
    /// Pages that the cleaner may write every 200 ms, 0 for no cleaner; PostgreSQL's
    /// bgwriter_lru_maxpages is 100
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub cleaner: u32,
    /// From a checkpoint's begin to the next one's; PostgreSQL's checkpoint_timeout is 5m
    #[arg(long, value_name = "SPAN", value_parser = checkpoint, default_value = "5m")]
    pub checkpoint: Nanos,
    /// Clients, each with one transaction at a time; FaCE has 50
    #[arg(long, value_name = "N", value_parser = clients, default_value_t = 50)]
    pub clients: u32,
    /// Mean time from a transaction's end to the next one's begin (half to one and a half times)
    #[arg(long, value_name = "SPAN", value_parser = think, default_value = "1ms")]
    pub think: Nanos,
    /// How long a read takes, which the transaction waits for; 10ms is 50 clients who wait for 16
    /// disks with 5,166 reads a second (FaCE Table 1)
    #[arg(long, value_name = "SPAN", value_parser = service, default_value = "10ms")]
    pub service: Nanos,
    #[command(flatten)]
    pub pace: PaceArgs,
}

/// Flags of `desktop`.
#[derive(Args, Debug)]
pub struct DesktopArgs {
    /// Which of the five users of PRWC Figure 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5), default_value_t = 5)]
    pub user: u32,
    /// Days of six hours
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)), default_value_t = DAYS)]
    pub days: u32,
    /// Days, from 1 on, at whose end all that was touched so far is read and copied; PRWC section
    /// 3.4 has day 8 [default: none]
    #[arg(long, value_name = "DAY,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    pub backup: Vec<u32>,
    /// From a request of a visit or a backup to the next one; 1ms makes a backup 62.5 MiB/s
    #[arg(long, value_name = "SPAN", value_parser = service, default_value = "1ms")]
    pub gap: Nanos,
}

/// Flags of `uniform`, `sequential` and `loop`.
#[derive(Args, Debug)]
pub struct PlainArgs {
    /// Data, rounded down to blocks
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB")]
    pub data: u64,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", value_parser = block, default_value = "4KiB")]
    pub block: u64,
    /// Share of requests that write
    #[arg(long, value_name = "SHARE", value_parser = ratio, default_value = "0%")]
    pub writes: f64,
    /// Requests a second, at even times
    #[arg(long, value_name = "N", value_parser = rate, default_value = "1000")]
    pub rate: f64,
}

/// Flags of `zipf`.
#[derive(Args, Debug)]
pub struct ZipfArgs {
    /// The chance of the block of rank i is in proportion to i^-EXPONENT
    #[arg(long, value_name = "EXPONENT", value_parser = exponent, default_value = "0.9")]
    pub exponent: f64,
    #[command(flatten)]
    pub plain: PlainArgs,
}
