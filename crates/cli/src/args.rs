// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, as users, scripts and man pages know it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_core::exec::Nanos;
use larder_front::listen::ListenSpec;
use larder_io::DevSpec;
use larder_sim::torture::profile::Profile;

use crate::units::{address, mode, ratio, size, span};

/// A flash cache in userspace: slow storage and a local SSD go in, a fast block device comes out.
#[derive(Parser, Debug)]
#[command(name = "larder", version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a slow device behind a flash cache
    Serve(Box<ServeArgs>),
    /// Show what a serving process is doing
    Status(ControlArgs),
    /// Show the counters of a serving process
    Stats(ControlArgs),
    /// Watch serving processes live: rates, hit ratio, devices, state
    Top(TopArgs),
    /// Make everything answered so far durable on the origin
    Flush(BoundArgs),
    /// Go on without the flash device, and let go of it
    Detach(BoundArgs),
    /// Cache on a (new) flash device
    Attach(AttachArgs),
    /// Say what is on a flash device, and what a start would make of it
    Check(CheckArgs),
    /// Compute the memory that a cache needs, before anything is created
    Size(SizeArgs),
    /// Show the presets: each is five choices
    Presets {
        /// One JSON value on stdout
        #[arg(long)]
        json: bool,
    },
    /// Crash and fault the engine in virtual time, from seeds, and judge what it does
    #[command(after_help = crate::torture::profiles_help())]
    Torture(TortureArgs),
    /// Look at traces of block requests; convert, make and record them
    #[command(subcommand)]
    Trace(crate::trace::TraceCommand),
    /// Run scenarios in virtual time, replay a trace under a preset, or count its hits and misses
    Sim(Box<crate::sim::SimArgs>),
    /// Say from a trace whether a flash cache pays, how large, and in which mode
    Advise(crate::advise::AdviseArgs),
    /// Reproduce the papers: a verdict for every claim
    Paper(crate::paper::PaperArgs),
    /// Measure, side by side with the bare device or a peer
    Bench(BenchArgs),
    /// Show the main job end to end, on files that it makes itself
    Demo(DemoArgs),
    /// Mount a directory on a modelled slow disk, to try a database on it
    #[command(after_help = crate::slow_dir::HELP)]
    SlowDir(crate::slow_dir::SlowDirArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// Where
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

/// Where the serving process is found.
#[derive(Args, Debug)]
pub struct ControlArgs {
    /// Its control socket [default: /run/larder/NAME.sock for root, else
    /// $XDG_RUNTIME_DIR/larder/NAME.sock]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Its export name, for the default socket
    #[arg(long, default_value = "")]
    pub name: String,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

/// What to watch, and how.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// A control socket; may be given several times [default: all in /run/larder for root, else in
    /// $XDG_RUNTIME_DIR/larder]
    #[arg(long, value_name = "SOCKET")]
    pub control: Vec<PathBuf>,
    /// How often to ask; rates are over this span
    #[arg(long, default_value = "1s", value_parser = span, value_name = "SPAN")]
    pub interval: Nanos,
    /// Print one snapshot as text, as where standard output is no terminal
    #[arg(long)]
    pub once: bool,
    /// One snapshot as one JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

/// A command that may take a while.
#[derive(Args, Debug)]
pub struct BoundArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// How long it may take, in whole seconds
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub bound: Nanos,
}

#[derive(Args, Debug)]
pub struct AttachArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// The flash device, as for serve
    #[arg(value_name = "DEV")]
    pub flash: DevSpec,
    /// Use at most so much of it
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
    /// Overwrite foreign data on it
    #[arg(long)]
    pub format: bool,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The flash device, which nobody uses at the moment
    #[arg(value_name = "FLASH")]
    pub flash: DevSpec,
    /// Write a lost copy of the label; damaged metadata needs nothing where the origin has everything
    #[arg(long)]
    pub repair: bool,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct SizeArgs {
    /// Size of the origin
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub origin: u64,
    /// Size of the flash
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash: u64,
    /// Named cache, see `larder presets`
    #[arg(long, value_name = "NAME", default_value = "sce")]
    pub preset: String,
    #[command(flatten)]
    pub choices: ChoiceArgs,
    /// Worker threads, of which each has batches in memory where pages lie in logs [default: as serve]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

/// Histories of crashes and faults.
#[derive(Args, Debug)]
pub struct TortureArgs {
    /// The first seed; equal seeds give equal runs on any machine
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// How many seeds [default: 1000, or without bound with --for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,
    /// For how long
    #[arg(long = "for", value_parser = span, value_name = "SPAN", conflicts_with = "runs")]
    pub span: Option<Nanos>,
    /// Take every seed from this row of the swarm, see below [default: each seed picks one]
    #[arg(long, value_parser = crate::torture::row, value_name = "PROFILE")]
    pub profile: Option<&'static Profile>,
    /// Threads; they change nothing but the time it takes [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Do not look for a short history that breaks the same rule
    #[arg(long)]
    pub no_shrink: bool,
    /// Catch every named mutant of the engine (only in builds with --features mutants)
    #[arg(long, conflicts_with = "mutant")]
    pub mutants: bool,
    /// Torture this mutant (only in builds with --features mutants)
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<String>,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Which, or `all`
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Where files are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Small and short, to see that it works; figures mean little
    #[arg(long)]
    pub quick: bool,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
    /// Also write one HTML file with pictures (of the benches in virtual time) and the rows
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartArg {
    /// A PostgreSQL trace over NBD, five ways
    Replay,
    /// SQLite in an ext4 on a loop device on a FUSE file, with and without Larder; needs root and
    /// is skipped, with a line that says why, where something is missing
    Oltp,
    /// These two, one after the other
    All,
    /// PostgreSQL with Larder's library, and without, on a directory as slow as a modelled disk: a
    /// TPC-C mix; needs FUSE and PostgreSQL
    Postgres,
}

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Which part of it
    #[arg(long, value_enum, default_value = "all")]
    pub part: PartArg,
    /// Where files are made
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub dir: PathBuf,
    /// Of the part postgres: larger and longer, for about two hours
    #[arg(long)]
    pub full: bool,
    /// Of the part postgres: checkpoints every 300 s, and the kill in the middle of an interval, for half an hour
    #[arg(long, conflicts_with = "full")]
    pub restart: bool,
    /// Of the part postgres: the model of the disk, as of larder slow-dir
    #[arg(long, value_name = "DEVICE", default_value = "cloud")]
    pub device: String,
    /// Of the part postgres: the library [default: liblarder_pg.so beside this program]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

/// What a write does to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteArg {
    /// Flash is written after the origin; the client does not wait for it
    Async,
    /// Flash is written after the origin, and the client waits for both
    Through,
    /// The flash copy becomes invalid
    Around,
    /// What is cached is written to flash alone, and to the origin when it leaves
    NoWriteBack,
    /// Pages are written to a log on flash, and to the origin with a FLUSH
    Bounded,
    /// Pages are written to a log on flash, and to the origin when they leave
    Full,
}

/// What of the metadata outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Nothing: the cache starts cold
    Volatile,
    /// A journal on flash: the cache starts warm, also after a power cut
    Journal,
    /// The page log itself: the cache starts warm, after a power cut with --write-policy full
    Log,
}

/// DEV is a file or block device, an NBD URI, `mem:SIZE`, `null:SIZE`, or
/// `slow+DEV?profile=NAME&seed=N`.
///
/// These are the keys of a configuration file too: see `config`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Configuration in TOML: the long flags as keys, with underscores; several volumes by
    /// [volume.NAME]. Flags given beside it count instead of the file's keys
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration, which can be fed back, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    /// The slow device: PATH of a file or block device, nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH (nbds for TLS), mem:SIZE, null:SIZE, or
    /// slow+PATH?profile=NAME&seed=N (a real device behind modelled latency, to try things out)
    #[arg(long, value_name = "DEV", required_unless_present = "config")]
    pub origin: Option<DevSpec>,
    /// The flash device; without one the volume is served in pass-through
    #[arg(long, value_name = "DEV")]
    pub flash: Option<DevSpec>,
    /// Use at most so much of it; a file that does not exist is made this large
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
    /// Overwrite foreign data on the flash device
    #[arg(long)]
    pub format: bool,
    /// The flash device belongs to this origin although its state file is lost, or the origin's time of
    /// change is another; nothing was written to the origin since: for a flash that alone has some of the
    /// data (presets prwc and face), and for one start
    #[arg(long, conflicts_with = "format")]
    pub adopt: bool,
    /// The five choices by name, see `larder presets`
    #[arg(long, default_value = "sce")]
    pub preset: String,
    /// Where clients come in: nbd+unix:PATH, nbd://HOST:PORT or fuse:PATH (a file that is the
    /// volume; a loop device can mount it); may be given several times
    #[arg(long, value_name = "LISTEN", required_unless_present = "config")]
    pub listen: Vec<ListenSpec>,
    /// Who may connect to its unix listeners, as file modes [default: what the umask leaves]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub listen_mode: Option<u32>,
    /// Export name
    #[arg(long, default_value = "")]
    pub name: String,
    /// Directory of state files: whether what is on flash may be used. As for the journal's run,
    /// also when there is none this time
    /// [default: $STATE_DIRECTORY as systemd sets it, else /var/lib/larder for root, else
    /// ~/.local/state/larder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Control socket [default: /run/larder/NAME.sock for root, else
    /// $XDG_RUNTIME_DIR/larder/NAME.sock; NAME is `default` for the empty name]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Worker threads, each with its share of the units [default: one for every two processors,
    /// at most 4]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// How long a stop (SIGTERM) may take to answer what is under way
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub drain: Nanos,
    /// Where Prometheus may ask for metrics, at the path /metrics: HOST:PORT [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub metrics: Option<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub choices: ChoiceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// TLS for clients.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// The server's certificate (PEM, the chain included). Clients by TCP must use TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let only clients in that have a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Clients of unix sockets must use TLS too
    #[arg(long, requires = "tls_cert")]
    pub tls_require: bool,
}

/// Settings of the five choices.
#[derive(Args, Debug)]
#[command(next_help_heading = "Choices (default: the preset's)")]
pub struct ChoiceArgs {
    /// Unit of caching, a power of two up to 8MiB; at least 64KiB with selective admission, else
    /// 4KiB. With a page log: what of the volume one worker's log has in a row
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub unit: Option<u64>,
    /// Who leaves: gclock, lru, fifo, clock, sieve, s3fifo, arc, 2q, lirs or wtinylfu
    #[arg(long, value_name = "POLICY")]
    pub replacement: Option<String>,
    /// What a write does to flash. With a page log: full, bounded or through
    #[arg(long, value_name = "POLICY")]
    pub write_policy: Option<WriteArg>,
    /// What of the metadata outlives the process. By default there is no journal where a device
    /// is memory
    #[arg(long, value_name = "DURABILITY")]
    pub durability: Option<DurabilityArg>,
    /// Population workers of each class, fastest class first [sce: 8,4,1,1]
    #[arg(long, value_delimiter = ',', value_name = "N,..")]
    pub populate_workers: Option<Vec<u32>>,
    /// Miss ratio from which a class is in force, falling from class to class; the first class
    /// whose conditions hold is [sce: 35%,15%,0%,0%]
    #[arg(long, value_delimiter = ',', value_parser = ratio, value_name = "SHARE,..")]
    pub populate_miss: Option<Vec<f64>>,
    /// Free share of the cache above which a class is in force [sce: 10%,0%,10%,0%]
    #[arg(long, value_delimiter = ',', value_parser = ratio, value_name = "SHARE,..")]
    pub populate_free: Option<Vec<f64>>,
    /// Sleep of each class's workers before each unit [sce: 0,0,0,500ms]
    #[arg(long, value_delimiter = ',', value_parser = span, value_name = "SPAN,..")]
    pub populate_period: Option<Vec<Nanos>>,
    /// Recent misses among which a worker chooses the hottest [sce: 100]
    #[arg(long, value_name = "N")]
    pub populate_list: Option<usize>,
    /// Span over which the miss ratio is taken [sce: 1s]
    #[arg(long, value_parser = span, value_name = "SPAN")]
    pub populate_window: Option<Nanos>,
    /// Recent misses that a unit needs to displace another [sce: 8]
    #[arg(long, value_name = "N")]
    pub displace_heat: Option<u32>,
    /// From the end of one update to the beginning of the next [prwc, proc: 1h]
    #[arg(long, value_parser = span, value_name = "SPAN")]
    pub update_period: Option<Nanos>,
    /// Reference factor above which a unit is hot: each request adds 20 [prwc, proc: 50]
    #[arg(long, value_name = "N")]
    pub update_hot: Option<u16>,
    /// Highest count of a unit in generalised CLOCK [sce: 4]
    #[arg(long, value_name = "N")]
    pub clock_ceiling: Option<u8>,
    /// Pages that are written to a page log together, 1 to 256 [face: 64]
    #[arg(long, value_name = "N")]
    pub batch_pages: Option<u32>,
}

impl ChoiceArgs {
    /// Whether a setting of selective admission is given.
    pub fn has_selective(&self) -> bool {
        self.populate_workers.is_some()
            || self.populate_miss.is_some()
            || self.populate_free.is_some()
            || self.populate_period.is_some()
            || self.populate_list.is_some()
            || self.populate_window.is_some()
            || self.displace_heat.is_some()
    }
}

/// Budgets and time limits.
#[derive(Args, Debug)]
#[command(next_help_heading = "Budgets and time limits")]
pub struct LimitArgs {
    /// Client data kept for flash writes after the client was answered
    #[arg(long, value_parser = size, default_value = "8MiB", value_name = "SIZE")]
    pub write_buffer: u64,
    /// Largest read of population, 4KiB to 1MiB; smaller ones are used where that is kinder to
    /// clients
    #[arg(long, value_parser = size, default_value = "1MiB", value_name = "SIZE")]
    pub populate_io: u64,
    /// Share of the time in which population may use the origin while clients use it
    #[arg(long, value_parser = ratio, default_value = "80%", value_name = "SHARE")]
    pub populate_share: f64,
    /// A request to an NBD origin that takes longer is sent again on another connection
    #[arg(long, value_parser = span, default_value = "30s", value_name = "SPAN")]
    pub origin_timeout: Nanos,
    /// An operation on an NBD origin that takes longer fails
    #[arg(long, value_parser = span, default_value = "60s", value_name = "SPAN")]
    pub origin_give_up: Nanos,
    /// How often what units hold is logged, with a journal
    #[arg(long, value_parser = span, default_value = "1s", value_name = "SPAN")]
    pub checkpoint: Nanos,
    /// A flash operation that takes longer is answered from the origin
    #[arg(long, value_parser = span, default_value = "2s", value_name = "SPAN")]
    pub flash_timeout: Nanos,
    /// A flash device that leaves an operation unanswered for so long is given up
    #[arg(long, value_parser = span, default_value = "30s", value_name = "SPAN")]
    pub flash_dead_after: Nanos,
    /// So many flash errors within a minute and the device is given up
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub flash_errors: u32,
}
