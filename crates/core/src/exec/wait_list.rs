// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that wait for one change, woken in the order of their arrival.
//!
//! Invariant: a woken task is not on the list. It checks its condition again, and joins the end of the list if it must wait
//! longer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::executor::Exec;
use super::op::{Guard, Nanos};
use super::signal::Signal;

/// A list of waiting tasks.
#[derive(Default)]
pub struct WaitList(RefCell<VecDeque<Rc<Signal>>>);

impl WaitList {
    /// Waits until the task is woken.
    pub async fn wait<G: Guard>(&self, exec: &Exec<G>) {
        let signal = Rc::new(Signal::default());
        self.0.borrow_mut().push_back(Rc::clone(&signal));
        signal.wait(exec).await;
    }

    /// Waits until the task is woken, for `span` at most.
    pub async fn wait_for<G: Guard>(&self, span: Nanos, exec: &Exec<G>) {
        let signal = Rc::new(Signal::default());
        self.0.borrow_mut().push_back(Rc::clone(&signal));
        signal.wait_for(span, exec).await;
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, &signal));
    }

    /// Wakes the first task; returns whether there was one.
    pub fn wake_one<G: Guard>(&self, exec: &Exec<G>) -> bool {
        let first = self.0.borrow_mut().pop_front();
        first.as_ref().inspect(|signal| signal.set(exec)).is_some()
    }

    /// Wakes all tasks.
    pub fn wake_all<G: Guard>(&self, exec: &Exec<G>) {
        self.0.take().iter().for_each(|signal| signal.set(exec));
    }
}
