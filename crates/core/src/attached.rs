// SPDX-License-Identifier: MIT OR Apache-2.0
//! One attachment of a flash device: what the engine thinks of it, and whether it is still used.
//!
//! Invariant: it lives as long as anything that the engine has under way on the device; its end is told with an
//! event, after which the device may be closed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::event::Event;
use crate::exec::DevId;
use crate::health::Health;

/// See the module.
pub(crate) struct Attached {
    pub(crate) dev: DevId,
    pub(crate) health: Health,
    closed: Cell<bool>,
    /// It was never in use: its end is no event.
    forgotten: Cell<bool>,
    events: Rc<RefCell<VecDeque<Event>>>,
}

impl Attached {
    pub(crate) fn new(dev: DevId, events: Rc<RefCell<VecDeque<Event>>>) -> Rc<Self> {
        let (closed, forgotten) = (Cell::new(false), Cell::new(false));
        Rc::new(Self { dev, health: Health::default(), closed, forgotten, events })
    }

    /// Whether the flash device is no longer to be used.
    pub(crate) fn closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// It was never in use.
    pub(crate) fn forget(&self) {
        self.forgotten.set(true);
    }

    /// Reports an event.
    pub(crate) fn tell(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.forgotten.get() {
            self.tell(Event::FlashReleased { dev: self.dev });
        }
    }
}
