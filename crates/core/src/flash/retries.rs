// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a failed operation of a device is repeated, and when the device counts as failing.

use std::cell::Cell;

use crate::exec::{IoKind, MILLISECOND, Nanos};

/// Delay before the first retry.
const REST: Nanos = 10 * MILLISECOND;
const LONGEST_REST: Nanos = 500 * MILLISECOND;
/// Consecutive failed operations after which the operator learns of them.
const REPORTED: u32 = 3;

/// Whether failed operations of a device are repeated, and its consecutive failures.
#[derive(Default)]
pub(super) struct Retries {
    hurries: Cell<bool>,
    /// Consecutive failed reads, flushes, and other operations.
    failures: [Cell<u32>; 3],
}

impl Retries {
    fn failures_of(&self, kind: IoKind) -> &Cell<u32> {
        match kind {
            IoKind::Read => &self.failures[0],
            IoKind::Flush => &self.failures[1],
            _ => &self.failures[2],
        }
    }

    pub(super) fn hurry(&self) {
        self.hurries.set(true);
    }

    /// Whether an operation that failed this many times is not repeated: retries last for `patience`.
    pub(super) fn gives_up(&self, failures: u64, patience: Nanos) -> bool {
        let patience = if self.hurries.get() { 0 } else { patience };
        failures.saturating_mul(LONGEST_REST) >= patience
            && (1..=failures).map(|n| Self::delay(n, patience)).sum::<Nanos>() >= patience
    }

    /// The wait before a retry, after this number of failures.
    pub(super) fn delay(failures: u64, patience: Nanos) -> Nanos {
        let most = (patience / 8).clamp(REST, LONGEST_REST);
        (REST << failures.saturating_sub(1).min(16)).min(most)
    }

    /// An operation failed. Returns whether the device fails since this one.
    pub(super) fn failed(&self, kind: IoKind) -> bool {
        let (failures, before) = (self.failures_of(kind), self.fails());
        failures.set(failures.get().saturating_add(1));
        !before && self.fails()
    }

    /// An operation succeeded. Returns whether the device works again since this one.
    #[inline]
    pub(super) fn succeeded(&self, kind: IoKind) -> bool {
        let failures = self.failures_of(kind);
        if failures.get() == 0 {
            return false;
        }
        let before = self.fails();
        failures.set(0);
        before && !self.fails()
    }

    pub(super) fn fails(&self) -> bool {
        self.failures.iter().any(|failures| failures.get() >= REPORTED)
    }
}
