// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the units of a volume are after a crash.

use larder_core::buf::SECTOR;

use super::history::{Judged, Violation};
use super::setup::Setup;
use crate::oracle::Value;
use crate::store::{Content, Image, Store};

/// Which units of the volume flash owns: the first sector of the slot of each. None in a clean mode,
/// where the origin has everything.
pub(super) struct Owners {
    unit_sectors: u64,
    slots: Vec<Owner>,
}

/// Where a unit is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Origin,
    /// On flash, from this sector on.
    Flash(u64),
    /// It is zero, whatever the origin holds.
    Zero,
    /// Nowhere: its only copy is lost.
    Lost,
}

impl Owners {
    /// The origin has everything.
    pub(super) fn none(setup: &Setup) -> Self {
        let unit_bytes = setup.choices.cached_bytes();
        let units = setup.shape.origin_bytes.div_ceil(unit_bytes);
        Self {
            unit_sectors: unit_bytes / SECTOR as u64,
            slots: vec![Owner::Origin; units as usize],
        }
    }

    /// Whether the origin lacks any.
    pub(super) fn any(&self) -> bool {
        self.slots.iter().any(|owner| *owner != Owner::Origin)
    }

    /// Records where a unit is.
    pub(super) fn set(&mut self, unit: u64, owner: Owner) {
        if let Some(slot) = self.slots.get_mut(unit as usize) {
            *slot = owner;
        }
    }

    /// What the volume holds in a sector, of what is left of the two devices; `None` if it is lost.
    pub(super) fn value(
        &self,
        sector: u64,
        origin: (&Store, &Image),
        flash: (&Store, &Image),
    ) -> Judged<Option<Value>> {
        let (unit, within) = (sector / self.unit_sectors, sector % self.unit_sectors);
        let owner = self.slots.get(unit as usize).copied().unwrap_or(Owner::Origin);
        let (at, (store, image)) = match owner {
            Owner::Origin => (sector, origin),
            Owner::Flash(slot) => (slot + within, flash),
            Owner::Zero => return Ok(Some(Value::Zero)),
            Owner::Lost => return Ok(None),
        };
        let content = image.get(at as usize).map_or(Content::First, |v| v.content);
        if owner == Owner::Origin && content == Content::First {
            return Ok(Some(Value::Of(0)));
        }
        let found = store.value(sector, content);
        found.map(Some).map_err(|what| Violation::new("2: a device", Some(sector), what))
    }
}
