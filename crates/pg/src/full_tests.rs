// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash as a part of the database: what a crash of the machine brings back, and which starts are refused.
//!
//! A crash here loses the shared memory; what reached a file stays.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use larder_core::pagelog::{Geometry, LogPolicy};

use crate::area::Mark;
use crate::content::crc;
use crate::earlier;
use crate::file::Fork;
use crate::guard::Guard;
use crate::kept::Kept;
use crate::memory::How;
use crate::rig::{FORK, PAGE, Place, Run, control, page_of};

#[test]
fn what_was_flushed_comes_back_and_nothing_goes_to_the_disk() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(run.how, How::Empty);
    for block in 0..10 {
        run.put(&FORK, block, 7);
    }
    run.commit(&FORK);
    assert_eq!(run.pool.area().get(Mark::WrittenBack), 0);
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(run.how, How::Recovered);
    assert!((0..10).all(|block| run.has(&FORK, block) == Some(7)));
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert!((0..10).all(|block| run.has(&FORK, block) == Some(7)), "twice");
}

#[test]
fn what_was_cut_off_does_not_come_back_though_the_file_has_grown_again() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    for block in 0..20 {
        run.put(&FORK, block, 7);
    }
    run.commit(&FORK);
    run.pool.forget(&FORK, 0, 10, &|| Ok(32)).unwrap();
    place.file().set_len(10 * PAGE as u64).unwrap();
    place.file().set_len(32 * PAGE as u64).unwrap();
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!([9, 10, 19].map(|block| run.has(&FORK, block)), [Some(7), None, None]);
}

#[test]
fn pages_behind_the_end_of_a_file_and_of_unknown_forks_are_gone_for_good() {
    let place = Place::new();
    let other = Fork { relation: 101, ..FORK };
    let run = place.start(LogPolicy::Full).unwrap();
    for block in 0..20 {
        run.put(&FORK, block, 7);
    }
    run.commit(&FORK);
    // Durable by chance, and its name is not.
    fs::write(place.data.path().join("base/5/101"), vec![0; 32 * PAGE]).unwrap();
    for block in 0..8 {
        run.put(&other, block, 8);
    }
    run.pool.flash().flush_log().unwrap();
    place.file().set_len(10 * PAGE as u64).unwrap();
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    place.file().set_len(32 * PAGE as u64).unwrap();
    let seen = |run: &Run| [run.has(&FORK, 9), run.has(&FORK, 10), run.has(&other, 3)];
    assert_eq!(seen(&run), [Some(7), None, None]);
    run.commit(&other);
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(
        seen(&run),
        [Some(7), None, None],
        "a number that is given again has nothing of before"
    );
}

#[test]
fn a_fork_that_was_dropped_is_gone_once_pg_control_was_written() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.commit(&FORK);
    run.pool.forget(&FORK, 0, 0, &|| Ok(32)).unwrap();
    run.pool.commit_control(&control(1)).unwrap();
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(run.has(&FORK, 3), None);
}

#[test]
fn room_is_made_on_the_disk_and_what_left_is_there_after_a_crash() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    for round in 1..60 {
        for block in 0..32 {
            run.put(&FORK, block, round);
        }
    }
    run.commit(&FORK);
    assert!(run.pool.area().unflushed().len() > 1);
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    let on_disk = |block: u64| {
        let mut byte = [0];
        place.file().read_exact_at(&mut byte, block * PAGE as u64 + 100).unwrap();
        byte[0]
    };
    assert!((0..32).all(|block| run.has(&FORK, block).unwrap_or_else(|| on_disk(block)) == 59));
}

#[test]
fn another_policy_brings_all_of_it_to_the_disk_and_takes_the_guard_away() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.commit(&FORK);
    place.crash(run);
    assert!(Guard::read(place.data.path()).unwrap().is_some());
    let run = place.start(LogPolicy::Bounded).unwrap();
    assert_eq!(run.how, How::Empty);
    let mut byte = [0];
    place.file().read_exact_at(&mut byte, 3 * PAGE as u64 + 100).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(Guard::read(place.data.path()).unwrap(), None);
    assert!(!earlier::is_needed(place.data.path(), place.flash.path()));
}

#[test]
fn starts_that_would_lose_pages_are_refused_and_leave_them() {
    let mut place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.pool.commit_control(&control(2)).unwrap();
    place.crash(run);
    let is = |text: String, part: &str| assert!(text.contains(part), "{text}");
    place.server.control = control(3);
    is(place.refused(), "pg_control is another");
    place.server.control = control(2);
    let (guard, kept) =
        (place.data.path().join("backup_label"), place.flash.path().join("larder.kept"));
    let aside = |path: &Path| {
        let to = path.with_extension("aside");
        fs::rename(path, &to).unwrap();
        to
    };
    let back = aside(&guard);
    is(place.refused(), "no guard that names it");
    // Access of others makes it no less needed.
    for (path, mode) in [(place.flash.path(), 0o777), (&kept, 0o666)] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(earlier::is_needed(place.data.path(), place.flash.path()), "{mode:o}");
        fs::set_permissions(path, before).unwrap();
    }
    fs::rename(back, &guard).unwrap();
    let back = aside(&kept);
    is(place.refused(), "which the data directory needs");
    assert!(earlier::is_needed(place.data.path(), Path::new("/nowhere")));
    fs::rename(back, &kept).unwrap();
    for control_then in [2, 1] {
        place.server.control = control(control_then);
        let run = place.start(LogPolicy::Full).unwrap();
        assert_eq!(run.has(&FORK, 3), Some(7));
        run.pool.commit_control(&control(2)).unwrap();
        run.pool.commit_control(&control(1)).unwrap();
        place.crash(run);
    }
}

#[test]
fn a_log_that_does_not_fit_the_flash_file_is_refused_before_memory_is_made_for_it() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.pool.commit_control(&control(1)).unwrap();
    place.crash(run);
    let kept = Kept::read(&place.directory()).unwrap().unwrap();
    let large = Geometry { page_bytes: 32_768, batch_pages: 1, ..kept.log };
    for log in [
        Geometry { blocks: kept.log.blocks + 1, ..kept.log },
        Geometry { blocks: u32::MAX, ..kept.log },
        Geometry { base: u64::MAX - 4095, ..kept.log },
        Geometry { page_bytes: 3, ..kept.log },
        // Possible logs, and not of the server's pages.
        Geometry { page_bytes: 4096, ..kept.log },
        large.grown_to(kept.log.bytes()).unwrap(),
        Geometry { batch_pages: u32::MAX, ..kept.log },
    ] {
        Kept { log, ..kept.clone() }.save(&place.directory()).unwrap();
        assert!(place.refused().contains("does not fit larder.flash"), "{log:?}");
        assert!(place.memories().files().unwrap().is_empty());
    }
    kept.save(&place.directory()).unwrap();
    assert_eq!(place.start(LogPolicy::Full).unwrap().has(&FORK, 3), Some(7));
}

#[test]
fn a_copy_of_flash_beside_a_restored_backup_is_begun_anew() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.pool.commit_control(&control(1)).unwrap();
    place.crash(run);
    // Base backups have a label instead of the guard.
    let label = place.data.path().join("backup_label");
    fs::remove_file(&label).unwrap();
    let flash = place.flash.path().join("larder.flash");
    fs::copy(&flash, place.flash.path().join("copy")).unwrap();
    place.refused();
    fs::rename(place.flash.path().join("copy"), flash).unwrap();
    place.refused();
    fs::write(&label, "START WAL LOCATION: 0/2000028").unwrap();
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!((run.how, run.has(&FORK, 3)), (How::Empty, None));
    assert!(Guard::read(place.data.path()).unwrap().is_some());
}

#[test]
fn a_tablespace_that_is_not_mounted_is_not_taken_for_dropped() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    let space = Fork { tablespace: 77, ..FORK };
    let mounted = place.data.path().join("space").join(place.server.tablespace_version());
    fs::create_dir_all(mounted.join("5")).unwrap();
    fs::write(mounted.join("5/100"), vec![0; 32 * PAGE]).unwrap();
    fs::create_dir(place.data.path().join("pg_tblspc")).unwrap();
    let link = place.data.path().join("pg_tblspc/77");
    std::os::unix::fs::symlink(place.data.path().join("space"), link).unwrap();
    run.put(&space, 3, 7);
    run.commit(&space);
    place.crash(run);
    fs::rename(&mounted, place.data.path().join("away")).unwrap();
    assert!(place.refused().contains("pg_tblspc/77"));
    fs::rename(place.data.path().join("away"), &mounted).unwrap();
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(run.has(&space, 3), Some(7));
}

#[test]
fn many_names_are_written_anew_and_known() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.commit(&FORK);
    run.pool.area().set(Mark::JournalRows, 100_001);
    let other = Fork { relation: 101, ..FORK };
    fs::write(place.data.path().join("base/5/101"), vec![0; 32 * PAGE]).unwrap();
    run.put(&other, 4, 8);
    run.commit(&other);
    assert!(run.pool.area().get(Mark::JournalRows) < 10);
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!((run.has(&FORK, 3), run.has(&other, 4)), (Some(7), Some(8)));
}

#[test]
fn data_and_flash_put_back_together_are_known_though_the_memory_is_of_later() {
    let mut place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.pool.commit_control(&control(1)).unwrap();
    let names = ["larder.flash", "larder.kept", "larder.names"];
    let before = names.map(|name| fs::read(place.flash.path().join(name)).unwrap());
    run.put(&FORK, 3, 8);
    run.pool.commit_control(&control(2)).unwrap();
    run.pool.area().set(Mark::Control, 2);
    drop(run);
    // The data directory alone, one pg_control earlier.
    assert!(place.refused().contains("was put back or changed"));
    for (name, bytes) in names.iter().zip(before) {
        let file = File::options().write(true).open(place.flash.path().join(name)).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!((run.how, run.has(&FORK, 3)), (How::Recovered, Some(7)));
    // And the other way round.
    place.server.control = control(2);
    drop(run);
    assert!(place.refused().contains("was put back or changed"));
}

#[test]
fn room_for_names_is_there_before_it_is_needed() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    let allotted = |name: &str| fs::metadata(place.flash.path().join(name)).unwrap().blocks() * 512;
    let has_room =
        || allotted("larder.names") > 9_000_000 && allotted("larder.kept.new") > 4_000_000;
    assert!(has_room());
    run.put(&FORK, 3, 7);
    run.pool.area().set(Mark::JournalRows, 100_001);
    run.commit(&FORK);
    assert!(has_room(), "after the journal was rewritten");
}

#[test]
fn a_damaged_page_that_the_disk_has_is_not_lost_with_a_crash() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    // Whole batches: nothing of them is in memory.
    for block in 0..12 {
        run.put(&FORK, block, 7);
    }
    run.commit(&FORK);
    run.pool.drain().unwrap();
    let flash = place.flash.path().join("larder.flash");
    let mut bytes = fs::read(&flash).unwrap();
    // Pages alone, of all that is there.
    let pages = bytes.chunks_mut(PAGE).filter(|page| page[..] == page_of(7)[..]);
    assert_eq!(pages.map(|page| page[9] = 8).count(), 12);
    fs::write(&flash, bytes).unwrap();
    assert!((0..12).all(|block| run.has(&FORK, block).is_none()));
    run.pool.commit_control(&control(1)).unwrap();
    place.crash(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!(run.how, How::Recovered);
    assert!((0..12).all(|block| run.has(&FORK, block).is_none()));
    assert!(run.pool.drain().is_ok(), "nothing is lost");
}

#[test]
fn a_log_of_an_older_library_is_refused_and_its_memory_is_not_used() {
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    run.put(&FORK, 3, 7);
    run.commit(&FORK);
    run.pool.area().set(Mark::Layout, 1);
    drop(run);
    let run = place.start(LogPolicy::Full).unwrap();
    assert_eq!((run.how, run.has(&FORK, 3)), (How::Recovered, Some(7)));
    drop(run);
    let path = place.flash.path().join("larder.kept");
    let mut bytes = fs::read(&path).unwrap();
    let rows = u64::from_le_bytes(bytes[64..72].try_into().unwrap()) as usize;
    let end = 8 * (11 + 4 * rows);
    bytes[..8].copy_from_slice(b"LARDPGK2");
    let check = crc(&bytes[..end]).to_le_bytes();
    bytes[end..end + 8].copy_from_slice(&check);
    fs::write(&path, &bytes).unwrap();
    assert!(place.refused().contains("older version"));
    Guard::remove(place.data.path()).unwrap();
    assert!(place.refused().contains("no guard"));
}
