// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block read, a block written, and the eviction that it needs.
//!
//! Purpose: the three architectures as straight lines. A path changes the caches at once and lists,
//! as acts, what that costs the requester; the clock lets the time pass.
//!
//! Invariants: a request that evicts a dirty block pays for the victim's write; one that finds
//! every slot being written continues without the cache.

use super::clock::{Act, Acts};
use super::run::{FLASH, Phase, RAM, Run};
use super::{Answered, Architecture, BLOCK_BYTES, Seen, Source, WriteBack};

impl<S: Source, F: FnMut(Seen)> Run<'_, S, F> {
    fn unified(&self) -> bool {
        self.spec.architecture == Architecture::Unified
    }

    /// Which medium a slot of the unified chain is of.
    fn medium(&self, slot: u32) -> usize {
        if slot < self.spec.ram_blocks { RAM } else { FLASH }
    }

    /// An application reads a block; how it continues after `acts`.
    pub(super) fn read(
        &mut self,
        host: u32,
        block: u32,
        counts: bool,
        fast: bool,
        acts: &mut Acts,
    ) -> Phase {
        self.counts.reads += u64::from(counts);
        let levels = &mut self.hosts[host as usize].levels;
        if let Some(slot) = levels[RAM].find(block) {
            levels[RAM].touch(slot);
            let medium = if self.unified() { self.medium(slot) } else { RAM };
            if medium == RAM {
                self.counts.ram_hits += u64::from(counts);
                acts.push(Act::Wait(self.spec.times.ram_ns_per_block));
            } else {
                self.counts.flash_hits += u64::from(counts);
                acts.push(Act::Wait(self.spec.times.flash_read_ns));
            }
            return Phase::Rest;
        }
        if let Some(slot) = levels[FLASH].find(block) {
            levels[FLASH].touch(slot);
            self.counts.flash_hits += u64::from(counts);
            acts.push(Act::Wait(self.spec.times.flash_read_ns));
            return Phase::FlashRead;
        }
        let times = &self.spec.times;
        acts.push(Act::Packet(times.packet_with(0)));
        acts.push(Act::Wait(if fast {
            times.filer_fast_read_ns
        } else {
            times.filer_slow_read_ns
        }));
        acts.push(Act::Packet(times.packet_with(BLOCK_BYTES)));
        Phase::FilerRead
    }

    /// Admits a block that was read to the caches, to flash first if it is from the filer.
    pub(super) fn enter(&mut self, host: u32, block: u32, from_filer: bool, acts: &mut Acts) {
        if self.unified() {
            if let Some(slot) = self.put(host, RAM, block, acts)
                && self.medium(slot) == FLASH
            {
                self.counts.flash_writes += 1;
            }
            return;
        }
        if from_filer && self.put(host, FLASH, block, acts).is_some() {
            self.counts.flash_writes += 1;
        }
        self.put(host, RAM, block, acts);
        acts.push(Act::Wait(self.spec.times.ram_ns_per_block));
    }

    /// An application writes a block.
    pub(super) fn write(&mut self, host: u32, block: u32, counts: bool, acts: &mut Acts) -> Phase {
        self.counts.writes += u64::from(counts);
        if self.spec.hosts > 1 {
            let vanished = self.invalidate(host, block);
            self.counts.invalidating += u64::from(counts && vanished);
        }
        let Some(slot) = self.put(host, RAM, block, acts) else {
            self.write_down(host, RAM, block, acts);
            return Phase::Rest;
        };
        let medium = if self.unified() { self.medium(slot) } else { RAM };
        if medium == RAM {
            acts.push(Act::Wait(self.spec.times.ram_ns_per_block));
        } else {
            self.flash_write(acts);
        }
        let stable = self.spec.answered == Answered::Stable && medium == RAM;
        self.wrote(host, medium, slot, block, stable, acts);
        Phase::Rest
    }

    /// A slot has new content: what its medium's policy does about it, if the client does not ask for
    /// it to go down at once.
    fn wrote(
        &mut self,
        host: u32,
        medium: usize,
        slot: u32,
        block: u32,
        at_once: bool,
        acts: &mut Acts,
    ) {
        let level = self.level_of(medium);
        let at = &mut self.hosts[host as usize];
        if at_once || at.queues[medium].policy == WriteBack::Sync {
            at.levels[level].set_clean(slot);
            return self.write_down(host, medium, block, acts);
        }
        if at.levels[level].set_dirty(slot) {
            at.queues[medium].push(slot);
        }
        if level == FLASH {
            self.counts.flash_dirty_most = self.counts.flash_dirty_most.max(at.levels[FLASH].dirty);
        }
        if at.queues[medium].policy == WriteBack::Async {
            self.kick(host, medium);
        }
    }

    /// Writes a block back from a medium: to flash, or over the network to the filer.
    pub(super) fn write_down(&mut self, host: u32, medium: usize, block: u32, acts: &mut Acts) {
        match self.spec.architecture {
            Architecture::Naive if medium == RAM => {
                let Some(slot) = self.put(host, FLASH, block, acts) else {
                    return self.filer_write(acts);
                };
                self.flash_write(acts);
                self.wrote(host, FLASH, slot, block, false, acts);
            }
            Architecture::Lookaside => {
                // Flash must not answer with the old content once the filer has the new one.
                let flash = &mut self.hosts[host as usize].levels[FLASH];
                if let Some(slot) = flash.find(block) {
                    flash.remove(slot);
                }
                self.filer_write(acts);
                if self.put(host, FLASH, block, acts).is_some() {
                    self.counts.flash_writes += 1;
                }
            }
            _ => self.filer_write(acts),
        }
    }

    /// Makes sure that a block has a slot, as the youngest; none if all slots are being written or
    /// there are none.
    fn put(&mut self, host: u32, level: usize, block: u32, acts: &mut Acts) -> Option<u32> {
        let at = &mut self.hosts[host as usize].levels[level];
        if let Some(slot) = at.find(block) {
            at.touch(slot);
            return Some(slot);
        }
        let slot = match at.room(block) {
            Ok(slot) => slot,
            Err(victim) => {
                let slot = victim?;
                let (old, dirty) = at.remove(slot);
                if dirty {
                    self.counts.dirty_victims += 1;
                    let medium = if self.unified() { self.medium(slot) } else { level };
                    self.write_down(host, medium, old, acts);
                }
                let at = &mut self.hosts[host as usize].levels[level];
                // The victim's own write can have taken the slot only if it came to this level.
                at.room(block).ok()?
            }
        };
        self.hosts[host as usize].levels[level].insert(slot, block);
        Some(slot)
    }

    /// A request writes a block to flash and waits.
    fn flash_write(&mut self, acts: &mut Acts) {
        self.counts.flash_writes += 1;
        acts.push(Act::Wait(self.spec.times.flash_write_ns));
    }

    /// A request writes a block to the filer and waits.
    fn filer_write(&mut self, acts: &mut Acts) {
        self.counts.filer_writes += 1;
        let times = &self.spec.times;
        acts.push(Act::Packet(times.packet_with(BLOCK_BYTES)));
        acts.push(Act::Wait(times.filer_write_ns));
        acts.push(Act::Packet(times.packet_with(0)));
    }

    /// Other hosts' copies vanish; whether there were any.
    fn invalidate(&mut self, writer: u32, block: u32) -> bool {
        let mut vanished = false;
        for (host, at) in self.hosts.iter_mut().enumerate() {
            if host as u32 == writer {
                continue;
            }
            for level in &mut at.levels {
                if let Some(slot) = level.find(block) {
                    level.remove(slot);
                    vanished = true;
                }
            }
        }
        vanished
    }
}
