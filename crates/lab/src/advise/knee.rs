// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules by which a size and a preset are advised, and whether at all.
//!
//! - **What counts** is the mean latency of reads; of a trace without reads that of writes. What a
//!   cache *saves* is that of the origin alone less that with the cache.
//! - **The knee** of a preset is the smallest size that saves at least [`KNEE_SHARE`] of what its
//!   best size saves. A preset that saves nothing at any size has none.
//! - **The preset**: of two knees, one that pays goes before one that does not; of two that pay, one
//!   whose flash lasts [`LEAST_YEARS`] before one whose does not. Else the default preset is advised, unless `prwc`
//!   takes at most [`PRWC_SHARE`] of its latency: under `prwc` only the flash holds dirty data,
//!   and losing the flash loses it.
//! - **It pays** if the origin alone takes at least [`PAYS_FACTOR`] times as long, and no less in the
//!   mean of all requests: a journal on flash delays writes, which may be most of them.
//!
//! Why the smallest within a share and not where a curve bends most: a bend depends on which sizes
//! were tried and on the axes' scales; a share of the best can be checked on the table.

/// Of the best saving, what the knee's must be.
pub const KNEE_SHARE: f64 = 0.9;
/// Of the default preset's latency, what prwc's may be at most to be preferred.
pub const PRWC_SHARE: f64 = 0.8;
/// How much longer the origin alone must take.
pub const PAYS_FACTOR: f64 = 1.25;
/// How long flash should last.
pub const LEAST_YEARS: f64 = 5.0;

/// Which of these savings, by rising size, is the knee.
#[must_use]
pub fn knee(savings: &[f64]) -> Option<usize> {
    let best = savings.iter().copied().fold(0.0, f64::max);
    savings.iter().position(|saving| *saving > 0.0 && *saving >= best * KNEE_SHARE)
}

/// A preset at its knee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Of the latency of a preset with a share of 1, how much its own may be at most to be preferred.
    pub share: f64,
    /// The mean latency that counts.
    pub us: f64,
    /// Whether it pays.
    pub pays: bool,
    /// How long flash lasts; none if nothing is written.
    pub years: Option<f64>,
}

impl Candidate {
    fn lasts(&self) -> bool {
        self.years.is_none_or(|years| years >= LEAST_YEARS)
    }
}

/// Which of these is advised, the careful ones first.
#[must_use]
pub fn choose(candidates: &[Candidate]) -> Option<usize> {
    let mut chosen: Option<(usize, &Candidate)> = None;
    for (place, one) in candidates.iter().enumerate() {
        let better = chosen.is_none_or(|(_, other)| {
            let share = (one.share / other.share).min(1.0);
            match (one.pays, other.pays) {
                (true, true) if one.lasts() != other.lasts() => one.lasts(),
                (pays, other_pays) if pays != other_pays => pays,
                _ => one.us < other.us * share,
            }
        });
        if better {
            chosen = Some((place, one));
        }
    }
    chosen.map(|(place, _)| place)
}

/// Mean latencies of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    /// The one that counts.
    pub us: f64,
    /// Of all requests.
    pub request_us: f64,
}

/// Whether a cache is worth it.
#[must_use]
pub fn pays(alone: Means, cached: Means) -> bool {
    alone.us > 0.0 && alone.us >= cached.us * PAYS_FACTOR && alone.request_us >= cached.request_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_smallest_size_near_the_best() {
        assert_eq!(knee(&[10.0, 50.0, 89.9, 90.0, 100.0, 95.0]), Some(3));
        // More flash may save less; all alike is the smallest.
        assert_eq!(knee(&[100.0, 20.0]), Some(0));
        assert_eq!(knee(&[7.0, 7.0, 7.0]), Some(0));
        assert_eq!(knee(&[-5.0, 0.0]), None);
        assert_eq!(knee(&[-5.0, 1.0]), Some(1));
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn flash_that_owns_must_be_faster_by_a_fifth_and_flash_must_last() {
        let sce = |us, years| Candidate { share: 1.0, us, pays: true, years };
        let prwc = |us, years| Candidate { share: PRWC_SHARE, us, pays: true, years };
        let useless = |one| Candidate { pays: false, ..one };
        let long = Some(10.0);
        assert_eq!(choose(&[sce(100.0, long), prwc(81.0, long)]), Some(0));
        assert_eq!(choose(&[sce(100.0, long), prwc(79.0, long)]), Some(1));
        assert_eq!(choose(&[sce(100.0, Some(1.0)), prwc(150.0, long)]), Some(1));
        assert_eq!(choose(&[sce(100.0, None), prwc(10.0, Some(4.9))]), Some(0));
        assert_eq!(choose(&[sce(100.0, Some(1.0)), prwc(70.0, Some(0.5))]), Some(1));
        assert_eq!(choose(&[prwc(100.0, long)]), Some(0));
        assert_eq!(choose(&[]), None);
        // What lasts but saves nothing is no help.
        assert_eq!(choose(&[sce(100.0, Some(1.0)), useless(prwc(150.0, long))]), Some(0));
        assert_eq!(choose(&[useless(sce(100.0, long)), prwc(95.0, Some(1.0))]), Some(1));
        assert_eq!(choose(&[useless(sce(100.0, Some(1.0))), useless(prwc(99.0, long))]), Some(0));
    }

    #[test]
    fn a_quarter_more_pays_unless_writes_lose_it_again() {
        let means = |us, request_us| Means { us, request_us };
        assert!(pays(means(125.0, 60.0), means(100.0, 60.0)));
        assert!(pays(means(100.0, 60.0), means(0.0, 0.0)));
        assert!(!pays(means(124.0, 60.0), means(100.0, 50.0)));
        assert!(!pays(means(125.0, 60.0), means(100.0, 61.0)));
        assert!(!pays(means(0.0, 0.0), means(0.0, 0.0)));
    }
}
