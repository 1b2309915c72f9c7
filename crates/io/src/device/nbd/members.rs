// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who uses an NBD device: drivers, and threads that wait for one operation.
//!
//! Invariants: the end of an operation is put into its member's list first and told then, so that
//! no notice comes without something to find. Numbers of members are never used again: what one
//! that is gone left behind reaches nobody else.

use std::collections::BTreeMap;

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::Errno;

use crate::waker::Waker;

/// The end of an operation, for its driver.
pub(crate) struct Finished {
    /// The driver's name for it.
    pub(crate) key: u32,
    /// How it went.
    pub(crate) result: Result<(), Errno>,
    /// Its memory.
    pub(crate) buf: Option<Buf>,
    /// What a range is, if that was asked.
    pub(crate) extents: Vec<Extent>,
}

/// Whom to tell that something ended.
pub(super) enum Notice {
    Driver(Waker),
    Thread(std::thread::Thread),
}

struct Member {
    notice: Notice,
    finished: Vec<Finished>,
}

/// See the module.
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

    /// Appends what ended for a member to `out`.
    pub(super) fn collect(&mut self, member: u32, out: &mut Vec<Finished>) {
        if let Some(member) = self.members.get_mut(&member) {
            out.append(&mut member.finished);
        }
    }

    /// Tells a member, unless it is gone.
    pub(super) fn tell(&mut self, member: u32, finished: Finished) {
        let Some(member) = self.members.get_mut(&member) else { return };
        member.finished.push(finished);
        match &member.notice {
            Notice::Driver(waker) => waker.wake(),
            Notice::Thread(thread) => thread.unpark(),
        }
    }
}
