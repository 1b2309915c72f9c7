// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision whether a flash may be used, as a table: content of the flash, state records, the user's options, decision
//! (design rule 10).

use std::cell::RefCell;

use larder_core::buf::Buf;
use larder_core::config::{Choices, Durability, WritePolicy, preset};
use larder_core::format::label::{Found, HEADER_BYTES};
use larder_core::format::{
    Asked, Decision, DeviceSize, Kept, Medium, OriginFacts, OriginPlace, Plan, Records,
    StateRecord, Vouched, Wishes, admit, superseded,
};
use larder_core::pagelog::LogPolicy;
use larder_core::request::Errno;
use larder_core::shape::Shape;

const DEVICE: DeviceSize = DeviceSize { bytes: 16 << 20, block_bytes: 512 };
const ORIGIN: OriginFacts = OriginFacts { bytes: 64 << 20, modified_ns: Some(77) };
const VOLUME: u64 = 0xab;

/// A flash device in memory; `broken` fails from this byte on.
struct Flash {
    bytes: RefCell<Vec<u8>>,
    broken: u64,
}

impl Medium for Flash {
    fn fill(&self, at: u64, mut buf: Buf) -> Result<Buf, Errno> {
        let end = at + buf.len() as u64;
        if end > self.broken {
            return Err(Errno::EIO);
        }
        let len = buf.len();
        buf[..len].copy_from_slice(&self.bytes.borrow()[at as usize..end as usize]);
        Ok(buf)
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// The input of a decision: [`Case::of`] is a restart after a clean stop; a row changes it.
struct Case {
    found: Found,
    plan: Plan,
    write: WritePolicy,
    wishes: Wishes,
    origin: OriginFacts,
    place: OriginPlace,
    own: Option<StateRecord>,
    /// The record that names the flash: the volume's own, unless a row changes it.
    naming: Option<StateRecord>,
    keeps_records: bool,
    device: DeviceSize,
    flash: Flash,
}

fn choices(kind: &str) -> Choices {
    let name = kind.split('-').next().unwrap_or(kind);
    let choices = preset(name).expect("a preset").choices();
    match kind {
        "sce-volatile" => Choices { durability: Durability::Volatile, ..choices },
        "face-through" => Choices { write: WritePolicy::Logged(LogPolicy::Through), ..choices },
        _ => choices,
    }
}

fn place(resolved: &str) -> OriginPlace {
    OriginPlace { resolved: resolved.to_owned(), link: None }
}

fn plan(kind: &str, workers: u32) -> Plan {
    let choices = choices(kind);
    let shape = Shape::new(ORIGIN.bytes, choices.unit_bytes, workers);
    Plan::fit(shape, &choices, DEVICE, None).expect("it fits")
}

impl Case {
    fn of(kind: &str) -> Self {
        let plan = plan(kind, 1);
        let mut bytes = vec![0; DEVICE.bytes as usize];
        for (at, blank) in plan.blank(VOLUME) {
            bytes[at as usize..][..blank.len()].copy_from_slice(&blank);
        }
        let flash = Flash { bytes: RefCell::new(bytes), broken: u64::MAX };
        let write = choices(kind).write;
        let kept = Kept::read(&plan, VOLUME, &flash).expect("it was just formatted");
        let record = StateRecord::attached(VOLUME, &kept, write, &place("/san"), ORIGIN.bytes);
        let record = record.stopped(kept.reached(), false, ORIGIN.modified_ns);
        Self {
            found: Found::Label(plan.label(VOLUME)),
            plan,
            write,
            wishes: Wishes::default(),
            origin: ORIGIN,
            place: place("/san"),
            own: Some(record.clone()),
            naming: Some(record),
            keeps_records: true,
            device: DEVICE,
            flash,
        }
    }

    /// Changes the volume's own record, which names the flash.
    fn record(&mut self, change: impl Fn(&mut StateRecord)) {
        [&mut self.own, &mut self.naming].into_iter().flatten().for_each(change);
    }

    fn forget(&mut self) {
        (self.own, self.naming) = (None, None);
    }

    fn decide(&self) -> String {
        let records = Records { own: self.own.as_ref(), naming: self.naming.as_ref() };
        let asked = Asked {
            plan: &self.plan,
            device: self.device,
            write: self.write,
            wishes: self.wishes,
            origin: self.origin,
            place: Some(&self.place),
            records: self.keeps_records.then_some(records),
        };
        match admit(&self.found, &asked, &self.flash) {
            Decision::Warm(warm) => match warm.vouched {
                None => "warm".to_owned(),
                Some(Vouched::Flash) => "warm, the user vouches for the flash".to_owned(),
                Some(Vouched::Origin) => "warm, the user vouches for the origin".to_owned(),
                Some(Vouched::Place) => "warm, the user vouches for its place".to_owned(),
            },
            Decision::Cold { why, loses_dirty: false } => format!("cold: {why}"),
            Decision::Cold { why, loses_dirty: true } => format!("cold, dirty data lost: {why}"),
            Decision::Refused(why) => format!("refused: {why}"),
        }
    }
}

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
            "the same link in /dev to another path",
            "sce prwc face",
            |c| {
                let link = || Some("/dev/disk/by-id/san".to_owned());
                c.place = OriginPlace { resolved: "/dev/sdc".to_owned(), link: link() };
                c.record(|r| r.origin_link = link());
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
                c.record(|r| r.origin_mtime_ns = None);
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
        StateRecord { dirty, ..StateRecord::attached(volume, &kept, write, &place(origin), 4096) }
    };
    let of = |records: &[(u32, StateRecord)], own: u32, keeps| {
        superseded(records.to_vec(), |place| *place == own, "/san", keeps)
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
        let attached = StateRecord::attached(VOLUME, &kept, write, &place("/san"), 4096);
        assert!(attached.names(VOLUME) && !attached.names(1) && attached.in_use);
        assert_eq!((attached.dirty, attached.reached.len()), (dirty, 1), "{kind}");
        let stopped = attached.clone().stopped(vec![(3, 14)], false, Some(5));
        assert_eq!((stopped.dirty, stopped.origin_mtime_ns), (false, Some(5)));
        let opened = stopped.opened(&[4], write);
        assert_eq!((opened.dirty, &opened.reached[..]), (dirty, &[(4, 0)][..]), "{kind}");
        assert!(!opened.cleaned().out_of_use().in_use);
    }
}
