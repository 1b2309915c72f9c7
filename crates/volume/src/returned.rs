// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a flash that failed rests before it is tried again (`retry.rs`).

use std::time::{Duration, Instant};

/// The time before the first attempt.
const FIRST_REST: Duration = Duration::from_secs(2);
/// The longest time between two attempts.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(300);
/// A flash that works for longer counts as one that never failed.
const LASTS: Duration = Duration::from_secs(600);

/// When a flash returned last, and how long it had been waited for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Returned {
    last: Option<(Instant, Duration)>,
}

impl Returned {
    /// It returned now, after this rest.
    pub(crate) fn now(rest: Duration) -> Self {
        Self { last: Some((Instant::now(), rest)) }
    }

    /// The time before the first attempt after another failure.
    pub(crate) fn first_rest(self) -> Duration {
        let recent = self.last.filter(|(at, _)| at.elapsed() < LASTS);
        recent.map_or(FIRST_REST, |(_, rest)| (2 * rest).min(LONGEST_REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flash_that_fails_again_soon_is_tried_more_rarely() {
        assert_eq!(Returned::default().first_rest(), FIRST_REST);
        let after = |rest| Returned { last: Some((Instant::now(), rest)) }.first_rest();
        assert_eq!(after(FIRST_REST), 2 * FIRST_REST);
        assert_eq!(after(LONGEST_REST), LONGEST_REST);
        let long_ago = Instant::now().checked_sub(2 * LASTS);
        let returned = Returned { last: long_ago.map(|at| (at, LONGEST_REST)) };
        assert_eq!(returned.first_rest(), FIRST_REST);
    }
}
