// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash that is given up, and what writes wait for then (design rules 9, 10).
//!
//! What was durable on flash would count at the next start, though writes go on without it. So they wait
//! until it is durable off the flash that it is out of use.

use std::rc::Rc;

use super::{Core, Place};
use crate::attached::Attached;
use crate::cache::{Cache, WriteTarget};
use crate::event::Event;
use crate::exec::Signal;
use crate::mutant;

impl Core {
    /// Gives a flash device up, with an alarm.
    pub fn give_up(&self, device: &Rc<Attached>, why: String) {
        if device.closed() {
            return;
        }
        if self.choices.write.flash_owns() {
            // It is the only one to ask.
            return device.tell(Event::FlashErrs { dev: device.dev, why });
        }
        device.close();
        let current = self.cache().filter(|cache| Rc::ptr_eq(&cache.device, device));
        if let Some(cache) = current {
            drop(self.cache.borrow_mut().take());
            self.end_journal(&cache);
        }
        self.end_log(device);
        device.tell(Event::FlashFailed { dev: device.dev, why });
    }

    /// The cache is no longer used: what its metadata says will be wrong after the next write.
    pub fn end_journal(&self, cache: &Cache) {
        if let Some(journal) = cache.journal() {
            self.unfenced.set(!mutant::is_active("detach-not-durable"));
            journal.fail(&self.exec);
        }
    }

    /// Waits until nothing on flash can be taken for valid that a write makes stale: the touched
    /// record is durable, or that the flash is out of use is.
    pub async fn journal_write_ahead(
        &self,
        cache: Option<&Rc<Cache>>,
        target: Option<&WriteTarget>,
        place: &Place,
    ) {
        if let Some(journal) = cache.and_then(|c| c.journal()) {
            let mut done = journal.gone(place.unit, &self.exec).await;
            if let Some(target) = target.filter(|_| done.is_ok()) {
                done = journal.touch(target.pin.slot(), &place.pages, &self.exec).await;
            }
            if done.is_ok() {
                return;
            }
        }
        self.until_fenced().await;
    }

    /// Waits until it is durable off the flash that a flash which was given up is out of use.
    pub async fn until_fenced(&self) {
        while self.unfenced.get() {
            let signal = Rc::new(Signal::default());
            self.fence.borrow_mut().push(Rc::clone(&signal));
            signal.wait(&self.exec).await;
        }
    }
}
