// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks whose state is valid between any two statements of their holders, so that a panic of one leaves it usable.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
