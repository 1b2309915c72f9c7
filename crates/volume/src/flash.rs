// SPDX-License-Identifier: MIT OR Apache-2.0
//! Getting a flash device ready: is it ours to write to, how many units fit, and its label.
//!
//! A device of zeroes is new and is labelled; one with a label of ours is labelled again (a
//! volatile cache has nothing to keep); anything else is foreign and refused unless the user says
//! `--format`. A device is taken for zero when its first and last MiB and [`SAMPLES`] places
//! between are: reading terabytes before every start is nobody's wish.

use larder_core::buf::{Buf, PAGE};
use larder_core::config::Choices;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::label::{Found, LABEL_BYTES, Label, SECOND_COPY};
use larder_core::format::{DeviceSize, Plan, TooSmall, slots_in};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_io::{Device, format_size};

use super::error::VolumeError;
use super::kept::Kept;
use super::raw_io::{LOOK_BYTES, read, read_long, run};
use super::recovery::Unreadable;

/// How many pages are looked at between the ends.
pub const SAMPLES: u64 = 256;

/// A flash device that is ready to be attached.
#[derive(Clone, Debug)]
pub struct FlashDevice {
    /// The device.
    pub device: Device,
    /// Where things lie on it.
    pub plan: Plan,
    /// Whatever is on it is not wanted.
    pub(crate) formats: bool,
    /// No state file names it, and it is this volume's all the same.
    pub(crate) adopted: bool,
}

impl FlashDevice {
    /// Looks at the device; writes nothing.
    ///
    /// # Errors
    /// When it holds foreign data and `format` is not given, is too small, or fails.
    pub fn prepare(
        device: Device,
        most_bytes: Option<u64>,
        shape: Shape,
        choices: &Choices,
        format: bool,
    ) -> Result<Self, VolumeError> {
        check_blocks(&device)?;
        // Nothing on flash is ever flushed, so whatever forgets must not be asked again.
        device.vanish_on_loss();
        let size = size_of(&device);
        let too_small = |e: TooSmall| VolumeError::Usage(format!("{}: {e}", device.name()));
        let bytes = size.bytes.min(most_bytes.unwrap_or(u64::MAX));
        slots_in(bytes, shape.unit_bytes).map_err(too_small)?;
        // That a device was cut short under what it holds says more than that it is too small for a journal.
        if !format {
            check_content(&device)?;
        }
        let plan = Plan::fit(shape, choices, size, most_bytes).map_err(too_small)?;
        Ok(Self { device, plan, formats: format, adopted: false })
    }

    /// The user says that it belongs to the volume although no state file names it.
    #[must_use]
    pub fn adopted(mut self, adopted: bool) -> Self {
        self.adopted = adopted;
        self
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

    /// Labels the device as ours, under a new volume id: the second copy first, so that at every
    /// moment a whole label is there, old or new.
    pub(crate) fn label(&self) -> Result<u64, VolumeError> {
        let volume = random_id(self.device.name())?;
        let label = self.plan.label(volume);
        self.blank(volume)?;
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
        let plan = Plan::of_label(label, size_of(&device)).ok()?;
        Some(Self { device, plan, formats: false, adopted: false })
    }

    /// Makes it the device of an empty cache, durably.
    pub(super) fn blank(&self, volume: u64) -> Result<(), VolumeError> {
        let doing = match self.plan {
            Plan::Units(_) => "writing the metadata",
            Plan::Logs(_) => "writing the page logs",
        };
        for (at, bytes) in self.plan.blank(volume) {
            let parts = bytes.chunks(LOOK_BYTES as usize).zip((at..).step_by(LOOK_BYTES as usize));
            for (part, at) in parts {
                self.write(at, Buf::copy_of(part), doing)?;
            }
        }
        self.flush().map_err(|errno| {
            let device = self.device.name().to_owned();
            VolumeError::Device { device, doing: "flush", errno }
        })
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
    pub(super) fn recover_shard(
        &self,
        layout: &Layout,
        volume: u64,
    ) -> Result<Recovered, Unusable> {
        recover(layout, volume, &mut |at, len| read_long(&self.device, at, len))
    }

    /// Whether metadata of this label, as far as it can be recovered, says that flash alone has
    /// something.
    pub(super) fn says_dirty(&self, label: &Label) -> bool {
        let Some(flash) = Self::of_label(self.device.clone(), label) else { return false };
        match flash.plan {
            Plan::Logs(logs) => {
                let mut looks = logs.each(label.volume).map(|place| flash.look_at(&logs, place));
                looks.any(|look| look.is_ok_and(|look| look.is_dirty()))
            }
            Plan::Units(units) => units.layouts(label.volume).any(|layout| {
                let found = flash.recover_shard(&layout, label.volume);
                found.is_ok_and(|f| (0..layout.slots).any(|slot| f.dirty(slot, &layout) != 0))
            }),
        }
    }

    /// What each shard's metadata says, and the device flushed after it was read.
    pub(crate) fn recover(&self, volume: u64) -> Result<Kept, Unreadable> {
        let kept = match &self.plan {
            Plan::Logs(logs) => self.logs_kept(logs, volume)?,
            Plan::Units(units) => {
                let recovered = units.layouts(volume).map(|layout| {
                    self.recover_shard(&layout, volume).map_err(|why| match why {
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
        match self.plan {
            Plan::Logs(_) => Kept::Logs { reached: Vec::new(), unclosed: 0, dirty: false, torn: 0 },
            Plan::Units(_) => Kept::Units(Vec::new()),
        }
    }
}

/// A device's sizes.
pub(super) fn size_of(device: &Device) -> DeviceSize {
    let geometry = device.geometry();
    DeviceSize { bytes: geometry.bytes, block_bytes: geometry.block_bytes }
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

fn random_id(device: &str) -> Result<u64, VolumeError> {
    let mut id = [0; 8];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| VolumeError::Usage(format!("{device}: no random volume id: {e}")))?;
    Ok(u64::from_le_bytes(id))
}
