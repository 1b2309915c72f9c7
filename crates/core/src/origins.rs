// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origins of a shard: one for each volume.
//!
//! Invariant: what fails concerns its own volume. A flush, a failed flush and the pace of population belong to one origin. A
//! flush of several ends with the slowest, and returns which of them succeeded.

use std::rc::Rc;

use crate::buf::Buf;
use crate::config::Limits;
use crate::event::Events;
use crate::exec::{DevId, Exec, IoKind, each};
use crate::flash::InFlight;
use crate::merge::Done;
use crate::origin::{Origin, Use};
use crate::request::Errno;
use crate::shape::Shape;
use crate::stats::Stats;
use crate::volumes::{VolumeSet, Volumes};

/// The origins.
pub(crate) struct Origins {
    pub(crate) volumes: Volumes,
    shape: Shape,
    each: Vec<Origin>,
}

impl Origins {
    pub(crate) fn new(
        volumes: Volumes,
        shape: &Shape,
        limits: &Limits,
        dev: DevId,
        (exec, stats, events): (&Exec<InFlight>, &Rc<Stats>, &Events),
    ) -> Self {
        let origin = |(volume, range)| {
            Origin::new(dev, (volume, range), (exec, stats, events), limits, shape.shard)
        };
        let each = (0..).zip(volumes.ranges()).map(origin).collect();
        Self { volumes, shape: *shape, each }
    }

    /// The origin of the byte at an offset.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> &Origin {
        &self.each[self.volumes.at(offset) as usize]
    }

    /// The origin of a unit, by the shard's own number.
    #[inline]
    pub(crate) fn of_unit(&self, unit: u32) -> &Origin {
        match &self.each[..] {
            [alone] => alone,
            _ => self.at(self.shape.unit_offset(unit)),
        }
    }

    /// The origin of a volume.
    pub(crate) fn of(&self, volume: u32) -> &Origin {
        &self.each[volume as usize]
    }

    /// Reads, see [`Origin::read`].
    #[inline]
    pub(crate) fn read(
        &self,
        why: Use,
        offset: u64,
        len: u64,
        buf: Buf,
    ) -> impl Future<Output = Result<Buf, Errno>> {
        self.at(offset).read(why, offset, len, buf)
    }

    /// Writes, see [`Origin::write`].
    #[inline]
    pub(crate) fn write(
        &self,
        why: Use,
        range: (u64, u64),
        fua: bool,
        buf: Option<Buf>,
    ) -> impl Future<Output = Done> {
        self.at(range.0).write(why, range, fua, buf)
    }

    /// Writes, trims or zeroes a range, see [`Origin::change`].
    #[inline]
    pub(crate) fn change(
        &self,
        why: Use,
        kind: IoKind,
        range: (u64, u64),
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<(), Errno>> {
        self.at(range.0).change(why, kind, range, buf)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.each.iter()
    }

    /// The volumes of some units.
    pub(crate) fn volumes_of(&self, units: impl Iterator<Item = u32>) -> VolumeSet {
        units.map(|unit| self.of_unit(unit).volume()).collect()
    }

    /// Makes the changes of these volumes that have ended durable; returns the volumes of which they are.
    pub(crate) async fn make_durable(&self, volumes: VolumeSet) -> Durable {
        let asked: Vec<&Origin> = self.each.iter().filter(|o| volumes.has(o.volume())).collect();
        let flushed = each(asked.iter().map(|origin| origin.make_durable()).collect()).await;
        let ended = || asked.iter().map(|origin| origin.volume()).zip(&flushed);
        let failed = ended().find_map(|(_, flushed)| flushed.err());
        Durable { volumes: ended().filter(|one| one.1.is_ok()).map(|one| one.0).collect(), failed }
    }

    /// Makes the changes of all volumes that have ended durable.
    ///
    /// # Errors
    /// Of the first volume of which they are not.
    pub(crate) async fn make_all_durable(&self) -> Result<(), Errno> {
        let all = (0..self.volumes.count()).collect();
        self.make_durable(all).await.failed.map_or(Ok(()), Err)
    }
}

/// What came of flushes of several origins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable {
    /// The volumes whose origin was flushed.
    pub volumes: VolumeSet,
    /// The first error of the others.
    pub failed: Option<Errno>,
}
