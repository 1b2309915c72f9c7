// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a volume needs, computed before its start (design rule 11; SCE 3.4).
//!
//! Bytes: 4 per origin unit (6 under periodic update); 12 per slot, plus the replacement policy's share (1 for generalised
//! CLOCK); and one bit per page for a partly valid unit. Directories of mixed slots have a bound of their own. A page log
//! takes 20 a page. SCE takes 4 per origin fragment and 72 per cached one.

use super::{Choices, Durability, Limits, WritePolicy};
use crate::buf::PAGE;
use crate::cache::units::dirty_map::DIRTY_SLOT_BYTES;
use crate::cache::units::flash_writes::FLASH_WRITES_BYTES;
use crate::cache::units::table::{SLOT_BYTES, bitmap_bytes_each};
use crate::flash::{BLOCK_BYTES, BLOCKS_LEAST, UNSURE_BYTES};
use crate::format::sums::EACH;
use crate::pagelog::BUFFERS;
use crate::unflushed::UNFLUSHED_BYTES;

/// Bytes of memory of a block of a page log.
pub const LOG_SLOT_BYTES: u64 = 20;

/// Memory of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The origin map.
    pub map_bytes: u64,
    /// Slots, with the state of replacement.
    pub slot_bytes: u64,
    /// Bitmaps if every unit is partly valid.
    pub bitmap_bytes: u64,
    /// Directories of mixed slots, if as many slots are mixed as may be.
    pub directory_bytes: u64,
    /// Write-through pool, the tier of RAM, population buffers, the regions that a journal keeps touched, its set of
    /// changes that no flush covers, and the checksums of those under write-back; checksums of cached pages.
    pub buffer_bytes: u64,
}

impl Memory {
    /// The memory of a volume of `origin_bytes` with `flash_bytes` of slots and `workers` workers.
    #[must_use]
    pub fn of(
        origin_bytes: u64,
        flash_bytes: u64,
        choices: &Choices,
        limits: &Limits,
        workers: u32,
    ) -> Self {
        if choices.log().is_some() {
            return Self::of_log(flash_bytes, choices, limits, workers);
        }
        let unit_bytes = choices.unit_bytes;
        let slots = flash_bytes / unit_bytes;
        let touch = choices.touch.filter(|_| choices.durability == Durability::Journal);
        let writes = if choices.write == WritePolicy::WriteBack { FLASH_WRITES_BYTES } else { 0 };
        Self {
            map_bytes: origin_bytes.div_ceil(unit_bytes) * (4 + choices.admission.bytes_per_unit()),
            slot_bytes: slots * (SLOT_BYTES + choices.eviction.bytes_per_slot())
                + dirty_bytes(slots, choices),
            bitmap_bytes: if unit_bytes > PAGE as u64 {
                slots * bitmap_bytes_each(unit_bytes)
            } else {
                0
            },
            directory_bytes: choices.admission.directories_most(slots, unit_bytes),
            buffer_bytes: limits.write_through_bytes
                + limits.ram_bytes
                + sums_bytes(slots * unit_bytes, choices, limits, workers)
                + 8 * limits.population_io_bytes
                + u64::from(workers) * writes
                + touch.map_or(0, |touch| {
                    u64::from(workers) * (touch.memory_bytes() + UNFLUSHED_BYTES)
                }),
        }
    }

    /// The same for page logs: 20 bytes a page, the batches of each log, and the pages that wait for room.
    fn of_log(flash_bytes: u64, choices: &Choices, limits: &Limits, workers: u32) -> Self {
        let pages = flash_bytes / PAGE as u64;
        let batch = u64::from(choices.on_exit().batch_pages) * PAGE as u64;
        Self {
            map_bytes: 0,
            slot_bytes: pages * LOG_SLOT_BYTES,
            bitmap_bytes: 0,
            directory_bytes: 0,
            buffer_bytes: u64::from(workers) * BUFFERS as u64 * batch + limits.write_through_bytes,
        }
    }

    /// If every unit is partly valid, and as many slots are mixed as may be.
    #[must_use]
    pub fn worst_bytes(&self) -> u64 {
        self.full_bytes() + self.bitmap_bytes + self.directory_bytes
    }

    /// If the cache is full and every unit is fully valid.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        self.map_bytes + self.slot_bytes + self.buffer_bytes
    }
}

/// What write-back keeps of units that are dirty, if as many are as may be.
fn dirty_bytes(slots: u64, choices: &Choices) -> u64 {
    match choices.write {
        WritePolicy::WriteBack => {
            let pages = choices.unit_bytes / PAGE as u64;
            let unsure = if choices.verify { pages.div_ceil(64) * UNSURE_BYTES } else { 0 };
            let most = (slots as f64 * choices.sync.most_dirty.min(1.0)) as u64;
            most * (DIRTY_SLOT_BYTES + unsure)
        }
        _ => 0,
    }
}

/// The version of each block of checksums, and the blocks in memory.
fn sums_bytes(flash_bytes: u64, choices: &Choices, limits: &Limits, workers: u32) -> u64 {
    if !choices.verify {
        return 0;
    }
    let blocks = (flash_bytes / PAGE as u64).div_ceil(EACH);
    let least = u64::from(workers) * BLOCKS_LEAST;
    let held = (limits.verify_bytes / PAGE as u64).max(least).min(blocks.max(least));
    blocks * 4 + held * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;

    const TIB: u64 = 1 << 40;
    const MIB: u64 = 1 << 20;

    fn sce() -> Choices {
        preset("sce").unwrap().choices()
    }

    #[test]
    fn memory_stays_below_the_papers_figures() {
        // (origin, flash, the paper's figure in MiB), SCE 3.4.
        for (origin, flash, paper_mib) in
            [(2 * TIB, 2 * TIB, 152), (100 * TIB, 16 * TIB, 1552), (1024 * TIB, 256 * TIB, 22528)]
        {
            let memory = Memory::of(origin, flash, &sce(), &Limits::default(), 1);
            assert!(memory.worst_bytes() - memory.buffer_bytes < paper_mib * MIB);
        }
    }

    #[test]
    fn verifying_16_tib_of_flash_takes_at_most_a_quarter_of_a_gib() {
        let of = |verify| {
            let choices = Choices { verify, ..sce() };
            Memory::of(100 * TIB, 16 * TIB, &choices, &Limits::default(), 4).worst_bytes()
        };
        assert!((64 * MIB..256 * MIB).contains(&(of(true) - of(false))));
    }

    #[test]
    fn a_fully_valid_unit_costs_at_most_16_bytes_and_a_partly_valid_one_48() {
        let slot_bytes = SLOT_BYTES + sce().eviction.bytes_per_slot();
        assert!(slot_bytes <= 16);
        assert!(slot_bytes + bitmap_bytes_each(MIB) <= 48);
        let memory = Memory::of(100 * TIB, 16 * TIB, &sce(), &Limits::default(), 1);
        assert!(memory.full_bytes() < 700 * MIB && memory.worst_bytes() < 1200 * MIB);
    }
}
