// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places on a flash device: the metadata and slots of a cache of units, or page logs.
//!
//! A [`Plan`] is computed from choices and sizes, or from a label. It gives the label, the places that the engine needs, and
//! the writes of formatting.
//!
//! Invariants: `Plan::of_label(&plan.label(volume), size)` is `plan`, for stripes of one unit, since a label does not
//! contain stripes. A plan from a label places nothing outside the device, so reads by it are bounded.

use super::label::{Label, Section, SectionKind};
use super::logs::LogsPlan;
use super::room::{DeviceSize, LargeBlocks, TooSmall, slots_in};
use super::units::UnitsPlan;
use crate::config::{Choices, Placement, WritePolicy};
use crate::shape::Shape;

/// The places on a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Units in slots.
    Units(UnitsPlan),
    /// Pages in logs.
    Logs(LogsPlan),
}

/// A label contradicts itself, or the device that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its label does not suit the device")]
pub struct Unsuitable;

impl Plan {
    /// The largest cache of these choices that fits on a device, within `most_bytes`. Units may take up to `grows_to` bytes later,
    /// by default a few times as many.
    ///
    /// # Errors
    /// If none fits.
    pub fn fit(
        shape: Shape,
        choices: &Choices,
        device: DeviceSize,
        most_bytes: Option<u64>,
        grows_to: Option<u64>,
    ) -> Result<Self, TooSmall> {
        let slots = slots_in(device.bytes.min(most_bytes.unwrap_or(u64::MAX)), shape.unit_bytes)?;
        if let Some(policy) = choices.write.log() {
            let (bytes, batch_pages) = (slots * shape.unit_bytes, choices.on_exit().batch_pages);
            return LogsPlan::fit(shape, bytes, batch_pages, policy).map(Self::Logs);
        }
        UnitsPlan::fit(shape, slots, device, choices, grows_to).map(Self::Units)
    }

    /// The same for several volumes of this digest. Page logs have one volume.
    #[must_use]
    pub fn shared(self, volumes: u64) -> Self {
        match self {
            Self::Units(units) => Self::Units(units.shared(volumes)),
            Self::Logs(_) => self,
        }
    }

    /// The plan of a label on a device of this size.
    ///
    /// # Errors
    /// If the label contradicts itself or the device.
    pub fn of_label(label: &Label, device: DeviceSize) -> Result<Self, Unsuitable> {
        let end = |s: &Section| match s.kind {
            // Those that are there are in use.
            SectionKind::Slots => s.offset.checked_add(label.unit_bytes),
            _ => s.offset.checked_add(s.bytes),
        };
        let inside = |s: &Section| end(s).is_some_and(|end| end <= device.bytes);
        if !label.sections.iter().all(inside) {
            return Err(Unsuitable);
        }
        let plan = match label.log() {
            Some(first) => Self::Logs(LogsPlan::of_label(label, first).ok_or(Unsuitable)?),
            None => Self::Units(UnitsPlan::of_label(label, device).ok_or(Unsuitable)?),
        };
        Some(plan).filter(|plan| plan.label(label.volume) == *label).ok_or(Unsuitable)
    }

    /// This plan, or that of a label of the same cache, whose metadata has another place or room for another number of slots, or
    /// which was written when the origin was smaller. Of a device at most `most_bytes` are used.
    #[must_use]
    pub fn as_formatted(
        &self,
        label: &Label,
        device: DeviceSize,
        most_bytes: Option<u64>,
        placement: Placement,
    ) -> Self {
        let most = device.bytes.min(most_bytes.unwrap_or(u64::MAX));
        match self {
            Self::Units(units) if placement.may_grow() => {
                Self::Units(units.as_formatted(label, device, most).unwrap_or(*units))
            }
            Self::Units(_) => *self,
            Self::Logs(logs) => Self::Logs(logs.as_formatted(label).unwrap_or(*logs)),
        }
    }

    /// The same places, for an origin that has so many bytes now.
    #[must_use]
    pub fn of_origin(mut self, bytes: u64) -> Self {
        match &mut self {
            Self::Units(units) => {
                if let Some(metadata) = &mut units.metadata {
                    metadata.shape = metadata.shape.of_origin(bytes);
                }
            }
            Self::Logs(logs) => logs.shape = logs.shape.of_origin(bytes),
        }
        self
    }

    /// Whether what flash has of an origin of `was` bytes is valid when it has `is` bytes.
    #[must_use]
    pub fn serves(&self, was: u64, is: u64) -> bool {
        match self {
            Self::Units(units) => units.serves(was, is),
            Self::Logs(logs) => logs.serves(was, is),
        }
    }

    /// The label of this plan and volume.
    #[must_use]
    pub fn label(&self, volume: u64) -> Label {
        match self {
            Self::Units(units) => units.label(volume),
            Self::Logs(logs) => logs.label(volume),
        }
    }

    /// Slots, or blocks of all logs.
    #[must_use]
    pub fn slots(&self) -> u64 {
        match self {
            Self::Units(units) => units.slots,
            Self::Logs(logs) => u64::from(logs.shape.shards) * u64::from(logs.blocks),
        }
    }

    /// Checks that units that may be dirty accept every request that the origin accepts. A page log writes whole pages.
    ///
    /// # Errors
    /// If the flash's blocks are larger than the origin's.
    pub fn check_blocks(&self, origin: u32, write: WritePolicy) -> Result<(), LargeBlocks> {
        match self {
            Self::Units(units) if write.flash_owns() && units.block_bytes > origin => {
                Err(LargeBlocks { flash: units.block_bytes, origin })
            }
            Self::Units(_) | Self::Logs(_) => Ok(()),
        }
    }

    /// Whether a restart may be warm: it has a journal or page logs.
    #[must_use]
    pub fn keeps_metadata(&self) -> bool {
        match self {
            Self::Units(units) => units.metadata.is_some(),
            Self::Logs(_) => true,
        }
    }

    /// First byte after all places.
    #[must_use]
    pub fn end(&self) -> u64 {
        match self {
            Self::Units(units) => units.end(),
            Self::Logs(logs) => logs.geometry(0, logs.shape.shards).base,
        }
    }

    /// The writes, in order, that format the device for an empty cache of this volume. The caller makes them durable before
    /// the label, and uses a new volume id: else logs of an earlier cache would continue.
    pub fn blank(&self, volume: u64) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let (units, logs) = match self {
            Self::Units(units) => (Some(*units), None),
            Self::Logs(logs) => (None, Some(*logs)),
        };
        let metadata = units.into_iter().flat_map(move |units| units.blank(volume));
        let headers = logs.into_iter().flat_map(move |logs| logs.blank(volume));
        metadata.chain(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Durability, WritePolicy, preset};
    use crate::format::label::{HEADER_BYTES, MOST_SHARDS, SectionKind};
    use crate::format::{Frame, SizeRefused};
    use crate::journal::layout::LOG_MOST;
    use crate::pagelog::LogPolicy;

    fn device(bytes: u64) -> DeviceSize {
        DeviceSize { bytes, block_bytes: 512 }
    }

    fn all_choices() -> Vec<Choices> {
        let names = ["sce", "prwc", "proc", "slru", "flashcache", "face"];
        let mut all: Vec<Choices> =
            names.iter().filter_map(|name| preset(name)).map(|p| p.choices()).collect();
        let volatile = all.iter().filter(|c| c.write.log().is_none()).cloned();
        let volatile: Vec<Choices> =
            volatile.map(|c| Choices { durability: Durability::Volatile, ..c }).collect();
        let through = all.iter().filter(|c| c.write.log().is_some()).cloned();
        let write = WritePolicy::Logged(LogPolicy::Through);
        let through: Vec<Choices> = through.map(|c| Choices { write, ..c }).collect();
        let verified = all.iter().chain(&volatile).filter(|c| c.write.log().is_none());
        let verified: Vec<Choices> =
            verified.map(|c| Choices { verify: true, ..c.clone() }).collect();
        all.extend(volatile.into_iter().chain(through).chain(verified));
        assert_eq!(all.len(), 6 + 5 + 1 + 10);
        all
    }

    #[test]
    fn a_label_gives_its_plan_and_all_places_are_on_the_device() {
        for choices in all_choices() {
            for (bytes, shards, origin) in
                [(16 << 20, 1, 1 << 30), (3 << 30, 4, (1 << 40) - 512), (1 << 40, 64, 1 << 42)]
            {
                let shape = Shape::new(origin, choices.unit_bytes, shards);
                let plan = Plan::fit(shape, &choices, device(bytes), None, None).expect("fits");
                let plan = if shards > 1 { plan.shared(1 << 32) } else { plan };
                assert!(plan.end() <= bytes && plan.slots() > 0, "{plan:?}");
                let label = plan.label(7);
                assert_eq!(Plan::of_label(&label, device(bytes)), Ok(plan));
                assert_eq!(Plan::of_label(&label, device(plan.end())), Ok(plan));
                let cut = Plan::of_label(&label, device(plan.end() - 1));
                match plan {
                    // A device that was cut has fewer slots, with the same metadata.
                    Plan::Units(units) if units.slots > 1 => {
                        assert_eq!(
                            cut.map(|cut| (cut.slots(), cut.label(7))),
                            Ok((units.slots - 1, label.clone()))
                        );
                    }
                    _ => assert_eq!(cut, Err(Unsuitable)),
                }
                let first = label.sections.iter().map(|s| s.offset).min();
                assert_eq!(first, Some(HEADER_BYTES));
                for (at, bytes) in plan.blank(7).filter(|_| shards < 64) {
                    let end = at + bytes.len() as u64;
                    let within = |s: &Section| s.offset <= at && end <= s.offset + s.bytes;
                    assert!(label.sections.iter().any(within), "{at}");
                }
            }
        }
    }

    /// The label of a flash decides about the places, whatever size it has now.
    #[test]
    fn a_flash_of_another_size_keeps_its_places() {
        for choices in all_choices() {
            let shape = Shape::new(1 << 40, choices.unit_bytes, 2);
            let fit = |bytes| Plan::fit(shape, &choices, device(bytes), None, None).expect("fits");
            let (small, large) = (fit(1 << 30), fit(2 << 30));
            let adopted = |plan: &Plan, bytes| {
                plan.as_formatted(&small.label(7), device(bytes), None, choices.placement)
            };
            let keeps = choices.placement.may_grow()
                && matches!(small, Plan::Units(u) if u.metadata.is_some() && u.room >= 2 * u.slots);
            let grown = adopted(&large, 2 << 30);
            assert_eq!(grown.label(7) == small.label(7), keeps, "{choices:?}");
            if let (true, Plan::Units(before), Plan::Units(after)) = (keeps, small, grown) {
                assert!(after.slots > before.slots && after.end() <= 2 << 30);
                assert_eq!(before.sized(2 << 30), Ok(after));
                assert_eq!(after.sized(1 << 30), Ok(before));
                let most = before.sized(64 << 30);
                assert_eq!(
                    most,
                    Err(SizeRefused::TooLarge {
                        most: before.slots_at + before.room * before.unit_bytes
                    })
                );
                assert!(matches!(before.sized(1 << 20), Err(SizeRefused::TooSmall { .. })));
                let other = fit(4 << 30).label(7);
                let other = Label { origin_bytes: 1 << 41, ..other };
                assert_eq!(before.as_formatted(&other, device(1 << 30), u64::MAX), None);
            }
        }
    }

    /// Flash has room for the units that the origin had when it was formatted.
    #[test]
    fn flash_of_an_origin_that_grew_keeps_its_places() {
        for choices in all_choices() {
            let fit = |origin| {
                let shape = Shape::new(origin, choices.unit_bytes, 2);
                Plan::fit(shape, &choices, device(1 << 30), None, None).expect("fits")
            };
            let adopted = |was: u64, is: u64, volumes| {
                let label = fit(was).shared(volumes).label(7);
                let now = fit(is).shared(volumes);
                (now.as_formatted(&label, device(1 << 30), None, choices.placement), label)
            };
            let (grown, label) = adopted(1 << 29, 1 << 40, 0);
            let keeps = grown.keeps_metadata() && choices.placement.may_grow();
            let is_volatile = !grown.keeps_metadata();
            assert_eq!(grown.label(7) == label, keeps || is_volatile, "{choices:?}");
            if let (true, Plan::Units(units)) = (keeps, grown) {
                assert_eq!(units.slots, (1 << 29) / choices.unit_bytes);
                assert_eq!(units.sized(1 << 30), Ok(units));
                let before = fit(1 << 29).of_origin(1 << 40);
                let layouts = |plan: Plan| match plan {
                    Plan::Units(units) => units.layouts(7).collect::<Vec<_>>(),
                    Plan::Logs(_) => Vec::new(),
                };
                assert_eq!(layouts(grown), layouts(before));
            }
            for (was, is, volumes) in [
                ((1 << 29) + 512, 1 << 40, 0),
                (1 << 29, (1 << 40) + 512, 0),
                (1 << 30, 1 << 29, 0),
                (1 << 29, 1 << 40, 1 << 32),
            ] {
                let (other, label) = adopted(was, is, volumes);
                let same = match other {
                    Plan::Units(units) => units.metadata.is_none(),
                    // Page logs have one volume.
                    Plan::Logs(_) => volumes > 0,
                };
                assert_eq!(other.label(7) == label, same, "{was} {is} {choices:?}");
            }
        }
    }

    #[test]
    fn a_label_that_contradicts_itself_is_unsuitable() {
        for choices in all_choices() {
            let shape = Shape::new(1 << 40, choices.unit_bytes, 2);
            let plan = Plan::fit(shape, &choices, device(3 << 30), None, None).expect("fits");
            let good = plan.label(7);
            let mut changed: Vec<Label> = Vec::new();
            let mut change = |f: &dyn Fn(&mut Label)| {
                let mut label = good.clone();
                f(&mut label);
                if label != good {
                    changed.push(label);
                }
            };
            change(&|l| l.unit_bytes = 3 << 20);
            change(&|l| l.unit_bytes = 512);
            change(&|l| l.slots += 1);
            change(&|l| l.slots = u64::MAX);
            change(&|l| l.sections.clear());
            change(&|l| l.sections[0].offset = 4096);
            change(&|l| l.sections[0].offset = u64::MAX - 4096);
            change(&|l| l.sections[0].bytes += 512);
            change(&|l| l.sections.reverse());
            change(&|l| l.sections.push(l.sections[0]));
            if plan.keeps_metadata() {
                change(&|l| l.shards = 0);
                change(&|l| l.shards = MOST_SHARDS + 1);
            }
            if good.section(SectionKind::Metadata).is_some() {
                change(&|l| l.log_bytes = u64::MAX);
                change(&|l| l.log_bytes += 1 << 30);
                change(&|l| l.origin_bytes = u64::MAX);
            }
            assert!(changed.len() > 7);
            for label in changed {
                let found = Plan::of_label(&label, device(3 << 30));
                assert_eq!(found, Err(Unsuitable), "{label:?}");
            }
        }
    }

    /// Recovery reads a whole log into memory.
    #[test]
    fn a_label_with_logs_that_no_volume_has_is_unsuitable() {
        let choices = preset("sce").expect("a preset").choices();
        let (shape, size) = (Shape::new(1 << 40, choices.unit_bytes, 1), device(1 << 40));
        let label = |log_bytes| {
            let plan = UnitsPlan::of(Frame::DEVICE, shape, 1_000, 512, &choices, log_bytes);
            assert!(plan.end() <= size.bytes);
            Plan::Units(plan).label(7)
        };
        assert!(Plan::of_label(&label(LOG_MOST), size).is_ok());
        assert_eq!(Plan::of_label(&label(2 * LOG_MOST), size), Err(Unsuitable));
        assert_eq!(Plan::of_label(&label(64 << 30), size), Err(Unsuitable));
    }

    #[test]
    fn the_error_for_a_small_device_states_the_bytes_that_suffice() {
        for choices in all_choices() {
            let shape = Shape::new(1 << 40, choices.unit_bytes, 2);
            let fit = |bytes| Plan::fit(shape, &choices, device(bytes), None, None);
            let (mut bytes, mut tried) = (4096, 0);
            while let Err(small) = fit(bytes) {
                let (TooSmall::Slots { least, .. }
                | TooSmall::Journal { least, .. }
                | TooSmall::Logs { least, .. }) = small;
                assert!(least > bytes, "{small}");
                (bytes, tried) = (least, tried + 1);
            }
            assert!((1..=3).contains(&tried), "{tried} tries");
            assert!(fit(bytes - 512).is_err(), "{bytes} bytes, and no fewer, for {choices:?}");
        }
    }

    #[test]
    fn a_label_of_logs_that_cannot_exist_is_refused() {
        let choices = preset("face").expect("the preset exists").choices();
        let shape = Shape::new(1 << 30, choices.unit_bytes, 2);
        let plan = Plan::fit(shape, &choices, device(1 << 30), None, None).expect("fits");
        let by = |bytes| {
            let mut label = plan.label(7);
            label.sections.iter_mut().for_each(|section| section.offset += bytes);
            Plan::of_label(&label, device(2 << 30))
        };
        assert!(by(0).is_ok() && by(4096).is_ok());
        assert_eq!(by(512), Err(Unsuitable), "pages of the log are not aligned");
    }
}
