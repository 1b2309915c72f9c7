// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which flash and which state file a start finds (design rule 10).
//!
//! Whether the flash may be used is decided by [`admit`], as in a serving process. Rows of the swarm that [stray]
//! (`Setup::strays`) meet another flash or another record than the last one. The user does what the documents advise:
//! formats a flash that is foreign, adopts one whose record is lost, and attaches the right one if another is refused.
//!
//! Invariant: the draws come from a random stream of their own, so that they change no row that does not stray.
//!
//! [stray]: Meets

use std::ops::Range;

use larder_core::buf::{Buf, SECTOR};
use larder_core::format::label::{Found as Labelled, LABELS_END, Label, SECOND_COPY};
use larder_core::format::{
    Asked, AskedOrigin, Decision, DeviceSize, Kept, Medium, OriginFacts, OriginPlace, OriginRecord,
    Plan, Records, StateRecord, Unreadable, Warm, Wishes, admit,
};
use larder_core::request::Errno;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::history::{Judged, wrong};
use super::on_flash::Found;
use super::setup::Setup;
use crate::store::Store;

/// Separates this random stream from the others that a crash is drawn from.
const STREAM: u64 = 0x1D_E571;

/// What a start meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    /// The flash and the record of the last life.
    Last,
    /// No record: it was lost.
    NoRecord,
    /// The record as of the start of the last life but one.
    EarlierRecord,
    /// A copy of the flash as of then.
    EarlierFlash,
    /// A copy of the flash from just before the start of the last life.
    FlashBeforeStart,
    /// The flash of another volume.
    OtherFlash,
}

impl Meets {
    /// What the start after a crash meets.
    pub(super) fn draw(setup: &Setup, salt: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(salt ^ STREAM);
        match rng.random_range(0..8) {
            _ if !setup.strays => Self::Last,
            0 => Self::NoRecord,
            1 => Self::EarlierRecord,
            2 => Self::EarlierFlash,
            3 => Self::FlashBeforeStart,
            4 => Self::OtherFlash,
            _ => Self::Last,
        }
    }
}

/// What the state file records of a volume's flash, and copies that a later start may meet.
#[derive(Default)]
pub(super) struct Identity {
    /// The state file's record.
    record: Option<StateRecord>,
    /// The record and the flash as of the start of this life.
    start: Option<(StateRecord, Store)>,
    /// ... and as of the start before.
    earlier: Option<(StateRecord, Store)>,
    /// The flash from just before the start of this life, which was warm, if it has journals.
    before: Option<Store>,
}

/// The flash of the last life.
pub(super) struct Last {
    pub flash: Store,
    /// The volume on it.
    pub volume: u64,
    /// Whether it was in use to the end.
    pub attached: bool,
    /// Bytes of the origin now, if it is alone.
    pub origin_bytes: u64,
}

/// A flash that is attached.
pub(super) struct Taken {
    pub flash: Store,
    /// The volume on it.
    pub volume: u64,
    /// What was recovered of each shard.
    pub found: Found,
    /// Whether it is used as it was.
    pub warm: bool,
}

/// A flash that the decision reads.
struct Bytes<'a>(&'a Store);

impl Medium for Bytes<'_> {
    fn fill(&self, at: u64, mut buf: Buf) -> Result<Buf, Errno> {
        self.0.read(at, &mut buf);
        Ok(buf)
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// A flash device with foreign data.
pub(super) fn foreign(setup: &Setup) -> Store {
    Store::new(setup.plan.end(), |_, bytes| bytes.fill(0xDB))
}

fn label_of(flash: &Store) -> Labelled {
    let mut bytes = vec![0; LABELS_END as usize];
    flash.read(0, &mut bytes);
    Label::find(&bytes)
}

fn format(setup: &Setup, volume: u64, flash: &mut Store) {
    setup.plan.blank(volume).for_each(|(at, bytes)| flash.write(at, &bytes, true));
    let label = setup.plan.label(volume).encode();
    [SECOND_COPY, 0].into_iter().for_each(|at| flash.write(at, &label, true));
}

impl Identity {
    /// Attaches the flash that a start finds; it is formatted if it may not be used as it is. From then on the record marks
    /// it as in use.
    pub(super) fn take_up(
        &mut self,
        setup: &Setup,
        last: Last,
        meets: Meets,
        rng: &mut Pcg64Mcg,
    ) -> Judged<Taken> {
        let lost = Kept::read(&setup.plan, last.volume, &Bytes(&last.flash));
        if lost.is_err_and(|why| why == Unreadable::Damaged) && !setup.trouble.rots() {
            return wrong("8: metadata is lost", format!("of volume {:x}", last.volume));
        }
        if !last.attached {
            self.record = self.record.take().map(|record| record.cleaned().out_of_use());
        }
        let sizes = sizes(setup, last.origin_bytes);
        let (mut flash, decision) = self.persist(setup, last, meets);
        let warm = matches!(decision, Decision::Warm(_));
        let (volume, kept) = match decision {
            Decision::Warm(Warm { volume, mut kept, .. }) => {
                if setup.strays {
                    let journaled = matches!(setup.plan, Plan::Units(_));
                    self.before = journaled.then(|| flash.clone());
                    let writes = kept.begin(&setup.plan, volume);
                    writes.iter().for_each(|(at, bytes)| flash.write(*at, bytes, true));
                }
                (volume, kept)
            }
            Decision::Cold { .. } => {
                let volume = rng.random();
                self.before = None;
                format(setup, volume, &mut flash);
                match Kept::read(&setup.plan, volume, &Bytes(&flash)) {
                    Ok(kept) => (volume, kept),
                    Err(why) => return wrong("8: flash was formatted", why.to_string()),
                }
            }
            Decision::Refused(why) => {
                return wrong("10: the last flash is refused", why.to_string());
            }
        };
        let origins = sizes.iter().map(|bytes| OriginRecord::new(&OriginPlace::default(), *bytes));
        let origins = origins.collect();
        let record = StateRecord::attached(volume, &kept, setup.choices.write, origins);
        let record = record.ignoring_as(self.record.as_ref());
        self.record = Some(record.clone());
        if setup.strays {
            self.earlier = self.start.replace((record, flash.clone()));
        }
        let mut found: Found = kept.recovered().into_iter().map(Some).collect();
        found.resize_with(setup.shape.shards as usize, || None);
        Ok(Taken { flash, volume, found, warm })
    }

    /// The pages that recovery of each log ignores.
    pub(super) fn ignored(&self, setup: &Setup) -> Vec<Vec<Range<u64>>> {
        let of = |log| self.record.as_ref().map_or_else(Vec::new, |record| record.ignored(log));
        (0..setup.shape.shards).map(of).collect()
    }

    /// Recovery of a log ignores these pages, and no others.
    pub(super) fn ignore(&mut self, log: usize, pages: &[Range<u64>]) {
        self.record = self.record.take().map(|record| record.ignoring(log as u32, pages));
    }

    /// The logs begin again.
    pub(super) fn ignore_nothing(&mut self) {
        self.record = self.record.take().map(StateRecord::ignoring_nothing);
    }

    /// Tries what a user tries, until a flash is not refused.
    fn persist(&self, setup: &Setup, last: Last, meets: Meets) -> (Store, Decision) {
        let (met, record) = self.meet(setup, &last, meets);
        let met = met.as_ref().unwrap_or(&last.flash);
        let formats = label_of(met) == Labelled::Nothing;
        let (last_flash, bytes) = (&last.flash, last.origin_bytes);
        let wishes = Wishes { formats, adopted: false };
        let decision = decide(setup, (met, bytes), record.as_ref(), wishes);
        let cold = matches!(decision, Decision::Cold { .. });
        let refused =
            matches!(decision, Decision::Refused(_)) || cold && other_is_dirty(met, &record);
        if !refused {
            return (met.clone(), decision);
        }
        // The right flash, whose record may be lost.
        let wishes = Wishes { formats: false, adopted: true };
        let decision = decide(setup, (last_flash, bytes), record.as_ref(), wishes);
        if last.attached || !matches!(decision, Decision::Refused(_)) {
            return (last.flash, decision);
        }
        // A detach wrote all dirty data to the origin; after a crash the metadata may not record that.
        let wishes = Wishes { formats: true, adopted: false };
        let decision = decide(setup, (last_flash, bytes), self.record.as_ref(), wishes);
        (last.flash, decision)
    }

    /// The flash, if it is not the last one, and the record that a start meets.
    fn meet(
        &self,
        setup: &Setup,
        last: &Last,
        meets: Meets,
    ) -> (Option<Store>, Option<StateRecord>) {
        let (record, earlier) = (self.record.clone(), self.earlier.as_ref());
        match meets {
            // Only the last record marks a flash as out of use: a user must not adopt a flash that was detached.
            Meets::NoRecord if last.attached => (None, None),
            Meets::EarlierRecord if last.attached => {
                (None, earlier.map(|(record, _)| record.clone()).or(record))
            }
            Meets::EarlierFlash => {
                let copy = earlier.filter(|copy| self.is_detected(copy));
                (copy.map(|(_, flash)| flash.clone()), record)
            }
            Meets::FlashBeforeStart => (self.before.clone(), record),
            Meets::OtherFlash => {
                let mut other = last.flash.clone();
                format(setup, !last.volume, &mut other);
                (Some(other), record)
            }
            Meets::Last | Meets::NoRecord | Meets::EarlierRecord => (None, record),
        }
    }

    /// Whether a copy of the flash is behind the record. If nothing was logged since then, the copy cannot be detected
    /// (docs/recovery.md).
    fn is_detected(&self, (then, _): &(StateRecord, Store)) -> bool {
        self.record.as_ref().is_some_and(|now| {
            then.volume != now.volume || then.reached.iter().zip(&now.reached).any(|(a, b)| a < b)
        })
    }
}

/// Whether the record is of another flash, which may hold dirty data: no start writes to this one, as the order of
/// [`Decision::Cold`] ensures.
fn other_is_dirty(flash: &Store, record: &Option<StateRecord>) -> bool {
    let names = |record: &StateRecord| match label_of(flash) {
        Labelled::Label(label) => record.names(label.volume),
        _ => false,
    };
    record.as_ref().is_some_and(|record| record.dirty && !names(record))
}

/// Bytes of each origin; of a lone one these.
fn sizes(setup: &Setup, alone: u64) -> Vec<u64> {
    match setup.volumes.count() {
        1 => vec![alone],
        _ => setup.volumes.ranges().map(|range| range.end - range.start).collect(),
    }
}

fn decide(
    setup: &Setup,
    (flash, origin_bytes): (&Store, u64),
    record: Option<&StateRecord>,
    wishes: Wishes,
) -> Decision {
    let found = label_of(flash);
    let naming = record.filter(|record| match &found {
        Labelled::Label(label) => record.names(label.volume),
        _ => false,
    });
    let origin =
        |bytes| AskedOrigin { facts: OriginFacts { bytes, modified_ns: None }, place: None };
    let origins: Vec<_> = sizes(setup, origin_bytes).into_iter().map(origin).collect();
    let asked = Asked {
        plan: &setup.plan,
        device: DeviceSize { bytes: flash.bytes(), block_bytes: SECTOR as u32 },
        write: setup.choices.write,
        wishes,
        origins: &origins,
        records: Some(Records { own: record, naming }),
    };
    admit(&found, &asked, &Bytes(flash))
}
