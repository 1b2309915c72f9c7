// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many requests of a mount are under way, and how they come to an end.
//!
//! Invariants: a closed gate lets nobody in; a ticket is given back when its request is answered,
//! however that ends; the payload under way is at most [`MOST_BYTES`] or one request (design rule
//! 11: everything is bounded).
//!
//! Why a reader thread may wait here: requests under way are answered by workers, which need no
//! reader; and the kernel keeps what is not read yet.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most payload of a mount's requests under way.
pub const MOST_BYTES: u64 = 64 << 20;

#[derive(Default)]
struct State {
    closed: bool,
    /// The mount is being taken away by us.
    ending: bool,
    requests: u64,
    bytes: u64,
    /// Somebody waits for a change.
    awaited: bool,
}

/// The gate of a mount, see the module.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

/// A request under way; ends when dropped.
pub struct Ticket {
    gate: Gate,
    bytes: u64,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request of so many bytes in, when there is room for it; not through a closed gate.
    pub fn enter(&self, bytes: u64) -> Option<Ticket> {
        let mut state = self.lock();
        while !state.closed && state.requests > 0 && state.bytes + bytes > MOST_BYTES {
            state.awaited = true;
            state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        state.requests += 1;
        state.bytes += bytes;
        drop(state);
        Some(Ticket { gate: self.clone(), bytes })
    }

    /// The mount will soon be gone, and that is as it should be.
    pub fn expect_end(&self) {
        self.lock().ending = true;
    }

    /// Whether an end of the mount is as it should be.
    pub fn is_ending(&self) -> bool {
        self.lock().ending
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.closed, state.ending) = (true, true);
        drop(state);
        self.0.1.notify_all();
    }

    /// Waits until nothing is under way, at the longest until then; whether that is so.
    pub fn is_empty_by(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while state.requests > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.awaited = true;
            let waited = self.0.1.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.requests -= 1;
        state.bytes -= self.bytes;
        let awaited = std::mem::take(&mut state.awaited);
        drop(state);
        if awaited {
            self.gate.0.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_closed_gate_lets_nobody_in_and_empties() {
        let gate = Gate::default();
        let ticket = gate.enter(4096).unwrap();
        gate.close();
        assert!(gate.enter(0).is_none());
        assert!(!gate.is_empty_by(Instant::now() + Duration::from_millis(5)));
        drop(ticket);
        assert!(gate.is_empty_by(Instant::now()));
    }

    #[test]
    fn payload_is_bounded_but_one_request_always_fits() {
        let gate = Gate::default();
        let large = gate.enter(MOST_BYTES * 2).unwrap();
        let (other, (said, says)) = (gate.clone(), std::sync::mpsc::channel());
        let waits = std::thread::spawn(move || {
            let ticket = other.enter(1);
            said.send(()).unwrap();
            ticket.is_some()
        });
        assert!(says.recv_timeout(Duration::from_millis(20)).is_err());
        drop(large);
        assert!(waits.join().unwrap());
    }
}
