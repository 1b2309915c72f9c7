// SPDX-License-Identifier: MIT OR Apache-2.0
//! The write amplification of greedy garbage collection under uniformly random writes, computed.
//!
//! Purpose: a drive's rated random writes include the garbage collection of its steady state; to derive the cost of one
//! relocation, the number of relocations must be known. It is also an independent check of the simulated drive.
//!
//! This is the mean field of many blocks of `b` pages, of which a share `u` is valid (Bux and Iliadis 2010; Van Houdt,
//! SIGMETRICS 2013). Time is counted such that each valid page is overwritten once in a unit of time. A block that was
//! filled loses pages one by one: it stays `1/i` with `i` valid ones. Greedy chooses all blocks at some count `j`,
//! except for a share `q` that drop to `j - 1` before they are chosen and are then chosen at once; those at `j` thus
//! wait `q/j`. Let `T = 1/(j+1) + ... + 1/b`:
//!
//! - a block lives `T + q/j`, and the integral of its valid pages over that time is `(b - j) + q`;
//! - their ratio is the mean of valid pages, `u b`, which gives `q = (u b T - (b - j)) / (1 - u b / j)` and, because
//!   `q` must lie in 0..1, `j`;
//! - the chosen block has `j - q` valid pages, so of `b` programmed pages `b - j + q` are the host's, and the write
//!   amplification is `b / (b - j + q)`.
//!
//! For large `b` this tends to the known `u = (1 - x) / -ln x`, `1 / (1 - x)`: with 30 % of spare flash 2.36, where
//! Luojie and Kurkoski (2011) measured 2.35.
//!
//! Why not that formula: small blocks do better (2.29 for 64 pages), and a logarithm does not have the same last bit on
//! every machine.

/// The write amplification for blocks of `pages_per_block` pages, of which a share between 0 and 1 is valid.
pub(super) fn write_amplification(pages_per_block: u32, valid_share: f64) -> f64 {
    let pages = f64::from(pages_per_block);
    let mean_valid = pages * valid_share;
    let mut lifetime = 0.0;
    for left in (1..pages_per_block).rev().map(f64::from) {
        lifetime += 1.0 / (left + 1.0);
        let lost = pages - left;
        let dropped = (mean_valid * lifetime - lost) / (1.0 - mean_valid / left);
        if (0.0..1.0).contains(&dropped) {
            return pages / (lost + dropped);
        }
    }
    // So few pages are valid that none is left in a block when it is chosen.
    1.0
}

#[cfg(test)]
mod tests {
    use super::write_amplification;

    /// Luojie and Kurkoski, "An improved analytical expression for write amplification in NAND
    /// flash", give 2.36 by their formula and 2.35 by simulation for 30 % of spare flash.
    #[test]
    fn tends_to_the_published_value() {
        let large = write_amplification(4096, 1.0 / 1.3);
        assert!((large - 2.36).abs() < 0.01, "{large}");
    }

    #[test]
    fn grows_with_the_valid_share_and_stays_within_its_limits() {
        for pages in [2, 3, 64, 1000] {
            let mut last = 1.0;
            for percent in 0..100 {
                let now = write_amplification(pages, f64::from(percent) / 100.0);
                assert!(now >= last - 1e-9, "{pages} pages, {percent} %: {now} after {last}");
                assert!(now <= f64::from(pages), "at least one page is freed: {now}");
                last = now;
            }
        }
    }
}
