// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FLUSH, by kind: after its answer, all writes that were acknowledged before it survive a crash (design rule 7).
//!
//! Pass-through and a clean cache flush the origin of the volume, which holds all writes. A write-back cache flushes flash too.
//! A page log makes its pages durable on flash or on the origin, by its write policy (`pagelog/ops.rs`).

use std::rc::Rc;

use super::{Cache, Current, pass_through};
use crate::runs::Tag;

impl Current {
    pub(crate) async fn flush(self: Rc<Self>, tag: Tag, offset: u64) {
        match self.get() {
            Cache::PassThrough | Cache::Clean(_) => {
                pass_through::flush(Rc::clone(&self.cx), tag, offset).await;
            }
            Cache::WriteBack(cache) => cache.flush(tag, offset).await,
            Cache::Log(_) => Box::pin(self.flush_log(tag, offset)).await,
        }
    }

    async fn flush_log(self: Rc<Self>, tag: Tag, offset: u64) {
        match self.opened().await {
            Ok(Some(open)) if open.flush(tag, offset).await => {}
            Ok(_) => pass_through::flush(Rc::clone(&self.cx), tag, offset).await,
            Err(errno) => self.cx.reply(tag, Err(errno), None, false),
        }
    }
}
