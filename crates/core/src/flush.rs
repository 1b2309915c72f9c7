// SPDX-License-Identifier: MIT OR Apache-2.0
//! FLUSH: every device that holds answered writes is flushed before the answer (design rule 7).
//!
//! With a clean write policy that is the origin alone: a write is answered when the origin has
//! it, and nothing on flash is needed after a crash.
//!
//! A failed flush is final: the origin may have dropped what it could not write, and a system
//! reports that once, to whoever asks first. Every later FLUSH fails too, so that each client
//! learns of it; restarting the volume is the operator's decision. All flushes of a volume go to
//! its first shard, which remembers.

use std::rc::Rc;

use crate::event::Event;
use crate::exec::IoKind;
use crate::mutant;
use crate::request::Errno;
use crate::shard::Core;

impl Core {
    pub(crate) async fn flush(self: Rc<Self>, tag: u64) {
        if mutant::is_active("flush-skips-origin") {
            return self.reply(tag, Ok(()), None, false);
        }
        let result = self.flush_here().await;
        self.reply(tag, result, None, false);
    }

    async fn flush_here(&self) -> Result<(), Errno> {
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

    /// Flushes the origin for the journal's sake, unless this shard wrote nothing since it did.
    pub(crate) async fn flush_origin(&self) -> Result<(), Errno> {
        if !self.wrote_origin.replace(false) {
            return Ok(());
        }
        let result = if self.shape.shard == 0 {
            self.flush_here().await
        } else {
            self.events.borrow_mut().push_back(Event::NeedsOriginFlush);
            self.origin_flushed.wait(&self.exec).await;
            self.flush_result.get()
        };
        if result.is_err() {
            self.wrote_origin.set(true);
        }
        result
    }
}
