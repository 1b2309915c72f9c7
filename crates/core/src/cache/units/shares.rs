// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slots of each volume of a cache, and who may take one from whom.
//!
//! Invariants: a volume takes no slot beyond its `most`; it takes none from a volume that has its `least` or fewer, and no
//! free slot that others need to reach their `least`. Within that the replacement policy decides, as in a cache of one volume,
//! where all of this is true.
//!
//! A volume whose origin refuses dirty data, or does not answer, is *held* at the slots that it has, so that its units do not
//! displace what others have.
//!
//! Why not a replacement policy for each volume: loads that take turns would each be left with their part of the slots.

use crate::mutant;
use crate::shape::Shape;
use crate::volumes::{Share, Volumes};

/// The shares of one shard's slots.
pub(super) struct Shares {
    shape: Shape,
    volumes: Volumes,
    each: Vec<Part>,
}

/// Why a volume is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its origin refuses dirty data.
    Refused,
    /// Its origin is overdue.
    Overdue,
}

/// What one volume has.
struct Part {
    used: u32,
    /// It has at least so many, while they are kept for it.
    least: u32,
    keeps_least: bool,
    most: u32,
    /// While it is held, for each reason: its bound.
    held: [Option<u32>; 2],
}

impl Shares {
    pub(super) fn new(volumes: Volumes, shape: &Shape, slots: u32) -> Self {
        let part = |_| Part { used: 0, least: 0, keeps_least: true, most: 1, held: [None; 2] };
        let each = volumes.shares().map(part).collect();
        let mut shares = Self { shape: *shape, each, volumes };
        shares.resize(slots);
        shares
    }

    /// They are shares of so many slots from now on.
    pub(super) fn resize(&mut self, slots: u32) {
        let of = |share: f64| (share.clamp(0.0, 1.0) * f64::from(slots)) as u32;
        for (part, Share { least, most }) in self.each.iter_mut().zip(self.volumes.shares()) {
            (part.least, part.most) = (of(least), of(most).max(1));
        }
    }

    fn volume(&self, unit: u32) -> usize {
        if self.is_alone() { 0 } else { self.volumes.at(self.shape.unit_offset(unit)) as usize }
    }

    fn is_alone(&self) -> bool {
        self.each.len() == 1
    }

    /// A unit has a slot.
    pub(super) fn added(&mut self, unit: u32) {
        let volume = self.volume(unit);
        self.each[volume].used += 1;
    }

    /// A unit has no slot any more.
    pub(super) fn removed(&mut self, unit: u32) {
        let volume = self.volume(unit);
        self.each[volume].used -= 1;
    }

    pub(super) fn used(&self, volume: u32) -> u32 {
        self.each[volume as usize].used
    }

    /// Whether a unit may take one of so many free slots.
    pub(super) fn may_insert(&self, unit: u32, free: u32) -> bool {
        if mutant::is_active("share-not-kept") {
            return true;
        }
        let own = self.volume(unit);
        let others = self.each.iter().enumerate().filter(|(volume, _)| *volume != own);
        let reserved: u32 = others.map(|(_, part)| part.reserved()).sum();
        self.each[own].may_grow() && free > reserved
    }

    /// Whether a unit may take the slot of another.
    pub(super) fn may_displace(&self, incoming: u32, victim: u32) -> bool {
        if mutant::is_active("share-not-kept") {
            return true;
        }
        let (own, other) = (self.volume(incoming), &self.each[self.volume(victim)]);
        own == self.volume(victim) || self.each[own].may_grow() && other.may_shrink()
    }

    /// Whether one of so many free slots may hold single pages.
    pub(super) fn may_mix(&self, free: u32) -> bool {
        free > self.each.iter().map(Part::reserved).sum()
    }

    /// Whether the volume of a unit may lose a slot to single pages.
    pub(super) fn may_lose(&self, unit: u32) -> bool {
        self.each[self.volume(unit)].may_shrink()
    }

    /// Keeps slots for a volume, or does not.
    pub(super) fn keep_least(&mut self, volume: u32, keeps: bool) {
        self.each[volume as usize].keeps_least = keeps;
    }

    /// Whether the volume of a unit is held.
    pub(super) fn is_held(&self, unit: u32) -> bool {
        self.each[self.volume(unit)].held.iter().any(Option::is_some)
    }

    /// Holds a volume at what it has, or no longer. One that is alone takes nothing from others.
    pub(super) fn hold(&mut self, volume: u32, why: Hold, holds: bool) {
        let holds = holds && !self.is_alone();
        let Part { used, held, .. } = &mut self.each[volume as usize];
        let bound = &mut held[why as usize];
        *bound = holds.then(|| bound.unwrap_or(*used));
    }
}

impl Part {
    fn least(&self) -> u32 {
        if self.keeps_least { self.least } else { 0 }
    }

    /// Free slots that are kept for it.
    fn reserved(&self) -> u32 {
        self.least().saturating_sub(self.used)
    }

    fn may_shrink(&self) -> bool {
        self.used > self.least()
    }

    fn may_grow(&self) -> bool {
        self.held.iter().flatten().all(|bound| self.used < *bound) && self.used < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two volumes of 100 units of a page; the first has between 2 and 6 of 10 slots.
    fn shares(used: [u32; 2]) -> Shares {
        let volumes = Volumes::placed(&[100 << 12, 100 << 12], 4096);
        let first = Share { least: 0.2, most: 0.6 };
        let volumes = volumes.sharing(&[first, Share::default()]);
        let mut shares = Shares::new(volumes.clone(), &Shape::new(volumes.bytes(), 4096, 1), 10);
        for (volume, used) in used.into_iter().enumerate() {
            (0..used).for_each(|_| shares.added(100 * volume as u32));
        }
        shares
    }

    #[test]
    fn a_volume_takes_no_more_than_its_most() {
        let shares = shares([6, 2]);
        assert!(!shares.may_insert(0, 2) && shares.may_insert(100, 2));
        assert!(shares.may_displace(0, 1), "its own");
        assert!(!shares.may_displace(0, 100) && shares.may_displace(100, 0));
    }

    #[test]
    fn what_a_volume_has_at_least_is_kept_for_it() {
        let mut shares = shares([1, 8]);
        shares.keep_least(0, false);
        assert!(shares.may_insert(100, 1) && shares.may_displace(100, 0), "it left");
        shares.keep_least(0, true);
        assert!(!shares.may_insert(100, 1), "the last free slot is the other's");
        assert!(shares.may_insert(0, 1));
        assert!(!shares.may_displace(100, 0) && shares.may_displace(0, 100));
    }

    #[test]
    fn a_volume_that_is_held_keeps_what_it_has() {
        let mut shares = shares([3, 3]);
        shares.hold(0, Hold::Refused, true);
        assert!(!shares.may_insert(0, 4) && !shares.may_displace(0, 100));
        assert!(shares.may_displace(0, 1));
        shares.removed(0);
        shares.hold(0, Hold::Refused, true);
        assert!(shares.may_insert(0, 4), "up to what it had");
        shares.hold(0, Hold::Refused, false);
        shares.added(0);
        assert!(shares.may_insert(0, 4));
        shares.hold(0, Hold::Overdue, true);
        shares.hold(0, Hold::Refused, false);
        assert!(!shares.may_insert(0, 4), "for another reason");
    }
}
