// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zipf's law: rank `i` of `count` is drawn with a probability in proportion to `i^-exponent`.
//!
//! Invariant: a draw takes one number of the generator, so streams of equal seeds stay in step
//! whatever they are drawn for.
//!
//! Why a table and not a rejection method: the table is exact for any exponent, and its 8 bytes a
//! rank are little beside the cache that is measured.

use larder_model::SplitMix64;

use super::maths::pow;

/// The law, see the module.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The chance of this rank or a more popular one, in units of 2^-53.
    cumulative: Vec<u64>,
}

const ONE: f64 = (1u64 << 53) as f64;

impl Zipf {
    /// Over `count` ranks (at least one).
    #[must_use]
    pub fn new(count: u32, exponent: f64) -> Self {
        let count = count.max(1);
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += pow(f64::from(rank), -exponent);
                sum
            })
            .collect();
        Self { cumulative: sums.into_iter().map(|s| (s / sum * ONE) as u64).collect() }
    }

    /// A rank, the most popular being 0.
    pub fn draw(&self, random: &mut SplitMix64) -> u32 {
        let point = random.next_u64() >> 11;
        let rank = self.cumulative.partition_point(|c| *c <= point);
        rank.min(self.cumulative.len() - 1) as u32
    }

    /// The share of draws that the `count` most popular ranks get: what the best possible choice
    /// of so many could hit.
    #[must_use]
    pub fn share_of_top(&self, count: u32) -> f64 {
        match (count as usize).checked_sub(1) {
            None => 0.0,
            Some(last) => self.cumulative.get(last).map_or(1.0, |c| *c as f64 / ONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_law() {
        let zipf = Zipf::new(1000, 0.9);
        let mut random = SplitMix64::new(5);
        let mut counts = vec![0u32; 1000];
        (0..1_000_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        for (top, rank) in [(1u32, 2u32), (4, 8), (10, 30)] {
            let found = f64::from(counts[top as usize - 1]) / f64::from(counts[rank as usize - 1]);
            let law = f64::from(rank).powf(0.9) / f64::from(top).powf(0.9);
            assert!((found / law - 1.0).abs() < 0.05, "{top}:{rank} {found} {law}");
        }
        let top: u32 = counts[..100].iter().sum();
        assert!((f64::from(top) / 1e6 - zipf.share_of_top(100)).abs() < 0.002);
        assert_eq!((zipf.share_of_top(0), zipf.share_of_top(1000)), (0.0, 1.0));
    }
}
