// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder slow-dir`: a directory on a modelled slow disk, until a signal or an unmount.
//!
//! Invariants: "mounted" is printed after the mount; after a second signal the command does not wait for users of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use larder_bench::demo::slow_dir::{SlowDir, SlowDirOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::out;
use crate::units::size;

/// How long the command waits for users of the mount.
const DRAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// The end of the help.
pub const HELP: &str = "\
Reads and writes of files below MOUNT bypass the page cache and take the time of the device's model; a flush of a
file or directory is the device's flush. Data that a program requested with posix_fadvise is ready, for one read.
Names and attributes take no time. SOURCE holds all written data at any time; change it only through MOUNT while it is
mounted. If root mounts, other users have access. MOUNT/.slow-stats has the counters of operations and bytes as JSON,
in total and for each entry at the top of MOUNT; listings do not show it. The command prints the same at its end.
`umount MOUNT` ends the command.";

/// The directory, the mount and the disk.
#[derive(Args, Debug)]
pub struct SlowDirArgs {
    /// Model of the disk: hdd-7200, hdd-15k, san-1g, array-16, cloud, or a file that describes one
    #[arg(long, value_name = "DEVICE", default_value = "cloud")]
    pub device: String,
    /// Seed of the model's random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Size of the disk, for seek distances [default: twice the size of SOURCE, at least 1GiB]
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Bytes to read ahead of a sequential reader, as an operating system does; 0 for none
    #[arg(long, value_parser = size, value_name = "SIZE", default_value = "128KiB")]
    pub read_ahead: u64,
    /// Model flushes without a sync of SOURCE: data survives this process, but not a crash of the machine
    #[arg(long)]
    pub no_sync: bool,
    /// The directory
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The mount point, an empty directory
    #[arg(value_name = "MOUNT")]
    pub at: PathBuf,
}

/// Mounts and serves.
pub fn slow_dir(args: &SlowDirArgs) -> Result<()> {
    // A counter instead of a flag: the second signal means more than the first.
    let signals = Arc::new(AtomicUsize::new(0));
    let mut waits = Signals::new([SIGINT, SIGTERM])?;
    let counted = Arc::clone(&signals);
    let count = move || {
        for _ in waits.forever() {
            counted.fetch_add(1, SeqCst);
        }
    };
    std::thread::Builder::new().name("larder-signals".to_owned()).spawn(count)?;
    let options = SlowDirOptions {
        device: args.device.clone(),
        seed: args.seed,
        disk_bytes: args.size,
        ahead_bytes: args.read_ahead,
        sync: !args.no_sync,
        source: args.source.clone(),
        at: args.at.clone(),
    };
    let mounted = SlowDir::open(&options)?;
    out::tell!("{} is mounted at {} on {}", args.source.display(), args.at.display(), args.device);
    while signals.load(SeqCst) == 0 && !mounted.has_ended() {
        std::thread::sleep(POLL);
    }
    let counts = mounted.close(DRAIN, || signals.load(SeqCst) > 1);
    out::line(counts)
}
