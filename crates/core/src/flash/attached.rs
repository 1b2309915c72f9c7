// SPDX-License-Identifier: MIT OR Apache-2.0
//! One attachment of a flash device: what the engine thinks of it, and whether it is still used.
//!
//! Invariant: it lives as long as anything that the engine has under way on the device; its end is told with an
//! event, after which the device may be closed.

use std::cell::Cell;
use std::rc::Rc;

use super::health::Health;
use crate::config::Contents;
use crate::event::{Event, Events};
use crate::exec::DevId;

/// See the module.
pub(crate) struct Attached {
    pub(crate) dev: DevId,
    pub(crate) contents: Contents,
    pub(crate) health: Health,
    closed: Cell<bool>,
    events: Events,
}

impl Attached {
    pub(crate) fn new(dev: DevId, contents: Contents, events: Events) -> Rc<Self> {
        let (health, closed) = (Health::default(), Cell::new(false));
        Rc::new(Self { dev, contents, health, closed, events })
    }

    /// Whether the flash device is no longer to be used.
    pub(crate) fn closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Reports an event.
    pub(crate) fn emit(&self, event: Event) {
        self.events.emit(event);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.emit(Event::FlashReleased { dev: self.dev });
    }
}
