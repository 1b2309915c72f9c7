// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a recording: one for each worker.
//!
//! Invariants: a worker never waits here; what does not fit is counted and lost.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use larder_core::exec::Nanos;
use larder_core::request::Kind;
use serde::{Deserialize, Serialize};

/// A read or write of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Recorded {
    /// The time of its arrival, in microseconds since the recording began.
    pub at_us: u64,
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Whether it writes; otherwise it reads.
    pub writes: bool,
}

/// The compact form of a request: there are millions of them.
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

/// The sending end of a worker.
pub(crate) struct Tap {
    ring: SyncSender<Recorded>,
    lost: Arc<AtomicU64>,
    /// The time when the recording began.
    began: Nanos,
    /// What is recorded: the places of a volume, which begins at its offset 0.
    of: Range<u64>,
}

/// Sends a request to the recording, if there is one.
#[inline]
pub(crate) fn tell(tap: &mut Option<Tap>, now: Nanos, kind: Kind, offset: u64, len: u64) {
    if let Some(to) = tap
        && !to.tell(now, kind, offset, len)
    {
        *tap = None;
    }
}

impl Tap {
    /// The sending end of a ring, with the time when the recording began, of the requests in a range.
    pub fn new(
        ring: SyncSender<Recorded>,
        lost: Arc<AtomicU64>,
        began: Nanos,
        of: Range<u64>,
    ) -> Self {
        Self { ring, lost, began, of }
    }

    /// Sends a request; returns whether the recording still exists.
    pub fn tell(&self, now: Nanos, kind: Kind, offset: u64, len: u64) -> bool {
        let writes = match kind {
            Kind::Read => false,
            Kind::Write { .. } => true,
            Kind::Flush | Kind::Trim { .. } | Kind::Zero { .. } => return true,
        };
        if !self.of.contains(&offset) {
            return true;
        }
        let offset = offset - self.of.start;
        let at_us = now.saturating_sub(self.began) / 1000;
        // A request has at most megabytes.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_who_has_gone_is_told_nothing_more() {
        let (ring, from) = sync_channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let of = 4096..8192;
        let mut tap = Some(Tap { ring, lost: Arc::clone(&lost), began: 5_000, of });
        let say = |tap: &mut Option<Tap>, kind, at: u64| tell(tap, 3_005_000, kind, 4096 + at, 512);
        tell(&mut tap, 3_005_000, Kind::Read, 0, 512);
        tell(&mut tap, 3_005_000, Kind::Read, 8192, 512);
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
}
