// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are read in advance, and pages that are pinned.

use larder_core::buf::Buf;
use larder_core::pagelog::LogPolicy;

use crate::file::Fork;
use crate::pool::{Pool, Use};
use crate::prewarm::Step;
use crate::rig::{FORK, Place, page_of};

fn page(pool: &Pool, fork: &Fork, block: u64) -> u64 {
    pool.page(fork, block).unwrap()
}

/// A page takes the frame of the one before; returns how it counts.
fn takes(pool: &Pool, frame: usize, page: u64) -> Use {
    let how = pool.leaves(frame, Some(page), || Buf::copy_of(&page_of(1)));
    pool.filled(frame, page, how, pool.epoch(page), &page_of(1));
    how
}

#[test]
fn an_expected_page_of_a_ring_is_admitted_and_so_is_a_pinned_one() {
    let mut place = Place::new();
    place.server.frames = 1024;
    let run = place.start(LogPolicy::Through).unwrap();
    let pool = &run.pool;
    let at = |block| page(pool, &FORK, block);
    takes(pool, 0, at(0));
    assert_eq!(takes(pool, 0, at(1)), Use::Scan);
    let most = pool.begin_prewarm();
    assert!(most >= 200, "an empty flash has room");
    assert_eq!(pool.expect(&FORK, 2, most), Step::Read);
    assert_eq!(takes(pool, 0, at(2)), Use::Access);
    assert_eq!(pool.expect(&FORK, 3, most), Step::Read);
    assert_eq!(takes(pool, 0, at(3)), Use::Access);
    assert_eq!(takes(pool, 0, at(4)), Use::Scan, "two pages were expected");
    assert!(pool.flash().log().has(at(2)) && !pool.flash().log().has(at(1)));
    assert_eq!(pool.expect(&FORK, 2, most), Step::Skip, "flash has it");
    assert_eq!(pool.expect(&FORK, 4, 2), Step::Stop, "two pages were read");
    assert_eq!((pool.end_prewarm(), pool.end_prewarm()), (2, 0));
    pool.pin(&FORK, 6).unwrap();
    assert_eq!(takes(pool, 0, at(5)), Use::Access);
    assert_eq!(takes(pool, 0, at(6)), Use::Scan, "the relation was shorter when it was pinned");
    assert!(pool.flash().log().has(at(5)));
    pool.disable().unwrap();
    assert_eq!(pool.expect(&FORK, 8, most), Step::Stop);
}

#[test]
fn pinned_pages_stay_while_others_come_until_their_file_is_dropped() {
    let place = Place::new();
    let run = place.start(LogPolicy::Through).unwrap();
    let (pool, other) = (&run.pool, Fork { relation: 101, ..FORK });
    let has = |fork: &Fork| {
        let is_there = |block: &u64| pool.flash().log().has(page(pool, fork, *block));
        (0..30).filter(is_there).count()
    };
    let mut relation = 1_000;
    let mut come = || {
        for _ in 0..40 {
            relation += 1;
            (0..30).for_each(|block| {
                takes(pool, 0, page(pool, &Fork { relation, ..FORK }, block));
            });
        }
    };
    pool.pin(&FORK, 30).unwrap();
    for fork in [&FORK, &other] {
        (0..30).for_each(|block| {
            takes(pool, 0, page(pool, fork, block));
        });
    }
    come();
    assert_eq!((has(&FORK), has(&other)), (30, 0));
    assert!(pool.unpin(&FORK));
    come();
    assert_eq!(has(&FORK), 0);
    pool.pin(&FORK, 30).unwrap();
    pool.forget(&FORK, 0, 0, &|| Ok(32)).map(drop).unwrap();
    assert!(!pool.unpin(&FORK), "a pin ends with its file");
}
