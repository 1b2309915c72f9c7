// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a driver, whether or not operations are in the kernel.
//!
//! Invariants: memory is freed only after the kernel has returned it. Memory that the kernel does not return in time (a
//! hung device, a dead network mount) is leaked: otherwise a late transfer would write into memory that belongs to
//! something else.

use std::time::{Duration, Instant};

use io_uring::{opcode, types};
use larder_core::buf::Buf;
use larder_core::request::Errno;

use super::Driver;
use super::ring::{Tag, Wait};
use crate::errno::ECANCELED;

/// How long dropping a driver waits for operations in flight.
const DROP_BOUND: Duration = Duration::from_secs(5);

impl Driver {
    /// Cancels everything in the kernel and waits for it, except for commands of queues, which point to no memory and end
    /// with the ring; false if something did not return.
    #[allow(unsafe_code)]
    fn drain(&mut self) -> bool {
        self.closing = true;
        self.net.closing = true;
        self.queues.closing = true;
        for data in self.ring.drop_backlog() {
            if let (Tag::Queue, key) = Tag::split(data) {
                self.queues.ended(&mut self.ring, key, -ECANCELED.0);
            }
        }
        let any = types::CancelBuilder::any().all();
        let entry = opcode::AsyncCancel2::new(any).build().user_data(Tag::Ignored.with(0));
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(entry) };
        let deadline = Instant::now() + DROP_BOUND;
        while self.ring.outstanding() > self.queues.commands() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.ring.enter(Wait::For(left.as_nanos() as u64)).is_err() {
                return false;
            }
            self.reap();
        }
        true
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.devices.iter().for_each(|(_, on)| on.leave());
        for key in self.late.take_held() {
            let index = self.ops[key as usize].device as usize;
            if let Some(fault) = self.devices[index].device.fault() {
                fault.forget_held();
            }
            self.open_gate(key as usize, Err(ECANCELED));
        }
        let drained = self.drain();
        // Other drivers' flushes must not wait for one that hangs, or that never reached the kernel.
        let result = if drained { Err(ECANCELED) } else { Err(Errno::EIO) };
        for (_, op) in &mut self.ops {
            op.leave(self.devices[op.device as usize].device.flushes(), result);
        }
        if drained {
            return;
        }
        let count = self.ring.outstanding() - self.queues.commands();
        tracing::error!(count, "operations did not end in time; their memory is leaked");
        std::mem::forget(std::mem::take(&mut self.ops));
        std::mem::forget(std::mem::take(&mut self.net));
        std::mem::forget(std::mem::take(&mut self.queues));
        std::mem::forget(std::mem::replace(&mut self.wake_word, Box::new(0)));
        std::mem::forget(std::mem::replace(&mut self.zeroes, Buf::with_len(0)));
    }
}
