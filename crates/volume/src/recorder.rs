// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder of a cache: the last requests of a volume, from the rings of all workers, and those before an alarm.
//!
//! Invariants: at an alarm the requests until then are copied and kept, until the next alarm. The thread that reports alarms waits for
//! no worker.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cache::{Cache, spawn};
use super::error::VolumeError;
use super::lock::lock;
use super::recent::{Answered, Recent};
use super::volume::Volume;

impl Cache {
    /// The last requests of a volume.
    pub(crate) fn recent_of(
        &self,
        volume: u32,
        alarm: Option<&str>,
    ) -> Result<Recent, VolumeError> {
        let each = self.ask(move |worker| worker.observed.recent(volume))?;
        // A worker that dropped requests knows nothing of the time before its first one.
        let first = |(ring, dropped): &(Vec<Answered>, bool)| {
            ring.iter().map(|request| request.at_us).min().filter(|_| *dropped)
        };
        let from_us = each.iter().filter_map(first).max().unwrap_or(0);
        let all = each.into_iter().flat_map(|(ring, _)| ring);
        let mut requests: Vec<Answered> = all.filter(|request| request.at_us >= from_us).collect();
        requests.sort_by_key(|request| request.at_us);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let zero_us =
            (since_1970.as_micros() as u64).saturating_sub(larder_io::clock::now() / 1000);
        requests.iter_mut().for_each(|request| request.at_us += zero_us);
        Ok(Recent { alarm: alarm.map(str::to_owned), requests: requests.into() })
    }

    /// Keeps the last requests of all volumes, because of an alarm. A worker that does not answer leaves the earlier ones.
    pub(crate) fn keep_recent(self: &Arc<Self>, alarm: &str) {
        if self.settings().recorder_bytes == 0 {
            return;
        }
        let (cache, alarm) = (Arc::clone(self), alarm.to_owned());
        let keep = move || {
            for volume in 0..cache.parts.len() {
                if let Ok(recent) = cache.recent_of(volume as u32, Some(&alarm)) {
                    lock(&cache.kept)[volume] = Some(recent);
                }
            }
        };
        // The thread that reports alarms must not wait for workers. Without memory for another thread nothing is kept.
        let _ = spawn("larder-recent", keep);
    }
}

impl Volume {
    /// The last requests of its clients; or those before the last alarm.
    ///
    /// # Errors
    /// The recorder is off, there was no alarm, or a worker does not answer.
    pub fn recent(&self, at_alarm: bool) -> Result<Recent, VolumeError> {
        let cache = self.cache();
        if cache.settings().recorder_bytes == 0 {
            return Err(VolumeError::Refused(
                "the server keeps no requests: --recorder is 0".to_owned(),
            ));
        }
        if at_alarm {
            let kept = lock(&cache.kept)[self.number() as usize].clone();
            return kept.ok_or_else(|| {
                VolumeError::Refused("there was no alarm since the server's start".to_owned())
            });
        }
        cache.recent_of(self.number(), None)
    }
}
