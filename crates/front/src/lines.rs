// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the log that a peer causes, limited for each peer: otherwise a client that connects in a loop fills the log.
//!
//! Invariants: at most `MOST_LINES` warnings and as many other lines of a peer within `WINDOW`, so that connections in
//! normal operation suppress no warning. The next line of the same count states how many lines were
//! suppressed. The memory is bounded: beyond `MOST_PEERS` peers within a window all others have one count. Then counts whose
//! window has passed are dropped, with the number of lines that they suppressed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_volume::peer::Peer;

/// Lines of a peer within a window.
const MOST_LINES: u32 = 20;
/// The window.
const WINDOW: Duration = Duration::from_secs(10);
/// Peers that are counted.
const MOST_PEERS: usize = 256;

struct Count {
    since: Instant,
    lines: u32,
    suppressed: u64,
}

/// The lines of all peers.
#[derive(Default)]
pub struct Lines(Mutex<HashMap<(Option<Peer>, bool), Count>>);

impl Lines {
    /// Whether a line may be written, and how many of the peer's lines were suppressed before it.
    fn admit(&self, peer: Peer, warns: bool, now: Instant) -> Option<u64> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (Some(peer), warns);
        if !peers.contains_key(&key) && peers.len() >= MOST_PEERS {
            peers.retain(|_, count| now.duration_since(count.since) < WINDOW);
            if peers.len() >= MOST_PEERS {
                key = (None, warns);
            }
        }
        let fresh = || Count { since: now, lines: 0, suppressed: 0 };
        let count = peers.entry(key).or_insert_with(fresh);
        let mut before = 0;
        if now.duration_since(count.since) >= WINDOW {
            before = count.suppressed;
            *count = fresh();
        }
        if count.lines >= MOST_LINES {
            count.suppressed += 1;
            return None;
        }
        count.lines += 1;
        Some(before)
    }

    /// Writes a line about the peer, as a warning or as information.
    pub fn write(&self, peer: Peer, warns: bool, line: fmt::Arguments<'_>) {
        let Some(before) = self.admit(peer, warns, Instant::now()) else { return };
        if before > 0 {
            tracing::warn!("{peer}: {before} lines were suppressed");
        }
        if warns {
            tracing::warn!("{line}");
        } else {
            tracing::info!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_its_limit_and_the_rest_is_counted() {
        let (lines, begin) = (Lines::default(), Instant::now());
        for _ in 0..MOST_LINES {
            assert_eq!(lines.admit(Peer::User(1), false, begin), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(lines.admit(Peer::User(1), false, begin), None);
        }
        assert_eq!(lines.admit(Peer::User(2), false, begin), Some(0));
        assert_eq!(lines.admit(Peer::User(1), true, begin), Some(0));
        assert_eq!(lines.admit(Peer::User(1), false, begin + WINDOW), Some(7));
        assert_eq!(lines.admit(Peer::User(1), false, begin + WINDOW), Some(0));
    }

    #[test]
    fn many_peers_are_counted_as_one() {
        let (lines, now) = (Lines::default(), Instant::now());
        let written = (0..100_000).filter(|uid| lines.admit(Peer::User(*uid), true, now).is_some());
        assert_eq!(written.count(), MOST_PEERS + MOST_LINES as usize);
        assert!(lines.0.lock().unwrap().len() <= MOST_PEERS + 1);
    }
}
