// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a queue of requests that is no byte stream needs from the worker's ring: commands to its driver in the kernel
//! (ublk), and events of its peer (vhost-user).
//!
//! Invariants:
//! - Each started operation has one event, unless its queue was dropped first: then it has none.
//! - A table here owns the descriptor of an operation, and the word that the kernel fills from an event or adds to one,
//!   until the completion. Commands point to no memory.
//! - The kernel cancels no command on request: a command ends when its driver ends it, or when the ring is gone. So
//!   dropping a driver does not wait for commands.
//!
//! Why the ring has entries of 64 bytes: a ublk queue's commands carry 16 bytes, which fit. Only commands to
//! `/dev/ublk-control` need entries of 128 bytes, and these belong to another ring on another thread.
//!
//! Why no reads and writes of a ublk device are here: its driver supports no transfer without waiting, so the kernel
//! would hand each one to another thread. A direct call copies the same bytes on this thread.
//!
//! Why an event on a non-blocking descriptor is polled first: a read would fail at once. A descriptor is read and written
//! only through the ring, so a peer that takes an event back, or fills one, does not block the thread.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use larder_core::request::Errno;
use rustix::fs::OFlags;
use slab::Slab;

use super::ring::{Ring, Tag};
use crate::errno::{ECANCELED, from_cqe};

/// How often an interrupted operation is repeated.
const MAX_TRIES: u8 = 100;

/// An operation of a queue.
#[derive(Clone, Debug)]
pub enum QueueOp {
    /// A command to the driver behind a device (`IORING_OP_URING_CMD`).
    Command {
        /// The device.
        device: Arc<OwnedFd>,
        /// The command's number.
        number: u32,
        /// Its arguments.
        arguments: [u8; 16],
    },
    /// Waits for an event descriptor (`eventfd`), and resets it. One such operation at a time for each descriptor.
    Event(Arc<OwnedFd>),
    /// Adds one to an event descriptor (`eventfd`).
    Signal(Arc<OwnedFd>),
}

/// An operation of a queue has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEvent {
    /// As given to [`Driver::queue_op`](super::Driver::queue_op).
    pub queue: u32,
    /// As given to [`Driver::queue_op`](super::Driver::queue_op).
    pub token: u64,
    /// What a command returned; zero for another operation.
    pub result: Result<u32, Errno>,
}

struct Started {
    queue: u32,
    token: u64,
    op: QueueOp,
    /// Where the kernel stores what it reads from an event descriptor, or finds what it adds.
    word: Box<u64>,
    /// The descriptor is not read before a poll found it readable.
    polls: bool,
    tries: u8,
    /// Its queue was dropped: it is not continued, and has no event.
    dropped: bool,
}

/// The tables of one driver's queues.
#[derive(Default)]
pub(super) struct Queues {
    started: Slab<Started>,
    /// Commands among them.
    commands: usize,
    events: VecDeque<QueueEvent>,
    /// The driver is being dropped: nothing is continued.
    pub(super) closing: bool,
}

impl Queues {
    pub(super) fn next_event(&mut self) -> Option<QueueEvent> {
        self.events.pop_front()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a queue waits for its peer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.started.is_empty()
    }

    /// Commands in flight.
    pub(super) fn commands(&self) -> usize {
        self.commands
    }

    pub(super) fn start(&mut self, ring: &mut Ring, queue: u32, token: u64, op: QueueOp) {
        let polls = match &op {
            QueueOp::Command { .. } | QueueOp::Signal(_) => false,
            QueueOp::Event(event) => {
                rustix::fs::fcntl_getfl(event).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
            }
        };
        self.commands += usize::from(matches!(op, QueueOp::Command { .. }));
        let word = Box::new(u64::from(matches!(op, QueueOp::Signal(_))));
        let (tries, dropped) = (0, false);
        let started = Started { queue, token, op, word, polls, tries, dropped };
        let key = self.started.insert(started);
        self.submit(ring, key);
    }

    #[allow(unsafe_code)]
    fn submit(&mut self, ring: &mut Ring, key: usize) {
        let entry = self.started[key].entry().user_data(Tag::Queue.with(key));
        // SAFETY: a command and a poll point to no memory. A read fills the 8 bytes of a box in the table, and a write reads
        // them; only this operation uses the box, and its entry is removed when its last completion has been reaped. The
        // descriptor belongs to the entry too.
        unsafe { ring.push(entry) };
    }

    pub(super) fn ended(&mut self, ring: &mut Ring, key: usize, result: i32) {
        let Some(started) = self.started.get_mut(key) else { return };
        let goes_on = !started.dropped && !self.closing;
        let result = match started.next(from_cqe(result)) {
            Next::Submit if goes_on => return self.submit(ring, key),
            Next::Submit => Err(ECANCELED),
            Next::End(result) => result,
        };
        let Started { queue, token, op, dropped, .. } = self.started.remove(key);
        self.commands -= usize::from(matches!(op, QueueOp::Command { .. }));
        if !dropped {
            self.events.push_back(QueueEvent { queue, token, result });
        }
    }

    #[allow(unsafe_code)]
    pub(super) fn drop_queue(&mut self, ring: &mut Ring, queue: u32) {
        self.events.retain(|event| event.queue != queue);
        for (key, started) in self.started.iter_mut().filter(|(_, s)| s.queue == queue) {
            started.dropped = true;
            if !matches!(started.op, QueueOp::Command { .. }) {
                let target = Tag::Queue.with(key);
                let entry = opcode::AsyncCancel::new(target).build();
                // SAFETY: the entry points to no memory.
                unsafe { ring.push(entry.user_data(Tag::Ignored.with(0))) };
            }
        }
    }
}

/// What follows a completion.
enum Next {
    Submit,
    End(Result<u32, Errno>),
}

impl Started {
    fn entry(&mut self) -> Entry {
        match &self.op {
            QueueOp::Command { device, number, arguments } => {
                let fd = types::Fd(device.as_raw_fd());
                opcode::UringCmd16::new(fd, *number).cmd(*arguments).build()
            }
            QueueOp::Event(event) if self.polls => {
                let readable = rustix::event::PollFlags::IN.bits();
                opcode::PollAdd::new(types::Fd(event.as_raw_fd()), readable.into()).build()
            }
            QueueOp::Event(event) => {
                let word = std::ptr::from_mut(&mut *self.word).cast();
                opcode::Read::new(types::Fd(event.as_raw_fd()), word, 8).build()
            }
            QueueOp::Signal(event) => {
                let word = std::ptr::from_ref(&*self.word).cast();
                opcode::Write::new(types::Fd(event.as_raw_fd()), word, 8).build()
            }
        }
    }

    fn next(&mut self, result: Result<usize, Errno>) -> Next {
        // EINTR: a signal of the process.
        if result == Err(Errno(4)) && self.tries < MAX_TRIES {
            self.tries += 1;
            return Next::Submit;
        }
        if matches!(self.op, QueueOp::Command { .. }) {
            return Next::End(result.map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
        }
        if matches!(self.op, QueueOp::Signal(_)) {
            return Next::End(match result {
                // EAGAIN: its peer has not taken any of 2^64 - 2 signals.
                Ok(_) | Err(Errno(11)) => Ok(0),
                Err(errno) => Err(errno),
            });
        }
        let polled = std::mem::take(&mut self.polls);
        match result {
            Ok(_) if polled => Next::Submit,
            // EAGAIN: the descriptor does not block, and another process took the event.
            Err(Errno(11)) if !polled => {
                self.polls = true;
                Next::Submit
            }
            result => Next::End(result.map(|_| 0)),
        }
    }
}
