// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the number of connections: of a server over all of its listeners, and of each volume.
//!
//! Clients that negotiate are counted apart from those that are served. So clients that connect and send nothing delay
//! others for at most the time limit of a negotiation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that a volume serves at a time, whatever those of the others do.
pub const MOST_CONNECTIONS: usize = 64;

/// Places for connections of one kind; shared by the listeners of a process.
#[derive(Clone)]
pub struct Seats {
    taken: Arc<AtomicUsize>,
    most: usize,
}

impl Seats {
    /// So many places.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// A place, if there is one left.
    #[must_use]
    pub fn take(&self) -> Option<Seat> {
        let before = self.taken.fetch_add(1, Ordering::SeqCst);
        let seat = Seat(Arc::clone(&self.taken));
        (before < self.most).then_some(seat)
    }
}

/// A connection's place; given back when dropped.
pub struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let seats = Seats::new(2);
        let (first, _second) = (seats.take(), seats.take());
        assert!(first.is_some() && seats.take().is_none());
        drop(first);
        assert!(seats.take().is_some());
    }
}
