// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds writes back while flash that is out of use could still be taken for valid (design rules 9, 10).
//!
//! Metadata that is durable on flash would count at the next start, although writes go on without it. So writes wait
//! from the moment at which the flash is left until it is durable off the flash that it is out of use.

use std::cell::Cell;

use crate::exec::{Exec, Guard, WaitList};

/// The fence, see the module.
#[derive(Default)]
pub(crate) struct Fence {
    raised: Cell<bool>,
    waiting: WaitList,
}

impl Fence {
    /// Raises the fence: something on the flash would count at the next start.
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
