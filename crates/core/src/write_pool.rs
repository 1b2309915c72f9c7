// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of client data that may be kept for flash writes after the client was answered (SCE 3.6: 8 MiB).

use std::cell::Cell;
use std::rc::Rc;

/// The pool: how many bytes are left.
#[derive(Clone)]
pub(crate) struct WritePool(Rc<Cell<u64>>);

/// Some of the pool's bytes, given back when dropped.
pub(crate) struct PoolShare {
    pool: WritePool,
    bytes: u64,
}

impl WritePool {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    /// Takes so many bytes, if the pool has them.
    pub(crate) fn take(&self, bytes: u64) -> Option<PoolShare> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        Some(PoolShare { pool: self.clone(), bytes })
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.pool.0.set(self.pool.0.get() + self.bytes);
    }
}
