// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of the image is active, and how large a request is: fitted to the figures of flashcache, bcache and EnhanceIO.
//!
//! The paper's 160 GiB are the image of a virtual machine (4.2). It prints neither how much of it the database uses nor
//! the size of a request, and under requests of 4 KiB to all of it no choice of 30 GiB could hit 91 %. The two are
//! fitted here, to figures of the comparison systems alone; no figure of SCE is an input, and none was run before
//! `active_gib` and `page_kib` of the scenarios were fixed. The law (Zipf 0.9 over regions) stays that of [`crate::load`].
//!
//! # Method
//! - **Reads so far** follow from the paper's rates: a TpsE is ten transactions of four reads. A rate rises evenly from that
//!   without a cache (11.2) to the one that is printed; flashcache has 45 after 4.6 hours.
//! - **A** (200 GiB): nothing is evicted, so a read misses if it is the first of its page. Four printed hit ratios give four
//!   points of one curve: the chance of a first read after so many reads.
//! - **B** (30 GiB): the three admit every miss and evict by age, so they are taken as LRU over 30 GiB by pages, empty
//!   in the beginning: a read hits if its page was read within the last so many reads as fill flash.
//! - The sum of squares of the logarithms of miss ratios over the paper's, of all seven, is smallest at the fit.
//!
//! # What comes out
//! Requests of 32 KiB to 100 of the 160 GiB, from requests of 4 to 32 KiB (the page sizes of DB2) and parts in steps of
//! 4 GiB. The curve of A fixes how much data there is for each KiB of a request; B's three ratios, that flash of 30 GiB
//! evicts within four hours, as the paper states, which it does at the largest page alone. The best choice of 30 GiB then
//! hits 84 %: the paper's 91.1 % of SCE stay out of reach, and so does the order of B's three, which are one rule here.
//!
//! The load of the whole image in requests of 4 KiB is kept in `sce-large-whole.toml` and `sce-small-whole.toml`.

use crate::load::EXPONENT;
use crate::load::maths::pow;
use crate::load::zipf::Zipf;
use crate::scenario::Scenario;

/// Reads a second of a TpsE: ten transactions of four.
const READS: f64 = 40.0;
const HOUR: f64 = 3600.0;
/// TpsE without a cache, and of flashcache in B ("only about 55 %"), which the others are not far from.
const NONE: f64 = 11.2;
const SMALL: f64 = 1.55 * NONE;
/// The middle of the last hour of eight, and of four.
const LAST_OF_8: f64 = 7.5;
const LAST_OF_4: f64 = 3.5;
const FLASH_KIB: f64 = 30.0 * 1024.0 * 1024.0;

/// Regions of one popularity: how many, and the share of all reads that each gets.
type Law = Vec<(f64, f64)>;

/// Zipf's law over so many regions, in groups of neighbouring ranks.
fn law(regions: u64) -> Law {
    let integral = |rank: u64| pow(rank as f64 - 0.5, 1.0 - EXPONENT);
    let (mut groups, mut first) = (Vec::new(), 1);
    while first <= regions {
        let next = (first + 1).max(first * 102 / 100).min(regions + 1);
        groups.push(((next - first) as f64, integral(next) - integral(first)));
        first = next;
    }
    let all: f64 = groups.iter().map(|(_, share)| share).sum();
    groups.into_iter().map(|(count, share)| (count, share / all / count)).collect()
}

/// The share of reads whose page was not read within the last so many.
fn new(law: &Law, pages: f64, reads: f64) -> f64 {
    law.iter().map(|(count, share)| count * share * (-reads * share / pages).exp()).sum()
}

/// Pages that so many reads touch.
fn touched(law: &Law, pages: f64, reads: f64) -> f64 {
    law.iter().map(|(count, share)| count * pages * (1.0 - (-reads * share / pages).exp())).sum()
}

/// Misses of LRU over B's flash after so many reads.
fn misses(law: &Law, page_kib: u64, reads: f64) -> f64 {
    let (pages, room) = (1024.0 / page_kib as f64, FLASH_KIB / page_kib as f64);
    let (mut fits, mut too_many) = (0.0, reads);
    if touched(law, pages, reads) <= room {
        return new(law, pages, reads);
    }
    for _ in 0..60 {
        let middle = (fits + too_many) / 2.0;
        let bound = if touched(law, pages, middle) > room { &mut too_many } else { &mut fits };
        *bound = middle;
    }
    new(law, pages, fits)
}

/// Reads while the rate rises evenly.
fn reads(from: f64, to: f64, hours: f64) -> f64 {
    (from + to) / 2.0 * READS * hours * HOUR
}

/// How far the seven figures are from the paper's.
fn off(active_gib: u64, page_kib: u64) -> f64 {
    let (law, pages) = (law(active_gib * 1024), 1024.0 / page_kib as f64);
    let half_way = reads(NONE, 45.0, 4.6);
    let large = [
        (half_way, 3.26),
        (half_way + reads(45.0, 56.9, LAST_OF_8 - 4.6), 1.34),
        (reads(NONE, 17.3, LAST_OF_8), 3.25),
        (reads(NONE, 17.5, LAST_OF_8), 3.48),
    ];
    let small = misses(&law, page_kib, reads(NONE, SMALL, LAST_OF_4));
    let square = |ours: f64, percent: f64| (100.0 * ours / percent).ln().powi(2);
    large.iter().map(|(reads, percent)| square(new(&law, pages, *reads), *percent)).sum::<f64>()
        + [17.0, 50.0, 75.0].map(|percent| square(small, percent)).iter().sum::<f64>()
}

#[test]
fn the_scenarios_have_what_fits_the_comparison_systems_best() {
    let candidates = [4, 8, 16, 32]
        .into_iter()
        .flat_map(|page_kib| (4..=160).step_by(4).map(move |active_gib| (active_gib, page_kib)));
    let best = candidates.min_by(|one, other| off(one.0, one.1).total_cmp(&off(other.0, other.1)));
    assert_eq!(best, Some((100, 32)));
    for (name, text) in [
        crate::scenario_file!("sce-large"),
        crate::scenario_file!("sce-small"),
        crate::scenario_file!("sce-fragments"),
        crate::scenario_file!("sce-write-around"),
        crate::scenario_file!("sce-back-flashcache"),
        crate::scenario_file!("sce-back-bcache"),
        crate::scenario_file!("sce-back-enhanceio"),
    ] {
        let scenario = Scenario::parse(name, text).unwrap();
        let of = |key| scenario.get(key).and_then(toml::Value::as_integer);
        assert_eq!((of("active_gib"), of("page_kib")), (Some(100), Some(32)), "{name}");
    }
}

#[test]
fn the_best_choice_of_flash_in_b_hits_five_of_six_reads() {
    let best = |gib: u32| Zipf::new(gib * 1024, EXPONENT).share_of_top(30 * 1024);
    assert!(
        (0.83..0.85).contains(&best(100)) && (0.78..0.79).contains(&best(160)),
        "{}",
        best(100)
    );
}
