// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a volume besides requests and crashes: faults of its devices, fencing of a flash device
//! that failed, and requests of an administrator.

use std::ops::Range;

use larder_core::event::Event;
use larder_core::exec::MILLISECOND;
use larder_core::format::label::LABELS_END;
use larder_core::request::Errno;
use larder_core::shard::{Arrangement, Clear, Shard};
use rand::RngExt;

use super::life::Life;
use super::promise::Trouble;
use super::step::Fault;
use crate::device::Rot;
use crate::world::ORIGIN;

impl Life<'_> {
    /// Asks for all state to be made durable.
    pub(super) fn settle(&mut self) {
        self.world.shards().iter().for_each(Shard::settle_journal);
    }

    /// Warms or evicts a range.
    pub(super) fn arrange(&mut self, what: Arrangement, range: Range<u64>) {
        for shard in self.world.shards() {
            shard.begin_list();
            let ended = (what == Arrangement::Evict).then(|| self.wanted.evicts());
            shard.arrange(what, vec![range.clone()], move |_| {
                ended.iter().for_each(|ended| ended());
            });
        }
    }

    /// Asks for a write-back of all dirty data.
    pub(super) fn clear(&mut self, leave: bool) {
        if !self.attached {
            return;
        }
        self.wanted.begin();
        // An earlier write-back may have passed the data that was written since.
        let leave = leave || self.clearing.is_some_and(|(_, leave)| leave);
        self.clearing = Some((self.world.now(), leave));
        let clear = Clear { volume: None, evict: leave };
        self.world.shards().iter().for_each(|shard| shard.clear(clear));
    }

    /// Makes it durable that flash is out of use, and then stops using it.
    pub(super) fn detach(&mut self) {
        if !self.attached {
            return;
        }
        self.stop_using();
    }

    fn stop_using(&mut self) {
        (self.attached, self.fence_at, self.resizing) = (false, None, None);
        self.world.detach();
        self.world.fence();
    }

    fn follow_clear(&mut self) {
        let Some((asked, leave)) = self.clearing else { return };
        let clear = Clear { volume: None, evict: leave };
        let ended: Option<Vec<_>> = self.world.shards().iter().map(|s| s.cleared(clear)).collect();
        let Some(ended) = ended else { return };
        self.clearing = None;
        if ended.iter().all(Result::is_ok) {
            self.given = Some((asked, self.world.now()));
            self.seen.cleared += 1;
            if leave {
                self.detach();
            }
        } else {
            self.world.shards().iter().for_each(|shard| shard.cancel_detach());
        }
    }

    /// Asks for a volume to leave the cache.
    pub(super) fn depart(&mut self, volume: u32) {
        if !self.attached || self.outside.contains(&volume) {
            return;
        }
        self.departing.insert(volume);
        self.wanted.begin();
        let clear = Clear { volume: Some(volume), evict: true };
        self.world.shards().iter().for_each(|shard| shard.clear(clear));
    }

    /// A volume that has left, or is leaving, is cached again.
    pub(super) fn return_to_cache(&mut self, volume: u32) {
        if self.outside.remove(&volume) || self.departing.remove(&volume) {
            self.world.shards().iter().for_each(|shard| shard.join(volume));
        }
    }

    /// Volumes have left once each shard has no unit of them; they join again if one cannot.
    fn follow_departures(&mut self) {
        let shards = self.world.shards();
        // A flash that failed is not used any more, which the state file will record.
        if !shards.iter().all(|shard| shard.uses(self.flash)) {
            self.departing.clear();
            self.outside.clear();
            return;
        }
        for volume in std::mem::take(&mut self.departing) {
            let clear = Clear { volume: Some(volume), evict: true };
            let ended: Option<Vec<_>> = shards.iter().map(|s| s.cleared(clear)).collect();
            match ended {
                None => drop(self.departing.insert(volume)),
                Some(ended) if ended.iter().all(Result::is_ok) => {
                    self.seen.departed += 1;
                    self.outside.insert(volume);
                }
                Some(_) => shards.iter().for_each(|shard| shard.join(volume)),
            }
        }
    }

    /// The state file records which pages the recovery of logs ignores.
    fn follow_logs(&mut self) {
        while let Some((shard, dev, pages)) = self.world.take_ignores() {
            if dev == self.flash && self.attached {
                self.seen.bypassed += u64::from(!pages.is_empty());
                self.identity.ignore(shard, &pages);
                self.world.shards()[shard].ignores_recorded(Ok(()));
                self.world.settle();
            }
        }
        if self.world.logs_wait() {
            self.identity.ignore_nothing();
            self.world.serve_logs();
        }
    }

    /// A failed flash device is fenced off after a while.
    pub(super) fn follow(&mut self) {
        self.follow_clear();
        self.follow_departures();
        self.follow_logs();
        self.follow_resize();
        let now = self.world.now();
        for event in self.world.take_events() {
            if let Event::FlashFailed { dev, .. } = event
                && dev == self.flash
            {
                self.seen.flash_failed += 1;
                let delay = if self.attached { self.rng.random_range(0..5) } else { 0 };
                self.fence_at.get_or_insert(now + delay * MILLISECOND);
            }
        }
        if self.fence_at.is_some_and(|at| now >= at) {
            // The other shards stop using the device too.
            self.stop_using();
        }
    }

    fn flip(&mut self, sector: u64, bit: u32) {
        if let Some(store) = self.world.device(self.flash).store.as_mut() {
            store.flip(sector, bit);
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        let (setup, now) = (self.setup, self.world.now());
        let begins = match fault {
            Fault::Flip(sector, bit) => return self.flip(sector, bit),
            Fault::Begins => true,
            Fault::Ends => false,
        };
        if setup.trouble == Trouble::OriginHangs {
            return self.hang(begins);
        }
        if begins && setup.trouble == Trouble::OriginFlushErrors && now % 4 == 0 {
            // As after a lost connection.
            self.world.distrust_origin(setup.troubled.unwrap_or(0));
        }
        let share = |of: f64| if begins { of } else { 0.0 };
        let origin = &mut self.world.device(ORIGIN).faults;
        origin.within = setup.troubled.map(|volume| setup.volumes.range(volume));
        if setup.trouble == Trouble::OriginGone {
            let all = share(1.0);
            (origin.read_errors, origin.write_errors, origin.flush_errors) = (all, all, all);
        }
        if setup.trouble == Trouble::OriginForgets {
            (origin.flush_errors, origin.flush_loses) = (share(0.3), begins);
        }
        if matches!(setup.trouble, Trouble::OriginErrors | Trouble::OriginFlushErrors) {
            (origin.read_errors, origin.write_errors) = (share(0.03), share(0.05));
            let flushes = setup.trouble == Trouble::OriginFlushErrors;
            origin.flush_errors = if flushes { share(0.2) } else { 0.0 };
        }
        let patience = setup.limits.flash_dead_after;
        let device = self.world.device(self.flash);
        let faults = &mut device.faults;
        match setup.trouble {
            Trouble::FlashErrors => {
                (faults.read_errors, faults.write_errors) = (share(0.05), share(0.03));
                faults.flush_errors = share(0.02);
            }
            // Retries succeed between two of them.
            Trouble::FlashBursts | Trouble::FlashOutages if now < self.failed_until + patience => {}
            Trouble::FlashBursts | Trouble::FlashOutages if begins => {
                let long = setup.trouble == Trouble::FlashOutages;
                let range = if long { 2 * patience..4 * patience } else { 0..patience / 2 };
                faults.fails_until = now + self.rng.random_range(range);
                self.failed_until = faults.fails_until;
            }
            Trouble::FlashForgets => {
                (faults.flush_errors, faults.flush_loses) = (share(0.2), begins);
            }
            Trouble::FlashFull => {
                (faults.write_errors, faults.errno) = (share(0.3), Some(Errno::ENOSPC));
            }
            Trouble::FlashSlow => {
                let most = 4 * setup.limits.flash_timeout;
                (faults.slow_share, faults.slow_ns) = (share(0.3), most);
            }
            Trouble::FlashVanishes => faults.vanished = begins,
            Trouble::FlashShrinks => {
                let half = (setup.plan.end() - LABELS_END) / 2;
                faults.ends_at = begins.then_some(LABELS_END + half);
            }
            Trouble::FlashHangs if begins => faults.hang_share = 0.3,
            Trouble::FlashHangs => device.release(now),
            Trouble::MetadataRot | Trouble::DataRot => {
                faults.rot = Rot {
                    lost: share(0.1),
                    misdirected: share(0.1),
                    duplicated: share(0.1),
                    ..faults.rot.clone()
                };
            }
            _ => {}
        }
    }
}
