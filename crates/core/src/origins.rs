// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origins of a shard: one for each volume.
//!
//! Invariant: what fails concerns its own volume. A flush, a failed flush and the pace of population belong to one origin. A
//! flush of several ends with the slowest, and returns which of them succeeded; if it may leave out overdue origins
//! (`overdue.rs`), with the slowest of the others.

use std::rc::Rc;

use crate::buf::Buf;
use crate::config::Limits;
use crate::event::Events;
use crate::exec::{DevId, Exec, IoKind, each};
use crate::flash::InFlight;
use crate::merge::Done;
use crate::mutant;
use crate::origin::{Origin, Use};
use crate::overdue::Overdue;
use crate::request::Errno;
use crate::shape::Shape;
use crate::stats::Stats;
use crate::volumes::{VolumeSet, Volumes};

/// The origins.
pub(crate) struct Origins {
    pub(crate) volumes: Volumes,
    shape: Shape,
    each: Vec<Rc<Origin>>,
    pub(crate) overdue: Rc<Overdue>,
}

impl Origins {
    pub(crate) fn new(
        volumes: Volumes,
        shape: &Shape,
        limits: &Limits,
        dev: DevId,
        (exec, stats, events): (&Exec<InFlight>, &Rc<Stats>, &Events),
    ) -> Self {
        let overdue = Overdue::new(volumes.count(), limits.origin_patience, exec);
        let origin = |place| {
            let limits = (limits, &overdue);
            Rc::new(Origin::new(dev, place, (exec, stats, events), limits, shape.shard))
        };
        let each = (0..).zip(volumes.ranges()).map(origin).collect();
        Self { volumes, shape: *shape, each, overdue }
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

    /// Writes dirty data of flash, see [`Origin::write_back`].
    pub(crate) fn write_back(
        &self,
        range: (u64, u64),
        buf: Option<Buf>,
    ) -> impl Future<Output = Result<(), Errno>> {
        self.at(range.0).write_back(range, buf)
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
        self.each.iter().map(|origin| &**origin)
    }

    /// The volumes whose origin is overdue.
    pub(crate) fn overdue(&self) -> VolumeSet {
        self.overdue.volumes()
    }

    /// The volumes of some units.
    pub(crate) fn volumes_of(&self, units: impl Iterator<Item = u32>) -> VolumeSet {
        units.map(|unit| self.of_unit(unit).volume()).collect()
    }

    /// Makes the changes of these volumes that have ended durable; returns the volumes of which they are.
    pub(crate) async fn make_durable(&self, volumes: VolumeSet) -> Durable {
        let asked: Vec<&Origin> = self.iter().filter(|o| volumes.has(o.volume())).collect();
        let flushed = each(asked.iter().map(|origin| origin.make_durable()).collect()).await;
        Durable::of(asked.iter().map(|origin| origin.volume()).zip(flushed.into_iter().map(Some)))
    }

    /// The same, without those whose origin is overdue, or becomes so. `waits`: the mutant that waits for it.
    pub(crate) async fn make_durable_in_time(&self, waits: &str, volumes: VolumeSet) -> Durable {
        let asked = self.each.iter().filter(|origin| volumes.has(origin.volume()));
        let flushes = asked.map(|origin| {
            let (volume, origin) = (origin.volume(), Rc::clone(origin));
            let flush = async move { origin.make_durable().await };
            let flush = self.overdue.in_time(waits, VolumeSet::default().with(volume), flush);
            async move { (volume, flush.await) }
        });
        Durable::of(each(flushes.collect()).await.into_iter())
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
    /// Those whose origin has not answered.
    pub overdue: VolumeSet,
}

impl Durable {
    /// All of them were flushed.
    pub(crate) fn all(volumes: VolumeSet) -> Self {
        Self { volumes, failed: None, overdue: VolumeSet::default() }
    }

    /// What came of the flush of each.
    fn of(each: impl Iterator<Item = (u32, Option<Result<(), Errno>>)>) -> Self {
        let mut of = Self::all(VolumeSet::default());
        for (volume, flushed) in each {
            match flushed {
                Some(Ok(())) => of.volumes = of.volumes.with(volume),
                None if mutant::is_active("overdue-counts-as-durable") => {
                    of.volumes = of.volumes.with(volume);
                }
                None => of.overdue = of.overdue.with(volume),
                Some(Err(errno)) => of.failed = of.failed.or(Some(errno)),
            }
        }
        of
    }
}
