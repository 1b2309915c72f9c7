// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fence: holds writes back while a restart could still use flash that is out of use (design rules 9, 10).
//!
//! The next start would use durable metadata on flash although later writes bypassed it. So writes wait from the detach
//! until the state file records durably that the flash is out of use.

use std::cell::Cell;

use crate::exec::{Exec, Guard, WaitList};

/// The fence of a shard.
#[derive(Default)]
pub(crate) struct Fence {
    raised: Cell<bool>,
    waiting: WaitList,
}

impl Fence {
    /// Raises the fence: the next start would use the metadata on flash.
    pub(crate) fn raise(&self) {
        self.raised.set(true);
    }

    /// Lowers the fence: the flash is durably out of use.
    pub(crate) fn lower<G: Guard>(&self, exec: &Exec<G>) {
        self.raised.set(false);
        self.waiting.wake_all(exec);
    }

    /// Waits while the fence is raised.
    pub(crate) async fn passed<G: Guard>(&self, exec: &Exec<G>) {
        while self.raised.get() {
            self.waiting.wait(exec).await;
        }
    }
}
