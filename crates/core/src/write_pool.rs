// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of client data that wait for their flash write after the answer are bounded (SCE 3.6: 8 MiB).

use std::cell::Cell;
use std::rc::Rc;

/// The pool: its free bytes.
#[derive(Clone)]
pub(crate) struct WritePool(Rc<Cell<u64>>);

/// Bytes of the pool, returned on drop.
pub(crate) struct PoolShare {
    pool: WritePool,
    bytes: u64,
}

impl WritePool {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    /// Takes bytes, if that many are free.
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
