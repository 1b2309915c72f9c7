// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may go wrong with a modelled device.
//!
//! Two kinds. *Failures* show: an operation fails, hangs or is slow, the device is gone or too
//! small. *Rot* does not: a write is acknowledged and lost, lands elsewhere, or lands again later;
//! a bit changes at rest. The model knows what rot caused (it is marked as damaged), so that
//! the oracle can tell whether rot or the engine caused a wrong byte.

use std::ops::Range;

use larder_core::exec::Nanos;
use larder_core::request::Errno;

/// What may go wrong with a device.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The share of reads that fail.
    pub read_errors: f64,
    /// The share of writes that fail; what they did to the bytes is unknown.
    pub write_errors: f64,
    /// The share of flushes that fail; they make nothing durable.
    pub flush_errors: f64,
    /// Whether a flush that fails also loses writes that no flush covers, each sector by chance.
    pub flush_loses: bool,
    /// Where operations fail by a share, or hang: those that begin in this range; everywhere if there is none.
    pub within: Option<Range<u64>>,
    /// Every operation that is submitted before this time fails.
    pub fails_until: Nanos,
    /// The errno of those failures.
    pub errno: Option<Errno>,
    /// New operations are held until released.
    pub hang: bool,
    /// The share of operations that are held until released while others continue.
    pub hang_share: f64,
    /// The share of operations that take longer ...
    pub slow_share: f64,
    /// ... by up to so much.
    pub slow_ns: Nanos,
    /// Every operation fails.
    pub vanished: bool,
    /// The device shrank: operations that reach beyond this byte fail.
    pub ends_at: Option<u64>,
    /// Writes that are acknowledged and not carried out as asked.
    pub rot: Rot,
}

/// Writes that do not do what they say, each by its share.
#[derive(Clone, Debug, Default)]
pub struct Rot {
    /// The share of writes that are acknowledged and never stored.
    pub lost: f64,
    /// The share of writes that land elsewhere.
    pub misdirected: f64,
    /// The share of writes that land a second time, later.
    pub duplicated: f64,
    /// Where: only writes that lie in one of these ranges, and only to these ranges.
    pub places: Vec<Range<u64>>,
}

impl Faults {
    /// Whether an operation that begins at this offset may fail by a share, or hang.
    pub(crate) fn is_within(&self, offset: u64) -> bool {
        self.within.as_ref().is_none_or(|within| within.contains(&offset))
    }
}

/// What rot does to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Lost,
    To(u64),
    Again,
}

impl Rot {
    /// Whether any rot may strike a write of this range; by `chance`, and `pick` of a number
    /// below another.
    pub(crate) fn strike(
        &self,
        range: Range<u64>,
        mut pick: impl FnMut(u64) -> u64,
    ) -> Option<Strike> {
        let own = self.places.iter().find(|p| p.start <= range.start && range.end <= p.end)?;
        let of_million = |share: f64| (share * 1e6) as u64;
        let (lost, misdirected) = (of_million(self.lost), of_million(self.misdirected));
        let drawn = pick(1_000_000);
        if drawn < lost {
            return Some(Strike::Lost);
        }
        if drawn < lost + misdirected {
            let len = range.end - range.start;
            let at = pick(self.places.len() as u64) as usize;
            let to = self.places.get(at).filter(|p| p.end - p.start >= len).unwrap_or(own);
            let sectors = (to.end - to.start - len) / 512 + 1;
            return Some(Strike::To(to.start + pick(sectors) * 512));
        }
        (drawn < lost + misdirected + of_million(self.duplicated)).then_some(Strike::Again)
    }
}
