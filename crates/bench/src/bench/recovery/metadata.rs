// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metadata of a full cache, as a stop or a crash leaves it.
//!
//! Invariant: written by the functions of the format (`larder_core::journal`), so that what is
//! recovered is what an engine could have left.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use larder_core::checksum::crc32c;
use larder_core::format::label::{Found, LABEL_BYTES, Label};
use larder_core::format::{DeviceSize, Plan};
use larder_core::journal::layout::Layout;
use larder_core::journal::record::{LogEnd, Record, pack};
use larder_core::journal::recover::Header;
use larder_model::SplitMix64;

/// The bench.
pub(super) const NAME: &str = "recovery";

/// The generation of the older half, and of the newer.
const GENERATIONS: [u64; 2] = [10, 11];

/// What there is to recover from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// A complete checkpoint and so much of its log; with any log, another checkpoint in progress.
    Log { quarters: u32 },
    /// Two complete checkpoints, the newer of which is damaged, and both logs full.
    Damaged,
}

/// The metadata of one volume, see the module.
pub(super) struct Metadata {
    layout: Layout,
    /// Slots in use: all that the device has, of those that there is room for.
    slots: u32,
    volume: u64,
    payload: Vec<u8>,
    /// A full log of each generation.
    logs: [Vec<u8>; 2],
}

impl Metadata {
    /// What a full cache would hold on the flash of this label.
    pub(super) fn of(flash: &Path) -> Result<Self> {
        let file = File::open(flash).with_context(|| flash.display().to_string())?;
        let mut bytes = vec![0; LABEL_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let Found::Label(label) = Label::find(&bytes) else {
            bail!("{}: has no label", flash.display());
        };
        let Plan::Units(plan) = Plan::of_label(&label, size_of(flash)?)? else {
            bail!("{}: holds page logs", flash.display());
        };
        let (volume, metadata) = (label.volume, plan.metadata.context("a label without metadata")?);
        let layout = plan.layout(volume, 0).context("no metadata")?;
        let slots = metadata.shape.slots_of(plan.slots);
        let payload = payload(&layout, slots, metadata.shape.units());
        let logs = GENERATIONS.map(|generation| full_log((&layout, slots), volume, generation));
        Ok(Self { layout, slots, volume, payload, logs })
    }

    pub(super) fn slots(&self) -> u64 {
        u64::from(self.slots)
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.logs[0].len() as u64
    }

    pub(super) fn words(&self) -> String {
        let payload = larder_io::format_size(self.layout.payload_bytes);
        format!("{} slots, a payload of {payload}", self.slots)
    }

    /// Leaves this on the flash, durable and in no page cache.
    pub(super) fn write(&mut self, flash: &Path, crash: Crash) -> Result<()> {
        let file = File::options().write(true).open(flash)?;
        let (damaged, quarters) = match crash {
            Crash::Damaged => (true, 4),
            Crash::Log { quarters } => (false, quarters),
        };
        self.region(&file, 0, 0, Some(crc32c(&self.payload)), quarters)?;
        match (damaged, quarters) {
            (true, _) => self.region(&file, 1, GENERATIONS[0], Some(!crc32c(&self.payload)), 4)?,
            // The generation before, as it was.
            (false, 0) => self.header(&file, 1, GENERATIONS[0] - 1, 0, None)?,
            (false, _) => self.header(&file, 1, GENERATIONS[1], GENERATIONS[0], None)?,
        }
        file.sync_all()?;
        let advice = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&file, 0, None, advice).context("dropping it from the page cache")?;
        Ok(())
    }

    /// A complete region with so much of its log.
    fn region(
        &self,
        file: &File,
        region: u8,
        follows: u64,
        payload_crc: Option<u32>,
        quarters: u32,
    ) -> Result<()> {
        let layout = &self.layout;
        file.write_all_at(&self.payload, layout.payload(region))?;
        let log = &self.logs[usize::from(region)];
        let block = layout.block_bytes as usize;
        let used = log.len() / block * quarters as usize / 4 * block;
        for copy in [0, 1] {
            let at = layout.log_block(region, copy, 0);
            file.write_all_at(&vec![0; log.len()], at)?;
            file.write_all_at(&log[..used], at)?;
        }
        self.header(file, region, GENERATIONS[usize::from(region)], follows, payload_crc)
    }

    fn header(
        &self,
        file: &File,
        region: u8,
        generation: u64,
        follows: u64,
        payload_crc: Option<u32>,
    ) -> Result<()> {
        let header = Header { volume: self.volume, generation, follows, payload_crc };
        for copy in [0, 1] {
            let at = self.layout.header(region, copy);
            file.write_all_at(&header.encode(&self.layout, at), at)?;
        }
        Ok(())
    }
}

/// What the server takes for the sizes of the flash.
fn size_of(flash: &Path) -> Result<DeviceSize> {
    let spec = larder_io::DevSpec::Path(flash.to_owned());
    let device = larder_io::Device::open(&spec, larder_io::Access::ReadOnly)?;
    let geometry = device.geometry();
    Ok(DeviceSize { bytes: geometry.bytes, block_bytes: geometry.block_bytes })
}

/// Every slot holds a unit, wholly: evenly spread over the origin, the first in the first.
fn payload(layout: &Layout, slots: u32, units: u64) -> Vec<u8> {
    let mut payload = vec![0; layout.payload_bytes as usize];
    let every = (units / u64::from(slots)).max(1) as u32;
    for slot in 0..slots {
        let bits = vec![u8::MAX; layout.entry.state_bytes(layout.pages)].into();
        Record::State { slot, unit: slot * every, bits }.apply(&mut payload, layout);
    }
    // Reference factors: a hot unit now and then.
    let factors = payload.get_mut(layout.factors_at()..).unwrap_or_default();
    for factor in factors.chunks_exact_mut(2).step_by(7).take(layout.factors as usize / 7) {
        factor.copy_from_slice(&60_u16.to_le_bytes());
    }
    payload
}

/// A log that is as full as it gets, of touched records at random.
fn full_log((layout, slots): (&Layout, u32), volume: u64, generation: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(generation);
    let mut touch = || Record::Touch {
        slot: random.below(u64::from(slots)) as u32,
        mask: 1 << random.below(64),
    };
    // More than fit.
    let most = u64::from(layout.log_blocks) * layout.block_bytes / 13;
    let records: Vec<Record> = (0..most).map(|_| touch()).collect();
    let mut end = LogEnd::first(volume, generation, layout);
    pack(&records, layout, layout.log_blocks, &mut end).0
}
