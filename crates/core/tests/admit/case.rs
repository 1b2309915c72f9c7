// SPDX-License-Identifier: MIT OR Apache-2.0
//! The input of a decision, and a flash device in memory.

use std::cell::RefCell;

use larder_core::buf::Buf;
use larder_core::config::{Choices, Durability, WritePolicy, preset};
use larder_core::format::label::Found;
use larder_core::format::{
    Asked, AskedOrigin, Decision, DeviceSize, FORMAT_SHARED, Kept, Medium, OriginFacts,
    OriginPlace, OriginRecord, Plan, Records, StateRecord, Vouched, Wishes, admit,
};
use larder_core::pagelog::LogPolicy;
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_core::volumes::VolumeSet;

pub const DEVICE: DeviceSize = DeviceSize { bytes: 16 << 20, block_bytes: 512 };
pub const ORIGIN: OriginFacts = OriginFacts { bytes: 64 << 20, modified_ns: Some(77) };
pub const VOLUME: u64 = 0xab;

/// A flash device in memory; `broken` fails from this byte on.
pub struct Flash {
    pub bytes: RefCell<Vec<u8>>,
    pub broken: u64,
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
pub struct Case {
    pub found: Found,
    pub plan: Plan,
    pub write: WritePolicy,
    pub wishes: Wishes,
    pub origin: OriginFacts,
    pub place: OriginPlace,
    /// Origins of further volumes.
    pub others: Vec<(OriginFacts, OriginPlace)>,
    pub own: Option<StateRecord>,
    /// The record that names the flash: the volume's own, unless a row changes it.
    pub naming: Option<StateRecord>,
    pub keeps_records: bool,
    pub device: DeviceSize,
    pub flash: Flash,
}

pub fn choices(kind: &str) -> Choices {
    let name = kind.split('-').next().unwrap_or(kind);
    let choices = preset(name).expect("a preset").choices();
    match kind {
        "sce-volatile" => Choices { durability: Durability::Volatile, ..choices },
        "face-through" => Choices { write: WritePolicy::Logged(LogPolicy::Through), ..choices },
        _ => choices,
    }
}

pub fn place(resolved: &str) -> OriginPlace {
    OriginPlace { resolved: resolved.to_owned(), ..OriginPlace::default() }
}

pub fn plan(kind: &str, workers: u32) -> Plan {
    let choices = choices(kind);
    let shape = Shape::new(ORIGIN.bytes, choices.unit_bytes, workers);
    Plan::fit(shape, &choices, DEVICE, None, None).expect("it fits")
}

impl Case {
    pub fn of(kind: &str) -> Self {
        let plan = plan(kind, 1);
        let mut bytes = vec![0; DEVICE.bytes as usize];
        for (at, blank) in plan.blank(VOLUME) {
            bytes[at as usize..][..blank.len()].copy_from_slice(&blank);
        }
        let flash = Flash { bytes: RefCell::new(bytes), broken: u64::MAX };
        let write = choices(kind).write;
        let mut kept = Kept::read(&plan, VOLUME, &flash).expect("it was just formatted");
        let used = match &plan {
            Plan::Units(_) => kept.begin(&plan, VOLUME),
            // The second of the two headers of a log was written again; here a crash left it incomplete.
            Plan::Logs(_) => {
                plan.blank(VOLUME).skip(1).step_by(2).map(|(at, _)| (at, vec![1; 8])).collect()
            }
        };
        for (at, bytes) in used {
            flash.bytes.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let origin = OriginRecord::new(&place("/san"), ORIGIN.bytes);
        let record = StateRecord::attached(VOLUME, &kept, write, vec![origin]);
        let record = record.stopped(kept.reached(), VolumeSet::default(), &[ORIGIN.modified_ns]);
        Self {
            found: Found::Label(plan.label(VOLUME)),
            plan,
            write,
            wishes: Wishes::default(),
            origin: ORIGIN,
            place: place("/san"),
            others: Vec::new(),
            own: Some(record.clone()),
            naming: Some(record),
            keeps_records: true,
            device: DEVICE,
            flash,
        }
    }

    /// Changes the volume's own record, which names the flash.
    pub fn record(&mut self, change: impl Fn(&mut StateRecord)) {
        [&mut self.own, &mut self.naming].into_iter().flatten().for_each(change);
    }

    /// Three volumes share the flash; the record is of a clean stop of all of them.
    pub fn three(kind: &str) -> Self {
        let mut case = Self::of(kind);
        let others = [("second", "/lun/1"), ("third", "/lun/2")];
        let others =
            others.map(|(name, at)| (ORIGIN, OriginPlace { name: name.into(), ..place(at) }));
        case.record(|record| {
            let of = |(facts, place): &(OriginFacts, OriginPlace)| OriginRecord {
                origin_mtime_ns: facts.modified_ns,
                ..OriginRecord::new(place, facts.bytes)
            };
            record.format = FORMAT_SHARED;
            record.origins.extend(others.iter().map(of));
        });
        case.others = others.into();
        case
    }

    /// As the first formatting leaves the flash.
    pub fn blank(&mut self) {
        self.flash.bytes.borrow_mut().fill(0);
        for (at, bytes) in self.plan.blank(VOLUME) {
            self.flash.bytes.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        self.forget();
    }

    /// As a new formatting leaves the flash: the record names the one before.
    pub fn blank_again(&mut self) {
        let own = self.own.clone();
        self.blank();
        self.own = own.map(|own| StateRecord { volume: "0000000000000001".to_owned(), ..own });
    }

    pub fn forget(&mut self) {
        (self.own, self.naming) = (None, None);
    }

    pub fn decide(&self) -> String {
        let records = Records { own: self.own.as_ref(), naming: self.naming.as_ref() };
        let origin = |(facts, place)| AskedOrigin { facts, place: Some(place) };
        let others = self.others.iter().map(|(facts, place)| (*facts, place));
        let origins: Vec<_> =
            std::iter::once((self.origin, &self.place)).chain(others).map(origin).collect();
        let asked = Asked {
            plan: &self.plan,
            device: self.device,
            write: self.write,
            wishes: self.wishes,
            origins: &origins,
            records: self.keeps_records.then_some(records),
        };
        match admit(&self.found, &asked, &self.flash) {
            Decision::Warm(warm) if !warm.stale.is_empty() => {
                let stale = warm.stale.iter().map(|(volume, why)| format!("; of {volume}: {why}"));
                format!("warm{}", stale.collect::<String>())
            }
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
