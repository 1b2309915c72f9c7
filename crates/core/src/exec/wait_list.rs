// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that wait for one change, woken in the order in which they came.
//!
//! Invariant: a task that was woken is not on the list any more. It looks at the state that it waits for again, and
//! joins the list at its end if that has not changed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::executor::Exec;
use super::op::Guard;
use super::signal::Signal;

/// The list, see the module.
#[derive(Default)]
pub struct WaitList(RefCell<VecDeque<Rc<Signal>>>);

impl WaitList {
    /// Waits until the task is woken.
    pub async fn wait<G: Guard>(&self, exec: &Exec<G>) {
        let signal = Rc::new(Signal::default());
        self.0.borrow_mut().push_back(Rc::clone(&signal));
        signal.wait(exec).await;
    }

    /// Wakes the task that came first; whether there was one.
    pub fn wake_one<G: Guard>(&self, exec: &Exec<G>) -> bool {
        let first = self.0.borrow_mut().pop_front();
        first.as_ref().inspect(|signal| signal.set(exec)).is_some()
    }

    /// Wakes all tasks.
    pub fn wake_all<G: Guard>(&self, exec: &Exec<G>) {
        self.0.take().iter().for_each(|signal| signal.set(exec));
    }
}
