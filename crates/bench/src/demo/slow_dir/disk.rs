// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled disk: parts of files become operations of the model, and a callback runs when all are done.
//!
//! Invariants: an operation on a file begins with the file below (which is quick) and ends when the model completes it.

use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{Arc, Mutex, PoisonError};

use larder_io::{Paced, PacedOp};

use super::extents::{Extents, Key};

/// See the module.
pub(super) struct Disk {
    model: Paced,
    extents: Mutex<Extents>,
}

/// What is done with a part of a file.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Read,
    Write {
        /// Durable once it is answered.
        fua: bool,
    },
}

impl Disk {
    pub fn new(model: Paced, bytes: u64) -> Self {
        Self { model, extents: Mutex::new(Extents::new(bytes)) }
    }

    fn extents<R>(&self, ask: impl FnOnce(&mut Extents) -> R) -> R {
        ask(&mut self.extents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file is opened that is so long.
    pub fn opened(&self, file: Key, size: u64) {
        self.extents(|extents| extents.whole(file, size));
    }

    /// A file has no name and no user any more.
    pub fn gone(&self, file: Key) {
        self.extents(|extents| extents.forget(file));
    }

    /// Calls when the disk would have done it.
    pub fn transfer(
        &self,
        file: Key,
        way: Way,
        offset: u64,
        len: u64,
        done: impl FnOnce() + Send + 'static,
    ) {
        let op = |(offset, len)| match way {
            Way::Read => PacedOp::Read { offset, len },
            Way::Write { fua } => PacedOp::Write { offset, len, fua },
        };
        let parts = self.extents(|extents| extents.of(file, offset, len));
        if let [part] = parts[..] {
            return self.model.submit(op(part), done);
        }
        let (left, done) =
            (Arc::new(AtomicUsize::new(parts.len())), Arc::new(Mutex::new(Some(done))));
        for part in parts {
            let (left, done) = (Arc::clone(&left), Arc::clone(&done));
            self.model.submit(op(part), move || {
                if left.fetch_sub(1, AcqRel) == 1
                    && let Some(done) = done.lock().unwrap_or_else(PoisonError::into_inner).take()
                {
                    done();
                }
            });
        }
    }

    /// Calls when all that was written would be durable.
    pub fn flush(&self, done: impl FnOnce() + Send + 'static) {
        self.model.submit(PacedOp::Flush, done);
    }
}
