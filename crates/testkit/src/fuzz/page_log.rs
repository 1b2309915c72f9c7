// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as parts of a page log on flash: read, recovered, used and recovered again.
//!
//! The input is a byte with the policy and the end of the log, a byte with what to fix, and then pieces. Each piece has
//! a structure (u8), a place in it (u16) and a length (u8). A length of up to 127 is followed by so many bytes, which
//! overwrite the structure there. A longer one is added to the word there, as a signed number from -64 to 63. Fixing
//! computes checksums, so that damage passes them.
//!
//! Required: no panic, no access outside of the devices, no endless loop, and time and memory in proportion to the
//! devices. A log that opens is used; what is written is read again, also after another recovery.

use std::cell::RefCell;
use std::collections::HashMap;

use larder_core::buf::{Buf, PAGE};
use larder_core::config::{AdmissionChoice, Choices, WritePolicy, preset};
use larder_core::exec::SECOND;
use larder_core::format::{Kept, LogsPlan, Medium, Plan};
use larder_core::pagelog::{Geometry, LogPolicy, Seat};
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;

use super::seal;
use crate::memory::{FLASH, Memory};

const VOLUME: u64 = 0x1122_3344_5566_7788;
const SIZE: u64 = PAGE as u64;
const PAGES: u64 = 90;
/// Bytes after the last whole page of the volume.
const REST: u64 = 1024;
const BATCH_PAGES: u32 = 4;
/// First byte of the log.
const BASE: u64 = 64 << 10;
/// First byte of the checksum in a header, batch header or segment.
const CRC_AT: usize = 60;

// The input's first byte.
const POLICY: u8 = 3;
/// The log ends without a stop, with a batch that is not written.
const CRASH: u8 = 4;
/// The log was used twice over, so that it ends in another lap.
const TWICE: u8 = 8;

// What is fixed.
const HEADERS: u8 = 1;
const SEGMENTS: u8 = 2;
const BATCHES: u8 = 4;

fn choices(policy: LogPolicy) -> Option<Choices> {
    let mut choices = preset("face")?.choices();
    choices.write = WritePolicy::Logged(policy);
    if let AdmissionChoice::OnExit(settings) = &mut choices.admission {
        settings.batch_pages = BATCH_PAGES;
    }
    Some(choices)
}

/// A volume behind a page log.
struct Image {
    choices: Choices,
    plan: LogsPlan,
    log: Geometry,
    flash: Vec<u8>,
}

/// A flash device to read.
struct Reading<'a>(&'a [u8]);

impl Medium for Reading<'_> {
    fn fill(&self, at: u64, mut buf: Buf) -> Result<Buf, Errno> {
        let len = buf.len();
        buf.copy_from_slice(&self.0[at as usize..][..len]);
        Ok(buf)
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }
}

impl Image {
    fn formatted(policy: LogPolicy) -> Option<Self> {
        let choices = choices(policy)?;
        let shape = Shape::new(PAGES * SIZE + REST, choices.unit_bytes, 1);
        let least = Geometry {
            base: BASE,
            blocks: 0,
            page_bytes: PAGE as u32,
            batch_pages: BATCH_PAGES,
            volume: VOLUME,
        };
        let log = Geometry { blocks: least.least_blocks(), ..least };
        let plan = LogsPlan::of(BASE, shape, log, policy);
        let mut flash = vec![0; (log.base + log.bytes()) as usize];
        for (at, bytes) in log.blank() {
            flash[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        Some(Self { choices, plan, log, flash })
    }

    /// A log that was used as the input's first byte selects.
    fn used(kind: u8) -> Option<Self> {
        let policy = *LogPolicy::ALL.get(usize::from(kind & POLICY))?;
        let mut image = Self::formatted(policy)?;
        let mut memory = image.open();
        for step in 0..if kind & TWICE == 0 { 60 } else { 190 } {
            write(&mut memory, step * 7 % (PAGES - 8), step as u8);
            memory.ask(2, Kind::Read, step % 3 * SIZE, SIZE, 0);
            if step % 16 == 0 {
                memory.ask(6, Kind::Flush, 0, 0, 0);
                memory.pass(SECOND / 10);
            }
        }
        memory.ask(5, Kind::Trim { fua: false }, 40 * SIZE, 5 * SIZE, 0);
        write(&mut memory, 42, 0x42);
        memory.ask(6, Kind::Flush, 0, 0, 0);
        if kind & CRASH == 0 {
            memory.shard.settle_journal();
        } else {
            memory.lands = 1;
            (50..60).for_each(|page| write(&mut memory, page, 0xcc));
        }
        memory.pass(3 * SECOND);
        image.flash = memory.flash;
        Some(image)
    }

    /// The image of a kind, which is made once in each thread.
    fn kept(kind: u8) -> Option<Self> {
        thread_local! {
            static MADE: RefCell<HashMap<u8, Option<Vec<u8>>>> = RefCell::default();
        }
        let kind = kind & (POLICY | CRASH | TWICE);
        let make = || Self::used(kind).map(|image| image.flash);
        let flash = MADE.with_borrow_mut(|made| made.entry(kind).or_insert_with(make).clone())?;
        let image = Self::formatted(*LogPolicy::ALL.get(usize::from(kind & POLICY))?)?;
        Some(Self { flash, ..image })
    }

    /// The engine over this flash and an empty origin.
    fn open(&self) -> Memory {
        let origin = vec![0x11; self.plan.shape.origin_bytes as usize];
        let (choices, flash) = (self.choices.clone(), self.flash.clone());
        let mut memory = Memory::new(self.plan.shape, choices, origin, flash);
        memory.shard.attach_log(FLASH, (self.log, Seat::alone()), Vec::new());
        memory.shard.all_logs_open();
        memory.pass(SECOND);
        memory
    }

    /// The bytes of a structure: a log header, a segment, or a block, which has a batch header or a page.
    fn structure(&self, which: u8) -> (usize, usize) {
        let segments = (self.log.block(0) - self.log.base - 2 * SIZE) / self.log.segment_bytes();
        let which = u64::from(which);
        let (at, len) = match which {
            0 | 1 => (self.log.base + which * SIZE, SIZE),
            _ if which < 2 + segments => {
                let len = self.log.segment_bytes();
                (self.log.base + 2 * SIZE + (which - 2) * len, len)
            }
            _ => (self.log.block(which - 2 - segments), SIZE),
        };
        (at as usize, len as usize)
    }

    fn change(&mut self, mut pieces: &[u8]) {
        while let Some(([which, low, high, len], rest)) = pieces.split_first_chunk() {
            let (at, bytes) = self.structure(*which);
            let place = usize::from(u16::from_le_bytes([*low, *high])) % bytes;
            let target = &mut self.flash[at..at + bytes];
            let count = if *len < 128 { usize::from(*len).min(rest.len()) } else { 0 };
            let (piece, next) = rest.split_at(count);
            if *len < 128 {
                let len = piece.len().min(bytes - place);
                target[place..place + len].copy_from_slice(&piece[..len]);
            } else {
                let word = &mut target[place / 8 * 8..][..8];
                let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
                let value = value.wrapping_add_signed(i64::from(*len) - 192);
                word.copy_from_slice(&value.to_le_bytes());
            }
            pieces = next;
        }
    }

    fn fix(&mut self, what: u8) {
        for which in 0..=u8::MAX {
            let (at, len) = self.structure(which);
            let Some(bytes) = self.flash.get_mut(at..at + len) else { return };
            let fixed = match &bytes[..8] {
                b"LARDLOGH" => HEADERS,
                b"LARDLOGS" => SEGMENTS,
                b"LARDLOGB" => BATCHES,
                _ => 0,
            };
            if what & fixed != 0 {
                seal(bytes, CRC_AT);
            }
        }
    }

    /// Whether a number in a log header is so high that a log which continues from there ends soon.
    fn ends_soon(&self) -> bool {
        let word = |at: usize| {
            let bytes = self.flash[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let base = self.log.base as usize;
        let words = [0, PAGE].into_iter().flat_map(|at| (2..7).map(move |i| base + at + 8 * i));
        words.map(word).any(|number| number > (1 << 62) - (1 << 20))
    }

    fn read(&self) -> bool {
        Kept::read(&Plan::Logs(self.plan), VOLUME, &Reading(&self.flash)).is_ok()
    }
}

fn write(memory: &mut Memory, page: u64, fill: u8) {
    memory.ask(1, Kind::Write { fua: false }, page * SIZE, SIZE, fill);
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some(([kind, right], pieces)) = data.split_first_chunk() else { return };
    let Some(mut image) = Image::kept(*kind) else { return };
    image.change(pieces);
    image.fix(*right);
    image.read();
    let memory = image.open();
    use_it(memory, &mut image);
}

/// Writes, trims and reads. A log that could not be opened answers every request with an error.
fn use_it(mut memory: Memory, image: &mut Image) {
    let opens = memory.shard.cache_status().is_some() && !image.ends_soon();
    // The start would mark it as out of use.
    memory.shard.fenced();
    memory.replies.clear();
    let ask = |memory: &mut Memory, tag, kind, page: u64, pages: u64| {
        memory.ask(tag, kind, page * SIZE, pages * SIZE, tag as u8);
        memory.pass(SECOND);
    };
    let (fua, read) = (Kind::Write { fua: true }, Kind::Read);
    for page in [0, 41, PAGES - 1] {
        ask(&mut memory, 1, fua, page, 1);
        ask(&mut memory, 2, read, page, 1);
        ask(&mut memory, 3, Kind::Trim { fua: true }, page, 1);
        ask(&mut memory, 4, read, page, 1);
        ask(&mut memory, 1, fua, page, 1);
    }
    (0..40).for_each(|page| write(&mut memory, page, 1));
    memory.pass(3 * SECOND);
    assert_eq!(memory.replies.len(), 3 * 5 + 40);
    if !opens {
        return;
    }
    let wrong = |(tag, result, data): &(u64, Result<(), Errno>, Vec<u8>)| match tag {
        2 => result.is_ok() && data.iter().any(|byte| *byte != 1),
        4 => result.is_ok() && data.iter().any(|byte| *byte != 0),
        _ => false,
    };
    assert!(!memory.replies.iter().any(wrong), "another content than the one written last");
    if memory.replies.iter().any(|(_, result, _)| result.is_err()) {
        return;
    }
    image.flash.clone_from(&memory.flash);
    assert!(image.read(), "a log that was used cannot be read");
    let mut again = image.open();
    again.replies.clear();
    again.ask(2, read, 41 * SIZE, SIZE, 0);
    let has = |(_, result, data): &(_, Result<(), _>, Vec<u8>)| {
        result.is_ok() && data.iter().all(|byte| *byte == 1)
    };
    let durable = memory.origin[41 * PAGE] == 1;
    assert!(durable || again.replies.iter().all(has), "what was written is gone");
}
