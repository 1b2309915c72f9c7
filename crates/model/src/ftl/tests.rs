// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariants of the map, and write amplification where it is known.

use super::{Ftl, FtlSpec, NOTHING, PAGE_BYTES, Wear};
use crate::SplitMix64;

/// Accepted relative deviation of a simulated drive from the computed value, which assumes infinitely many blocks.
const TOLERANCE: f64 = 0.02;

fn spec(pages_per_block: u64, spare_per_mille: u64) -> FtlSpec {
    let block_bytes = pages_per_block * PAGE_BYTES;
    FtlSpec { block_bytes, spare_per_mille, erase_ns: 0, overwrites: None }
}

/// Overwrites `count` random pages among the first `area` ones.
fn overwrite(ftl: &mut Ftl, area: u64, count: u64, seed: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..count {
        ftl.write(random.below(area), 1);
    }
}

fn check(ftl: &Ftl, written: &[bool]) {
    let mut valid = vec![0; ftl.owner.len() / ftl.pages_per_block as usize];
    for (logical, &place) in ftl.map.iter().enumerate() {
        assert_eq!(place != NOTHING, written[logical], "page {logical}");
        if place != NOTHING {
            assert_eq!(ftl.owner[place as usize - 1] as usize, logical + 1, "both ways");
            valid[(place - 1) as usize / ftl.pages_per_block as usize] += 1;
        }
    }
    let owned = ftl.owner.iter().filter(|&&owner| owner != NOTHING).count();
    assert_eq!(owned, written.iter().filter(|&&written| written).count(), "no page twice");
    for (block, &valid) in valid.iter().enumerate() {
        assert_eq!(ftl.buckets.valid(block as u32), valid, "block {block}");
    }
    let open = ftl.open.map(|open| u64::from(open.end - open.next));
    let erased = ftl.erased.len() as u64 * u64::from(ftl.pages_per_block);
    assert_eq!(ftl.erased_pages, erased + open[0] + open[1]);
    assert!(ftl.erased_pages >= u64::from(ftl.pages_per_block), "room for the next page");
    let erased = ftl
        .erased
        .iter()
        .flat_map(|block| block * ftl.pages_per_block..(block + 1) * ftl.pages_per_block);
    let ahead = ftl.open.into_iter().flat_map(|open| open.next..open.end);
    assert!(erased.chain(ahead).all(|page| ftl.owner[page as usize] == NOTHING), "erased is empty");
}

/// Writes and trims of all lengths, hot areas and complete rounds, on drives with little spare flash.
#[test]
fn no_page_is_lost_and_none_is_stored_twice() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let shape = spec(2 + random.below(9), random.below(400));
        let mut ftl = Ftl::new(&shape, (1 + random.below(300)) * PAGE_BYTES);
        let pages = ftl.pages();
        let mut written = vec![false; pages as usize];
        let mut host_pages = 0;
        for _ in 0..600 {
            let area = if random.below(2) == 0 { pages } else { pages.div_ceil(8) };
            let (first, most) =
                (random.below(area), [1, 4, 40, 2 * pages][random.below(4) as usize]);
            let count = 1 + random.below(most);
            let trim = random.below(8) == 0;
            if trim {
                ftl.trim(first, count);
            } else {
                let did = ftl.write(first, count);
                assert_eq!(did.host_pages, count.min(pages));
                host_pages += did.host_pages;
            }
            (first..first + count).for_each(|page| written[(page % pages) as usize] = !trim);
            check(&ftl, &written);
        }
        assert_eq!(ftl.wear().host_pages, host_pages);
    }
}

#[test]
fn whole_blocks_in_order_are_never_relocated() {
    for (block, spare) in [(2, 0), (16, 70), (64, 280)] {
        let mut ftl = Ftl::new(&spec(block, spare), 100 * block * PAGE_BYTES);
        for _ in 0..20 {
            for first in (0..ftl.pages()).step_by(block as usize) {
                assert_eq!(ftl.write(first, block).relocated_pages, 0);
            }
        }
        assert_eq!(ftl.wear().write_amplification(), 1.0);
        let (filled, blocks) = (ftl.wear().host_pages / block, ftl.owner.len() as u64 / block);
        assert!(filled - ftl.wear().erased_blocks <= blocks, "the rest was erased");
    }
}

/// A write of a whole block leaves the old block empty.
#[test]
fn whole_blocks_at_random_are_never_relocated() {
    let mut ftl = Ftl::new(&spec(64, 70), 1 << 28);
    let mut random = SplitMix64::new(8);
    ftl.precondition(0, 0);
    for _ in 0..10_000 {
        ftl.write(random.below(ftl.pages() / 64) * 64, 64);
    }
    assert_eq!(ftl.wear().write_amplification(), 1.0);
    assert!(ftl.wear().erased_blocks > 9_900);
}

/// Compares with the value computed in `greedy.rs`.
#[test]
fn random_writes_have_the_computed_amplification() {
    for (block, spare) in [(16, 74), (64, 74), (64, 181), (64, 300), (256, 74), (256, 280)] {
        let mut ftl =
            Ftl::new(&spec(block, spare), (400_000 / block).min(4_000) * block * PAGE_BYTES);
        ftl.precondition(3, block + spare);
        let pages = ftl.pages();
        overwrite(&mut ftl, pages, pages, 5);
        let (got, want) = (ftl.wear().write_amplification(), ftl.steady_write_amplification());
        let what = format!("{block} pages, {spare} per mille: {got:.3}, computed {want:.3}");
        assert!((got / want - 1.0).abs() < TOLERANCE, "{what}");
        let freed = ftl.wear().erased_blocks * block;
        let programmed = ftl.wear().host_pages + ftl.wear().relocated_pages;
        assert!(freed.abs_diff(programmed) <= 3 * block, "as much erased as programmed");
    }
}

/// Three times the capacity suffice: results after three rounds and after six are alike.
#[test]
fn preconditioning_ends_in_the_steady_state() {
    let measure = |overwrites| {
        let mut ftl = Ftl::new(&spec(64, 74), 1 << 28);
        ftl.precondition(overwrites, 1);
        let pages = ftl.pages();
        overwrite(&mut ftl, pages, pages / 4, 2);
        ftl.wear().write_amplification()
    };
    let [new, third, sixth] = [0, 3, 6].map(measure);
    assert!((third / sixth - 1.0).abs() < 0.01, "{third} {sixth}");
    assert!(
        new < 0.9 * sixth,
        "a drive that was only filled is not in the steady state: {new} {sixth}"
    );
}

/// Trimmed pages are not relocated: a drive that is half trimmed has ample spare flash.
#[test]
fn trimmed_pages_are_not_relocated() {
    let mut ftl = Ftl::new(&spec(64, 74), 1 << 28);
    ftl.precondition(2, 1);
    let half = ftl.pages() / 2;
    ftl.trim(half, half);
    overwrite(&mut ftl, half, 2 * half, 4);
    let before = ftl.wear();
    overwrite(&mut ftl, half, 2 * half, 5);
    let amplification = ftl.wear().since(&before).write_amplification();
    assert!(amplification < 1.3, "{amplification}");
    ftl.trim(0, u64::MAX);
    let before = ftl.wear();
    ftl.write(0, half);
    assert_eq!(ftl.wear().since(&before).relocated_pages, 0);
}

/// No request carries the garbage collection of a whole block.
#[test]
fn garbage_collection_is_spread_over_writes() {
    let mut ftl = Ftl::new(&spec(256, 74), 1 << 29);
    ftl.precondition(2, 3);
    let mut random = SplitMix64::new(6);
    let most = (0..ftl.pages()).map(|_| ftl.write(random.below(ftl.pages()), 1).relocated_pages);
    let most = most.max().unwrap();
    assert!((5..=20).contains(&most), "{most}");
}

/// These figures are part of published results; changing them changes those.
#[test]
fn the_same_in_every_build() {
    let mut ftl = Ftl::new(&spec(64, 74), 1 << 26);
    ftl.precondition(1, 42);
    let mut random = SplitMix64::new(42);
    for _ in 0..20_000 {
        ftl.write(random.below(ftl.pages()), 1 + random.below(9));
    }
    let want = Wear { host_pages: 100_484, relocated_pages: 556_904, erased_blocks: 10_272 };
    assert_eq!(ftl.wear(), want);
}
