// SPDX-License-Identifier: MIT OR Apache-2.0
//! A latency model in real time for users without a driver: operations are submitted to it, and it calls back when each
//! would complete.
//!
//! Purpose: modelled latency for things that are not block devices, such as files. `slow+` devices use the same models,
//! by the same names, on the same clock.
//!
//! Invariants: each submitted operation is called back exactly once, on one thread, without a lock held, in the model's
//! order. When the last handle is dropped, the remaining ones are called back at once.
//!
//! Why not `slow+` itself: its operations belong to a ring, and have an offset on one device.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_core::exec::Nanos;
use larder_model::{Model, Op};

use super::slow;
use crate::clock::{self, exact_timers};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacedOp {
    /// A read.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A write.
    Write {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether it is durable on completion.
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
    /// When the thread will poll the model again.
    polls_at: Option<Nanos>,
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

/// A model with its thread.
pub struct Paced(Arc<Shared>);

impl Paced {
    /// The model of a profile, by name or by the path of a description, for a device of `bytes`.
    ///
    /// # Errors
    /// The profile does not exist, or no thread can be started.
    pub fn new(profile: &str, bytes: u64, seed: u64) -> Result<Self, String> {
        let model = slow::model(profile, bytes, seed)?;
        let state = State { model, waiting: HashMap::new(), next: 0, polls_at: None, ends: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("larder-model".to_owned());
        thread
            .spawn(move || run(&its))
            .map_err(|e| format!("cannot start a thread for the model: {e}"))?;
        Ok(Self(shared))
    }

    /// Submits an operation; `done` is called when the model completes it.
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
        let sooner = match (state.model.next(), state.polls_at) {
            (Some(next), Some(polls_at)) => next < polls_at,
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
            state.polls_at = state.model.next();
            state = match state.polls_at {
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
    fn each_operation_is_called_back_once_and_not_early() {
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
    fn waiting_operations_are_called_back_at_the_end() {
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
    fn an_unknown_profile_is_rejected() {
        let error = Paced::new("tape", 1 << 30, 0).err().unwrap();
        assert!(error.contains("tape") && error.contains("hdd-15k"), "{error}");
    }
}
