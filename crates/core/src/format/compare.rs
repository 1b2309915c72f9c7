// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached data compared with its checksums, while no server uses the device.
//!
//! Invariant: it uses what a start would: the recovered metadata, and the newest intact version of each sector of checksums.
//!
//! Clean data that does not match is damaged: it and its checksum were durable before metadata made it valid. Dirty data may
//! have been overwritten in the moment of a crash, and is only counted.

use std::ops::Range;

use super::kept::{Medium, Unreadable, look_at_journal};
use super::sums::{NONE, Newest, SumsArea, sum_of};
use super::units::UnitsPlan;
use crate::buf::PAGE;
use crate::journal::layout::Layout;
use crate::journal::recover::{Recovered, ValidPage};
use crate::pages::MOST_PAGES;
use crate::request::Errno;
use crate::shape::Shape;

/// A page, and whether it matches its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Its place on the volume, or in the space of several.
    pub range: Range<u64>,
    /// Whether no other device has its data, as far as metadata records.
    pub dirty: bool,
    /// Whether it is what was written.
    pub matches: bool,
}

/// Cached data of one shard.
struct Data<'a, M> {
    flash: &'a M,
    shape: Shape,
    layout: Layout,
    area: SumsArea,
    /// The block of checksums that was read last.
    block: Option<(u32, Newest)>,
}

/// Compares all cached data of a device; `each` is called for every page.
///
/// # Errors
/// The device fails a read of metadata. A shard whose metadata cannot be recovered has no data; a page that cannot be read
/// matches nothing.
pub fn compare_data<M: Medium>(
    units: &UnitsPlan,
    volume: u64,
    flash: &M,
    each: &mut dyn FnMut(Compared),
) -> Result<(), Errno> {
    for (shape, layout, area) in units.verified_shards(volume) {
        let found = match look_at_journal(&layout, volume, flash) {
            Ok(found) => found,
            Err(Unreadable::Read(errno)) => return Err(errno),
            Err(_) => continue,
        };
        let mut data = Data { flash, shape, layout, area, block: None };
        for slot in 0..layout.slots {
            data.compare_slot(slot, &found, each);
        }
    }
    Ok(())
}

impl<M: Medium> Data<'_, M> {
    fn compare_slot(&mut self, slot: u32, found: &Recovered, each: &mut dyn FnMut(Compared)) {
        let (layout, shape) = (self.layout, self.shape);
        let dirty = found.dirty(slot, &layout);
        let mut pages = found.pages(slot, &layout);
        // A short last unit has fewer. There is none in an origin that has grown beyond what the label states.
        let is_beyond = |unit: u32| u64::from(unit) >= shape.units();
        pages.retain(|page| is_beyond(page.unit) || page.page < shape.pages_of(page.unit));
        let together = |a: &ValidPage, b: &ValidPage| a.place + 1 == b.place;
        for run in pages.chunk_by(together).flat_map(|run| run.chunks(MOST_PAGES as usize)) {
            let at = layout.slots_at
                + u64::from(slot) * layout.slot_stride
                + u64::from(run[0].place) * PAGE as u64;
            let whole = self.flash.read(at, (run.len() * PAGE) as u64).ok();
            for (page, at) in run.iter().zip((at..).step_by(PAGE)) {
                let alone =
                    if whole.is_none() { self.flash.read(at, PAGE as u64).ok() } else { None };
                let within = (page.place - run[0].place) as usize * PAGE;
                let of_run = whole.as_ref().map(|bytes| &bytes[within..within + PAGE]);
                let bytes = of_run.or(alone.as_deref());
                let start = shape.unit_offset(page.unit) + u64::from(page.page) * PAGE as u64;
                let sum = self.sum(self.area.first_of(slot) + u64::from(page.place));
                let end = start + PAGE as u64;
                let is_known = start < shape.origin_bytes;
                each(Compared {
                    range: start..if is_known { end.min(shape.origin_bytes) } else { end },
                    dirty: dirty >> (page.place / layout.touch_pages()) & 1 == 1,
                    matches: bytes.is_some_and(|own| sum == sum_of(own, start / PAGE as u64)),
                });
            }
        }
    }

    /// The checksum of a page of the shard's slots.
    fn sum(&mut self, page: u64) -> u32 {
        let (block, within) = SumsArea::block_of(page);
        if self.block.as_ref().is_none_or(|(number, _)| *number != block) {
            let mut newest = Newest::default();
            for at in self.area.places_of(block) {
                let copy = self.flash.read(at, PAGE as u64).unwrap_or_default();
                newest.take(&self.area, (at, &copy), |_| true);
            }
            self.block = Some((block, newest));
        }
        self.block.as_ref().map_or(NONE, |(_, newest)| newest.sums[within])
    }
}
