// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording of the client requests of a volume as they arrive.
//!
//! While a volume of a cache is recorded, each worker has a *tap*: the sending end of its own bounded ring. Requests that do not fit
//! are counted and lost, so a worker never waits. A recording takes the requests of all workers from the rings and sorts
//! them by time.
//!
//! Invariants: without a recording, a request costs one test of a field of its worker. There is one recording at a time. It
//! ends when its listener ends it or disconnects, which each worker detects at its next request, or when the last worker
//! ends. A request is recorded when it is taken up, as `stats` counts it. Flushes, trims and zeroings are not recorded,
//! since traces have no operations for them.
//!
//! Why a ring a worker and not one for all: workers share nothing that they write to.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use larder_core::exec::{MILLISECOND, Nanos};
use larder_io::clock;

use super::cache::Cache;
use super::error::VolumeError;
use super::tap::{Recorded, Tap};

/// Requests of a worker that may wait to be taken: 2 MB, and a twentieth of a second of a million
/// requests a second.
const RING: usize = 1 << 16;
/// A request that came so long ago has been told by its worker, whichever it is.
const SETTLED: Nanos = 20 * MILLISECOND;

/// The listener's end, see the module.
pub struct Recording {
    rings: Vec<Receiver<Recorded>>,
    lost: Arc<AtomicU64>,
    began: Nanos,
    /// Taken, and perhaps younger than what another worker has yet to tell.
    waiting: Vec<Recorded>,
    _turn: Turn,
}

/// The one recording of a volume; another can begin when it is dropped.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Cache {
    /// Begins to listen to the requests of a volume, which lies in this range.
    ///
    /// # Errors
    /// When a volume of the cache is already recorded, or a worker does not answer.
    pub(crate) fn record_range(&self, of: Range<u64>) -> Result<Recording, VolumeError> {
        if self.recorded.swap(true, Ordering::SeqCst) {
            let what = "this cache is being recorded; accepted: one recording at a time";
            return Err(VolumeError::Refused(what.to_owned()));
        }
        let turn = Turn(Arc::clone(&self.recorded));
        let (lost, began) = (Arc::new(AtomicU64::new(0)), clock::now());
        let (to, rings): (Vec<_>, Vec<_>) =
            (0..self.mailboxes.len()).map(|_| sync_channel(RING)).unzip();
        let (to, counter) = (Arc::new(to), Arc::clone(&lost));
        self.ask(move |worker| {
            let ring = to.get(worker.index() as usize).cloned();
            worker.observed.tap =
                ring.map(|ring| Tap::new(ring, Arc::clone(&counter), began, of.clone()));
        })?;
        Ok(Recording { rings, lost, began, waiting: Vec::new(), _turn: turn })
    }

    /// Whether the volume is recorded; the recording must learn when the volume has stopped.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::SeqCst)
    }
}

impl Recording {
    /// The requests since the last call in order, except the youngest; and whether more may come.
    pub fn take(&mut self) -> (Vec<Recorded>, bool) {
        let settled = clock::now().saturating_sub(self.began + SETTLED) / 1000;
        let goes_on = self.empty_rings();
        let younger = match goes_on {
            true => self.waiting.partition_point(|request| request.at_us < settled),
            false => self.waiting.len(),
        };
        let rest = self.waiting.split_off(younger);
        (std::mem::replace(&mut self.waiting, rest), goes_on)
    }

    /// The end: all that came until now, and how many were lost. Until this is dropped, a volume
    /// that stops waits for the listener to hear of it.
    pub fn finish(&mut self, cache: &Cache) -> (Vec<Recorded>, u64) {
        // Workers that are gone, or too busy to answer, learn of it by themselves.
        let _ = cache.ask(|worker| worker.observed.tap = None);
        self.empty_rings();
        (std::mem::take(&mut self.waiting), self.lost.load(Ordering::Relaxed))
    }

    /// Takes what is in the rings, each no more than once around; whether a worker is left.
    fn empty_rings(&mut self) -> bool {
        let mut left = self.rings.len();
        for ring in &self.rings {
            for _ in 0..RING {
                match ring.try_recv() {
                    Ok(request) => self.waiting.push(request),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        left -= 1;
                        break;
                    }
                }
            }
        }
        self.waiting.sort_by_key(|request| request.at_us);
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use larder_core::request::Kind;

    use super::*;

    /// Requests of two workers, one of which reports late: they come in order, and the youngest wait.
    #[test]
    fn requests_of_all_workers_come_in_order() {
        let (rings_in, rings): (Vec<_>, Vec<_>) = (0..2).map(|_| sync_channel(RING)).unzip();
        let began = clock::now();
        let lost = Arc::new(AtomicU64::new(0));
        let taps: Vec<Tap> = rings_in
            .into_iter()
            .map(|ring| Tap::new(ring, Arc::clone(&lost), began, 0..100))
            .collect();
        let turn = Turn(Arc::new(AtomicBool::new(true)));
        let mut recording = Recording { rings, lost, began, waiting: Vec::new(), _turn: turn };
        for offset in 0..100 {
            let now = began + offset * 1_000;
            assert!(taps[(offset % 2) as usize].tell(now, Kind::Read, offset, 1));
        }
        let (early, goes_on) = recording.take();
        assert!(goes_on);
        std::thread::sleep(std::time::Duration::from_nanos(2 * SETTLED));
        let (late, goes_on) = recording.take();
        assert!(goes_on && late.len() + early.len() == 100);
        let all: Vec<u64> = early.into_iter().chain(late).map(|r| r.offset_bytes).collect();
        assert!(all.into_iter().eq(0..100));
        drop(taps);
        assert!(!recording.take().1, "no worker is left");
    }
}
