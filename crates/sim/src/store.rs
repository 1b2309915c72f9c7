// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a modelled device: what it holds now, and what a power cut would leave.
//!
//! A write lands in `now` and is durable only after a flush that was asked for later, or at once
//! with FUA. That is the least that a device promises, so an engine that needs more fails.
//! A power cut may leave any content that a sector held since its last durable one.
//!
//! Invariants: a sector holds one version at a time; versions land in the order of their ages; what
//! a flush makes durable is exactly what had landed when it was asked for. A version that a fault
//! caused is *damaged* until something else is written there.
//!
//! Why versions and not bytes: nearly all sectors hold the self-describing value of a client's
//! write, which is two numbers. A device is then a table of small entries; what a power cut leaves
//! of it is a copy of the table, and comparing sectors is comparing numbers.

use std::collections::VecDeque;
use std::ops::Range;

use larder_core::buf::SECTOR;

use crate::oracle::{Value, fill, write_of};

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What the device's function returns for the sector.
    First,
    /// Zeroes.
    Zero,
    /// The value of a client's write to this sector of the volume.
    Of {
        /// The sector of the volume.
        sector: u32,
        /// The write.
        write: u32,
    },
    /// Other bytes, kept aside.
    Raw(u32),
}

/// A sector's content with the moment at which it landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The content.
    pub content: Content,
    /// Whether a fault caused it.
    pub damaged: bool,
    age: u32,
}

const FIRST: Version = Version { content: Content::First, damaged: false, age: 0 };

#[derive(Clone, Copy)]
struct Place {
    now: Version,
    durable: Version,
}

/// What a power cut left: a version per sector.
pub type Image = Vec<Version>;

/// The bytes, see the module.
#[derive(Clone)]
pub struct Store {
    first: fn(u64, &mut [u8]),
    places: Vec<Place>,
    /// Writes that landed and that no flush covers, oldest first.
    log: VecDeque<(u32, Version)>,
    raw: Vec<[u8; SECTOR]>,
    age: u32,
    /// Whether a fault ever damaged a version.
    faulty: bool,
}

/// The moment at which a flush was asked for.
pub type Snapshot = u32;

impl Store {
    /// A device of `bytes` bytes whose sectors at first hold what `first(sector)` fills in.
    #[must_use]
    pub fn new(bytes: u64, first: fn(u64, &mut [u8])) -> Self {
        let sectors = (bytes / SECTOR as u64) as usize;
        let places = vec![Place { now: FIRST, durable: FIRST }; sectors];
        Self { first, places, log: VecDeque::new(), raw: Vec::new(), age: 0, faulty: false }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.places.len() as u64 * SECTOR as u64
    }

    /// Reads the present contents.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (chunk, sector) in into.chunks_mut(SECTOR).zip(offset / SECTOR as u64..) {
            self.expand(sector, self.now(sector).content, chunk);
        }
    }

    /// Reads what an image of this device holds.
    pub fn read_image(&self, image: &Image, offset: u64, into: &mut [u8]) {
        for (chunk, sector) in into.chunks_mut(SECTOR).zip(offset / SECTOR as u64..) {
            let version = image.get(sector as usize).copied().unwrap_or(FIRST);
            self.expand(sector, version.content, chunk);
        }
    }

    /// What a sector holds now.
    #[must_use]
    pub fn now(&self, sector: u64) -> Version {
        self.places.get(sector as usize).map_or(FIRST, |p| p.now)
    }

    /// Whether versions that faults caused may be there.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.faulty
    }

    fn expand(&self, at: u64, content: Content, into: &mut [u8]) {
        match content {
            Content::First => (self.first)(at, into),
            Content::Zero => into.fill(0),
            Content::Of { sector, write } => fill(u64::from(sector), u64::from(write), into),
            Content::Raw(raw) => into.copy_from_slice(&self.raw[raw as usize]),
        }
    }

    /// The value of a sector of the volume whose content this is on the origin.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn value(&self, at: u64, content: Content) -> Result<Value, String> {
        match content {
            Content::Zero => Ok(Value::Zero),
            Content::Of { sector, write } if u64::from(sector) == at => {
                Ok(Value::Of(u64::from(write)))
            }
            other => {
                let mut bytes = [0; SECTOR];
                self.expand(at, other, &mut bytes);
                crate::oracle::value(at, &bytes)
            }
        }
    }

    fn content_of(&mut self, bytes: &[u8]) -> Content {
        if let Some((sector, write)) = write_of(bytes)
            && let (Ok(sector), Ok(write)) = (u32::try_from(sector), u32::try_from(write))
        {
            return Content::Of { sector, write };
        }
        if bytes.iter().all(|b| *b == 0) {
            return Content::Zero;
        }
        let mut raw = [0; SECTOR];
        raw[..bytes.len()].copy_from_slice(bytes);
        self.raw.push(raw);
        Content::Raw(self.raw.len() as u32 - 1)
    }

    /// Writes; durable at once with `fua`. What lies beyond the end is dropped, so that a store can
    /// keep the first bytes of a device only.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        self.age += 1;
        let inside = self.places.len() as u64;
        let sectors = offset / SECTOR as u64..inside.max(offset / SECTOR as u64);
        for (chunk, sector) in bytes.chunks(SECTOR).zip(sectors) {
            let content = self.content_of(chunk);
            self.put(sector, content, false, fua);
        }
    }

    /// Makes a range zero.
    pub fn zero(&mut self, offset: u64, len: u64, fua: bool) {
        self.age += 1;
        for sector in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            self.put(sector, Content::Zero, false, fua);
        }
    }

    /// A write that is acknowledged and never stored: the sectors keep what they have.
    pub fn lose(&mut self, offset: u64, len: u64, fua: bool) {
        (self.age, self.faulty) = (self.age + 1, true);
        for sector in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            self.put(sector, self.now(sector).content, true, fua);
        }
    }

    /// Bytes are written to a place where no write of this moment belongs.
    pub fn stray(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        (self.age, self.faulty) = (self.age + 1, true);
        for (chunk, sector) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
            let content = self.content_of(chunk);
            let damaged = self.now(sector).content != content || self.now(sector).damaged;
            self.put(sector, content, damaged, fua);
        }
    }

    /// A bit of a sector changes, in the device's cache and on its medium alike.
    pub fn flip(&mut self, sector: u64, bit: u32) {
        self.faulty = true;
        let mut bytes = [0; SECTOR];
        self.expand(sector, self.now(sector).content, &mut bytes);
        bytes[bit as usize / 8 % SECTOR] ^= 1 << (bit % 8);
        self.age += 1;
        let content = self.content_of(&bytes);
        self.put(sector, content, true, true);
    }

    fn put(&mut self, sector: u64, content: Content, damaged: bool, fua: bool) {
        let Some(place) = self.places.get_mut(sector as usize) else { return };
        place.now = Version { content, damaged, age: self.age };
        if fua {
            place.durable = place.now;
        } else {
            self.log.push_back((sector as u32, place.now));
        }
    }

    /// The moment that a flush asked for now covers.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.age
    }

    /// A flush of a range is complete: what had landed there when it was asked for is durable.
    pub fn make_range_durable(&mut self, snapshot: Snapshot, range: Range<u64>) {
        if range == (0..self.bytes()) {
            return self.make_durable(snapshot);
        }
        let sectors = range.start / SECTOR as u64..range.end.div_ceil(SECTOR as u64);
        let places = &mut self.places;
        self.log.retain(|(sector, version)| {
            let covered = version.age <= snapshot && sectors.contains(&u64::from(*sector));
            let durable = &mut places[*sector as usize].durable;
            if covered && version.age > durable.age {
                *durable = *version;
            }
            !covered
        });
    }

    /// A flush is complete: what had landed when it was asked for is durable.
    pub fn make_durable(&mut self, snapshot: Snapshot) {
        while let Some((sector, version)) = self.log.front().copied() {
            if version.age > snapshot {
                break;
            }
            self.log.pop_front();
            let durable = &mut self.places[sector as usize].durable;
            if version.age > durable.age {
                *durable = version;
            }
        }
    }

    /// The device loses writes to a range that no flush covers, those of which `keeps` returns false, and continues.
    pub fn forget(&mut self, range: Range<u64>, mut keeps: impl FnMut() -> bool) {
        let sectors = range.start / SECTOR as u64..range.end.div_ceil(SECTOR as u64);
        for (sector, version) in std::mem::take(&mut self.log) {
            let place = &mut self.places[sector as usize];
            if version.age <= place.durable.age {
                continue;
            }
            if !sectors.contains(&u64::from(sector)) || keeps() {
                self.log.push_back((sector, version));
            } else if place.now.age == version.age {
                place.now = place.durable;
            }
        }
    }

    /// Writes that no flush covers, oldest first: sectors and the number of the write.
    pub fn unflushed(&self) -> impl Iterator<Item = (u64, u32)> {
        let durable = |sector: u32| self.places[sector as usize].durable.age;
        let late = move |e: &&(u32, Version)| e.1.age > durable(e.0);
        self.log.iter().filter(late).map(|(sector, version)| (u64::from(*sector), version.age))
    }

    /// What a power cut leaves: every write that no flush covered is stored or not, sector by
    /// sector, by choice of `keeps`, which is given the sector and the number of the write.
    #[must_use]
    pub fn cut(&self, keeps: impl FnMut(u64, u32) -> bool) -> Image {
        let mut image = Vec::new();
        self.cut_into(&mut image, keeps);
        image
    }

    /// As [`Store::cut`], into an image that is there already.
    pub fn cut_into(&self, image: &mut Image, mut keeps: impl FnMut(u64, u32) -> bool) {
        image.clear();
        image.extend(self.places.iter().map(|p| p.durable));
        for (sector, version) in &self.log {
            let place = &mut image[*sector as usize];
            if version.age > place.age && keeps(u64::from(*sector), version.age) {
                *place = *version;
            }
        }
    }

    /// What the end of a process leaves: everything.
    #[must_use]
    pub fn image(&self) -> Image {
        self.places.iter().map(|p| p.now).collect()
    }

    /// After a power cut that left this image.
    #[must_use]
    pub fn after(mut self, image: &Image) -> Self {
        let old = std::mem::take(&mut self.raw);
        for (place, version) in self.places.iter_mut().zip(image) {
            let mut version = Version { age: 0, ..*version };
            if let Content::Raw(raw) = version.content {
                self.raw.push(old[raw as usize]);
                version.content = Content::Raw(self.raw.len() as u32 - 1);
            }
            *place = Place { now: version, durable: version };
        }
        self.log.clear();
        self.age = 0;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(8 * SECTOR as u64, |sector, bytes| fill(sector, 0, bytes))
    }

    fn bytes(sector: u64, write: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        fill(sector, write, &mut bytes);
        bytes
    }

    /// A sector as a power cut would leave it at worst.
    fn durable(store: &Store, sector: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        store.read_image(&store.cut(|_, _| false), sector * SECTOR as u64, &mut bytes);
        bytes
    }

    #[test]
    fn a_flush_covers_what_had_landed_when_it_was_asked_for() {
        let mut store = store();
        store.write(512, &bytes(1, 1), false);
        let snapshot = store.snapshot();
        store.write(512, &bytes(1, 2), false);
        store.make_durable(snapshot);
        assert_eq!(durable(&store, 1), bytes(1, 1));
        let none = store.cut(|_, _| false);
        assert_eq!(none[1].content, Content::Of { sector: 1, write: 1 });
        let all = store.cut(|_, _| true);
        assert_eq!(all[1].content, Content::Of { sector: 1, write: 2 });
    }

    #[test]
    fn fua_is_durable_at_once_and_older_writes_do_not_come_back() {
        let mut store = store();
        store.write(0, &bytes(0, 1), false);
        store.write(0, &bytes(0, 2), true);
        assert_eq!(store.unflushed().count(), 0);
        let snapshot = store.snapshot();
        store.make_durable(snapshot);
        assert_eq!(durable(&store, 0), bytes(0, 2));
        assert_eq!(store.cut(|_, _| true)[0].content, Content::Of { sector: 0, write: 2 });
    }

    #[test]
    fn what_is_forgotten_is_as_before_the_write() {
        let mut store = store();
        store.write(0, &bytes(0, 1), true);
        store.write(0, &bytes(0, 2), false);
        store.write(512, &bytes(1, 3), false);
        let mut keeps = [false, true].into_iter();
        store.forget(0..u64::MAX, || keeps.next().unwrap_or(false));
        let now = |sector| store.now(sector).content;
        assert_eq!(now(0), Content::Of { sector: 0, write: 1 });
        assert_eq!(now(1), Content::Of { sector: 1, write: 3 });
        assert_eq!(store.unflushed().count(), 1);
    }

    #[test]
    fn faults_damage_until_the_next_write() {
        let mut store = store();
        store.lose(0, 512, false);
        store.flip(1, 77);
        store.stray(1024, &bytes(5, 3), false);
        let damaged = |s: &Store| (0..8).filter(|i| s.now(*i).damaged).collect::<Vec<_>>();
        assert_eq!(damaged(&store), [0, 1, 2]);
        store.write(0, &bytes(0, 1), false);
        assert_eq!(damaged(&store), [1, 2]);
        assert!(store.cut(|_, _| false)[1].damaged, "a flip reaches the medium");
        let store = store.clone().after(&store.image());
        let mut seen = [0; SECTOR];
        store.read(512, &mut seen);
        assert!(seen != bytes(1, 0) && store.unflushed().count() == 0);
    }
}
