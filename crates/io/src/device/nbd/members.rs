// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of an NBD device: drivers, and threads that wait for one operation.
//!
//! Invariants: a completion is appended to its member's list before the member is notified, so a notified member always
//! finds it. Numbers of members are not reused, so a late completion reaches no other member.

use std::collections::BTreeMap;

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::Errno;

use crate::waker::Waker;

/// A completed operation.
pub(crate) struct Finished {
    /// The driver's key of the operation.
    pub(crate) key: u32,
    /// The result.
    pub(crate) result: Result<(), Errno>,
    /// The operation's buffer.
    pub(crate) buf: Option<Buf>,
    /// The extents of a status request.
    pub(crate) extents: Vec<Extent>,
}

/// How to notify a member.
pub(super) enum Notice {
    Driver(Waker),
    Thread(std::thread::Thread),
}

struct Member {
    notice: Notice,
    finished: Vec<Finished>,
}

/// The members of a device.
#[derive(Default)]
pub(super) struct Members {
    members: BTreeMap<u32, Member>,
    next: u32,
}

impl Members {
    pub(super) fn join(&mut self, notice: Notice) -> u32 {
        let member = self.next;
        self.next += 1;
        self.members.insert(member, Member { notice, finished: Vec::new() });
        member
    }

    pub(super) fn leave(&mut self, member: u32) {
        self.members.remove(&member);
    }

    /// Appends a member's completed operations to `out`.
    pub(super) fn collect(&mut self, member: u32, out: &mut Vec<Finished>) {
        if let Some(member) = self.members.get_mut(&member) {
            out.append(&mut member.finished);
        }
    }

    /// Notifies a member of a completion; does nothing if the member has left.
    pub(super) fn notify(&mut self, member: u32, finished: Finished) {
        let Some(member) = self.members.get_mut(&member) else { return };
        member.finished.push(finished);
        match &member.notice {
            Notice::Driver(waker) => waker.wake(),
            Notice::Thread(thread) => thread.unpark(),
        }
    }
}
