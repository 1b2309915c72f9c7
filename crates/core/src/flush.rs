// SPDX-License-Identifier: MIT OR Apache-2.0
//! FLUSH: every device that holds answered writes is flushed before the answer (design rule 7).
//!
//! With a clean write policy that is the origin alone: a write is answered when the origin has
//! it, and nothing on flash is needed after a crash. Where flash owns what it holds it is both.
//!
//! A failed flush is final: the origin may have dropped what it could not write, and a system
//! reports that once, to whoever asks first. Every later FLUSH fails too, so that each client
//! learns of it; restarting the volume is the operator's decision. All flushes of a volume go to
//! its first shard, which remembers.

use std::rc::Rc;

use crate::cache::Cache;
use crate::event::Event;
use crate::exec::{IoKind, Signal};
use crate::mutant;
use crate::request::Errno;
use crate::shard::Core;

impl Core {
    pub(crate) async fn flush(self: Rc<Self>, tag: u64) {
        if mutant::is_active("flush-skips-origin") {
            return self.reply(tag, Ok(()), None, false);
        }
        let mut result = self.flush_here().await;
        if let Some(cache) = self.cache().filter(|_| self.choices.write.flash_owns())
            && !mutant::is_active("flush-skips-flash")
        {
            result = result.and(self.flush_owned(&cache).await);
        }
        self.reply(tag, result, None, false);
    }

    pub(crate) async fn flush_here(&self) -> Result<(), Errno> {
        if let Some(errno) = self.flush_failed.get() {
            return Err(errno);
        }
        let (result, _) = self.origin_io(IoKind::Flush, 0, 0, None).await;
        if let Err(errno) = result
            && self.flush_failed.replace(Some(errno)).is_none()
        {
            self.events.borrow_mut().push_back(Event::OriginFlushFailed { errno });
        }
        result
    }

    /// Flushes a flash device that owns what it holds. A failure is final here too.
    async fn flush_owned(&self, cache: &Rc<Cache>) -> Result<(), Errno> {
        if let Some(errno) = cache.device.health.flush_failed() {
            return Err(errno);
        }
        let result = self.flush_flash(cache).await;
        if let Err(errno) = result {
            cache.device.health.flush_has_failed(errno);
            let why = format!("a flush fails: {errno}; every later one will");
            cache.device.tell(Event::FlashErrs { dev: cache.flash.dev, why });
        }
        result
    }

    /// Flushes the origin for the journal's sake, unless this shard wrote nothing since it did. One
    /// at a time; whoever comes meanwhile waits, and flushes again unless that covered its writes.
    pub(crate) async fn flush_origin(&self) -> Result<(), Errno> {
        let needed = self.origin_writes.get();
        while self.origin_durable.get() < needed {
            if self.flushing.get() {
                let signal = Rc::new(Signal::default());
                self.flush_waiters.borrow_mut().push(Rc::clone(&signal));
                signal.wait(&self.exec).await;
                continue;
            }
            self.flushing.set(true);
            let covers = self.origin_writes.get();
            let result = if self.shape.shard == 0 {
                self.flush_here().await
            } else {
                self.events.borrow_mut().push_back(Event::NeedsOriginFlush);
                self.origin_flushed.wait(&self.exec).await;
                self.flush_result.get()
            };
            self.flushing.set(false);
            self.flush_waiters.take().iter().for_each(|waiter| waiter.set(&self.exec));
            result?;
            self.origin_durable.set(covers);
        }
        Ok(())
    }
}
