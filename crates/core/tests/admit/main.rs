// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision whether a flash may be used, as a table: content of the flash, state records, the user's options, decision
//! (design rule 10).

mod case;

use larder_core::config::WritePolicy;
use larder_core::format::label::{Found, HEADER_BYTES};
use larder_core::format::{Kept, OriginPlace, OriginRecord, StateRecord, Wishes, superseded};

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
            "refused: holds 2MiB of a cache of",
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
            "cold: it was formatted for the same cache with another layout",
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
                c.place = OriginPlace { resolved: "/dev/sdc".to_owned(), link: link() };
                c.record(|r| r.origins[0].origin_link = link());
            },
            "warm",
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
fn decisions_by_origin() {
    check(&[
        (
            "another size",
            "sce prwc face",
            |c| c.origin.bytes += 512,
            "cold: the origin has another size",
        ),
        (
            "another size under dirty data",
            "prwc face",
            |c| {
                c.origin.bytes += 512;
                c.record(|r| r.dirty = true);
            },
            "refused: cannot be used (the origin has another size)",
        ),
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
        let origins = vec![OriginRecord::new("", &place(origin), 4096)];
        StateRecord { dirty, ..StateRecord::attached(volume, &kept, write, origins) }
    };
    let of = |records: &[(u32, StateRecord)], own: u32, keeps| {
        superseded(records.to_vec(), |place| *place == own, &[place("/san")], keeps)
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

/// A volume that starts by itself takes nothing from the others of a flash that it shared.
#[test]
fn of_a_shared_flash_only_the_same_origin_is_superseded() {
    let origins = ["/san", "/lun"].map(|at| OriginRecord::new(at, &place(at), 4096));
    let kept = Kept::Units(Vec::new());
    let shared = StateRecord::attached(7, &kept, WritePolicy::WriteAround, origins.into());
    let by = |record: &StateRecord, own: bool, origins: &[&str]| {
        let origins: Vec<_> = origins.iter().map(|at| place(at)).collect();
        superseded(vec![((), record.clone())], |()| own, &origins, None)
    };
    let in_use = |found: Vec<((), StateRecord)>| {
        found.iter().map(|(_, r)| (r.in_use, r.origins[0].in_use, r.origins[1].in_use)).collect()
    };
    let after = |own, origins: &[&str]| -> Vec<_> {
        in_use(by(&shared, own, origins).expect("it is clean"))
    };
    assert_eq!(after(false, &["/lun"]), [(true, true, false)]);
    assert_eq!(after(false, &["/lun", "/san"]), [(false, true, true)]);
    assert_eq!(after(true, &["/lun"]), [(false, true, true)], "the cache starts without flash");
    assert_eq!(after(false, &["/other"]), []);
    // After a restart of the machine its device has another number, and the same link.
    let link = || Some("/dev/mapper/lun".into());
    let mut linked = shared.clone();
    linked.origins[1].origin_link = link();
    let renumbered = [OriginPlace { resolved: "/dev/dm-5".to_owned(), link: link() }];
    let found = superseded(vec![((), linked)], |()| false, &renumbered, None);
    assert_eq!(in_use(found.expect("it is clean"))[..], [(true, true, false)]);
    let without = by(&shared, false, &["/lun"]).expect("it is clean").remove(0).1;
    assert!(by(&without, false, &["/lun"]).expect("it is clean").is_empty());
    assert_eq!(in_use(by(&without, false, &["/san"]).expect("clean"))[..], [(false, true, false)]);
    assert!(without.using(1).origins[1].in_use);
    let dirty = StateRecord { dirty: true, ..shared.clone() };
    assert!(by(&dirty, false, &["/lun"]).is_err() && by(&dirty, false, &["/other"]).is_ok());
}

#[test]
fn decisions_about_several_volumes() {
    let volumes = |kind: &str, change: fn(&mut Case)| {
        let mut case = Case::three(kind);
        change(&mut case);
        case.decide()
    };
    assert_eq!(volumes("sce", |_| ()), "warm");
    let changed: fn(&mut Case) = |c| c.others[1].0.modified_ns = Some(78);
    let cold = "the origin was written to while it was not served";
    assert_eq!(volumes("sce", changed), format!("warm; of 2: {cold}"));
    let refused = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.others[1].0.modified_ns = Some(78);
    });
    assert!(refused.starts_with("refused") && refused.contains(cold), "{refused}");
    let out = volumes("sce", |c| c.record(|r| r.origins[0].in_use = false));
    assert!(out.starts_with("warm; of 0: it was detached"), "{out}");
    let all = volumes("sce", |c| {
        c.record(|r| r.origins.iter_mut().for_each(|of| of.in_use = false));
    });
    assert!(all.starts_with("cold: it was detached"), "{all}");
    let fewer = volumes("sce", |c| drop(c.others.pop()));
    assert_eq!(fewer, "cold: the state file records it for the origins /san, /lun/1, /lun/2");
    // Two origins were exchanged: the user's word does not make the one's dirty data that of the other.
    let exchanged = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.wishes = ADOPTED;
        c.others.reverse();
    });
    assert!(exchanged.contains("records the origin as that of the volume 'third'"), "{exchanged}");
    let moved = volumes("prwc", |c| {
        c.record(|r| r.dirty = true);
        c.wishes = ADOPTED;
        c.others[1].1 = place("/moved");
    });
    assert_eq!(moved, "warm, the user vouches for its place");
    // A crash came before everything of the first had left: nothing of it is dirty.
    let crashed: fn(&mut Case) = |c| c.record(|r| (r.dirty, r.origins[0].in_use) = (true, false));
    let renewed = volumes("prwc", crashed);
    assert!(renewed.starts_with("warm; of 0: it was detached"), "{renewed}");
    let other_order = volumes("sce", |c| c.others.reverse());
    assert!(other_order.starts_with("warm; of 1: the state file records it for"), "{other_order}");
}

#[test]
fn each_event_changes_the_record() {
    let kept = |kind: &str| {
        let case = Case::of(kind);
        Kept::read(&case.plan, VOLUME, &case.flash).expect("it was just formatted")
    };
    for (kind, dirty) in [("sce", false), ("prwc", true), ("face", true), ("face-through", false)] {
        let (kept, write) = (kept(kind), choices(kind).write);
        let origins = vec![OriginRecord::new("", &place("/san"), 4096)];
        let attached = StateRecord::attached(VOLUME, &kept, write, origins);
        assert!(attached.names(VOLUME) && !attached.names(1) && attached.in_use);
        assert_eq!((attached.dirty, attached.reached.len()), (dirty, 1), "{kind}");
        let stopped = attached.clone().stopped(vec![(3, 14)], false, &[Some(5)]);
        assert_eq!((stopped.dirty, stopped.origins[0].origin_mtime_ns), (false, Some(5)));
        let opened = stopped.opened(&[4], write);
        assert_eq!((opened.dirty, &opened.reached[..]), (dirty, &[(4, 0)][..]), "{kind}");
        assert!(!opened.cleaned().out_of_use().in_use);
    }
}
