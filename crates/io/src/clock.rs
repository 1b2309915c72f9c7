// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of real time: CLOCK_MONOTONIC, counted from the first call in this process.
//!
//! Every driver and model of a process reads the same clock, so a time from one thread means the
//! same on another.

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

/// The kernel lets timers of ordinary threads be up to 50 us late; that is much for a model of an
/// SSD. Failure costs accuracy only.
pub(crate) fn exact_timers() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
