// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preparation of a flash device: whether it may be written to, what fits on it, and its label.
//!
//! A device of zeroes is new and is labelled. A device with a label of this program is decided on when it is attached. Any
//! other device is foreign, and refused unless the user gives `--format`. A device counts as zero if its first and last MiB
//! and [`SAMPLES`] places between are zero: reading terabytes would delay every start.

use larder_core::buf::{Buf, PAGE};
use larder_core::config::{Choices, Placement};
use larder_core::exec::IoKind;
use larder_core::format::label::{Found, LABEL_BYTES, Label, SECOND_COPY};
use larder_core::format::{
    DeviceSize, Kept, Medium, Owner, Plan, TooSmall, Unreadable, WhyRefused, Wishes, owner,
    slots_in,
};
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_io::Device;

use super::error::VolumeError;
use super::raw_io::{LOOK_BYTES, Raw, read, run};
use super::signature;
use super::state_file::StateFile;

/// The number of pages that are read between the ends.
pub const SAMPLES: u64 = 256;

/// A flash device that is ready to be attached.
#[derive(Clone, Debug)]
pub struct FlashDevice {
    /// The device.
    pub device: Device,
    /// The places of its sections.
    pub plan: Plan,
    /// How many of its bytes may be used, at most.
    pub(crate) most_bytes: Option<u64>,
    /// What the user asks for.
    pub(crate) wishes: Wishes,
    /// Whether the blocks of a new file are not allocated.
    pub(crate) sparse: bool,
}

impl FlashDevice {
    /// Inspects a device that will cache a volume of this shape, of which it uses at most `most_bytes`, and later `grows_to` bytes
    /// (by default a few times as many); writes nothing.
    ///
    /// # Errors
    /// When it holds foreign data and `--format` is missing, is too small, or fails.
    pub fn prepare(
        device: Device,
        (most_bytes, grows_to): (Option<u64>, Option<u64>),
        shape: Shape,
        choices: &Choices,
        wishes: Wishes,
    ) -> Result<Self, VolumeError> {
        check_blocks(&device)?;
        // Cached data on flash is not flushed, so a device that lost its connection may have lost writes.
        device.vanish_on_loss();
        let size = size_of(&device);
        let too_small = |e: TooSmall| VolumeError::Usage(format!("{}: {e}", device.name()));
        let bytes = size.bytes.min(most_bytes.unwrap_or(u64::MAX));
        slots_in(bytes, shape.unit_bytes).map_err(too_small)?;
        // First, since the error of a truncated device explains more than that of one too small for a journal.
        if !wishes.formats {
            check_owner(&device)?;
        }
        let plan = Plan::fit(shape, choices, size, most_bytes, grows_to).map_err(too_small)?;
        Ok(Self { device, plan, most_bytes, wishes, sparse: false })
    }

    /// The same device; with `sparse` a formatted file gets its blocks when they are written.
    #[must_use]
    pub fn sparse(self, sparse: bool) -> Self {
        Self { sparse, ..self }
    }

    /// The places on it, if it has this label: those of the label, if it is of the same cache.
    pub(super) fn as_formatted(&self, label: &Label, placement: Placement) -> Plan {
        let plan = self.plan.as_formatted(label, size_of(&self.device), self.most_bytes, placement);
        let (Plan::Units(now), Plan::Units(found)) = (self.plan, plan) else { return plan };
        let most = found.room.min(found.most_units());
        let wanted = now.slots.min(now.most_units());
        if found.slots == most && most < wanted && !self.wishes.formats {
            tracing::warn!(
                "flash {}: it was formatted for at most {} units, and has room for {}; --format, after larder flush, begins again with all of it",
                self.device.name(),
                most,
                wanted
            );
        }
        plan
    }

    /// Allocates the blocks of a file, so that writes do not fail later because its file system is full.
    pub(super) fn allocate(&self) -> Result<(), VolumeError> {
        if self.sparse {
            return Ok(());
        }
        let device = self.device.name().to_owned();
        match self.device.allocate(self.plan.end()) {
            Err(Errno::EOPNOTSUPP) => {
                tracing::warn!(
                    "flash {device}: its file system cannot allocate it; if that is full, writes to flash fail until it has room"
                );
                Ok(())
            }
            Err(errno) => {
                let doing = "allocating its blocks (--sparse leaves that out)";
                Err(VolumeError::Device { device, doing, errno })
            }
            Ok(()) => Ok(()),
        }
    }

    /// Labels the device under a new volume id: the second copy first, so that at every moment one copy of the old or the
    /// new label is complete.
    pub(crate) fn label(&self) -> Result<u64, VolumeError> {
        self.allocate()?;
        let volume = random_id(self.device.name())?;
        let label = self.plan.label(volume);
        self.blank(volume)?;
        for at in [SECOND_COPY, 0] {
            write_label(&self.device, &label, at)?;
        }
        if label_of(&self.device)? != Found::Label(label) {
            return Err(VolumeError::Refused(format!(
                "{}: does not keep what is written to it",
                self.device.name()
            )));
        }
        Ok(volume)
    }

    /// Writes the metadata or page logs of an empty cache, durably.
    pub(super) fn blank(&self, volume: u64) -> Result<(), VolumeError> {
        let doing = match self.plan {
            Plan::Units(_) => "writing the metadata",
            Plan::Logs(_) => "writing the page logs",
        };
        self.write_durably(self.plan.blank(volume), doing)?;
        Raw(&self.device).flush().map_err(|errno| {
            let device = self.device.name().to_owned();
            VolumeError::Device { device, doing: "flush", errno }
        })
    }

    /// Writes, in this order, each durable before the next.
    pub(super) fn write_durably(
        &self,
        writes: impl IntoIterator<Item = (u64, Vec<u8>)>,
        doing: &'static str,
    ) -> Result<(), VolumeError> {
        for (at, bytes) in writes {
            let parts = bytes.chunks(LOOK_BYTES as usize).zip((at..).step_by(LOOK_BYTES as usize));
            for (part, at) in parts {
                write(&self.device, at, Buf::copy_of(part), doing)?;
            }
        }
        Ok(())
    }

    /// Whether the device has the label of this volume id.
    pub(super) fn is_labelled(&self, volume: u64) -> Result<bool, VolumeError> {
        Ok(matches!(label_of(&self.device)?, Found::Label(label) if label.volume == volume))
    }

    /// Whether the device works: reads its label, and writes the same bytes durably.
    pub(super) fn probe(&self) -> Result<(), VolumeError> {
        let bytes = read(&self.device, 0, LABEL_BYTES as u64)?;
        write(&self.device, 0, bytes, "writing the label")
    }

    /// Reads its metadata, then flushes the device.
    pub(super) fn kept(&self, volume: u64) -> Result<Kept, Unreadable> {
        let kept = Kept::read(&self.plan, volume, &Raw(&self.device))?;
        Raw(&self.device).flush().map_err(Unreadable::Flush)?;
        Ok(kept)
    }
}

/// A device's sizes.
pub(super) fn size_of(device: &Device) -> DeviceSize {
    let geometry = device.geometry();
    DeviceSize { bytes: geometry.bytes, block_bytes: geometry.block_bytes }
}

/// The label on a device.
pub(super) fn label_of(device: &Device) -> Result<Found, VolumeError> {
    let bytes = device.geometry().bytes;
    Ok(Label::find(&read(device, 0, LOOK_BYTES.min(bytes))?))
}

/// The bytes at which copies of a device's label are lost.
pub(super) fn lost_labels(device: &Device, label: &Label) -> Result<Vec<u64>, VolumeError> {
    let (wanted, mut lost) = (label.encode(), Vec::new());
    for at in [0, SECOND_COPY] {
        if read(device, at, LABEL_BYTES as u64)?[..] != wanted[..] {
            lost.push(at);
        }
    }
    Ok(lost)
}

/// Writes the copy of the label that lies at this byte.
pub(super) fn write_label(device: &Device, label: &Label, at: u64) -> Result<(), VolumeError> {
    write(device, at, Buf::copy_of(&label.encode()), "writing the label")
}

/// Writes, durably.
fn write(device: &Device, at: u64, buf: Buf, doing: &'static str) -> Result<(), VolumeError> {
    run(device, IoKind::Write { fua: true }, at, buf, doing).map(drop)
}

/// The engine copies whole pages, so the blocks of a device must not be larger.
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

/// Whether the device may be written to.
fn check_owner(device: &Device) -> Result<(), VolumeError> {
    let owner = owner(&label_of(device)?, device.geometry().bytes);
    match owner.map_err(|why| refused(device, &why))? {
        Owner::Larder => Ok(()),
        Owner::NobodyIfZero if is_zero(device)? => Ok(()),
        Owner::NobodyIfZero => {
            let found = device.path().and_then(signature::found_on);
            let found = found.map(|found| StateFile::in_one_line(&found));
            Err(refused(device, &WhyRefused::Foreign { found }))
        }
    }
}

/// The error of a refused device.
pub(super) fn refused(device: &Device, why: &WhyRefused) -> VolumeError {
    let flash = if matches!(why, WhyRefused::MayHoldDirty { .. }) { "flash " } else { "" };
    VolumeError::Refused(format!("{flash}{}: {why}", device.name()))
}

/// Whether the places that are read are zero.
fn is_zero(device: &Device) -> Result<bool, VolumeError> {
    let (bytes, block) = (device.geometry().bytes, u64::from(device.geometry().block_bytes));
    let zero = |at, len| read(device, at, len).map(|bytes| bytes.iter().all(|b| *b == 0));
    let tail_len = LOOK_BYTES.min(bytes) / block * block;
    let mut clean = zero(0, LOOK_BYTES.min(bytes))? && zero(bytes - tail_len, tail_len)?;
    let stride = (bytes / (SAMPLES + 1)).next_multiple_of(PAGE as u64);
    let places = (1..=SAMPLES).map(|i| i * stride).take_while(|at| at + PAGE as u64 <= bytes);
    for at in places {
        clean = clean && zero(at, PAGE as u64)?;
    }
    Ok(clean)
}

fn random_id(device: &str) -> Result<u64, VolumeError> {
    let mut id = [0; 8];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| VolumeError::Usage(format!("{device}: no random volume id: {e}")))?;
    Ok(u64::from_le_bytes(id))
}
