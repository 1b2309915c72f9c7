// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client requests of a volume as they come in, for whoever records them.
//!
//! Each worker that is listened to has a *tap*: the sending end of a bounded ring of its own. What
//! does not fit is counted and lost, so a worker never waits. A recording takes what is in the
//! rings and puts the requests of all workers in the order of their times.
//!
//! Invariants: where nobody records, a request costs a look at a field of its worker. There is one
//! recording at a time. It ends when its listener ends it or goes away, of which each worker
//! learns at its next request at the latest, or when the last worker is gone. A request is recorded when it is taken up, as `stats` counts
//! it; flushes, trims and zeroings are not, since traces have no word for them.
//!
//! Why a ring a worker and not one for all: workers share nothing that they write to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::request::Kind;
use larder_io::clock;
use serde::{Deserialize, Serialize};

use super::{Volume, VolumeError};

/// Requests of a worker that may wait to be taken: 2 MB, and a twentieth of a second of a million
/// requests a second.
const RING: usize = 1 << 16;
/// A request that came so long ago has been told by its worker, whichever it is.
const SETTLED: Nanos = 20 * MILLISECOND;

/// A read or write of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Recorded {
    /// When it came, in microseconds since the recording began.
    pub at_us: u64,
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Else it reads.
    pub writes: bool,
}

/// The same without names: there are millions of them.
type Wire = (u64, u64, u32, bool);

impl From<Wire> for Recorded {
    fn from((at_us, offset_bytes, len_bytes, writes): Wire) -> Self {
        Self { at_us, offset_bytes, len_bytes, writes }
    }
}

impl From<Recorded> for Wire {
    fn from(r: Recorded) -> Self {
        (r.at_us, r.offset_bytes, r.len_bytes, r.writes)
    }
}

/// A worker's end.
pub(crate) struct Tap {
    ring: SyncSender<Recorded>,
    lost: Arc<AtomicU64>,
    /// When the recording began.
    began: Nanos,
}

/// Tells of a request, where somebody listens.
#[inline]
pub(super) fn tell(tap: &mut Option<Tap>, now: Nanos, kind: Kind, offset: u64, len: u64) {
    if let Some(to) = tap
        && !to.tell(now, kind, offset, len)
    {
        *tap = None;
    }
}

impl Tap {
    /// Whether somebody still listens.
    fn tell(&self, now: Nanos, kind: Kind, offset: u64, len: u64) -> bool {
        let writes = match kind {
            Kind::Read => false,
            Kind::Write { .. } => true,
            Kind::Flush | Kind::Trim { .. } | Kind::Zero { .. } => return true,
        };
        let at_us = now.saturating_sub(self.began) / 1000;
        // Requests are of megabytes at the most.
        let len_bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let request = Recorded { at_us, offset_bytes: offset, len_bytes, writes };
        match self.ring.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

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

impl Volume {
    /// Begins to listen.
    ///
    /// # Errors
    /// When somebody else does, or a worker does not answer.
    pub fn record(&self) -> Result<Recording, VolumeError> {
        if self.recorded.swap(true, Ordering::SeqCst) {
            let what = "this volume is being recorded; accepted: one recording at a time";
            return Err(VolumeError::Refused(what.to_owned()));
        }
        let turn = Turn(Arc::clone(&self.recorded));
        let (lost, began) = (Arc::new(AtomicU64::new(0)), clock::now());
        let (to, rings): (Vec<_>, Vec<_>) =
            (0..self.mailboxes.len()).map(|_| sync_channel(RING)).unzip();
        let (to, counter) = (Arc::new(to), Arc::clone(&lost));
        self.ask(move |worker| {
            let ring = to.get(worker.index() as usize).cloned();
            worker.tap = ring.map(|ring| Tap { ring, lost: Arc::clone(&counter), began });
        })?;
        Ok(Recording { rings, lost, began, waiting: Vec::new(), _turn: turn })
    }

    /// Whether somebody records, who is to be told when the volume has stopped.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::SeqCst)
    }
}

impl Recording {
    /// What came since the last time, in order, but for the youngest; and whether more may come.
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
    pub fn finish(&mut self, volume: &Volume) -> (Vec<Recorded>, u64) {
        // Workers that are gone, or too busy to answer, learn of it by themselves.
        let _ = volume.ask(|worker| worker.tap = None);
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
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_who_has_gone_is_told_nothing_more() {
        let (ring, from) = sync_channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let mut tap = Some(Tap { ring, lost: Arc::clone(&lost), began: 5_000 });
        let say = |tap: &mut Option<Tap>, kind, offset| tell(tap, 3_005_000, kind, offset, 512);
        say(&mut tap, Kind::Read, 0);
        say(&mut tap, Kind::Flush, 0);
        say(&mut tap, Kind::Trim { fua: false }, 512);
        say(&mut tap, Kind::Write { fua: true }, 1024);
        assert_eq!(lost.load(Ordering::Relaxed), 0);
        say(&mut tap, Kind::Read, 1536);
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        let recorded =
            |offset_bytes, writes| Recorded { at_us: 3_000, offset_bytes, len_bytes: 512, writes };
        assert!(from.try_iter().eq([recorded(0, false), recorded(1024, true)]));
        drop(from);
        say(&mut tap, Kind::Read, 0);
        assert!(tap.is_none());
    }

    #[test]
    fn a_request_is_one_short_line_on_the_wire() {
        let request = Recorded { at_us: 1, offset_bytes: 4096, len_bytes: 512, writes: true };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, "[1,4096,512,true]");
        assert_eq!(serde_json::from_str::<Recorded>(&text).unwrap(), request);
    }

    /// Requests of two workers, one of which tells late: they come in order, and the youngest wait.
    #[test]
    fn requests_of_all_workers_come_in_order() {
        let (rings_in, rings): (Vec<_>, Vec<_>) = (0..2).map(|_| sync_channel(RING)).unzip();
        let began = clock::now();
        let lost = Arc::new(AtomicU64::new(0));
        let taps: Vec<Tap> =
            rings_in.into_iter().map(|ring| Tap { ring, lost: Arc::clone(&lost), began }).collect();
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
