// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder slow-dir`: a directory on a modelled slow disk, until a signal or an unmount.
//!
//! Invariants: "mounted" is told once it is; a second signal does not wait for users of the mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use larder_front::slow_dir::{SlowDir, SlowDirOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::SlowDirArgs;
use crate::out;

/// How long users of the mount are waited for.
const DRAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// What `--help` ends with.
pub const HELP: &str = "\
Reads and writes of files below MOUNT pass no page cache, and take the time that the device's model says; a flush
of a file or directory is the device's flush. Names and attributes cost nothing. SOURCE has at any time what was
written; change it by MOUNT alone meanwhile. Root lets other users in. MOUNT/.slow-stats has the counters of
operations and bytes as JSON, in all and by what lies at the top of MOUNT; no listing shows it. The same is printed at the end.

  mkdir /tmp/slow; larder slow-dir --device array-16 /srv/data /tmp/slow &
  cat /tmp/slow/.slow-stats
  umount /tmp/slow";

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
