// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of client data that wait for their flash write after the answer are bounded (SCE 3.6: 8 MiB).

use std::cell::Cell;
use std::rc::Rc;

/// The pool: its size, and its free bytes, which are negative after a reduction, until shares return.
#[derive(Clone)]
pub(crate) struct WritePool(Rc<Cell<(u64, i64)>>);

/// Bytes of the pool, returned on drop.
pub(crate) struct PoolShare {
    pool: WritePool,
    bytes: u64,
}

impl WritePool {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new((bytes, bytes as i64))))
    }

    /// Changes its size.
    pub(crate) fn resize(&self, bytes: u64) {
        let (before, free) = self.0.get();
        self.0.set((bytes, free + bytes as i64 - before as i64));
    }

    fn give(&self, bytes: i64) {
        let (size, free) = self.0.get();
        self.0.set((size, free + bytes));
    }

    /// Takes bytes, if that many are free.
    pub(crate) fn take(&self, bytes: u64) -> Option<PoolShare> {
        let fits = self.0.get().1 >= bytes as i64;
        fits.then(|| self.give(-(bytes as i64)))?;
        Some(PoolShare { pool: self.clone(), bytes })
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.pool.give(self.bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;

    #[test]
    fn a_smaller_pool_takes_no_more_until_enough_is_returned() {
        let pool = WritePool::new(10);
        let (first, second) = (pool.take(6).unwrap(), pool.take(4).unwrap());
        assert!(pool.take(1).is_none());
        pool.resize(5);
        drop(second);
        assert!(pool.take(1).is_none());
        drop(first);
        assert!(pool.take(6).is_none());
        let all = pool.take(5).unwrap();
        pool.resize(8);
        assert!(pool.take(4).is_none() && pool.take(3).is_some());
        drop(all);
        assert!(pool.take(8).is_some());
    }
}
