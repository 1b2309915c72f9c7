// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mechanics of one disk: head position, rotation and seeks.
//!
//! - A seek over a distance takes `settle + stroke * sqrt(distance / capacity)`. Over uniformly random pairs of
//!   positions the root has a mean of 8/15, so `stroke` follows from the rated average. Within one track there is no
//!   seek: neighbouring tracks are skewed such that the switch costs nothing, which is how a disk sustains its rate
//!   from track to track.
//! - The angle under the head is a function of time, and the angle of a byte is a function of its offset; the wait is
//!   the difference. It is not random, and a timely stream never waits.
//! - After a read the head reads ahead into a buffer, for a few tracks. A request that continues, or skips ahead by
//!   less than a track, joins this read-ahead. So a reader with one request at a time gets the full rate although each
//!   request arrives slightly late. There is one such buffer.
//!
//! Offsets are converted to *spin*: the media time from byte 0 to the offset if read in one go. Spin modulo a
//! revolution is the angle, and a difference of spins is a transfer time. Both come from one function, so rounding
//! never makes a stream miss its angle by a nanosecond, which would cost a revolution.
//!
//! Not modelled: zones (the outer tracks of real disks are faster), remapped sectors, and writes that start in the
//! middle of a track that they fill. For the distance of a seek the head is where the last request ended, even if it
//! has read ahead.

use super::spec::DiskSpec;
use crate::Nanos;

const MINUTE_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Keeps spins within 64 bits for media rates down to a megabyte a second.
const CAPACITY_BYTES_MAX: u64 = 1 << 50;

/// A range on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaRange {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    spin: Nanos,
    spin_end: Nanos,
    angle_ns: Nanos,
}

/// The cost of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All data is in the buffer; the head is not needed.
    Buffered,
    /// The head is at the first byte at `start` and after the last at `end`. The access `joins` the read-ahead if
    /// everything between the buffer and its end is read as well.
    Media { start: Nanos, end: Nanos, joins: bool },
}

impl Plan {
    /// When the first byte is transferred; a scheduler prefers an early start.
    pub(crate) fn start(&self, now: Nanos) -> Nanos {
        match self {
            Self::Buffered => now,
            Self::Media { start, .. } => *start,
        }
    }
}

/// The read-ahead after a read.
#[derive(Clone, Copy)]
struct Ahead {
    /// First byte still in the buffer.
    first: u64,
    /// At this time the head was at this spin.
    at: Nanos,
    spin: Nanos,
    /// Where it stops.
    limit: u64,
    limit_spin: Nanos,
}

pub(crate) struct Platter {
    revolution_ns: Nanos,
    track_bytes: u64,
    phase_ns: Nanos,
    settle_ns: Nanos,
    write_settle_ns: Nanos,
    stroke_ns: f64,
    capacity_bytes: u64,
    ahead_bytes: u64,
    ahead_ns: Nanos,
    head: u64,
    ahead: Option<Ahead>,
}

impl Platter {
    /// A platter whose angle at time 0 is `phase` (any number), with its head at the first byte.
    pub(crate) fn new(spec: &DiskSpec, capacity_bytes: u64, phase: u64) -> Self {
        let revolution_ns = (MINUTE_NS / spec.rpm.max(1)).max(1);
        let track = u128::from(spec.bytes_per_second) * u128::from(revolution_ns);
        let track_bytes = u64::try_from(track / u128::from(SECOND_NS)).unwrap_or(u64::MAX);
        let travel_ns = spec.seek_average_ns.saturating_sub(spec.settle_ns);
        Self {
            revolution_ns,
            track_bytes: track_bytes.max(1),
            phase_ns: phase % revolution_ns,
            settle_ns: spec.settle_ns,
            write_settle_ns: spec.write_settle_ns,
            stroke_ns: travel_ns as f64 * 15.0 / 8.0,
            capacity_bytes: capacity_bytes.clamp(1, CAPACITY_BYTES_MAX),
            ahead_bytes: track_bytes.saturating_mul(spec.read_ahead_tracks),
            ahead_ns: revolution_ns.saturating_mul(spec.read_ahead_tracks),
            head: 0,
            ahead: None,
        }
    }

    /// The part of a range that lies on the medium.
    pub(crate) fn span(&self, offset: u64, len: u64) -> MediaRange {
        let offset = offset.min(self.capacity_bytes);
        let end = offset.saturating_add(len).min(self.capacity_bytes);
        let spin = self.spin_ns(offset);
        MediaRange {
            offset,
            end,
            spin,
            spin_end: self.spin_ns(end),
            angle_ns: spin % self.revolution_ns,
        }
    }

    /// The plan of a read if the head is free at `now`.
    pub(crate) fn plan_read(&self, now: Nanos, span: &MediaRange) -> Plan {
        let Some(ahead) = self.ahead.filter(|ahead| span.offset >= ahead.first) else {
            return self.plan_access(now, span, 0);
        };
        let reached = ahead.spin + now.saturating_sub(ahead.at);
        if span.spin_end <= reached.min(ahead.limit_spin) {
            return Plan::Buffered;
        }
        if reached <= ahead.limit_spin && span.spin < reached + self.revolution_ns {
            let start = ahead.at + span.spin.saturating_sub(ahead.spin);
            let end = ahead.at + (span.spin_end - ahead.spin);
            return Plan::Media { start: start.max(now), end, joins: true };
        }
        if reached > ahead.limit_spin && span.offset <= ahead.limit {
            let angle_ns = ahead.limit_spin % self.revolution_ns;
            let start = now + self.rotation_ns(now, angle_ns);
            let end = start + (span.spin_end - ahead.limit_spin);
            return Plan::Media { start, end, joins: true };
        }
        self.plan_access(now, span, 0)
    }

    /// The plan of a write if the head is free at `now`.
    pub(crate) fn plan_write(&self, now: Nanos, span: &MediaRange) -> Plan {
        self.plan_access(now, span, self.write_settle_ns)
    }

    /// Records a planned read that ends at `end`.
    pub(crate) fn did_read(&mut self, span: &MediaRange, end: Nanos, joins: bool) {
        let joined = self.ahead.filter(|_| joins);
        let first = joined.map_or(span.offset, |ahead| ahead.first);
        self.head = span.end;
        self.ahead = Some(Ahead {
            first: first.max(span.end.saturating_sub(self.ahead_bytes)),
            at: end,
            spin: span.spin_end,
            limit: span.end.saturating_add(self.ahead_bytes),
            limit_spin: span.spin_end + self.ahead_ns,
        });
    }

    /// Records a read served from the buffer at `now`: a head that is still reading ahead continues further.
    pub(crate) fn did_hit(&mut self, span: &MediaRange, now: Nanos) {
        let Some(ahead) = &mut self.ahead else { return };
        let still_reads = ahead.spin + now.saturating_sub(ahead.at) <= ahead.limit_spin;
        let limit = span.end.saturating_add(self.ahead_bytes);
        if still_reads && limit > ahead.limit {
            ahead.limit = limit;
            ahead.limit_spin = span.spin_end + self.ahead_ns;
        }
    }

    /// Records a planned write.
    pub(crate) fn did_write(&mut self, span: &MediaRange) {
        self.head = span.end;
        self.ahead = None;
    }

    fn plan_access(&self, now: Nanos, span: &MediaRange, write_settle_ns: Nanos) -> Plan {
        let distance_bytes = span.offset.abs_diff(self.head);
        let mut start = now;
        if distance_bytes >= self.track_bytes {
            let share = distance_bytes as f64 / self.capacity_bytes as f64;
            let travel_ns = (self.stroke_ns * share.sqrt()) as u64;
            start += self.settle_ns + write_settle_ns + travel_ns;
        }
        start += self.rotation_ns(start, span.angle_ns);
        Plan::Media { start, end: start + (span.spin_end - span.spin), joins: false }
    }

    /// The wait at `now` until an angle is under the head.
    fn rotation_ns(&self, now: Nanos, angle_ns: Nanos) -> Nanos {
        let under_ns = (now + self.phase_ns) % self.revolution_ns;
        if angle_ns >= under_ns {
            angle_ns - under_ns
        } else {
            angle_ns + self.revolution_ns - under_ns
        }
    }

    fn spin_ns(&self, offset: u64) -> Nanos {
        let track = offset / self.track_bytes;
        let within = offset % self.track_bytes;
        track * self.revolution_ns + within * self.revolution_ns / self.track_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, Platter};
    use crate::{DeviceSpec, Nanos, SplitMix64, described};

    const CAPACITY: u64 = 1 << 40;
    const TRACK: u64 = 620_000;
    const TURN: Nanos = 4_000_000;

    fn platter() -> Platter {
        let DeviceSpec::Disk(disk) = described("hdd-15k").unwrap().device else { unreachable!() };
        Platter::new(&disk, CAPACITY, 1_234_567)
    }

    fn media(plan: Plan) -> (Nanos, Nanos, bool) {
        match plan {
            Plan::Media { start, end, joins } => (start, end, joins),
            Plan::Buffered => panic!("buffered"),
        }
    }

    /// Reads at `now`; returns when the read ends.
    fn read(platter: &mut Platter, now: Nanos, offset: u64, len: u64) -> Nanos {
        let span = platter.span(offset, len);
        let (_, end, joins) = media(platter.plan_read(now, &span));
        platter.did_read(&span, end, joins);
        end
    }

    #[test]
    fn random_accesses_take_the_mean_seek_and_half_a_revolution() {
        let mut platter = platter();
        let mut random = SplitMix64::new(1);
        let (mut now, mut positioning_ns) = (0, 0);
        for _ in 0..200_000 {
            let span = platter.span(random.below(CAPACITY), 0);
            let (start, end, joins) = media(platter.plan_read(now, &span));
            platter.did_read(&span, end, joins);
            positioning_ns += start - now;
            now = end + random.below(1_000_000);
        }
        let mean_ns = positioning_ns / 200_000;
        assert!(mean_ns.abs_diff(5_500_000) < 20_000, "{mean_ns}");
    }

    #[test]
    fn streams_never_miss_a_revolution() {
        let mut platter = platter();
        let mut now = read(&mut platter, 0, 0, 4096);
        let start = now;
        for at in 1..100_000 {
            let span = platter.span(at * 4096, 4096);
            // Writes alternate with planning, because both must keep the angle to the nanosecond.
            let (begin, end, _) = media(platter.plan_write(now, &span));
            assert_eq!(begin, now);
            platter.did_write(&span);
            now = end;
        }
        let want_ns = 99_999 * 4096 * 1000 / 155;
        assert!((now - start).abs_diff(want_ns) < 10);
    }

    #[test]
    fn the_head_reads_ahead_and_late_requests_join() {
        let mut platter = platter();
        let end = read(&mut platter, 0, 0, 128 << 10);
        let rest_ns = (128 << 10) * 1000 / 155;
        let span = platter.span(128 << 10, 128 << 10);
        let (start, done, joins) = media(platter.plan_read(end + 100_000, &span));
        assert_eq!((start, joins), (end + 100_000, true));
        assert!(done.abs_diff(end + rest_ns) <= 1, "as if submitted at once");
        assert_eq!(platter.plan_read(end + rest_ns + 1, &span), Plan::Buffered);
        let skip = platter.span(300_000, 4096);
        assert!(media(platter.plan_read(end, &skip)).2, "a short skip joins the read-ahead");
        let far = platter.span(3 * TRACK, 4096);
        assert!(!media(platter.plan_read(end, &far)).2, "a seek is faster");
        let back = platter.span(0, 4096);
        assert_eq!(platter.plan_read(end, &back), Plan::Buffered);
    }

    #[test]
    fn a_head_that_stopped_reading_ahead_waits_for_its_angle() {
        let mut platter = platter();
        let end = read(&mut platter, 0, 0, 4096);
        let limit = 4096 + 4 * TRACK;
        let long_after = end + 1_000_000_000;
        let inside = platter.span(limit - 4096, 4096);
        assert_eq!(platter.plan_read(long_after, &inside), Plan::Buffered);
        let across = platter.span(limit - 4096, 8192);
        let (start, done, joins) = media(platter.plan_read(long_after, &across));
        assert!(joins && start - long_after < TURN);
        assert!((done - start).abs_diff(4096 * 1000 / 155) <= 1, "only the rest is read");
    }

    #[test]
    fn a_hit_keeps_the_head_reading() {
        let mut platter = platter();
        let end = read(&mut platter, 0, 0, 4096);
        let next = platter.span(4096, 4096);
        platter.did_hit(&next, end + TURN);
        let ahead = platter.ahead.unwrap();
        assert_eq!(ahead.limit, 8192 + 4 * TRACK);
        platter.did_hit(&platter.span(8192, 4096), end + 100 * TURN);
        assert_eq!(platter.ahead.unwrap().limit, 8192 + 4 * TRACK, "the read-ahead had stopped");
    }
}
