// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision whether a flash may be used, as a table: content of the flash, state records, the user's options, decision
//! (design rule 10).

mod case;
mod several;

use larder_core::config::WritePolicy;
use larder_core::format::label::{Found, HEADER_BYTES};
use larder_core::format::{Kept, OriginPlace, OriginRecord, StateRecord, Wishes, superseded};
use larder_core::volumes::VolumeSet;

use self::case::{Case, VOLUME, choices, place, plan};

fn later(case: &mut Case) {
    case.found = Found::Unknown { version: 9 };
}

type Row = (&'static str, &'static str, fn(&mut Case), &'static str);

fn check(rows: &[Row]) {
    for (what, kinds, change, expected) in rows {
        for kind in kinds.split_whitespace() {
            let mut case = Case::of(kind);
            change(&mut case);
            let decided = case.decide();
            assert!(decided.starts_with(expected), "{what}, {kind}: {decided}");
        }
    }
}

const FORMATS: Wishes = Wishes { formats: true, adopted: false };
const ADOPTED: Wishes = Wishes { formats: false, adopted: true };

#[test]
fn decisions_by_label() {
    check(&[
        ("a new flash", "sce prwc face", |c| c.found = Found::Nothing, "cold: it is new"),
        (
            "a damaged label",
            "sce prwc face",
            |c| c.found = Found::Damaged,
            "refused: holds a damaged Larder label",
        ),
        (
            "a damaged label, to be formatted",
            "sce prwc face",
            |c| (c.found, c.wishes) = (Found::Damaged, FORMATS),
            "cold: it is new",
        ),
        ("a later format", "sce face", later, "refused: holds a Larder cache of format version 9"),
        (
            "a device that was cut short",
            "prwc face",
            |c| c.device.bytes = 2 << 20,
            "refused: holds 2MiB of a cache",
        ),
        ("the flash of a stop in good order", "sce prwc proc face face-through", |_| {}, "warm"),
        (
            "the flash of a volatile cache",
            "sce",
            |c| c.found = Found::Label(plan("sce-volatile", 1).label(VOLUME)),
            "cold: it kept no journal",
        ),
        (
            "a flash of another number of workers",
            "sce proc",
            |c| c.found = Found::Label(plan("sce", 2).label(VOLUME)),
            "cold: it was formatted for --workers 2 (now 1)",
        ),
        (
            "a flash of another layout",
            "sce proc",
            |c| {
                let Found::Label(label) = &mut c.found else { unreachable!("made so") };
                label.slots -= 1;
            },
            "cold: it was formatted for up to",
        ),
        (
            "a flash of write-back under a clean cache",
            "sce face-through",
            |c| {
                c.found = Found::Label(plan("prwc", 1).label(VOLUME));
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (it was formatted for",
        ),
    ]);
}

#[test]
fn decisions_by_metadata() {
    check(&[
        (
            "metadata that is lost, of a clean cache",
            "sce proc",
            |c| c.flash.bytes.borrow_mut()[HEADER_BYTES as usize..].fill(0),
            "cold: it holds no complete checkpoint",
        ),
        (
            "metadata that is lost, of write-back after a crash",
            "prwc",
            |c| {
                c.flash.bytes.borrow_mut()[HEADER_BYTES as usize..].fill(0);
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (it holds no complete checkpoint)",
        ),
        (
            "a flash that cannot be read",
            "sce",
            |c| c.flash.broken = HEADER_BYTES,
            "cold: it cannot be read",
        ),
        (
            "a page log that cannot be read",
            "face",
            |c| {
                c.flash.broken = HEADER_BYTES;
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (it holds a page log that cannot be used",
        ),
    ]);
}

#[test]
fn decisions_by_the_place_of_the_origin() {
    check(&[
        (
            "another origin of the same size",
            "sce proc face-through",
            |c| c.place = place("/other"),
            "cold: the state file records it for the origin /san",
        ),
        (
            "another origin of the same size, after a crash",
            "prwc face",
            |c| {
                c.place = place("/other");
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (the state file records it for the origin /san)",
        ),
        (
            "the same, adopted",
            "prwc face",
            |c| {
                c.place = place("/other");
                c.record(|r| r.dirty = true);
                c.wishes = ADOPTED;
            },
            "warm, the user vouches for its place",
        ),
        (
            "another link in /dev to the same path",
            "sce",
            |c| {
                c.place.link = Some("/dev/disk/by-id/other".into());
                c.record(|r| r.origins[0].origin_link = Some("/dev/disk/by-id/san".into()));
            },
            "cold: the state file records it for the origin /san",
        ),
        (
            "a link in /dev to the same path, by a record without one",
            "sce",
            |c| c.place.link = Some("/dev/disk/by-id/san".into()),
            "warm",
        ),
        (
            "the same link in /dev to another path",
            "sce prwc face",
            |c| {
                let link = || Some("/dev/disk/by-id/san".into());
                c.place = OriginPlace { link: link(), ..place("/dev/sdc") };
                c.record(|r| r.origins[0].origin_link = link());
            },
            "warm",
        ),
    ]);
}

/// As a stop between the label of a new formatting and the state record that names it leaves it.
#[test]
fn a_flash_that_no_start_has_used_holds_nothing() {
    check(&[
        ("unused", "sce prwc face", Case::blank, "cold: there is no state file"),
        (
            "formatted again",
            "sce prwc face",
            Case::blank_again,
            "cold: the state file names another",
        ),
    ]);
}

#[test]
fn decisions_by_state_records() {
    check(&[
        ("no record", "sce proc face-through", Case::forget, "cold: there is no state file"),
        ("no record", "prwc face", Case::forget, "refused: cannot be used (there is no state file"),
        (
            "a record of another formatting",
            "sce",
            |c| c.record(|r| r.volume = "0000000000000001".to_owned()),
            "cold: the state file names another flash",
        ),
        (
            "a record of another formatting",
            "prwc face",
            |c| {
                c.record(|r| r.volume = "0000000000000001".to_owned());
                c.naming = None;
            },
            "refused: cannot be used (the state file names another flash",
        ),
        (
            "the clean flash of another volume",
            "sce",
            |c| c.own = None,
            "cold: there is no state file",
        ),
        (
            "the dirty flash of another volume",
            "sce prwc face",
            |c| {
                c.own = None;
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (there is no state file",
        ),
        (
            "out of use",
            "sce prwc face",
            |c| c.record(|r| r.in_use = false),
            "cold: it was detached",
        ),
        (
            "a clean cache after write-back",
            "sce",
            |c| c.record(|r| r.dirty = true),
            "refused: cannot be used (it was used under write-back)",
        ),
        (
            "a flash that is behind its record",
            "sce proc face-through",
            |c| c.record(|r| r.reached = vec![(u64::MAX, 0)]),
            "cold: it is a copy from before the last start or stop",
        ),
        (
            "a dirty flash that is behind its record",
            "prwc face",
            |c| {
                c.record(|r| (r.reached, r.dirty) = (vec![(u64::MAX, 0)], true));
            },
            "refused: cannot be used (it is a copy from before the last start or stop",
        ),
        (
            "a flash that is ahead of its record, as after a crash",
            "sce prwc face",
            |c| c.record(|r| r.reached = vec![(0, 0)]),
            "warm",
        ),
        ("no records are kept", "sce", |c| c.keeps_records = false, "cold: it was used under"),
        ("no records are kept", "prwc face", |c| c.keeps_records = false, "refused"),
        ("a volatile cache", "sce-volatile", |_| {}, "cold: it was used under write-back"),
    ]);
}

#[test]
fn decisions_by_the_size_of_the_origin() {
    check(&[
        (
            "a larger size under dirty data",
            "prwc face",
            |c| {
                c.origin.bytes += 1 << 20;
                c.record(|r| r.dirty = true);
            },
            "warm",
        ),
        ("a larger size", "sce prwc face", |c| c.origin.bytes += 1 << 20, "warm"),
        (
            "a larger size without a record",
            "prwc face",
            |c| {
                c.origin.bytes += 1 << 20;
                (c.own, c.naming, c.wishes.adopted) = (None, None, true);
            },
            "refused: cannot be used (the origin has another size: ",
        ),
        (
            "a larger size that ends within a page",
            "sce prwc face",
            |c| c.origin.bytes += 512,
            "cold: the origin has another size",
        ),
        (
            "a larger size after one that ended within a page",
            "sce prwc face",
            |c| c.record(|r| r.origins[0].origin_bytes -= 512),
            "cold: the origin has another size",
        ),
        (
            "a smaller size",
            "sce prwc face",
            |c| c.origin.bytes -= 512,
            "cold: the origin has another size",
        ),
        (
            "a smaller size under dirty data",
            "prwc face",
            |c| {
                c.origin.bytes -= 512;
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (the origin has another size: ",
        ),
    ]);
}

#[test]
fn decisions_by_the_time_of_the_origin() {
    check(&[
        (
            "another time",
            "sce prwc face",
            |c| c.origin.modified_ns = Some(78),
            "cold: the origin was written to",
        ),
        (
            "another time under dirty data",
            "prwc face",
            |c| {
                c.origin.modified_ns = Some(78);
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (the origin was written to",
        ),
        (
            "a time that is not known since a crash",
            "sce prwc face",
            |c| {
                c.origin.modified_ns = Some(78);
                c.record(|r| r.origins[0].origin_mtime_ns = None);
            },
            "warm",
        ),
    ]);
}

#[test]
fn decisions_with_format() {
    check(&[
        ("format", "sce prwc face", |c| c.wishes = FORMATS, "cold: --format was given"),
        (
            "format of a dirty flash",
            "prwc face",
            |c| {
                c.wishes = FORMATS;
                c.record(|r| r.dirty = true);
            },
            "cold, dirty data lost: --format was given",
        ),
    ]);
}

#[test]
fn decisions_with_adopt() {
    check(&[
        (
            "a flash that no record names is adopted",
            "prwc face",
            |c| {
                c.wishes = ADOPTED;
                c.forget();
            },
            "warm, the user vouches for the flash",
        ),
        (
            "a clean flash needs no adoption and gets none",
            "sce proc",
            |c| {
                c.wishes = ADOPTED;
                c.forget();
            },
            "cold: there is no state file",
        ),
        (
            "a flash of another volume is not adopted",
            "prwc face",
            |c| {
                c.wishes = ADOPTED;
                c.own = None;
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (there is no state file that names it), and it may hold dirty data; start it with the settings that it had, or discard that data with --format",
        ),
        (
            "a flash of another cache is not adopted",
            "prwc",
            |c| {
                c.wishes = ADOPTED;
                c.forget();
                c.found = Found::Label(plan("prwc", 2).label(VOLUME));
            },
            "refused: cannot be used (it was formatted for --workers 2 (now 1)",
        ),
        (
            "an origin that was only restored from a backup",
            "prwc face",
            |c| {
                c.wishes = ADOPTED;
                c.origin.modified_ns = Some(78);
                c.record(|r| r.dirty = true);
            },
            "warm, the user vouches for the origin",
        ),
        (
            "an origin that was written to, over a clean flash",
            "sce prwc face",
            |c| {
                c.wishes = ADOPTED;
                c.origin.modified_ns = Some(78);
            },
            "cold: the origin was written to",
        ),
        (
            "an earlier copy is not adopted",
            "prwc face",
            |c| {
                c.wishes = ADOPTED;
                c.record(|r| (r.reached, r.dirty) = (vec![(u64::MAX, 0)], true));
            },
            "refused: cannot be used (it is a copy from before",
        ),
    ]);
}

/// A volume cannot start without a flash that may hold dirty data; a clean one is marked as out of use.
#[test]
fn other_flash_of_the_same_origin_is_superseded() {
    let record = |volume, dirty, origin: &str| {
        let kept = Kept::Units(Vec::new());
        let write = WritePolicy::WriteAround;
        let origins = vec![OriginRecord::new(&place(origin), 4096)];
        StateRecord { dirty, ..StateRecord::attached(volume, &kept, write, origins) }
    };
    let of = |records: &[(u32, StateRecord)], own: u32, keeps| {
        superseded(records.to_vec(), |place| *place == own, |_, _| false, &[place("/san")], keeps)
    };
    let records = [
        (1, record(1, false, "/san")),
        (2, record(2, false, "/san")),
        (3, record(3, true, "/other")),
        (4, record(4, true, "/san").out_of_use()),
    ];
    let changed = |own, keeps| {
        let superseded = of(&records, own, keeps).expect("none is dirty");
        superseded.into_iter().map(|(place, record)| (place, record.in_use)).collect::<Vec<_>>()
    };
    assert_eq!(changed(1, Some(1)), [(2, false)]);
    assert_eq!(changed(1, Some(9)), [(1, false), (2, false)]);
    assert_eq!(changed(9, None), [(1, false), (2, false)]);
    // The volume's name belonged to another origin, whose flash is dirty.
    let refused = of(&records, 3, None).expect_err("it is dirty");
    assert_eq!(refused.0, 3);
    assert!(of(&records, 3, Some(3)).is_ok());
}

#[test]
fn each_event_changes_the_record() {
    let kept = |kind: &str| {
        let case = Case::of(kind);
        Kept::read(&case.plan, VOLUME, &case.flash).expect("it was just formatted")
    };
    for (kind, dirty) in [("sce", false), ("prwc", true), ("face", true), ("face-through", false)] {
        let (kept, write) = (kept(kind), choices(kind).write);
        let origins = vec![OriginRecord::new(&place("/san"), 4096)];
        let attached = StateRecord::attached(VOLUME, &kept, write, origins);
        assert!(attached.names(VOLUME) && !attached.names(1) && attached.in_use);
        assert_eq!((attached.dirty, attached.reached.len()), (dirty, 1), "{kind}");
        let stopped = attached.clone().stopped(vec![(3, 14)], VolumeSet::default(), &[Some(5)]);
        assert_eq!((stopped.dirty, stopped.origins[0].origin_mtime_ns), (false, Some(5)));
        let opened = stopped.opened(&[4], write);
        assert_eq!((opened.dirty, &opened.reached[..]), (dirty, &[(4, 0)][..]), "{kind}");
        assert!(!opened.cleaned().out_of_use().in_use);
    }
}
