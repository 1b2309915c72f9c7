// SPDX-License-Identifier: MIT OR Apache-2.0
//! The io_uring: submissions, completions, and one system call for both.
//!
//! Invariants: every pushed entry yields exactly one completion, and `outstanding` counts the entries whose completion
//! has not been reaped. Entries reach the kernel in the order in which they were pushed; those that do not fit into the
//! submission queue wait in `backlog`. Completions are never lost: the kernel keeps those that do not fit and returns
//! them with a later call. The kernel rejects every operation of the ring that the driver does not use (EACCES), because
//! filters of system calls do not see operations of a ring. It does not keep the process from setting up another ring.
//!
//! Why not registered files and buffers: they would save tens of nanoseconds of an operation that takes microseconds,
//! and buffers are allocated and freed continuously.
#![allow(unsafe_code)]

use std::collections::VecDeque;

use io_uring::register::Restriction;
use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, opcode};
use larder_core::exec::{Nanos, SECOND};
use larder_core::request::Errno;

use crate::errno::from_std;

/// Entries of the submission queue.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 2048;
/// With this many entries queued the kernel gets them at once instead of with the next turn, so that a disk works while
/// the rest is being prepared. Measured at depth 32: a fifth more reads per second than with one submission, and no
/// more with smaller groups.
const EARLY: usize = 4;

/// The operations of the driver, the newest last. Flags of entries and registrations are not used.
const OPERATIONS: [u8; 10] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::Recv::CODE,
    opcode::SendMsg::CODE,
    opcode::AsyncCancel::CODE,
    opcode::PollAdd::CODE,
    // Linux 5.19; older kernels do not accept it in a restriction.
    opcode::UringCmd16::CODE,
];

/// Why a driver cannot be created or continue.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The kernel refuses to create a ring.
    #[error(
        "io_uring cannot be set up: {}; it may be disabled (sysctl kernel.io_uring_disabled, \
         seccomp)", std::io::Error::from_raw_os_error(.0.0)
    )]
    Setup(Errno),
    /// The kernel lacks features of the ring.
    #[error("io_uring of this kernel is too old; accepted: Linux 5.11 or newer")]
    TooOld,
    /// The ring has failed.
    #[error("io_uring failed: {}", std::io::Error::from_raw_os_error(.0.0))]
    Enter(Errno),
}

/// The receiver of a completion: the low bits of an entry's user data.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Tag {
    Op = 0,
    Receive = 1,
    Send = 2,
    Wake = 3,
    Ignored = 4,
    Queue = 5,
}

impl Tag {
    pub(super) const BITS: u32 = 3;

    pub(super) fn with(self, key: usize) -> u64 {
        (key as u64) << Self::BITS | self as u64
    }

    pub(super) fn split(data: u64) -> (Self, usize) {
        let tag = match data & ((1 << Self::BITS) - 1) {
            0 => Self::Op,
            1 => Self::Receive,
            2 => Self::Send,
            3 => Self::Wake,
            5 => Self::Queue,
            _ => Self::Ignored,
        };
        (tag, (data >> Self::BITS) as usize)
    }
}

/// How long [`Ring::enter`] may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all.
    No,
    /// For a completion, at most this long.
    For(Nanos),
    /// For a completion.
    Forever,
}

pub(super) struct Ring {
    ring: IoUring,
    backlog: VecDeque<Entry>,
    outstanding: usize,
}

/// Ways to set up a ring, the best first; older kernels reject the newer ones.
const SETUPS: [fn(&mut Builder); 3] = [
    |b| {
        // Linux 6.1: completions are processed only when this thread requests it.
        b.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |b| {
        // Linux 5.19.
        b.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |_| {},
];

impl Ring {
    pub(super) fn new() -> Result<Self, DriverError> {
        let mut last = DriverError::TooOld;
        for setup in SETUPS {
            match Self::with(setup) {
                Err(error @ DriverError::Setup(_)) => last = error,
                result => return result,
            }
        }
        Err(last)
    }

    fn with(setup: fn(&mut Builder)) -> Result<Self, DriverError> {
        let mut builder = IoUring::builder();
        setup(builder.dontfork().setup_cqsize(COMPLETIONS).setup_r_disabled());
        let failed = |e: std::io::Error| DriverError::Setup(from_std(&e));
        let ring = builder.build(SUBMISSIONS).map_err(failed)?;
        restrict(&ring);
        // This thread becomes the single issuer.
        ring.submitter().register_enable_rings().map_err(failed)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(DriverError::TooOld);
        }
        Ok(Self { ring, backlog: VecDeque::new(), outstanding: 0 })
    }

    /// Queues an entry; it reaches the kernel with the next [`enter`](Self::enter) at the latest.
    ///
    /// # Safety
    /// All memory that the entry points to stays at its address and is not freed until the entry's completion is
    /// reaped; memory that the kernel writes is not accessed before.
    pub(super) unsafe fn push(&mut self, entry: Entry) {
        self.outstanding += 1;
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        let mut queue = self.ring.submission();
        // SAFETY: this function's contract is that of the queue's `push`.
        if unsafe { queue.push(&entry) }.is_err() {
            self.backlog.push_back(entry);
            return;
        }
        let queued = queue.len();
        drop(queue);
        if queued >= EARLY {
            // A failure (such as no room for completions) is not final: `enter` retries.
            let _ = self.ring.submit();
        }
    }

    /// Moves waiting entries into the submission queue; true if none is left.
    fn refill(&mut self) -> bool {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the contract of `push` holds until the completion.
            if unsafe { queue.push(entry) }.is_err() {
                return false;
            }
            self.backlog.pop_front();
        }
        true
    }

    /// Whether a system call would neither submit nor return anything.
    pub(super) fn is_idle(&mut self) -> bool {
        let (_, queue, completions) = self.ring.split();
        let nothing_to_submit = queue.is_empty() && self.backlog.is_empty();
        nothing_to_submit && !queue.taskrun() && !queue.cq_overflow() && completions.is_empty()
    }

    /// Whether the kernel has something for this thread; reads only shared memory.
    pub(super) fn has_news(&mut self) -> bool {
        let (_, queue, completions) = self.ring.split();
        queue.taskrun() || !completions.is_empty()
    }

    /// Submits all queued entries and waits for a completion as `wait` states. A signal, a timeout or a lack of room
    /// for completions is not an error; the caller reaps what there is.
    pub(super) fn enter(&mut self, wait: Wait) -> Result<(), DriverError> {
        // If entries are left over, the next call follows at once.
        let wait = if self.refill() { wait } else { Wait::No };
        let submitter = self.ring.submitter();
        let result = match wait {
            Wait::No => submitter.submit(),
            Wait::Forever => submitter.submit_and_wait(1),
            Wait::For(span) => {
                let spec = Timespec::new().sec(span / SECOND).nsec((span % SECOND) as u32);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&spec))
            }
        };
        match result.map_err(|e| from_std(&e)) {
            // ETIME, EINTR, EAGAIN, EBUSY.
            Ok(_) | Err(Errno(62 | 4 | 11 | 16)) => Ok(()),
            Err(errno) => Err(DriverError::Enter(errno)),
        }
    }

    /// Moves all completions to `out`, as user data and result.
    pub(super) fn reap(&mut self, out: &mut Vec<(u64, i32)>) {
        let before = out.len();
        out.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        debug_assert!(self.outstanding >= out.len() - before);
        self.outstanding = self.outstanding.saturating_sub(out.len() - before);
    }

    /// Number of entries that were pushed and not completed.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Drops entries that wait outside the submission queue, which the kernel has not seen; returns their user data.
    pub(super) fn drop_backlog(&mut self) -> Vec<u64> {
        self.outstanding -= self.backlog.len();
        self.backlog.drain(..).map(|entry| entry.get_user_data()).collect()
    }
}

/// Restricts a ring that is not enabled yet to the operations of the driver.
fn restrict(ring: &IoUring) {
    let older = OPERATIONS.len() - 1;
    let restricted = [OPERATIONS.len(), older].into_iter().find_map(|known| {
        let mut allowed: Vec<_> =
            OPERATIONS.iter().take(known).map(|op| Restriction::sqe_op(*op)).collect();
        ring.submitter().register_restrictions(&mut allowed).ok()
    });
    if restricted.is_none() {
        tracing::debug!("the kernel does not restrict the operations of io_uring");
    }
}

#[cfg(test)]
mod tests {
    use io_uring::types;
    use rustix::fd::AsRawFd;

    use super::*;

    /// The setups for older kernels work too: immediate completion, completion by a kernel thread, and a timeout.
    #[test]
    fn every_setup_returns_completions() {
        let file = tempfile::tempfile().unwrap();
        let fd = types::Fd(file.as_raw_fd());
        for setup in SETUPS {
            let mut ring = Ring::with(setup).unwrap();
            assert!(ring.is_idle());
            for n in 0..10 {
                let nop = opcode::Nop::new().build();
                let entry = if n % 2 == 0 { nop } else { opcode::Fsync::new(fd).build() };
                // SAFETY: the entry points to no memory.
                unsafe { ring.push(entry.user_data(n)) };
            }
            let mut seen = Vec::new();
            for _ in 0..1000 {
                ring.reap(&mut seen);
                if ring.outstanding() == 0 {
                    break;
                }
                ring.enter(Wait::For(20_000_000)).unwrap();
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..10).map(|n| (n, 0)).collect::<Vec<_>>());
            ring.enter(Wait::For(1_000_000)).unwrap();
            assert!(ring.is_idle());
        }
    }

    /// What the driver does not use is not executed, whatever the setup.
    #[test]
    fn other_operations_are_rejected() {
        let file = tempfile::tempfile().unwrap();
        let fd = types::Fd(file.as_raw_fd());
        for setup in SETUPS {
            let mut ring = Ring::with(setup).unwrap();
            let entries = [
                opcode::Close::new(types::Fd(-1)).build(),
                opcode::Socket::new(1, 1, 0).build(),
                // The operation is used, and the flag is not.
                opcode::Fsync::new(fd).build().flags(io_uring::squeue::Flags::ASYNC),
                opcode::Fsync::new(fd).build(),
            ];
            for (n, entry) in (0..).zip(entries) {
                // SAFETY: the entry points to no memory.
                unsafe { ring.push(entry.user_data(n)) };
            }
            let mut seen = Vec::new();
            while ring.outstanding() > 0 {
                ring.enter(Wait::For(20_000_000)).unwrap();
                ring.reap(&mut seen);
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, -13), (1, -13), (2, -13), (3, 0)]);
            let refused = ring.ring.submitter().register_files(&[file.as_raw_fd()]);
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(13));
        }
    }
}
