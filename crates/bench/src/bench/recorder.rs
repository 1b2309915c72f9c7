// SPDX-License-Identifier: MIT OR Apache-2.0
//! `recorder`: what the flight recorder and the miss-ratio curve cost a hit.
//!
//! Method: a cache in memory with all data on flash, whose setting `recorder` is switched between its default and 0. Reads of 4 KiB at
//! random places, 32 in flight, take turns of half a second under each, after as long without being counted. Each answer sends the
//! next request from the worker's own thread, so no socket and no client hides the cost: with them its share is smaller.
//!
//! Why not two caches: where their memory lies makes more difference than the recorder.

use std::time::Duration;

use anyhow::{Result, ensure};
use larder_core::config::Limits;
use larder_volume::{Change, RECORDER_BYTES};

use super::all_hits::{BOUND, Warm};
use super::common::{BenchOptions, progress};
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row};

const NAME: &str = "recorder";
const MIB: u64 = 1 << 20;
const DEPTH: u64 = 32;

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (bytes, pairs, span) = match options.quick {
        true => (16 * MIB, 2, Duration::from_millis(100)),
        false => (512 * MIB, 31, Duration::from_millis(500)),
    };
    let warm = Warm::new(bytes, false, Limits::default())?;
    let (mut ours, mut peer, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let watch = Watch::begin(None)?;
        // Which is first changes, so that a machine that slows down favours neither.
        let mut both = [(RECORDER_BYTES, &mut ours), (0, &mut peer)];
        if pair % 2 == 1 {
            both.swap(0, 1);
        }
        for (recorder, found) in both {
            let recorder_bytes = Some(recorder);
            warm.volume.cache().set(&Change { recorder_bytes, ..Change::default() })?;
            // Uncounted, until the ring is full: from then on it takes no memory.
            warm.reads(span, (DEPTH, pair))?;
            found.push(warm.reads(span, (DEPTH, pair))?);
            let has_curve = warm.volume.status()?.curve.is_some();
            ensure!(
                has_curve == (recorder > 0),
                "with a recorder of {recorder} bytes: curve {has_curve}"
            );
        }
        others.push(watch.others()?);
        progress(NAME, format!("{} of {pairs}", pair + 1));
    }
    warm.volume.cache().stop(BOUND, |_| (), || false)?;
    let counted = Counted::quietest(&others);
    let [ours, peer] = [ours, peer].map(|all| counted.each(&all, |iops| *iops));
    let row = Row::new(NAME, "hits, 32 in flight", "IOPS");
    Ok(vec![row.paired("--recorder 0", &ours, &peer).goals(&[Goal::RatioAtLeast(0.98)])])
}
