// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flag that one task waits for.

use std::cell::Cell;
use std::task::Poll;

use super::executor::{Exec, TaskId};
use super::op::{Guard, Nanos};

/// A flag that one task waits for. Each wait clears it.
#[derive(Default)]
pub struct Signal {
    set: Cell<bool>,
    waiter: Cell<Option<TaskId>>,
}

impl Signal {
    /// Sets the flag and wakes the waiting task.
    pub fn set<G: Guard>(&self, exec: &Exec<G>) {
        self.set.set(true);
        if let Some(task) = self.waiter.take() {
            exec.wake(task);
        }
    }

    /// Whether the flag is set, and clears it; if not, the current task is woken when it is.
    pub(crate) fn is_set<G: Guard>(&self, exec: &Exec<G>) -> bool {
        if self.set.replace(false) {
            return true;
        }
        self.waiter.set(Some(exec.current()));
        false
    }

    /// Waits for the flag and clears it.
    pub async fn wait<G: Guard>(&self, exec: &Exec<G>) {
        std::future::poll_fn(|_| if self.is_set(exec) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    /// Waits for the flag and clears it, for `span` at most.
    pub async fn wait_for<G: Guard>(&self, span: Nanos, exec: &Exec<G>) {
        let (until, mut set) = (exec.now() + span, false);
        std::future::poll_fn(|_| {
            if self.is_set(exec) || exec.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut set, true) {
                exec.timer(until);
            }
            Poll::Pending
        })
        .await;
    }
}
