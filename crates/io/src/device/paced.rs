// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model in real time for whoever has no driver: told of operations, it calls back when each would be done.
//!
//! Purpose: what is no block device behind modelled latency, such as files. `slow+` devices use the same models, by
//! the same names, on the same clock.
//!
//! Invariants: what was submitted is called back exactly once, also when the last handle is gone (at once then); on one
//! thread, with no lock held, in the model's order.
//!
//! Why not `slow+` itself: its operations are a ring's, and go to a place on one device.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_core::exec::Nanos;
use larder_model::{Model, Op};

use super::slow;
use crate::clock::{self, exact_timers};

/// What an operation does, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacedOp {
    /// Reads so many bytes from there.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Writes.
    Write {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Durable once it is done.
        fua: bool,
    },
    /// Makes completed writes durable.
    Flush,
}

type Done = Box<dyn FnOnce() + Send>;

struct State {
    model: Box<dyn Model>,
    waiting: HashMap<u64, Done>,
    next: u64,
    /// When the thread will look again.
    looks_at: Option<Nanos>,
    ends: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub struct Paced(Arc<Shared>);

impl Paced {
    /// A profile by its name, or the file that describes a device; of so many bytes.
    ///
    /// # Errors
    /// There is no such profile, or no thread to be had.
    pub fn new(profile: &str, bytes: u64, seed: u64) -> Result<Self, String> {
        let model = slow::model(profile, bytes, seed)?;
        let state = State { model, waiting: HashMap::new(), next: 0, looks_at: None, ends: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("larder-model".to_owned());
        thread.spawn(move || run(&its)).map_err(|e| format!("no thread for the model: {e}"))?;
        Ok(Self(shared))
    }

    /// Begins an operation; `done` is called when the model is done with it.
    pub fn submit(&self, op: PacedOp, done: impl FnOnce() + Send + 'static) {
        let op = match op {
            PacedOp::Read { offset, len } => Op::read(offset, len),
            PacedOp::Write { offset, len, fua: false } => Op::write(offset, len),
            PacedOp::Write { offset, len, fua: true } => Op::write_fua(offset, len),
            PacedOp::Flush => Op::flush(),
        };
        let mut state = self.0.state();
        let id = state.next;
        state.next += 1;
        state.waiting.insert(id, Box::new(done));
        state.model.submit(clock::now(), id, op);
        let sooner = match (state.model.next(), state.looks_at) {
            (Some(next), Some(looks_at)) => next < looks_at,
            (next, None) => next.is_some(),
            (None, Some(_)) => false,
        };
        drop(state);
        if sooner {
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.0.state().ends = true;
        self.0.changed.notify_one();
    }
}

fn run(shared: &Shared) {
    exact_timers();
    let mut state = shared.state();
    loop {
        let now = clock::now();
        let mut done = Vec::new();
        while let Some((id, _)) = state.model.poll(now) {
            done.extend(state.waiting.remove(&id));
        }
        let ends = state.ends;
        if ends {
            done.extend(state.waiting.drain().map(|(_, done)| done));
        }
        if !done.is_empty() {
            drop(state);
            done.into_iter().for_each(|done| done());
            state = shared.state();
        } else {
            state.looks_at = state.model.next();
            state = match state.looks_at {
                None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let span = Duration::from_nanos(at.saturating_sub(clock::now()));
                    let waited = shared.changed.wait_timeout(state, span);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        if ends {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn each_is_called_back_once_and_not_early() {
        let paced = Paced::new("cloud", 1 << 30, 0).unwrap();
        let (answer, answers) = channel();
        let begin = Instant::now();
        for number in 0..50_u64 {
            let answer = answer.clone();
            let read = PacedOp::Read { offset: number << 20, len: 8192 };
            paced.submit(read, move || answer.send((number, begin.elapsed())).unwrap());
        }
        drop(answer);
        let mut all: Vec<_> = answers.iter().collect();
        assert!(all.iter().all(|(_, after)| *after >= Duration::from_micros(1500)), "{all:?}");
        // 3,000 a second, eight of them at once.
        assert!(all.last().unwrap().1 >= Duration::from_millis(13), "{all:?}");
        all.sort_unstable();
        assert_eq!(
            all.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            Vec::from_iter(0..50)
        );
    }

    #[test]
    fn what_waits_at_the_end_is_called_back() {
        let paced = Paced::new("hdd-7200", 1 << 30, 0).unwrap();
        let (answer, answers) = channel();
        for _ in 0..100 {
            let answer = answer.clone();
            let write = PacedOp::Write { offset: 1 << 29, len: 8192, fua: true };
            paced.submit(write, move || answer.send(()).unwrap());
        }
        let flushed = answer.clone();
        paced.submit(PacedOp::Flush, move || flushed.send(()).unwrap());
        drop((answer, paced));
        assert_eq!(answers.iter().count(), 101);
    }

    #[test]
    fn a_name_that_is_none_is_told() {
        let error = Paced::new("tape", 1 << 30, 0).err().unwrap();
        assert!(error.contains("tape") && error.contains("hdd-15k"), "{error}");
    }
}
