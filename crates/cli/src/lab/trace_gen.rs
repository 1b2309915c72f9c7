// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace gen`: traces of loads with known laws.
//!
//! A kind is a variant of [`Kind`], its flags, and an arm of [`records`]. Nothing of a trace is
//! kept in memory; a generator that needs much memory reports the amount.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use larder_core::exec::Nanos;
use larder_io::{format_size, format_span, rough_size};
use larder_lab::load::desktop::{DAYS, USERS};
use larder_lab::load::holland::HollandSpec;
use larder_lab::load::trace::desktop::DesktopTrace;
use larder_lab::load::trace::holland::HollandTrace;
use larder_lab::load::trace::oltp::OltpTrace;
use larder_lab::load::trace::plain::{Law, PlainTrace};
use larder_lab::load::trace::tpcc::TpccTrace;
use larder_lab::load::trace::{Begin, Pace, desktop, oltp, plain, tpcc};
use larder_lab::load::{PAGE_BYTES, Pattern, REGION_BYTES, WALK_PAGES};
use larder_trace::{DEVICE_BYTES, Format, Record};

use crate::out;
use crate::trace::output::Output;
use crate::units::{ratio, size, span};

/// Requests where nothing else bounds a trace.
const REQUESTS: u64 = 1_000_000;
/// Of FaCE's 200 MB for 500 warehouses.
const POOL_BYTES_A_WAREHOUSE: u64 = 400 << 10;
/// Memory of a generator from which the command reports it, and the most that is accepted.
const TOLD_MEMORY: u64 = 256 << 20;
const MOST_MEMORY: u64 = 4 << 30;

/// The output, and the length of the trace.
#[derive(Args, Debug)]
#[command(next_help_heading = "The trace")]
pub struct ToArgs {
    /// Output file; a name that ends in .zst is compressed
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// btr, csv, fio or oracleGeneral [default: by the name of FILE]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    pub format: Option<Format>,
    /// Equal seeds give equal bytes on any machine
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Requests to generate at most [default: 1000000, or none with --for or if the load is finite]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Generate only the requests of this span of the trace
    #[arg(long = "for", value_name = "SPAN", value_parser = span)]
    pub span: Option<Nanos>,
}

/// The loads.
#[derive(Subcommand, Debug)]
pub enum Kind {
    /// OLTP like TPC-E: 87 % reads of 4 KiB, walks within popular regions of 1 MiB
    ///
    /// The load of the benches, which stands in for that of SCE (sections 2 and 4.1: mix,
    /// page, 160 GiB of data, four clients). 160 GiB are 10 GiB here. Regions and Zipf 0.9 are
    /// ours; docs/traces.md has the reasons.
    Oltp(OltpArgs),
    /// TPC-C below a database's buffer pool: reads of pool misses, late writes of changed pages
    ///
    /// The transactions and laws of access of the TPC-C standard, revision 5.11 (clauses 2.1.6,
    /// 2.4 to 2.8, 5.2.3), over rows as large as in clause 4.2.2, in a pool under LRU with
    /// PostgreSQL's rules for writing. FaCE (section 6.2) has 500 warehouses, a pool of 200 MB,
    /// pages of 4 KiB and 50 clients: that is --warehouses 500.
    Tpcc(TpccArgs),
    /// Ten days of a desktop, with backups that scan all of it
    ///
    /// Coverages and shares of writes are those of PRWC's five users (section 3.2, Figure 10); a GB
    /// of the paper is 256 MiB and a day six hours. The backup is that of section 3.4. Times within a day
    /// are ours: the paper gives none.
    Desktop(DesktopArgs),
    /// A client of a file server, as in Holland et al.: most requests go to a working set
    ///
    /// Section 4: 80 % of requests to a working set, pieces of the files of a server of 1.4 TB, 30 %
    /// writes, eight threads by turns, four times the working set in all; no times. A GB of the
    /// paper is 16 MiB here. What the paper leaves open is the same everywhere: docs/traces.md.
    Holland(HollandArgs),
    /// Blocks whose popularity falls as a power of the rank
    Zipf(ZipfArgs),
    /// Random blocks with equal probability
    Uniform(PlainArgs),
    /// All blocks once, in order
    Sequential(PlainArgs),
    /// All blocks in order, repeatedly
    Loop(PlainArgs),
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
    /// Duration of a read, for which the transaction waits; 100us is flash
    #[arg(long, value_name = "SPAN", value_parser = service, default_value = "100us")]
    pub service: Nanos,
    /// Transactions per second with exponential gaps, in place of clients that wait
    #[arg(long = "rate-per-second", alias = "rate", value_name = "N", value_parser = rate, conflicts_with_all = ["clients", "think"])]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub to: ToArgs,
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
    /// Duration of a read, for which the transaction waits; 10ms is 50 clients that wait for 16
    /// disks with 5,166 reads a second (FaCE Table 1)
    #[arg(long, value_name = "SPAN", value_parser = service, default_value = "10ms")]
    pub service: Nanos,
    /// Transactions per second with exponential gaps, in place of clients that wait
    #[arg(long = "rate-per-second", alias = "rate", value_name = "N", value_parser = rate, conflicts_with_all = ["clients", "think"])]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub to: ToArgs,
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
    #[command(flatten)]
    pub to: ToArgs,
}

/// Flags of `holland`.
#[derive(Args, Debug)]
pub struct HollandArgs {
    /// Working set; 960MiB stand for the paper's 60 GB, 1280MiB for its 80 GB
    #[arg(long, value_name = "SIZE", value_parser = set, default_value = "960MiB")]
    pub working_set: u64,
    /// The server, no smaller than the working set
    #[arg(long, value_name = "SIZE", value_parser = set, default_value = "22400MiB")]
    pub server: u64,
    /// Share of requests that write
    #[arg(long, value_name = "SHARE", value_parser = ratio, default_value = "30%")]
    pub writes: f64,
    /// Hosts with one working set; each is a device of the trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), default_value_t = 1)]
    pub hosts: u32,
    #[command(flatten)]
    pub to: ToArgs,
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
    /// Requests per second, at even intervals
    #[arg(long = "rate-per-second", alias = "rate", value_name = "N", value_parser = rate, default_value = "1000")]
    pub rate: f64,
    #[command(flatten)]
    pub to: ToArgs,
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

/// Runs the command.
pub fn generate(kind: &Kind) -> Result<()> {
    let to = kind.to();
    let mut records = records(kind)?;
    let ends = matches!(kind, Kind::Desktop(_) | Kind::Sequential(_) | Kind::Holland(_));
    let endless = !ends && to.span.is_none();
    let most = to.requests.unwrap_or(if endless { REQUESTS } else { u64::MAX });
    let until_us = to.span.map_or(u64::MAX, |span| span / 1000);
    let mut output = Output::create(&to.out, to.format)?;
    while output.written() < most
        && let Some(record) = records.next().filter(|record| record.ts_us < until_us)
    {
        output.write(&[record])?;
    }
    if output.written() == 0 {
        bail!(
            "--for: got {}, before the first request; accepted: a longer span",
            format_span(to.span.unwrap_or(0))
        );
    }
    output.finish()
}

impl Kind {
    fn to(&self) -> &ToArgs {
        match self {
            Self::Oltp(args) => &args.to,
            Self::Tpcc(args) => &args.to,
            Self::Desktop(args) => &args.to,
            Self::Holland(args) => &args.to,
            Self::Zipf(args) => &args.plain.to,
            Self::Uniform(args) | Self::Sequential(args) | Self::Loop(args) => &args.to,
        }
    }
}

/// The generator of a kind.
fn records(kind: &Kind) -> Result<Box<dyn Iterator<Item = Record>>> {
    let seed = kind.to().seed;
    Ok(match kind {
        Kind::Oltp(args) => Box::new(OltpTrace::new(oltp_spec(args)?, seed)),
        Kind::Tpcc(args) => Box::new(TpccTrace::new(tpcc_spec(args)?, seed)),
        Kind::Desktop(args) => {
            let spec = desktop::Spec {
                user: USERS[args.user as usize - 1],
                days: args.days,
                backups: args.backup.iter().map(|day| day - 1).collect(),
                gap: args.gap,
            };
            Box::new(DesktopTrace::new(spec, seed))
        }
        Kind::Holland(args) => Box::new(HollandTrace::new(holland_spec(args, seed)?)),
        Kind::Zipf(args) => plain(Law::Zipf { exponent: args.exponent }, &args.plain, seed)?,
        Kind::Uniform(args) => plain(Law::Uniform, args, seed)?,
        Kind::Sequential(args) => plain(Law::Sequential, args, seed)?,
        Kind::Loop(args) => plain(Law::Loop, args, seed)?,
    })
}

fn oltp_spec(args: &OltpArgs) -> Result<oltp::Spec> {
    let (pattern, places) = match args.pattern {
        PatternArg::Regions => (Pattern::Oltp, args.data / REGION_BYTES),
        PatternArg::Scattered => (Pattern::Scattered, args.data / PAGE_BYTES),
    };
    check_memory(Law::Zipf { exponent: 0.0 }.memory_bytes(places), "a smaller --data")?;
    let reads = f64::from(args.walks) * WALK_PAGES as f64;
    Ok(oltp::Spec {
        pattern,
        data_bytes: args.data,
        walks: args.walks,
        writes: reads * (1.0 - args.reads) / args.reads,
        pace: pace(args.rate, args.clients, args.think, args.service),
    })
}

fn holland_spec(args: &HollandArgs, seed: u64) -> Result<HollandSpec> {
    let blocks = |bytes: u64| (bytes / PAGE_BYTES) as u32;
    if args.working_set > args.server {
        bail!(
            "--working-set: got {}, accepted up to {}, the size of --server",
            format_size(args.working_set),
            format_size(args.server)
        );
    }
    let spec = HollandSpec::baseline(blocks(args.working_set), blocks(args.server), seed);
    Ok(HollandSpec { write_share: args.writes, hosts: args.hosts, ..spec })
}

fn tpcc_spec(args: &TpccArgs) -> Result<tpcc::Spec> {
    let spec = tpcc::Spec {
        warehouses: args.warehouses,
        page_bytes: args.page,
        pool_bytes: args.pool.unwrap_or(u64::from(args.warehouses) * POOL_BYTES_A_WAREHOUSE),
        cleaner_pages: args.cleaner,
        checkpoint: args.checkpoint,
        pace: pace(args.rate, args.clients, args.think, args.service),
    };
    if spec.pool_bytes < 64 * args.page {
        bail!(
            "--pool: got {}, accepted at least {}, which is 64 pages",
            format_size(spec.pool_bytes),
            format_size(64 * args.page)
        );
    }
    check_memory(spec.memory_bytes(), "a smaller --pool or fewer --warehouses")?;
    Ok(spec)
}

fn plain(law: Law, args: &PlainArgs, seed: u64) -> Result<Box<dyn Iterator<Item = Record>>> {
    if !(args.block..=DEVICE_BYTES).contains(&args.data) {
        bail!(
            "--data: got {}, accepted one block, {}, to 16TiB",
            format_size(args.data),
            format_size(args.block)
        );
    }
    check_memory(law.memory_bytes(args.data / args.block), "a smaller --data or a larger --block")?;
    let spec = plain::Spec {
        law,
        data_bytes: args.data,
        block_bytes: args.block,
        write_ratio: args.writes,
        rate: args.rate,
    };
    Ok(Box::new(PlainTrace::new(spec, seed)))
}

/// Reports a generator that needs much memory, and refuses one that needs too much.
fn check_memory(bytes: u64, instead: &str) -> Result<()> {
    if bytes > MOST_MEMORY {
        bail!(
            "the generator would take {} of memory; accepted: up to {}, with {instead}",
            rough_size(bytes),
            rough_size(MOST_MEMORY)
        );
    }
    if bytes > TOLD_MEMORY {
        out::tell!("the generator takes some {} of memory", rough_size(bytes));
    }
    Ok(())
}

fn pace(rate: Option<f64>, clients: u32, think: Nanos, service: Nanos) -> Pace {
    let begin = rate.map_or(Begin::Clients { count: clients, think }, Begin::Rate);
    Pace { begin, service }
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| range.contains(n));
    let (least, most) = (range.start(), range.end());
    number.ok_or_else(|| format!("got '{text}', accepted {least} to {most}"))
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.001..=1_000_000.0)
}

fn exponent(text: &str) -> Result<f64, String> {
    number(text, 0.0..=10.0)
}

fn clients(text: &str) -> Result<u32, String> {
    number(text, 1.0..=100_000.0).map(|n| n as u32)
}

fn within(text: &str, range: std::ops::RangeInclusive<Nanos>) -> Result<Nanos, String> {
    let (least, most) = (format_span(*range.start()), format_span(*range.end()));
    let found = span(text)?;
    let refused = format!("got '{text}', accepted {least} to {most}");
    Some(found).filter(|found| range.contains(found)).ok_or(refused)
}

/// Not zero, since a load that is never at rest and needs no device would make no time pass.
fn think(text: &str) -> Result<Nanos, String> {
    within(text, 10_000..=3_600_000_000_000)
}

fn service(text: &str) -> Result<Nanos, String> {
    within(text, 0..=1_000_000_000)
}

fn checkpoint(text: &str) -> Result<Nanos, String> {
    within(text, 1_000_000_000..=24 * 3_600_000_000_000)
}

fn reads(text: &str) -> Result<f64, String> {
    let refused = format!("got '{text}', accepted 1% to 100%");
    Some(ratio(text)?).filter(|share| *share >= 0.01).ok_or(refused)
}

fn data(text: &str) -> Result<u64, String> {
    let refused = format!("got '{text}', accepted 1MiB to 16TiB");
    Some(size(text)?).filter(|bytes| (REGION_BYTES..=DEVICE_BYTES).contains(bytes)).ok_or(refused)
}

fn set(text: &str) -> Result<u64, String> {
    let refused = format!("got '{text}', accepted 1MiB to 4TiB");
    Some(size(text)?).filter(|bytes| (1 << 20..=4 << 40).contains(bytes)).ok_or(refused)
}

fn page(text: &str) -> Result<u64, String> {
    let refused = format!("got '{text}', accepted a power of two from 4KiB to 64KiB");
    let fits = |bytes: &u64| bytes.is_power_of_two() && (4 << 10..=64 << 10).contains(bytes);
    Some(size(text)?).filter(fits).ok_or(refused)
}

fn block(text: &str) -> Result<u64, String> {
    let refused = format!("got '{text}', accepted multiples of 512 up to 1GiB");
    let fits = |bytes: &u64| bytes.is_multiple_of(512) && (512..=1 << 30).contains(bytes);
    Some(size(text)?).filter(fits).ok_or(refused)
}
