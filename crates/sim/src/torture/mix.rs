// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load of a row: how often each kind of request comes. And the choice among what has weights.

/// How often each kind of request comes, of their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Reads.
    pub read: u32,
    /// Writes, one in ten under FUA.
    pub write: u32,
    /// Flushes.
    pub flush: u32,
    /// Trims.
    pub trim: u32,
    /// Zeroings.
    pub zero: u32,
    /// Zeroings that keep their blocks allocated.
    pub fill: u32,
}

/// The load of rows without one of their own.
pub(super) const MIXED: Mix = Mix { read: 45, write: 42, flush: 7, trim: 2, zero: 4, fill: 0 };

/// The row that a number below the sum of weights stands for.
pub(super) fn by_weight<T>(rows: &[T], weight: impl Fn(&T) -> u32, mut drawn: u32) -> &T {
    for row in rows {
        match drawn.checked_sub(weight(row)) {
            Some(rest) => drawn = rest,
            None => return row,
        }
    }
    &rows[rows.len() - 1]
}
