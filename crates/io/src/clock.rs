// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real-time clock: CLOCK_MONOTONIC, counted from the first call in this process.
//!
//! All drivers and models of a process read this clock, so their times are comparable between threads.

use std::sync::OnceLock;
use std::time::Instant;

use larder_core::exec::Nanos;

/// Nanoseconds since the first call in this process. Never goes backwards.
#[must_use]
pub fn now() -> Nanos {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let span = ORIGIN.get_or_init(Instant::now).elapsed();
    span.as_secs() * 1_000_000_000 + u64::from(span.subsec_nanos())
}

/// Timers of ordinary threads may be 50 us late, which is much for the model of an SSD. This sets the calling thread's
/// slack to 1 ns; a failure only costs accuracy.
pub(crate) fn exact_timers() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
