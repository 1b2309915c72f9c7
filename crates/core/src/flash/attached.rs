// SPDX-License-Identifier: MIT OR Apache-2.0
//! One attachment of a flash device: its health, and whether the engine uses it.
//!
//! Invariant: it lives until no operation of the engine on the device is in flight. Its end emits an event, after which the
//! driver may close the device.

use std::cell::Cell;
use std::rc::Rc;

use super::health::Health;
use crate::config::Contents;
use crate::event::{Event, Events};
use crate::exec::DevId;

/// An attached flash device.
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

    /// Whether the engine no longer uses the device.
    pub(crate) fn closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    pub(crate) fn emit(&self, event: Event) {
        self.events.emit(event);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.emit(Event::FlashReleased { dev: self.dev });
    }
}
