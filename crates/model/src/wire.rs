// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bus or a network segment that carries one message at a time.
//!
//! Invariant: the bytes carried up to any time never exceed its bandwidth.
//!
//! Why not interleaved packets: a message of a megabyte would become hundreds of events, which would shift waits by
//! milliseconds without changing their sum.

use crate::Nanos;

pub(crate) struct Wire {
    bytes_per_second: u64,
    free_at: Nanos,
}

impl Wire {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_at: 0 }
    }

    /// Carries a message that is ready at `now`; returns when it has arrived.
    pub(crate) fn carry(&mut self, now: Nanos, overhead_ns: Nanos, bytes: u64) -> Nanos {
        let busy_ns = overhead_ns.saturating_add(transfer_ns(bytes, self.bytes_per_second));
        self.free_at = self.free_at.max(now).saturating_add(busy_ns);
        self.free_at
    }
}

/// How long bytes take at a rate, rounded down.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_second: u64) -> Nanos {
    const SECOND_NS: u64 = 1_000_000_000;
    let rate = bytes_per_second.max(1);
    match bytes.checked_mul(SECOND_NS) {
        Some(product) => product / rate,
        None => {
            let wide = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Wire, transfer_ns};

    #[test]
    fn messages_are_carried_one_after_the_other() {
        let mut wire = Wire::new(1_000_000_000);
        assert_eq!(wire.carry(100, 5, 10), 115);
        assert_eq!(wire.carry(100, 5, 10), 130);
        assert_eq!(wire.carry(1000, 0, 1), 1001);
    }

    #[test]
    fn long_transfers_do_not_overflow() {
        assert_eq!(transfer_ns(1 << 40, 1 << 20), 1_048_576_000_000_000);
        assert_eq!(transfer_ns(u64::MAX, 1), u64::MAX);
    }
}
