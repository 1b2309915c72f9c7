// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of `larder sim`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use larder_lab::hits::replay::{Capacity, parse_unit};
use larder_lab::scenario::Shard;

use crate::choices::DurabilityArg;
use crate::trace::read::ReadArgs;
use crate::units::{jobs, ratio};

/// The run.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("runs").args(["scenario", "preset"]))]
#[command(group = ArgGroup::new("replays").args(["hits", "preset"]))]
pub struct SimArgs {
    /// A scenario: settings of a run, or of a grid of runs
    #[arg(
        value_name = "SCENARIO.toml",
        required_unless_present_any = ["hits", "preset"],
        conflicts_with_all = ["hits", "trace"],
    )]
    pub scenario: Option<PathBuf>,
    /// Set a setting of the scenario, as load.working_set_gib=80; it replaces a grid over the setting
    #[arg(long, value_name = "PATH=VALUE", requires = "runs")]
    pub set: Vec<String>,
    /// The seed; equal seeds give equal results [default: the scenario's]
    #[arg(long, value_name = "N", requires = "runs")]
    pub seed: Option<i64>,
    /// File for results, a JSON value a line; a sweep continues from an earlier run's results
    #[arg(long, value_name = "FILE", requires = "runs", hide_short_help = true)]
    pub out: Option<PathBuf>,
    /// Threads; results do not depend on them [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs, requires = "runs", hide_short_help = true)]
    pub jobs: Option<usize>,
    /// Run only every N-th point, from the I-th, and write FILE.I-of-N beside FILE of --out
    ///
    /// Shards 1/N to N/N can run at any time on any machines, and continue after an interruption. --merge makes FILE from
    /// their parts.
    #[arg(long, value_name = "I/N", requires = "out", hide_short_help = true)]
    pub shard: Option<Shard>,
    /// Run no point: make FILE of --out from the parts FILE.1-of-N to FILE.N-of-N
    ///
    /// FILE is byte by byte what one run without --shard writes. Needs the scenario and the settings of the shards.
    #[arg(long, requires = "out", conflicts_with_all = ["shard", "jobs"], hide_short_help = true)]
    pub merge: bool,
    /// Also write one HTML file with curves over time and all numbers
    #[arg(long, value_name = "FILE", requires = "runs")]
    pub report: Option<PathBuf>,
    /// Count hits and misses of a replacement policy, without devices or time
    #[arg(long)]
    pub hits: bool,
    /// The trace
    #[arg(long, value_name = "TRACE", requires = "replays")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Replacement policy [default: the preset's]
    ///
    /// Accepted: fifo, lru, clock, arc, 2q, lirs, s3fifo, sieve, wtinylfu, gclock, and with --hits belady, which evicts
    /// the unit whose next access is the farthest and needs memory for the whole trace.
    #[arg(long, value_name = "POLICY", requires = "replays")]
    pub replacement: Option<String>,
    /// Unit of caching, a power of two [default: 4KiB with --hits, else the preset's]
    ///
    /// With --hits at least 512 bytes; an access is then one unit that a request touches.
    #[arg(long, value_name = "SIZE", value_parser = parse_unit, requires = "replays")]
    pub unit: Option<u64>,
    /// Size of the cache: bytes, as 512MiB, or a share of the units in the trace, as 5%
    ///
    /// Both are rounded down to whole units.
    #[arg(long, value_name = "SIZE", value_parser = Capacity::parse, requires = "hits")]
    pub capacity: Option<Capacity>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// A replay of a trace with full timing.
#[derive(Args, Debug)]
#[command(next_help_heading = "A trace under a preset (--trace TRACE --preset NAME)")]
pub struct ReplayArgs {
    /// Replay the trace over modelled devices behind this preset, or no-cache, or all-flash
    #[arg(long, value_name = "NAME", requires = "trace")]
    pub preset: Option<String>,
    /// The slow device's model, or a device file [default: san-1g]
    #[arg(long, value_name = "PROFILE", requires = "preset")]
    pub origin_profile: Option<String>,
    /// The flash device's model, or a device file [default: ssd-s3500]
    #[arg(long, value_name = "PROFILE", requires = "preset")]
    pub flash_profile: Option<String>,
    /// Flash for cached data: bytes, as 64GiB, or a share of the trace's footprint [default: 10%]
    ///
    /// The footprint is the bytes of all different pages of 4 KiB in the trace. A share is rounded up to whole MiB, the
    /// same bytes for every preset.
    #[arg(long, value_name = "SIZE", value_parser = Capacity::parse, requires = "preset")]
    pub flash_size: Option<Capacity>,
    /// Metadata that survives a crash [default: the preset's]
    #[arg(long, value_name = "DURABILITY", requires = "preset", hide_short_help = true)]
    pub durability: Option<DurabilityArg>,
    /// Send requests at the recorded times, accelerated by this factor [default: 1, for a trace with times]
    #[arg(
        long,
        value_name = "FACTOR",
        requires = "preset",
        conflicts_with = "outstanding",
        hide_short_help = true
    )]
    pub speed: Option<f64>,
    /// Keep this many requests in flight and ignore recorded times [default: 8, for a trace without times]
    #[arg(long, value_name = "N", requires = "preset", hide_short_help = true)]
    pub outstanding: Option<u32>,
    /// Share of requests that are replayed before counters start [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = ratio, requires = "preset", hide_short_help = true)]
    pub warm_up: Option<f64>,
    /// Replay only the first N requests
    #[arg(long, value_name = "N", requires = "preset", hide_short_help = true)]
    pub requests: Option<u32>,
}
