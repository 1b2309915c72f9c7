// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of a page's paths, one by one, over files in a directory.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::pagelog::{Geometry, Latest, LogPolicy, LogSettings};
use larder_private::{Directory, Refuse};
use larder_shared::{Memory, Pages, Shape};

use crate::admits::Admits;
use crate::area::{Area, Mark};
use crate::content;
use crate::file::Fork;
use crate::here::Armed;
use crate::pace::Plan;
use crate::policy::{self, Begins};
use crate::pool::{Pool, Use};
use crate::rig::{FORK, PAGE, armed, control, fetch};

const BLOCKS: u64 = 64;
const FRAMES: usize = 4;

struct Rig {
    pool: Pool,
    armed: Armed,
    directory: tempfile::TempDir,
}

fn page_of(value: u8) -> Vec<u8> {
    let mut bytes = vec![value; PAGE];
    content::set_checksum(&mut bytes, 7);
    bytes
}

impl Rig {
    fn new(policy: LogPolicy) -> Self {
        Self::with_frames(policy, FRAMES)
    }

    fn with_frames(policy: LogPolicy, frames: usize) -> Self {
        Self::within(tempfile::tempdir().unwrap(), policy, frames, false)
    }

    fn within(
        directory: tempfile::TempDir,
        policy: LogPolicy,
        frames: usize,
        direct: bool,
    ) -> Self {
        let base = directory.path().join("base/5");
        std::fs::create_dir_all(&base).unwrap();
        let file = File::create(base.join("100")).unwrap();
        for block in 0..BLOCKS {
            file.write_all_at(&page_of(1), block * PAGE as u64).unwrap();
        }
        let log =
            Geometry { base: 0, blocks: 0, page_bytes: PAGE as u32, batch_pages: 4, volume: 9 };
        let log = log.grown_to(200 * PAGE as u64).unwrap();
        let flash = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory.path().join("flash"))
            .unwrap();
        for (at, bytes) in log.blank() {
            flash.write_all_at(&bytes, at).unwrap();
        }
        let flash = Arc::new(OwnedFd::from(flash));
        let settings = LogSettings { policy: policy::of_log(policy), second_chance: true };
        let shape = Shape { log, settings, user_words: Area::words(frames) };
        let opened = Arc::new(Directory::open(directory.path(), Refuse::WRITE).unwrap());
        let memory = Memory::anonymous(shape).unwrap();
        policy::begin(&Area::of(&memory), Begins::Stopped, &control(1), policy);
        let armed = Armed { direct, ..armed(memory, flash, directory.path(), &opened, frames) };
        drop(Pages::start(&armed.memory, armed.devices(true)).unwrap());
        let pool = armed.join(true).unwrap();
        Self { pool, armed, directory }
    }

    fn page(&self, block: u64) -> u64 {
        self.pool.page(&FORK, block).unwrap()
    }

    /// Reads a page from the disk into a frame.
    fn read(&self, frame: usize, block: u64, value: u8) {
        self.read_as(Use::Access, frame, block, value);
    }

    fn read_as(&self, how: Use, frame: usize, block: u64, value: u8) {
        let page = self.page(block);
        let epoch = self.pool.epoch(page);
        self.pool.filled(frame, page, how, epoch, &page_of(value));
    }

    fn write(&self, block: u64, value: u8) {
        let writing = self.pool.begin_write(self.page(block), true, || 0).unwrap();
        self.pool.end_write(writing, &page_of(value));
    }

    fn has(&self, block: u64) -> Option<u8> {
        Some(fetch(&self.pool, self.page(block))?[100])
    }

    fn on_disk(&self, block: u64) -> u8 {
        let name = if block < 32 { "100".to_owned() } else { format!("100.{}", block / 32) };
        let file = File::open(self.directory.path().join("base/5").join(name)).unwrap();
        let mut bytes = [0];
        file.read_exact_at(&mut bytes, block % 32 * PAGE as u64 + 100).unwrap();
        bytes[0]
    }
}

#[test]
fn a_page_that_leaves_as_it_was_read_enters_with_its_checksum() {
    let rig = Rig::new(LogPolicy::Through);
    rig.read(0, 3, 5);
    let mut frame = page_of(5);
    content::set_checksum(&mut frame, 0xFFFF); // stale, as in a frame
    rig.pool.leaves(0, None, || Buf::copy_of(&frame));
    assert_eq!(fetch(&rig.pool, rig.page(3)).unwrap()[..], page_of(5));
    rig.pool.leaves(0, None, || Buf::copy_of(&frame));
    assert_eq!(rig.pool.area().get(Mark::CleanEntered), 1, "a record is used once");
}

#[test]
fn a_page_that_was_changed_in_its_frame_does_not_enter() {
    let rig = Rig::new(LogPolicy::Through);
    rig.read(0, 3, 5);
    rig.pool.leaves(0, None, || Buf::copy_of(&page_of(6)));
    assert_eq!(rig.has(3), None);
}

#[test]
fn a_page_that_was_written_since_does_not_enter_though_its_bytes_are_those_that_were_read() {
    let rig = Rig::new(LogPolicy::Through);
    rig.read(0, 3, 5);
    let writing = rig.pool.begin_write(rig.page(3), true, || 0).unwrap();
    rig.pool.leaves(0, None, || Buf::copy_of(&page_of(5)));
    assert_eq!(rig.has(3), None);
    rig.pool.end_write(writing, &page_of(6));
    assert_eq!(rig.has(3), Some(6));
}

#[test]
fn a_write_ends_only_if_nothing_came_after_it() {
    let rig = Rig::new(LogPolicy::Through);
    let first = rig.pool.begin_write(rig.page(3), true, || 0).unwrap();
    let second = rig.pool.begin_write(rig.page(3), true, || 0).unwrap();
    rig.pool.end_write(first, &page_of(5));
    assert_eq!(rig.has(3), None);
    rig.pool.end_write(second, &page_of(6));
    assert_eq!(rig.has(3), Some(6));
}

#[test]
fn what_a_relation_is_extended_by_does_not_enter() {
    let rig = Rig::new(LogPolicy::Through);
    rig.write(3, 5);
    let writing = rig.pool.begin_write(rig.page(3), true, || 0).unwrap();
    rig.pool.end_write(writing, &vec![0; PAGE]);
    assert_eq!(rig.has(3), None);
}

#[test]
fn the_disk_is_asked_to_have_ready_what_flash_lacks() {
    let rig = Rig::new(LogPolicy::Bounded);
    let lacks = |fork: &Fork, blocks| -> Vec<(u64, u64)> {
        rig.pool.lacks(fork, blocks).into_iter().map(|run| (run.start, run.end)).collect()
    };
    assert_eq!(lacks(&FORK, 2..9), [(2, 9)], "nothing is there");
    for block in [3, 4, 8] {
        rig.pool.absorb(rig.page(block), &page_of(5)).unwrap();
    }
    assert_eq!(lacks(&FORK, 2..9), [(2, 3), (5, 8)]);
    assert_eq!(lacks(&FORK, 3..5), []);
    let other = Fork { relation: 101, ..FORK };
    assert_eq!(lacks(&other, 3..5), [(3, 5)], "a fork that nothing is known of");
}

#[test]
fn a_fork_that_is_dropped_takes_its_pages_along_and_a_cut_one_its_tail() {
    let rig = Rig::new(LogPolicy::Through);
    for block in [3, 31, 32, 40] {
        rig.write(block, 5);
    }
    rig.read(1, 10, 5);
    rig.pool.forget(&FORK, 1, 2, &|| Ok(32)).unwrap();
    assert_eq!([3, 31, 32, 40].map(|b| rig.has(b)), [Some(5), Some(5), Some(5), None]);
    rig.pool.leaves(1, None, || Buf::copy_of(&page_of(5)));
    assert_eq!(rig.has(10), None, "no frame is known to be the same after a cut");
    let before = rig.page(3);
    rig.pool.forget(&FORK, 0, 0, &|| Ok(32)).unwrap();
    assert_ne!(rig.page(3), before);
    assert_eq!([3, 31, 32].map(|b| rig.has(b)), [None, None, Some(5)], "the other file is there");
    rig.pool.forget(&FORK, 1, 0, &|| Ok(32)).unwrap();
    assert_eq!(rig.has(32), None);
}

/// Mutant `reuses-life`: pages of the earlier file would be found in the later one.
#[test]
fn a_file_that_is_made_again_has_none_of_the_old_pages_however_often() {
    for policy in [LogPolicy::Through, LogPolicy::Bounded] {
        let rig = Rig::new(policy);
        let mut pages = std::collections::HashSet::new();
        for _ in 0..5_000 {
            assert!(pages.insert(rig.page(3)), "a number is used again");
            assert_eq!(rig.has(3), None);
            if pages.len() < 100 {
                rig.write(3, 5);
            }
            rig.pool.forget(&FORK, 0, 0, &|| Ok(32)).unwrap();
        }
    }
}

#[test]
fn a_file_that_can_have_no_number_is_reported_once_and_not_cached() {
    let rig = Rig::new(LogPolicy::Bounded);
    let told = || rig.pool.area().get(Mark::ToldCrowded);
    let fork = |relation| Fork { relation, ..FORK };
    let number = |relation| rig.pool.page(&fork(relation), 0);
    let first = (1000..).find(|relation| number(*relation).is_none()).unwrap();
    assert_eq!((number(first), told()), (None, 1));
    let changes = rig.pool.area().get(Mark::NamesChanged);
    assert_eq!((number(first), told()), (None, 1));
    assert_eq!(rig.pool.area().get(Mark::NamesChanged), changes, "it takes no latch again");
    // Under `through` another file gives its place up.
    let rig = Rig::new(LogPolicy::Through);
    assert!((1000..=first).all(|relation| rig.pool.page(&fork(relation), 0).is_some()));
    assert_eq!(rig.pool.area().get(Mark::ToldCrowded), 0);
}

#[test]
fn bounded_brings_pages_to_the_disk_with_a_flush_of_their_file_and_not_before() {
    let rig = Rig::new(LogPolicy::Bounded);
    File::create(rig.directory.path().join("base/5/100.1")).unwrap().set_len(32 * 8192).unwrap();
    for block in [3, 33] {
        rig.pool.absorb(rig.page(block), &page_of(9)).unwrap();
    }
    assert_eq!([3, 33].map(|b| rig.has(b)), [Some(9), Some(9)]);
    assert_eq!([3, 33].map(|b| rig.on_disk(b)), [1, 0]);
    rig.pool.settle(&Fork { relation: 101, ..FORK }, 0).unwrap();
    rig.pool.settle(&FORK, 2).unwrap();
    assert_eq!(rig.on_disk(3), 1);
    rig.pool.settle(&FORK, 1).unwrap();
    assert_eq!([3, 33].map(|b| rig.on_disk(b)), [9, 9]);
    assert_eq!(rig.pool.area().get(Mark::WrittenBack), 2);
    rig.pool.settle(&FORK, 1).unwrap();
    assert_eq!(rig.pool.area().get(Mark::WrittenBack), 2);
}

#[test]
fn naps_of_the_checkpointer_write_back_what_is_due_and_a_flush_does_the_rest() {
    let plan = |checkpoint, time| Plan { checkpoint, time };
    let (now, long, nap) = (Duration::ZERO, Duration::from_secs(86_400), Duration::from_secs(60));
    let rig = Rig::new(LogPolicy::Bounded);
    let write = |blocks: std::ops::Range<u64>, value| {
        blocks
            .for_each(|block| assert!(rig.pool.absorb(rig.page(block), &page_of(value)).unwrap()));
    };
    write(0..20, 9);
    rig.pool.drain_ahead(plan(1, long), nap);
    assert_eq!(rig.pool.area().get(Mark::WrittenBack), 0, "nothing is due at the beginning");
    rig.pool.drain_ahead(plan(2, now), Duration::ZERO);
    assert_eq!(rig.pool.area().get(Mark::WrittenBack), 0, "the nap is over");
    rig.pool.drain_ahead(plan(2, now), nap);
    assert!((0..20).all(|block| rig.on_disk(block) == 9), "all is due");
    assert_eq!(rig.pool.pages().status().dirty, 0);
    // Changed again, and others too: the next nap writes only these.
    write(5..8, 11);
    write(30..31, 11);
    assert!(rig.pool.flash().log().drained() == 0, "nothing counts as drained");
    rig.pool.drain_ahead(plan(2, now), nap);
    assert_eq!(rig.pool.area().get(Mark::WrittenBack), 24);
    // What is dirty when a file is flushed, the flush writes.
    write(6..7, 12);
    rig.pool.commit(&FORK, 0).unwrap();
    assert_eq!([5, 6, 7, 30, 8].map(|block| rig.on_disk(block)), [11, 12, 11, 11, 9]);
}

#[test]
fn naps_of_the_checkpointer_write_nothing_where_no_flush_does() {
    let nap = Duration::from_secs(60);
    let rig = Rig::new(LogPolicy::Full);
    rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
    rig.pool.drain_ahead(Plan { checkpoint: 1, time: Duration::ZERO }, nap);
    assert_eq!(rig.on_disk(3), 1);
    let rig = Rig::new(LogPolicy::Bounded);
    rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
    rig.pool.area().set(Mark::Failed, 5);
    rig.pool.drain_ahead(Plan { checkpoint: 1, time: Duration::ZERO }, nap);
    assert_eq!(rig.on_disk(3), 1, "flash has failed");
}

/// The page cache would have pages that the server's own writes, which are past it, do not reach.
#[test]
fn pages_are_written_back_past_the_page_cache_if_the_server_does_so() {
    for direct in [false, true] {
        let place = tempfile::tempdir_in(".").unwrap();
        let rig = Rig::within(place, LogPolicy::Bounded, FRAMES, direct);
        let path = rig.directory.path().join("base/5/100");
        let mut options = File::options();
        if options.write(true).custom_flags(libc::O_DIRECT).open(&path).is_err() {
            return; // a file system without direct I/O
        }
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
        rig.pool.drain().unwrap();
        let mut page = [0_u8; PAGE];
        let mut parts = [std::io::IoSliceMut::new(&mut page)];
        let no_wait = rustix::io::ReadWriteFlags::NOWAIT;
        let cached = rustix::io::preadv2(&file, &mut parts, 3 * PAGE as u64, no_wait);
        assert_eq!(cached.is_ok(), !direct, "direct: {direct}");
        assert_eq!(rig.on_disk(3), 9);
    }
}

#[test]
fn bounded_makes_room_by_writing_to_the_disk() {
    let rig = Rig::new(LogPolicy::Bounded);
    for round in 2..8 {
        for block in 0..32 {
            rig.pool.absorb(rig.page(block), &page_of(round)).unwrap();
        }
    }
    for block in 0..32 {
        assert_eq!(rig.has(block).unwrap_or_else(|| rig.on_disk(block)), 7, "block {block}");
    }
    rig.pool.drain().unwrap();
    assert!((0..32).all(|block| rig.on_disk(block) == 7));
}

#[test]
fn what_was_dropped_does_not_come_to_the_disk_and_no_file_grows() {
    let rig = Rig::new(LogPolicy::Bounded);
    rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
    rig.pool.absorb(rig.page(20), &page_of(9)).unwrap();
    let file = File::options().write(true).open(rig.directory.path().join("base/5/100")).unwrap();
    {
        let _still = rig.pool.forget(&FORK, 0, 10, &|| Ok(32)).unwrap();
        file.set_len(10 * PAGE as u64).unwrap();
    }
    rig.pool.drain().unwrap();
    assert_eq!(rig.on_disk(3), 9);
    assert_eq!(file.metadata().unwrap().len(), 10 * PAGE as u64);
    rig.pool.absorb(rig.page(3), &page_of(8)).unwrap();
    {
        let _still = rig.pool.forget(&FORK, 0, 0, &|| Ok(32)).unwrap();
        file.set_len(0).unwrap();
    }
    rig.pool.drain().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn a_fork_is_not_dropped_while_somebody_brings_a_page_of_it_to_the_disk() {
    let rig = Rig::new(LogPolicy::Bounded);
    rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
    let names = || rig.pool.flash().numbers(&FORK, 0).first().copied();
    let writing = rig.pool.flash().log().host().latch(names().unwrap().latch(3));
    let dropped = AtomicBool::new(false);
    thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            let pool = rig.armed.join(false).unwrap();
            let _still = pool.forget(&FORK, 0, 0, &|| Ok(32)).unwrap();
            dropped.store(true, SeqCst);
        });
        while names().is_some() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        assert!(!dropped.load(SeqCst), "the file is truncated while it is written");
        drop(writing);
        cutter.join().unwrap();
    });
}

#[test]
fn pages_are_held_in_any_number_and_order() {
    let rig = Rig::new(LogPolicy::Bounded);
    let pages: Vec<u64> = (0..2_000).rev().map(|i| rig.page(3) + 16 * i).collect();
    let held = rig.pool.hold(&pages).len();
    assert_eq!(held, rig.pool.flash().log().host().hold_all(&(0..32_000)).len());
    assert!(held > 32 && rig.pool.hold(&[]).is_empty());
}

#[test]
fn a_fork_whose_directory_is_away_is_not_taken_for_dropped() {
    let rig = Rig::new(LogPolicy::Bounded);
    rig.pool.absorb(rig.page(3), &page_of(9)).unwrap();
    let [base, away] = ["base/5", "away"].map(|name| rig.directory.path().join(name));
    std::fs::rename(&base, &away).unwrap();
    assert!(rig.pool.drain().is_err());
    assert_eq!(rig.has(3), Some(9));
    std::fs::rename(away, base).unwrap();
    rig.pool.drain().unwrap();
    assert_eq!(rig.on_disk(3), 9);
}

#[test]
fn an_area_of_the_same_memory_is_everybodys() {
    let rig = Rig::new(LogPolicy::Through);
    let other = rig.armed.join(false).unwrap();
    rig.write(3, 5);
    let page = other.page(&FORK, 3).unwrap();
    assert_eq!(page, rig.page(3));
    assert_eq!(fetch(&other, page).unwrap()[..], page_of(5));
}

#[test]
fn only_a_page_that_is_not_dirty_on_flash_may_be_read_from_the_disk() {
    let rig = Rig::new(LogPolicy::Bounded);
    let page = rig.page(3);
    let latest = || rig.pool.begin_read(page, Use::Access);
    assert_eq!(latest(), Some(Latest::Origin));
    rig.pool.absorb(page, &page_of(5)).unwrap();
    assert_eq!(latest(), Some(Latest::Log), "the disk has an older version");
    let scanned = rig.pool.begin_read(page, Use::Scan);
    assert_eq!(scanned, Some(Latest::Log), "a scan must not read the disk either");
    rig.pool.drain().unwrap();
    assert_eq!(latest(), Some(Latest::Both));
    assert_eq!((rig.on_disk(3), rig.has(3)), (5, Some(5)));
}

#[test]
fn flash_is_not_asked_for_a_page_of_a_scan_that_the_disk_has_in_any_case() {
    let rig = Rig::new(LogPolicy::Through);
    rig.write(3, 5);
    assert_eq!(rig.pool.begin_read(rig.page(3), Use::Scan), None);
    assert_eq!(rig.pool.begin_read(rig.page(3), Use::Access), Some(Latest::Both));
}

/// Two frames are filled in turn with consecutive blocks, as a scan does that has a ring of two.
#[test]
fn pages_that_are_read_through_a_ring_do_not_enter() {
    let rig = Rig::with_frames(LogPolicy::Through, 16);
    for block in 0..8 {
        let (frame, next) = (block as usize % 2, Some(rig.page(block)));
        let how = rig.pool.leaves(frame, next, || Buf::copy_of(&page_of(1)));
        assert_eq!(how == Use::Scan, block >= 2, "{block}");
        rig.read_as(how, frame, block, 1);
    }
    // The frames return to others.
    for frame in 0..2 {
        let _ = rig.pool.leaves(frame, Some(rig.page(40)), || Buf::copy_of(&page_of(1)));
    }
    let entered: Vec<u64> = (0..8).filter(|block| rig.has(*block).is_some()).collect();
    assert!(entered.is_empty(), "{entered:?}");
    assert_eq!(rig.pool.area().get(Mark::CleanScanned), 8);
}

/// As COPY writes new pages, or VACUUM those that it changed.
#[test]
fn a_long_run_of_writes_enters_only_where_flash_has_an_older_version() {
    let rig = Rig::with_frames(LogPolicy::Through, 16);
    rig.write(12, 1);
    (0..20).for_each(|block| rig.write(block, 2));
    let entered: Vec<u64> = (0..20).filter(|block| rig.has(*block).is_some()).collect();
    assert_eq!(entered, [0, 1, 2, 3, 4, 5, 6, 7, 12]);
    assert_eq!(rig.has(12), Some(2));
    // A page from elsewhere.
    rig.write(40, 3);
    assert_eq!(rig.has(40), Some(3));
}

#[test]
fn only_clean_or_only_written_pages_enter_if_that_is_set() {
    for (admits, clean, written) in
        [(Admits::All, true, true), (Admits::Clean, true, false), (Admits::Dirty, false, true)]
    {
        let rig = Rig::new(LogPolicy::Bounded);
        admits.set(rig.pool.area());
        rig.read(0, 3, 5);
        rig.pool.leaves(0, None, || Buf::copy_of(&page_of(5)));
        assert_eq!(rig.has(3).is_some(), clean, "{admits:?}");
        assert_eq!(rig.pool.absorb(rig.page(4), &page_of(6)), Ok(written));
        rig.write(5, 7);
        assert_eq!(rig.has(5).is_some(), written, "{admits:?}");
        // The disk has a newer version than flash had.
        rig.write(3, 8);
        assert_ne!(rig.has(3), Some(5), "{admits:?}");
    }
}
