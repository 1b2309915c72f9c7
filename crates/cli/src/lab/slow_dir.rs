// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder slow-dir`: a directory on a modelled slow disk, until a signal or an unmount.
//!
//! Invariants: "mounted" is told once it is; a second signal does not wait for users of the mount.

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

/// How long users of the mount are waited for.
const DRAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// What `--help` ends with.
pub const HELP: &str = "\
Reads and writes of files below MOUNT pass no page cache, and take the time that the device's model says; a flush
of a file or directory is the device's flush. What posix_fadvise asks for is ready, for one read.
Names and attributes cost nothing. SOURCE has at any time what was written; change it by MOUNT alone meanwhile. Root
lets other users in. MOUNT/.slow-stats has the counters of operations and bytes as JSON, in all and by what lies at
the top of MOUNT; no listing shows it. The same is printed at the end.

  mkdir /tmp/slow; larder slow-dir --device array-16 /srv/data /tmp/slow &
  cat /tmp/slow/.slow-stats
  umount /tmp/slow";

/// What is mounted where, and on what disk.
#[derive(Args, Debug)]
pub struct SlowDirArgs {
    /// What the disk is: a name (hdd-7200, hdd-15k, san-1g, array-16, cloud, ...) or the path of a
    /// file that describes one
    #[arg(long, value_name = "DEVICE", default_value = "cloud")]
    pub device: String,
    /// The seed of what it leaves to chance
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The disk's size, over which seeks are spread [default: twice of what SOURCE has, and 1GiB at
    /// least]
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Read so much ahead of whoever reads a file in order, as an operating system does; 0: nothing
    #[arg(long, value_parser = size, value_name = "SIZE", default_value = "128KiB")]
    pub read_ahead: u64,
    /// Flushes are the model's alone: what was written survives this process, but no crash of the
    /// machine
    #[arg(long)]
    pub no_sync: bool,
    /// The directory
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Where it is mounted: an empty directory
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
