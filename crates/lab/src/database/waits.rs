// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any number of tasks that wait for one thing to change.

use std::cell::RefCell;
use std::rc::Rc;

use larder_core::exec::{Exec, Signal};

/// The waiting tasks, see the module.
#[derive(Default)]
pub(super) struct Waits(RefCell<Vec<Rc<Signal>>>);

impl Waits {
    /// Until the next [`Waits::wake`]. The caller must check its condition again afterwards.
    pub(super) async fn wait(&self, exec: &Exec) {
        let signal = Rc::<Signal>::default();
        self.0.borrow_mut().push(Rc::clone(&signal));
        signal.wait(exec).await;
    }

    /// Wakes all waiting tasks in the order in which they came.
    pub(super) fn wake(&self, exec: &Exec) {
        let all = std::mem::take(&mut *self.0.borrow_mut());
        all.iter().for_each(|signal| signal.set(exec));
    }
}
