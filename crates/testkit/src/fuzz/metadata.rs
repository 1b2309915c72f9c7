// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as a flash's label and metadata: parsed, recovered, restored and used.
//!
//! The input is a byte with the volume's kind (with checksums of cached pages or not), a byte with what to fix, and then pieces: a structure (u8), an offset in
//! it (u16), a length (u8), and that many bytes. The pieces overwrite parts of a formatted flash. Fixing computes
//! checksums (and, in log blocks, their chain) so that damage passes them.
//!
//! Required: no panic, no read outside of the metadata, no endless loop. What is restored holds no unit twice and none
//! that does not exist; it is used, logged and recovered again without an error.

use larder_core::buf::{PAGE, SECTOR};
use larder_core::checksum::crc32c;
use larder_core::config::{Choices, Durability, preset};
use larder_core::exec::{DevId, Io, IoId, IoKind, SECOND};
use larder_core::format::label::{Found, LABEL_BYTES, Label, SECOND_COPY};
use larder_core::format::{FlashPlan, Frame, Keeps, Plan, UnitsPlan};
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::journal::record::LogEnd;
use larder_core::journal::recover::{Header, Recovered, format};
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_io::{Access, DevSpec, Device};
use larder_volume::inspect;

use super::seal;
use crate::memory::{FLASH, Memory};
use crate::units::{LOG_BYTES, recover_from};

const VOLUME: u64 = 0x1122_3344_5566_7788;
const SLOTS: u64 = 10;

// What is fixed, and what is present.
const LABELS: u8 = 1;
const HEADERS: u8 = 2;
const PAYLOADS: u8 = 4;
const LOGS: u8 = 8;
/// The second region is complete too, and newer.
const TWO_REGIONS: u8 = 16;
/// Log blocks have correct sequences and batches instead of those of the input.
const SEQUENCES: u8 = 32;
/// Runs `larder check` on the label.
const INSPECT: u8 = 64;
/// Sectors of checksums that are not blank.
const SUMS: u8 = 128;
/// Of the kind: cached pages have checksums. Of a structure: it is their first block.
const VERIFY: u8 = 16;

/// A shard's metadata on a small flash.
struct Image {
    shape: Shape,
    choices: Choices,
    flash: FlashPlan,
    layout: Layout,
    label: Vec<u8>,
    bytes: Vec<u8>,
}

impl Image {
    fn formatted(kind: u8) -> Option<Self> {
        let mut choices = preset(if kind & 1 == 0 { "sce" } else { "prwc" })?.choices();
        choices.durability = Durability::Journal;
        choices.verify = kind & VERIFY != 0;
        choices.unit_bytes = if kind & 2 == 0 { 64 << 10 } else { 512 << 10 };
        let (block, shards) =
            (if kind & 4 == 0 { 512 } else { 4096 }, 1 + u32::from(kind >> 3 & 1));
        let origin_bytes = 18 * choices.unit_bytes + 12 * 1024;
        let shape = Shape::new(origin_bytes, choices.unit_bytes, shards).of_shard(shards - 1);
        let plan = |frame| UnitsPlan::of(frame, shape, SLOTS, block, &choices, LOG_BYTES);
        let bare = plan(Frame::BARE);
        let (flash, layout) = (bare.place(FLASH, VOLUME), bare.layout(VOLUME, shape.shard)?);
        let mut bytes = vec![0; (flash.base + SLOTS * shape.unit_bytes) as usize];
        for (at, what) in format(&layout, VOLUME) {
            bytes[at as usize..][..what.len()].copy_from_slice(&what);
        }
        let label = Plan::Units(plan(Frame::DEVICE)).label(VOLUME).encode();
        let mut labels = vec![0; SECOND_COPY as usize + LABEL_BYTES];
        labels[..LABEL_BYTES].copy_from_slice(&label);
        labels[SECOND_COPY as usize..].copy_from_slice(&label);
        Some(Self { shape, choices, flash, layout, label: labels, bytes })
    }

    /// Adds a newer half beside the first, as after a checkpoint.
    fn add_region(&mut self) {
        let payload_crc = Some(crc32c(self.payload(1)));
        let header = Header { volume: VOLUME, generation: 2, follows: 1, payload_crc };
        for at in [0, 1].map(|copy| self.layout.header(1, copy)) {
            let bytes = header.encode(&self.layout, at);
            self.bytes[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn payload(&self, region: u8) -> &[u8] {
        &self.bytes[self.layout.payload(region) as usize..][..self.layout.payload_bytes as usize]
    }

    /// The bytes of a structure.
    fn structure(&mut self, which: u8) -> &mut [u8] {
        let (region, layout) = (which >> 3 & 1, &self.layout);
        let log = u64::from(layout.log_blocks) * layout.block_bytes;
        if let Some(sums) = self.flash.sums.filter(|_| which & VERIFY != 0) {
            return &mut self.bytes[sums.base as usize..][..PAGE];
        }
        let (at, len) = match which & 7 {
            0 => return &mut self.label[..LABEL_BYTES],
            1 => return &mut self.label[SECOND_COPY as usize..],
            copy @ 2..4 => (layout.header(region, copy - 2), HEADER_BYTES),
            4 | 5 => (layout.payload(region), layout.payload_bytes),
            copy => (layout.log_block(region, copy - 6, 0), log),
        };
        &mut self.bytes[at as usize..][..len as usize]
    }

    fn overwrite(&mut self, mut pieces: &[u8]) {
        while let Some(([which, low, high, len], rest)) = pieces.split_first_chunk() {
            let (piece, next) = rest.split_at(usize::from(*len).min(rest.len()));
            let target = self.structure(*which);
            let at = usize::from(u16::from_le_bytes([*low, *high])) % target.len();
            let len = piece.len().min(target.len() - at);
            target[at..at + len].copy_from_slice(&piece[..len]);
            pieces = next;
        }
    }

    fn fix(&mut self, what: u8) {
        if what & LABELS != 0 {
            (0..2).for_each(|copy| _ = seal(self.structure(copy), 12));
        }
        if let Some(sums) = self.flash.sums.filter(|_| what & SUMS != 0) {
            let sectors = self.structure(VERIFY).chunks_exact_mut(SECTOR);
            for (at, sector) in (sums.base..).step_by(SECTOR).zip(sectors) {
                if sector.iter().any(|byte| *byte != 0) {
                    let place = sums.volume.wrapping_add(at);
                    sector[8..16].copy_from_slice(&place.to_le_bytes());
                    seal(sector, 0);
                }
            }
        }
        for region in [0, 1] {
            if what & LOGS != 0 {
                self.fix_log(region, what & SEQUENCES != 0);
            }
            let crc = crc32c(self.payload(region)).to_le_bytes();
            for copy in [2, 3] {
                let header = self.structure(region << 3 | copy);
                if what & PAYLOADS != 0 && header[56] == 1 {
                    header[44..48].copy_from_slice(&crc);
                }
                // A header that was never written stays zero.
                if what & HEADERS != 0 && header.iter().any(|b| *b != 0) {
                    seal(header, 12);
                }
            }
        }
    }

    /// Makes each block of the log's first copy follow the one before it, up to the first empty block.
    fn fix_log(&mut self, region: u8, sequences: bool) {
        let header = self.structure(region << 3 | 2);
        let generation = u64::from_le_bytes(header[24..32].try_into().unwrap_or_default());
        let (block, mut end) =
            (self.layout.block_bytes as usize, LogEnd::first(VOLUME, generation, &self.layout));
        for bytes in self.structure(region << 3 | 6).chunks_exact_mut(block) {
            if bytes[16..].iter().all(|b| *b == 0) {
                break;
            }
            bytes[..4].copy_from_slice(b"LLog");
            bytes[8..16].copy_from_slice(&end.generation.to_le_bytes());
            if sequences {
                bytes[16..24].copy_from_slice(&end.sequence.to_le_bytes());
                bytes[24..32].copy_from_slice(&end.sequence.to_le_bytes());
            }
            bytes[32..36].copy_from_slice(&end.before.to_le_bytes());
            bytes[40..48].copy_from_slice(&VOLUME.to_le_bytes());
            (end.before, end.sequence) = (seal(bytes, 4), end.sequence + 1);
        }
    }
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some(([kind, right], pieces)) = data.split_first_chunk() else { return };
    let Some(mut image) = Image::formatted(*kind) else { return };
    if right & TWO_REGIONS != 0 {
        image.add_region();
    }
    image.overwrite(pieces);
    image.fix(*right);
    if let Found::Label(label) = Label::find(&image.label) {
        assert_eq!(Label::find(&label.encode()), Found::Label(label), "a label decodes to itself");
    }
    if right & INSPECT != 0 {
        return look(&image);
    }
    let Ok(recovered) = recover_from(&image.bytes, &image.layout, VOLUME) else { return };
    let valid = is_valid(&recovered, &image);
    serve(image, &recovered, valid);
}

/// Runs `larder check`; a repair must not change its report.
fn look(image: &Image) {
    let spec = DevSpec::Mem(12 << 20);
    let Ok(device) = Device::open(&spec, Access::ReadWrite) else { return };
    for (at, bytes) in [(0, &image.label[..]), (1 << 20, &image.bytes[..image.flash.base as usize])]
    {
        let whole = bytes.len() / LABEL_BYTES * LABEL_BYTES;
        let buf = Some(larder_core::buf::Buf::copy_of(&bytes[..whole]));
        let (id, dev, kind) = (IoId(0), DevId(0), IoKind::Write { fua: false });
        let mut io = Io { id, dev, kind, offset: at, len: whole as u64, buf, at: 0 };
        device.run_blocking(&mut io).expect("memory can be written");
    }
    let Ok(report) = inspect(&device, false, None) else { return };
    let repaired = inspect(&device, true, None).expect("a parsed image can be repaired");
    assert_eq!(report.units_used, repaired.units_used);
    assert_eq!(report.verdict, repaired.verdict);
    assert!(report.units_dirty <= report.slots && report.units_used <= report.slots);
}

/// Whether no unit is held twice and all exist; both presets may place a unit in any slot.
fn is_valid(recovered: &Recovered, image: &Image) -> bool {
    let layout = &image.layout;
    assert_eq!(recovered.payload.len() as u64, layout.payload_bytes);
    assert!(recovered.factors(layout).count() as u32 == layout.factors);
    let mut units: Vec<u32> = (0..layout.slots).filter_map(|s| recovered.unit(s, layout)).collect();
    let mut singles = Vec::new();
    for slot in 0..layout.slots {
        let pages = recovered.pages(slot, layout);
        assert!(pages.iter().all(|page| page.place < layout.pages));
        match recovered.unit(slot, layout) {
            Some(unit) => assert!(pages.iter().all(|page| page.unit == unit)),
            None => singles.extend(pages.iter().map(|page| (page.unit, page.page))),
        }
    }
    units.sort_unstable();
    singles.sort_unstable();
    let exists = |unit: &u32| u64::from(*unit) < image.shape.units();
    units.windows(2).all(|pair| pair[0] != pair[1])
        && units.iter().all(exists)
        && singles.windows(2).all(|pair| pair[0] != pair[1])
        && singles.iter().all(|(unit, _)| exists(unit) && !units.contains(unit))
}

/// Attaches the metadata, which must succeed exactly if it is valid; then uses it and recovers it again.
fn serve(image: Image, recovered: &Recovered, valid: bool) {
    let Image { shape, choices, flash, layout, bytes, .. } = image;
    let owns = Keeps::of(&choices).dirty;
    // The only copy of a page that does not match its checksum cannot be read.
    let may_lose = owns && choices.verify;
    let origin = vec![0; shape.origin_bytes as usize];
    let mut memory = Memory::new(shape, choices, origin, bytes);
    let warm = memory.shard.attach(flash, Some(recovered));
    assert_eq!(warm, valid, "warm exactly if it is consistent");
    let Some(status) = memory.shard.cache_status().filter(|_| warm) else { return };
    let is_used = |slot: &u32| recovered.is_used(*slot, &layout);
    let used: Vec<u32> = (0..layout.slots).filter(is_used).collect();
    // A mixed slot without pages is free again at once: its directory is damaged.
    let holds = |slot: &&u32| {
        recovered.unit(**slot, &layout).is_some() || !recovered.pages(**slot, &layout).is_empty()
    };
    let full = used.iter().filter(holds).count() as u64;
    assert!((full..=used.len() as u64).contains(&status.units_used));
    let last = shape.units() as u32 - 1;
    let asked = [0, last].map(|unit| shape.unit_offset(unit));
    let kinds = [Kind::Read, Kind::Write { fua: false }, Kind::Trim { fua: false }, Kind::Read];
    for (tag, kind) in kinds.into_iter().enumerate() {
        for offset in asked {
            memory.ask(tag as u64, kind, offset, 4096, 7);
        }
    }
    memory.pass(3 * SECOND);
    memory.shard.settle_journal();
    memory.pass(3 * SECOND);
    assert_eq!(memory.replies.len(), kinds.len() * asked.len());
    for (tag, result, data) in &memory.replies {
        assert!(result.is_ok() || may_lose && *result == Err(Errno::EIO));
        assert!(
            result.is_err() || *tag != 3 || data.iter().all(|b| *b == 0),
            "trimmed data reads as zeroes"
        );
    }
    assert!(memory.shard.journal_settled());
    let again =
        recover_from(&memory.flash, &layout, VOLUME).expect("written metadata can be recovered");
    let status = memory.shard.cache_status().expect("the cache is still attached");
    let used = (0..layout.slots).filter(|s| again.is_used(*s, &layout)).count() as u64;
    assert_eq!((status.units_used, owns && status.units_dirty > used), (used, false));
}
