// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of a cache of units: metadata of all shards, checksums, and slots.

use super::flash_plan::{FlashPlan, MetadataPlan, SumsPlan};
use super::label::{HEADER_BYTES, Keeps, LABELS_END, Label, MOST_SHARDS, Section, SectionKind};
use super::room::{DeviceSize, Frame, TooSmall, is_same_or_grew};
use super::sums::{self, SumsArea};
use crate::buf::PAGE;
use crate::config::{Choices, Durability};
use crate::exec::DevId;
use crate::journal::layout::{LOG_MOST, Layout, log_bytes};
use crate::journal::recover;
use crate::shape::Shape;

/// How many times its size a flash may have later.
const GROWS: u64 = 4;
/// The default room for more slots takes at most this fraction of a flash.
const ROOM_SHARE: u64 = 256;
/// The most bytes of slots that a label may describe.
const MOST_BYTES: u64 = 1 << 60;

/// The places of a cache of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsPlan {
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Slots in use, over all shards.
    pub slots: u64,
    /// Slots that metadata and checksums have room for. `slots` may change up to this without another format.
    pub room: u64,
    /// First byte of slot 0.
    pub slots_at: u64,
    /// Bytes of a block of the device.
    pub block_bytes: u32,
    /// The metadata before the slots; `None` in a volatile cache.
    pub metadata: Option<Metadata>,
    /// The checksums before the slots, if it has any: the first byte, and how many copies.
    pub sums: Option<(u64, u32)>,
}

/// The metadata of all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its first byte.
    pub at: u64,
    /// The volume's shape.
    pub shape: Shape,
    /// Bytes of the origin when flash was formatted, as in the label. There is room for the units that it had.
    pub formatted_for: u64,
    /// Bytes of one shard's log.
    pub log_bytes: u64,
    /// Its optional content.
    pub keeps: Keeps,
    /// The digest of the volumes that share it; 0 of one.
    pub volumes: u64,
}

impl UnitsPlan {
    /// The places of `slots` slots of a cache of these choices, with room for no more; with a journal, each shard's log has
    /// `log_bytes`.
    #[must_use]
    pub fn of(
        frame: Frame,
        shape: Shape,
        slots: u64,
        block_bytes: u32,
        choices: &Choices,
        log_bytes: u64,
    ) -> Self {
        Self::with_room(frame, shape, (slots, slots), block_bytes, choices, log_bytes)
    }

    /// The same with room for more slots.
    fn with_room(
        frame: Frame,
        shape: Shape,
        (slots, room): (u64, u64),
        block_bytes: u32,
        choices: &Choices,
        log_bytes: u64,
    ) -> Self {
        let (unit_bytes, keeps) = (shape.unit_bytes, Keeps::of(choices));
        let metadata = (choices.durability != Durability::Volatile).then_some(Metadata {
            at: frame.first,
            shape,
            formatted_for: shape.origin_bytes,
            log_bytes,
            keeps,
            volumes: 0,
        });
        let end = frame.first + metadata.map_or(0, |metadata| metadata.bytes(room));
        // As in the label: that of a volatile cache, whose content no restart uses, records no dirty data.
        let copies = sums::copies(metadata.is_some() && keeps.dirty);
        let sums = choices.verify.then(|| (end.next_multiple_of(PAGE as u64), copies));
        let end = sums.map_or(end, |(at, copies)| at + sums::total_bytes(&shape, room, copies));
        let slots_at = end.next_multiple_of(frame.grain);
        Self { unit_bytes, slots, room, slots_at, block_bytes, metadata, sums }
    }

    /// The places of `slots` slots without metadata.
    #[must_use]
    pub fn volatile(frame: Frame, unit_bytes: u64, slots: u64, block_bytes: u32) -> Self {
        let slots_at = frame.first.next_multiple_of(frame.grain);
        Self { unit_bytes, slots, room: slots, slots_at, block_bytes, metadata: None, sums: None }
    }

    /// The same for volumes of this digest.
    #[must_use]
    pub fn shared(mut self, volumes: u64) -> Self {
        if let Some(metadata) = &mut self.metadata {
            metadata.volumes = volumes;
        }
        self
    }

    /// As many slots as fit with their metadata, if `most` fit without; the metadata has room for `grows_to` bytes of slots.
    pub(super) fn fit(
        shape: Shape,
        most: u64,
        device: DeviceSize,
        choices: &Choices,
        grows_to: Option<u64>,
    ) -> Result<Self, TooSmall> {
        let (unit_bytes, block_bytes) = (shape.unit_bytes, device.block_bytes);
        let log_bytes = log_bytes(device.bytes, Keeps::of(choices), shape.shards);
        let sized = |slots, room| {
            let sizes = (slots, room);
            Self::with_room(Frame::DEVICE, shape, sizes, block_bytes, choices, log_bytes)
        };
        let room = match grows_to {
            Some(bytes) => {
                let slots_at = sized(most, bytes / unit_bytes).slots_at;
                bytes.saturating_sub(slots_at) / unit_bytes
            }
            None => default_room(most, |room| sized(most, room).slots_at, unit_bytes),
        };
        let room = if choices.placement.may_grow() { room } else { 0 };
        let of = |slots| sized(slots, room.max(slots));
        let (bytes, needed) = (HEADER_BYTES + most * unit_bytes, |slots: u64| of(slots).end());
        let mut slots = most;
        while slots > 0 && needed(slots) > bytes {
            let over = needed(slots) - bytes;
            slots = slots.saturating_sub(over.div_ceil(unit_bytes));
        }
        match slots {
            0 => Err(TooSmall::Journal { bytes, least: needed(1) }),
            slots => Ok(of(slots)),
        }
    }

    pub(super) fn of_label(label: &Label, device: DeviceSize) -> Option<Self> {
        let Label { unit_bytes, shards, log_bytes, keeps, origin_bytes, volumes, .. } = *label;
        let (block_bytes, room) = (device.block_bytes, label.slots);
        let slots_at = label.section(SectionKind::Slots)?.offset;
        let fits = unit_bytes.is_power_of_two()
            && unit_bytes >= PAGE as u64
            && room.checked_mul(unit_bytes).is_some_and(|bytes| bytes <= MOST_BYTES);
        let slots = device.bytes.saturating_sub(slots_at).checked_div(unit_bytes)?.min(room);
        let metadata = match label.section(SectionKind::Metadata).filter(|_| fits) {
            None => None,
            Some(section) => {
                let shape = Shape::new(origin_bytes, unit_bytes, shards);
                let (at, formatted_for) = (section.offset, origin_bytes);
                let metadata = Metadata { at, shape, formatted_for, log_bytes, keeps, volumes };
                let valid = (1..=MOST_SHARDS).contains(&shards)
                    && log_bytes <= LOG_MOST
                    && shape.units() <= Shape::MOST_UNITS
                    && metadata.bytes(room) <= section.bytes;
                Some(valid.then_some(metadata)?)
            }
        };
        let sums = label.section(SectionKind::Sums);
        let copies = sums::copies(keeps.dirty);
        let sums_fit = sums.is_none_or(|sums| {
            // Only the metadata has the shape.
            let needed = metadata
                .map_or(0, |Metadata { shape, .. }| sums::total_bytes(&shape, room, copies));
            sums.offset.is_multiple_of(PAGE as u64) && needed <= sums.bytes
        });
        let sums = sums.map(|sums| (sums.offset, copies));
        let plan = Self { unit_bytes, slots, room, slots_at, block_bytes, metadata, sums };
        let first = metadata.map(|metadata| metadata.at);
        let first = first.or(sums.map(|(at, _)| at)).unwrap_or(slots_at);
        let fits = fits && sums_fit;
        (fits && slots > 0 && first >= LABELS_END && first <= slots_at).then_some(plan)
    }

    pub(super) fn label(&self, volume: u64) -> Label {
        let &Self { unit_bytes, room, slots_at, metadata, sums, .. } = self;
        let section = |kind, offset, bytes| Section { kind, offset, bytes };
        let own = section(SectionKind::Slots, slots_at, room * unit_bytes);
        let before = |kind, at, end: u64| section(kind, at, end.saturating_sub(at));
        let metadata_end = sums.map_or(slots_at, |(at, _)| at);
        let sums = sums.map(|(at, _)| before(SectionKind::Sums, at, slots_at));
        let metadata_at = |m: Metadata| before(SectionKind::Metadata, m.at, metadata_end);
        Label {
            volume,
            unit_bytes,
            slots: room,
            shards: metadata.map_or(0, |m| m.shape.shards),
            log_bytes: metadata.map_or(0, |m| m.log_bytes),
            keeps: metadata.map(|m| m.keeps).unwrap_or_default(),
            origin_bytes: metadata.map_or(0, |m| m.formatted_for),
            volumes: metadata.map_or(0, |m| m.volumes),
            sections: metadata.map(metadata_at).into_iter().chain(sums).chain([own]).collect(),
        }
    }

    /// First byte after all slots that metadata has room for.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        self.slots_at + self.room * self.unit_bytes
    }

    /// The same places, with the slots that fit into so many bytes.
    ///
    /// # Errors
    /// None fits, or metadata has no room for so many.
    pub fn sized(&self, bytes: u64) -> Result<Self, SizeRefused> {
        let slots = bytes.saturating_sub(self.slots_at) / self.unit_bytes;
        let at = |slots: u64| self.slots_at + slots * self.unit_bytes;
        match slots {
            0 => Err(SizeRefused::TooSmall { least: at(1) }),
            _ if slots > self.room => Err(SizeRefused::TooLarge { most: at(self.room) }),
            _ => Ok(Self { slots: slots.min(self.most_units()), ..*self }),
        }
    }

    /// Units that may be cached at the same time: those of the origin when flash was formatted.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.metadata.map_or(u64::MAX, |m| m.formatted_for.div_ceil(self.unit_bytes))
    }

    /// Several volumes that share a cache lie one after another, so that none may grow.
    pub(super) fn serves(&self, was: u64, is: u64) -> bool {
        let shared = self.metadata.is_some_and(|metadata| metadata.volumes != 0);
        was == is || !shared && is_same_or_grew(was, is, self.unit_bytes)
    }

    /// The places that a label of the same cache has, with the slots that fit into so many bytes; `None` if it is that of another.
    /// The origin may have grown since.
    pub(super) fn as_formatted(
        &self,
        label: &Label,
        device: DeviceSize,
        most: u64,
    ) -> Option<Self> {
        let (found, own) = (Self::of_label(label, device)?, self.metadata?);
        let metadata = found.metadata?;
        let copies = |plan: &Self| plan.sums.map(|(_, copies)| copies);
        let kept = |m: Metadata| (m.shape.shards, m.keeps, m.volumes);
        let (was, is) = (metadata.formatted_for, own.shape.origin_bytes);
        let same = found.unit_bytes == self.unit_bytes
            && copies(&found) == copies(self)
            && kept(metadata) == kept(own)
            && self.serves(was, is);
        let fit = most.saturating_sub(found.slots_at) / found.unit_bytes;
        let fit = fit.min(found.slots).min(found.most_units());
        // A label does not contain stripes.
        let metadata = Some(Metadata { shape: own.shape, ..metadata });
        (same && fit > 0).then_some(Self { slots: fit, metadata, ..found })
    }

    /// First byte after the last slot in use.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.slots_at + self.slots * self.unit_bytes
    }

    /// Shards with metadata.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.metadata.map_or(0, |m| m.shape.shards)
    }

    /// The places for the engine.
    #[must_use]
    pub fn place(&self, dev: DevId, volume: u64) -> FlashPlan {
        let journal = self.metadata.map(|m| {
            let Metadata { at, formatted_for: origin_bytes, log_bytes, keeps, .. } = m;
            MetadataPlan { base: at, volume, origin_bytes, log_bytes, keeps }
        });
        let sums = self.sums.map(|(base, copies)| SumsPlan { base, volume, copies });
        let &Self { slots, room, slots_at, block_bytes, .. } = self;
        FlashPlan { dev, base: slots_at, slots, room, block_bytes, journal, sums }
    }

    /// The place of a shard's metadata.
    #[must_use]
    pub fn layout(&self, volume: u64, shard: u32) -> Option<Layout> {
        let shape = self.metadata?.shape.of_shard(shard);
        Layout::of(&shape, &self.place(DevId(0), volume))
    }

    /// The places of the metadata of all shards.
    pub fn layouts(&self, volume: u64) -> impl Iterator<Item = Layout> + use<> {
        let plan = *self;
        (0..plan.shards()).filter_map(move |shard| plan.layout(volume, shard))
    }

    /// The places of the checksums of all shards, if it has any. Only metadata has the shape.
    pub fn sums_areas(&self, volume: u64) -> impl Iterator<Item = SumsArea> + use<> {
        self.verified_shards(volume).map(|(_, _, area)| area)
    }

    /// The shape, metadata and checksums of each shard that has checksums.
    pub(super) fn verified_shards(
        &self,
        volume: u64,
    ) -> impl Iterator<Item = (Shape, Layout, SumsArea)> + use<> {
        let (plan, place) = (*self, self.place(DevId(0), volume));
        (0..self.shards()).filter_map(move |shard| {
            let shape = plan.metadata?.shape.of_shard(shard);
            Some((shape, plan.layout(volume, shard)?, SumsArea::of(&place, &shape)?))
        })
    }

    pub(super) fn blank(&self, volume: u64) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        self.layouts(volume).flat_map(move |layout| recover::format(&layout, volume))
    }
}

/// A size that a flash in use cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRefused {
    /// No slot fits.
    TooSmall {
        /// Bytes that are needed.
        least: u64,
    },
    /// Its metadata has no room for so many slots.
    TooLarge {
        /// Bytes that are accepted.
        most: u64,
    },
}

/// Slots of a flash of `slots` slots that metadata has room for unless a size is given: [`GROWS`] times as many, or fewer if that
/// takes more than a share of the flash. `slots_at`: the first byte of the slots, given the room.
fn default_room(slots: u64, slots_at: impl Fn(u64) -> u64, unit_bytes: u64) -> u64 {
    let most = slots.saturating_mul(unit_bytes) / ROOM_SHARE;
    let mut times = GROWS;
    while times > 1 && slots_at(times * slots) - slots_at(slots) > most {
        times /= 2;
    }
    times * slots
}

impl Metadata {
    fn bytes(&self, slots: u64) -> u64 {
        let shape = self.shape.of_origin(self.formatted_for);
        Layout::total_bytes(&shape, slots, self.log_bytes, self.keeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;
    use crate::format::LOG_PERIODIC;

    /// PT1: every cell of Table 1 of PRWC, in tenths of a MiB.
    #[test]
    fn a_region_is_no_larger_than_the_papers() {
        let table = [
            (1, [62, 63, 64, 66]),
            (2, [83, 84, 85, 88]),
            (4, [126, 126, 128, 130]),
            (8, [211, 211, 213, 215]),
        ];
        let keeps = Keeps::of(&preset("prwc").expect("a preset").choices());
        for (origin_tib, row) in table {
            for (flash_gib, paper) in [8, 16, 32, 64].into_iter().zip(row) {
                let shape = Shape::new(origin_tib << 40, 1 << 20, 1);
                let bytes = Layout::total_bytes(&shape, flash_gib << 10, LOG_PERIODIC, keeps) / 2;
                let tenths = (bytes * 10).div_ceil(1 << 20);
                assert!(tenths <= paper, "{origin_tib} TiB, {flash_gib} GiB: {tenths} > {paper}");
            }
        }
    }
}
