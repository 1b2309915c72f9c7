// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts and bounds the requests in flight of a mount, and drains them at its end.
//!
//! Invariants: a closed gate admits no request. A ticket is returned when its request completes, whatever the result.
//! The payload in flight is at most [`PAYLOAD_BYTES`], or one request (design rule 11).
//!
//! Why a reader thread may block here: workers complete the requests in flight without a reader, and the kernel queues
//! the requests that are not read yet.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most payload in flight of a mount.
pub const PAYLOAD_BYTES: u64 = 64 << 20;

#[derive(Default)]
struct State {
    closed: bool,
    /// The server is unmounting the file system.
    ending: bool,
    requests: u64,
    bytes: u64,
    /// A thread waits for a change.
    awaited: bool,
}

/// The gate of a mount.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

/// A request in flight; dropping it ends the request.
pub struct Ticket {
    gate: Gate,
    bytes: u64,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request of `bytes` once there is room for it; `None` if the gate is closed.
    pub fn enter(&self, bytes: u64) -> Option<Ticket> {
        let mut state = self.lock();
        while !state.closed && state.requests > 0 && state.bytes + bytes > PAYLOAD_BYTES {
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

    /// Announces that the server will unmount the file system.
    pub fn expect_end(&self) {
        self.lock().ending = true;
    }

    /// Whether the server has announced an unmount.
    pub fn is_ending(&self) -> bool {
        self.lock().ending
    }

    /// Rejects all further requests.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.closed, state.ending) = (true, true);
        drop(state);
        self.0.1.notify_all();
    }

    /// Waits until no request is in flight, at most until `deadline`; returns whether none is.
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
    fn a_closed_gate_admits_no_request_and_drains() {
        let gate = Gate::default();
        let ticket = gate.enter(4096).unwrap();
        gate.close();
        assert!(gate.enter(0).is_none());
        assert!(!gate.is_empty_by(Instant::now() + Duration::from_millis(5)));
        drop(ticket);
        assert!(gate.is_empty_by(Instant::now()));
    }

    #[test]
    fn payload_is_bounded_but_one_request_is_always_admitted() {
        let gate = Gate::default();
        let large = gate.enter(PAYLOAD_BYTES * 2).unwrap();
        let (other, (started, starts)) = (gate.clone(), std::sync::mpsc::channel());
        let waits = std::thread::spawn(move || {
            let ticket = other.enter(1);
            started.send(()).unwrap();
            ticket.is_some()
        });
        assert!(starts.recv_timeout(Duration::from_millis(20)).is_err());
        drop(large);
        assert!(waits.join().unwrap());
    }
}
