// SPDX-License-Identifier: MIT OR Apache-2.0
//! Getting a flash device ready: is it ours to write to, how many units fit, and its label.
//!
//! A device of zeroes is new and is labelled; one with a label of ours is labelled again (a
//! volatile cache has nothing to keep); anything else is foreign and refused unless the user says
//! `--format`. A device is taken for zero when its first and last MiB and [`SAMPLES`] places
//! between are: reading terabytes before every start is nobody's wish.

use larder_core::buf::{Buf, PAGE};
use larder_core::config::{Choices, Durability};
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::label::{
    Found, HEADER_BYTES, LABEL_BYTES, Label, SECOND_COPY, Section, SectionKind,
};
use larder_core::format::{FlashPlan, Keeps, MetadataPlan};
use larder_core::journal::layout::{Layout, log_bytes};
use larder_core::journal::recover::{Recovered, Unusable, format, recover};
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_io::{Device, format_size};

use super::error::VolumeError;
use super::kept::Kept;
use super::logs::Logs;
use super::raw_io::{LOOK_BYTES, read, read_long, run};
use super::recovery::Unreadable;
use super::worker::MOST_WORKERS;

/// How many pages are looked at between the ends.
pub const SAMPLES: u64 = 256;

/// So few bytes hold no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is too small for a cache; accepted: at least {} (1 MiB of header and one unit)",
    format_size(*bytes),
    format_size(*least_bytes)
)]
pub struct TooSmall {
    bytes: u64,
    least_bytes: u64,
}

/// A flash device that is ready to be attached.
#[derive(Clone, Debug)]
pub struct FlashDevice {
    /// The device.
    pub device: Device,
    /// Slots on it.
    pub slots: u64,
    /// Whatever is on it is not wanted.
    pub(crate) formats: bool,
    /// No state file names it, and it is this volume's all the same.
    pub(crate) adopted: bool,
    /// What metadata it keeps, if it does.
    pub(crate) metadata: Option<Metadata>,
    /// The page logs that it holds instead of slots, if it does; they are counted in blocks.
    pub(crate) logs: Option<Logs>,
}

/// The metadata that a device is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// The volume's shape.
    pub shape: Shape,
    /// Bytes of one log.
    pub log_bytes: u64,
    /// What it says besides what is valid where.
    pub keeps: Keeps,
}

impl FlashDevice {
    /// Looks at the device; writes nothing.
    ///
    /// # Errors
    /// When it holds foreign data and `format` is not given, is too small, or fails.
    pub fn prepare(
        device: Device,
        most_bytes: Option<u64>,
        unit_bytes: u64,
        format: bool,
    ) -> Result<Self, VolumeError> {
        check_blocks(&device)?;
        // Nothing on flash is ever flushed, so whatever forgets must not be asked again.
        device.vanish_on_loss();
        let bytes = device.geometry().bytes.min(most_bytes.unwrap_or(u64::MAX));
        let slots = Self::slots_in(bytes, unit_bytes)
            .map_err(|e| VolumeError::Usage(format!("{}: {e}", device.name())))?;
        if !format {
            check_content(&device)?;
        }
        let (metadata, logs) = (None, None);
        Ok(Self { device, slots, formats: format, adopted: false, metadata, logs })
    }

    /// Slots that so many bytes have room for.
    ///
    /// # Errors
    /// When there is none.
    pub fn slots_in(bytes: u64, unit_bytes: u64) -> Result<u64, TooSmall> {
        match bytes.saturating_sub(HEADER_BYTES) / unit_bytes {
            0 => Err(TooSmall { bytes, least_bytes: HEADER_BYTES + unit_bytes }),
            slots => Ok(slots),
        }
    }

    /// The user says that it belongs to the volume although no state file names it.
    #[must_use]
    pub fn adopted(mut self, adopted: bool) -> Self {
        self.adopted = adopted;
        self
    }

    /// Makes room for the metadata that the choices ask for, at the cost of some slots, or for page logs.
    ///
    /// # Errors
    /// When no slot is left, or not enough for a log.
    pub fn for_volume(
        mut self,
        origin_bytes: u64,
        choices: &Choices,
        workers: u32,
    ) -> Result<Self, VolumeError> {
        let unit_bytes = choices.unit_bytes;
        let shape = Shape::new(origin_bytes, unit_bytes, workers);
        if let Some(policy) = choices.write.log() {
            let logs = Logs::fit(&self.device, self.slots * unit_bytes, shape, choices, policy)?;
            (self.slots, self.logs) = (logs.slots(), Some(logs));
            return Ok(self);
        }
        if choices.durability == Durability::Volatile {
            return Ok(self);
        }
        let keeps = Keeps::of(choices);
        let log_bytes = log_bytes(self.device.geometry().bytes, keeps, workers);
        self.with_metadata(Metadata { shape, log_bytes, keeps })
    }

    fn with_metadata(mut self, metadata: Metadata) -> Result<Self, VolumeError> {
        let unit_bytes = metadata.shape.unit_bytes;
        let bytes = HEADER_BYTES + self.slots * unit_bytes;
        let needed = |slots: u64| slots_at(&metadata, slots) + slots * unit_bytes;
        while self.slots > 0 && needed(self.slots) > bytes {
            let over = needed(self.slots) - bytes;
            self.slots = self.slots.saturating_sub(over.div_ceil(unit_bytes));
        }
        if self.slots == 0 {
            return Err(VolumeError::Usage(format!(
                "{}: {} is too small for a cache with a journal; accepted: at least {}, or --durability volatile",
                self.device.name(),
                format_size(bytes),
                format_size(needed(1)),
            )));
        }
        self.metadata = Some(metadata);
        Ok(self)
    }

    /// Where slots begin.
    pub(crate) fn slots_at(&self) -> u64 {
        let at = |m: Metadata| slots_at(&m, self.slots);
        self.metadata.map_or(HEADER_BYTES, at)
    }

    /// What is labelled on the device.
    pub(crate) fn found(&self) -> Result<Found, VolumeError> {
        Self::look(&self.device)
    }

    /// What is labelled on a device.
    pub(super) fn look(device: &Device) -> Result<Found, VolumeError> {
        let bytes = device.geometry().bytes;
        Ok(Label::find(&read(device, 0, LOOK_BYTES.min(bytes))?))
    }

    /// Where copies of its label are lost.
    pub(super) fn lost_labels(&self, label: &Label) -> Result<Vec<u64>, VolumeError> {
        let (wanted, mut lost) = (label.encode(), Vec::new());
        for at in [0, SECOND_COPY] {
            if read(&self.device, at, LABEL_BYTES as u64)?[..] != wanted[..] {
                lost.push(at);
            }
        }
        Ok(lost)
    }

    /// The label that it is to bear as this volume.
    pub(crate) fn label_of(&self, volume: u64, unit_bytes: u64) -> Label {
        if let Some(logs) = &self.logs {
            return Label {
                volume,
                unit_bytes,
                slots: self.slots,
                shards: logs.shape.shards,
                log_bytes: 0,
                keeps: logs.keeps(),
                origin_bytes: logs.shape.origin_bytes,
                sections: logs.sections(),
            };
        }
        let (slots_at, slots_bytes) = (self.slots_at(), self.slots * unit_bytes);
        let slots = Section { kind: SectionKind::Slots, offset: slots_at, bytes: slots_bytes };
        let metadata = self.metadata.map(|_| Section {
            kind: SectionKind::Metadata,
            offset: HEADER_BYTES,
            bytes: slots_at - HEADER_BYTES,
        });
        Label {
            volume,
            unit_bytes,
            slots: self.slots,
            shards: self.metadata.map_or(0, |m| m.shape.shards),
            log_bytes: self.metadata.map_or(0, |m| m.log_bytes),
            keeps: self.metadata.map(|m| m.keeps).unwrap_or_default(),
            origin_bytes: self.metadata.map_or(0, |m| m.shape.origin_bytes),
            sections: metadata.into_iter().chain([slots]).collect(),
        }
    }

    /// Labels the device as ours, under a new volume id: the second copy first, so that at every
    /// moment a whole label is there, old or new.
    pub(crate) fn label(&self, unit_bytes: u64) -> Result<u64, VolumeError> {
        let volume = random_id(self.device.name())?;
        let label = self.label_of(volume, unit_bytes);
        self.format_metadata(volume)?;
        self.blank_logs(volume)?;
        for at in [SECOND_COPY, 0] {
            self.write_label(&label, at)?;
        }
        if self.found()? != Found::Label(label) {
            return Err(VolumeError::Refused(format!(
                "{}: does not keep what is written to it",
                self.device.name()
            )));
        }
        Ok(volume)
    }

    /// The device of this label, as whoever labelled it saw it; nothing if the label contradicts
    /// itself or the device.
    pub(super) fn of_label(device: Device, label: &Label) -> Option<Self> {
        let (origin_bytes, unit_bytes) = (label.origin_bytes, label.unit_bytes);
        let metadata = label.section(SectionKind::Metadata).map(|_| Metadata {
            shape: Shape::new(origin_bytes, unit_bytes, label.shards),
            log_bytes: label.log_bytes,
            keeps: label.keeps,
        });
        let logs = Logs::of_label(label);
        let slot_bytes = if logs.is_some() { PAGE as u64 } else { unit_bytes };
        let end = |s: &Section| s.offset.checked_add(s.bytes);
        // Before anything is read at the lengths that it implies.
        let inside = |s: &Section| end(s).is_some_and(|end| end <= device.geometry().bytes);
        let sane = unit_bytes.is_power_of_two()
            && unit_bytes >= PAGE as u64
            && label.sections.iter().all(inside)
            && label.slots.checked_mul(slot_bytes).is_some_and(|b| b <= device.geometry().bytes)
            && metadata.is_none_or(|m| (1..=MOST_WORKERS).contains(&m.shape.shards))
            && label.log_bytes <= device.geometry().bytes
            && origin_bytes.div_ceil(unit_bytes) <= Shape::MOST_UNITS * u64::from(MOST_WORKERS);
        let (slots, formats, adopted) = (label.slots, false, false);
        let flash = Self { device, slots, formats, adopted, metadata, logs };
        (sane && flash.label_of(label.volume, unit_bytes) == *label).then_some(flash)
    }

    /// Shards whose metadata it keeps.
    pub(super) fn shards(&self) -> u32 {
        self.metadata.map_or(0, |m| m.shape.shards)
    }

    /// Where a shard's metadata lies.
    pub(super) fn layout(&self, volume: u64, shard: u32) -> Option<Layout> {
        let shape = self.metadata?.shape.of_shard(shard);
        Layout::of(&shape, &self.place(DevId(0), volume))
    }

    /// The metadata of an empty cache, durable. Only under a new volume id: what an older generation
    /// left in the logs would go on from it.
    fn format_metadata(&self, volume: u64) -> Result<(), VolumeError> {
        let layouts = (0..self.shards()).filter_map(|shard| self.layout(volume, shard));
        for (at, bytes) in layouts.flat_map(|layout| format(&layout, volume)) {
            for (part, at) in
                bytes.chunks(LOOK_BYTES as usize).zip((at..).step_by(LOOK_BYTES as usize))
            {
                self.write(at, Buf::copy_of(part), "writing the metadata")?;
            }
        }
        Ok(())
    }

    /// The copy of the label that lies at this byte.
    pub(super) fn write_label(&self, label: &Label, at: u64) -> Result<(), VolumeError> {
        let buf = Buf::copy_of(&label.encode());
        self.write(at, buf, "writing the label")
    }

    /// Writes, durably.
    pub(super) fn write(&self, at: u64, buf: Buf, doing: &'static str) -> Result<(), VolumeError> {
        run(&self.device, IoKind::Write { fua: true }, at, buf, doing).map(drop)
    }

    /// Makes durable what was written, and what was read.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        let (id, dev, kind) = (IoId(0), DevId(0), IoKind::Flush);
        let mut io = Io { id, dev, kind, offset: 0, len: 0, buf: None, at: 0 };
        self.device.run_blocking(&mut io)
    }

    /// What a shard's metadata says.
    pub(super) fn recover_shard(&self, volume: u64, shard: u32) -> Result<Recovered, Unusable> {
        let layout = self.layout(volume, shard).ok_or(Unusable::Nothing)?;
        recover(&layout, volume, &mut |at, len| read_long(&self.device, at, len))
    }

    /// Whether metadata of this label, as far as it can be recovered, says that flash alone has
    /// something.
    pub(super) fn says_dirty(&self, label: &Label) -> bool {
        let Some(flash) = Self::of_label(self.device.clone(), label) else { return false };
        if let Some(logs) = &flash.logs {
            let mut looks = logs.each(label.volume).map(|place| flash.look_at(logs, place));
            return looks.any(|look| look.is_ok_and(|look| look.is_dirty()));
        }
        (0..flash.shards()).any(|shard| {
            let layout = flash.layout(label.volume, shard);
            let found = flash.recover_shard(label.volume, shard).ok();
            layout.zip(found).is_some_and(|(layout, found)| {
                (0..layout.slots).any(|slot| found.dirty(slot, &layout) != 0)
            })
        })
    }

    /// What each shard's metadata says, and the device flushed after it was read.
    pub(crate) fn recover(&self, volume: u64) -> Result<Kept, Unreadable> {
        let kept = match &self.logs {
            Some(logs) => self.logs_kept(logs, volume)?,
            None => {
                let recovered = (0..self.shards()).map(|shard| {
                    self.recover_shard(volume, shard).map_err(|why| match why {
                        Unusable::Nothing => Unreadable::NoCheckpoint,
                        Unusable::Damaged => Unreadable::Damaged,
                        Unusable::Device(errno) => Unreadable::Read(errno),
                    })
                });
                Kept::Units(recovered.collect::<Result<_, _>>()?)
            }
        };
        self.flush().map_err(Unreadable::Flush)?;
        Ok(kept)
    }

    /// What it has kept just after it was formatted.
    pub(crate) fn nothing_kept(&self) -> Kept {
        match self.logs {
            Some(_) => Kept::Logs { reached: Vec::new(), unclosed: 0, dirty: false, torn: 0 },
            None => Kept::Units(Vec::new()),
        }
    }

    /// The device as the engine sees it.
    pub(crate) fn place(&self, dev: DevId, volume: u64) -> FlashPlan {
        let journal = self.metadata.map(|m| {
            let Metadata { log_bytes, keeps, .. } = m;
            MetadataPlan { base: HEADER_BYTES, volume, log_bytes, keeps }
        });
        let block_bytes = self.device.geometry().block_bytes;
        FlashPlan { dev, base: self.slots_at(), slots: self.slots, block_bytes, journal }
    }
}

/// Pages are what the engine copies; a device must be able to transfer one.
pub(crate) fn check_blocks(device: &Device) -> Result<(), VolumeError> {
    let block = device.geometry().block_bytes;
    if block as usize > PAGE {
        return Err(VolumeError::Usage(format!(
            "{}: has blocks of {block} bytes; accepted: up to {PAGE}",
            device.name()
        )));
    }
    Ok(())
}

/// What may alone have data must be all there.
fn check_whole(device: &Device, label: &Label) -> Result<(), VolumeError> {
    let bytes = device.geometry().bytes;
    let ends = label.sections.iter().map(|s| s.offset.saturating_add(s.bytes));
    let end = ends.max().unwrap_or(0);
    if label.keeps.dirty && end > bytes {
        return Err(VolumeError::Refused(format!(
            "{}: holds {} of a cache of {}, and it alone may have some of the data; accepted: the whole device, or --format to lose that",
            device.name(),
            format_size(bytes),
            format_size(end),
        )));
    }
    Ok(())
}

fn check_content(device: &Device) -> Result<(), VolumeError> {
    let (name, bytes) = (device.name(), device.geometry().bytes);
    let head = read(device, 0, LOOK_BYTES.min(bytes))?;
    let refuse = |what: String| {
        Err(VolumeError::Refused(format!(
            "{name}: {what}; give --format to overwrite it, or another device"
        )))
    };
    match Label::find(&head) {
        Found::Label(label) => return check_whole(device, &label),
        Found::Unknown { version } => {
            return refuse(format!(
                "holds a Larder cache of format version {version}, newer than this program"
            ));
        }
        Found::Damaged => return refuse("holds a damaged Larder label".to_owned()),
        Found::Nothing => {}
    }
    let block = u64::from(device.geometry().block_bytes);
    let tail_len = LOOK_BYTES.min(bytes) / block * block;
    let tail = read(device, bytes - tail_len, tail_len)?;
    let zero = |bytes: &Buf| bytes.iter().all(|b| *b == 0);
    let mut clean = zero(&head) && zero(&tail);
    let stride = (bytes / (SAMPLES + 1)).next_multiple_of(PAGE as u64);
    let places = (1..=SAMPLES).map(|i| i * stride).take_while(|at| at + PAGE as u64 <= bytes);
    for at in places {
        clean = clean && zero(&read(device, at, PAGE as u64)?);
    }
    if !clean {
        return refuse(
            "holds data that is not Larder's (it is neither zero nor labelled)".to_owned(),
        );
    }
    Ok(())
}

/// Where the slots begin when there are so many.
fn slots_at(metadata: &Metadata, slots: u64) -> u64 {
    let Metadata { shape, log_bytes, keeps } = metadata;
    let bytes = Layout::total_bytes(shape, slots, *log_bytes, *keeps);
    (HEADER_BYTES + bytes).next_multiple_of(HEADER_BYTES)
}

fn random_id(device: &str) -> Result<u64, VolumeError> {
    let mut id = [0; 8];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| VolumeError::Usage(format!("{device}: no random volume id: {e}")))?;
    Ok(u64::from_le_bytes(id))
}

#[cfg(test)]
mod tests {
    use larder_core::config::preset;

    use super::*;

    /// PT1: every cell of the paper's Table 1, in tenths of a MiB.
    #[test]
    fn a_region_is_no_larger_than_the_papers() {
        let table = [
            (1, [62, 63, 64, 66]),
            (2, [83, 84, 85, 88]),
            (4, [126, 126, 128, 130]),
            (8, [211, 211, 213, 215]),
        ];
        let keeps = Keeps::of(&preset("prwc").unwrap().choices());
        for (origin_tib, row) in table {
            let mut ours = Vec::new();
            for (flash_gib, paper) in [8, 16, 32, 64].into_iter().zip(row) {
                let (origin_bytes, unit_bytes) = (origin_tib << 40, 1 << 20);
                let shape = Shape::new(origin_bytes, unit_bytes, 1);
                let bytes = Layout::total_bytes(
                    &shape,
                    flash_gib << 10,
                    larder_core::journal::layout::LOG_PERIODIC,
                    keeps,
                ) / 2;
                let tenths = (bytes * 10).div_ceil(1 << 20);
                assert!(tenths <= paper, "{origin_tib} TiB, {flash_gib} GiB: {tenths} > {paper}");
                ours.push(tenths as f64 / 10.0);
            }
            println!("| {origin_tib} | {ours:?} |");
        }
    }
}
