// SPDX-License-Identifier: MIT OR Apache-2.0
//! A solid state drive, from its four rated figures.
//!
//! Under load a request occupies the drive for `alpha + beta * bytes`, separately for reads and
//! writes, one request after the other. The two unknowns follow from the rated random 4 KiB IOPS
//! and the rated sequential 128 KiB bandwidth, so both are met exactly (fractions of a nanosecond
//! are carried on, in picoseconds). A latency that overlaps with other requests comes on top and
//! is all but alone what a single small request sees.
//!
//! Choices:
//! - Reads and writes share one server in order of arrival: on these drives a stream of writes
//!   does slow reads down, and the ratings give nothing to tell queues apart by.
//! - A flush waits for what came before it, then takes `flush_ns`, and holds up nothing else. FUA
//!   adds the same to its write. Drives with capacitors (S3500, P3700) have a short one.
//! - A trim costs `alpha` of a write.
//!
//! Why not parallel channels: four figures cannot tell how many there are, and a serial server
//! yields the same throughput at every depth from two or three on.
//!
//! Where the flash translation layer will sit: [`Ssd::occupancy_ps`] is the only place that turns
//! a request into work. A page-mapped FTL (write amplification 5.1 for scattered and 1.03 for
//! 256 KiB writes on the 840 Pro, FaCE Table 2) comes between: it gets offset and length, returns
//! pages programmed, pages relocated and blocks erased, and these are charged instead of `len`.
//! Until then a write costs the same wherever it goes, which is what the rating of a drive in
//! steady state already includes.

use crate::completions::Completions;
use crate::{Kind, Model, Nanos, Op};

const PS_PER_NS: u64 = 1_000;
const PS_PER_SECOND: f64 = 1e12;
const RANDOM_BYTES: u64 = 4 << 10;
const SEQUENTIAL_BYTES: u64 = 128 << 10;

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdSpec {
    /// Random 4 KiB reads per second under load.
    pub read_iops: u64,
    /// Random 4 KiB writes per second under load.
    pub write_iops: u64,
    /// Sequential 128 KiB reads under load.
    pub read_bytes_per_second: u64,
    /// Sequential 128 KiB writes under load.
    pub write_bytes_per_second: u64,
    /// Part of a read's latency that overlaps with other requests.
    pub read_latency_ns: Nanos,
    /// Part of a write's latency that overlaps with other requests.
    pub write_latency_ns: Nanos,
    /// What a flush takes once all before it is done, and what FUA adds.
    pub flush_ns: Nanos,
}

impl SsdSpec {
    /// Samsung 840 Pro, as measured in FaCE Table 1.
    pub const S840_PRO: Self = Self {
        read_iops: 65_803,
        write_iops: 13_979,
        read_bytes_per_second: 534_000_000,
        write_bytes_per_second: 398_000_000,
        read_latency_ns: 60_000,
        write_latency_ns: 25_000,
        flush_ns: 400_000,
    };
    /// Samsung 850 Evo, as measured in FaCE Table 1.
    pub const S850_EVO: Self = Self {
        read_iops: 98_591,
        write_iops: 6_094,
        read_bytes_per_second: 518_000_000,
        write_bytes_per_second: 300_000_000,
        read_latency_ns: 60_000,
        write_latency_ns: 25_000,
        flush_ns: 500_000,
    };
    /// Intel DC S3500, as measured in FaCE Table 1.
    pub const S3500: Self = Self {
        read_iops: 60_311,
        write_iops: 21_572,
        read_bytes_per_second: 470_000_000,
        write_bytes_per_second: 425_000_000,
        read_latency_ns: 60_000,
        write_latency_ns: 25_000,
        flush_ns: 200_000,
    };
    /// Intel DC P3700, as measured in FaCE Table 1.
    pub const P3700: Self = Self {
        read_iops: 457_355,
        write_iops: 86_949,
        read_bytes_per_second: 2_671_000_000,
        write_bytes_per_second: 676_000_000,
        read_latency_ns: 50_000,
        write_latency_ns: 10_000,
        flush_ns: 100_000,
    };
}

/// Occupancy as a line through two points.
struct Line {
    alpha_ps: f64,
    beta_ps: f64,
}

impl Line {
    fn through(iops: u64, bytes_per_second: u64) -> Self {
        let random_ps = PS_PER_SECOND / iops.max(1) as f64;
        let bytes_ps = PS_PER_SECOND / bytes_per_second.max(1) as f64;
        let sequential_ps = bytes_ps * SEQUENTIAL_BYTES as f64;
        let rise_bytes = (SEQUENTIAL_BYTES - RANDOM_BYTES) as f64;
        let beta_ps = (sequential_ps - random_ps) / rise_bytes;
        Self { alpha_ps: random_ps - beta_ps * RANDOM_BYTES as f64, beta_ps }
    }

    /// Rounded to the next picosecond; 0 where a line would fall below.
    fn at(&self, bytes: u64) -> u64 {
        (self.alpha_ps + self.beta_ps * bytes as f64 + 0.5) as u64
    }
}

/// The drive.
pub struct Ssd {
    spec: SsdSpec,
    reads: Line,
    writes: Line,
    free_at: Nanos,
    carried_ps: u64,
    done: Completions,
}

impl Ssd {
    /// An idle drive.
    #[must_use]
    pub fn new(spec: SsdSpec) -> Self {
        Self {
            spec,
            reads: Line::through(spec.read_iops, spec.read_bytes_per_second),
            writes: Line::through(spec.write_iops, spec.write_bytes_per_second),
            free_at: 0,
            carried_ps: 0,
            done: Completions::default(),
        }
    }

    /// How long a request keeps the drive from the next one, in picoseconds.
    fn occupancy_ps(&self, op: Op) -> u64 {
        match op.kind {
            Kind::Read => self.reads.at(op.len),
            Kind::Write => self.writes.at(op.len),
            Kind::Trim => self.writes.at(0),
            Kind::Flush => 0,
        }
    }

    /// Occupies the drive for a request that comes at `now`; returns when that is over.
    fn occupy(&mut self, now: Nanos, op: Op) -> Nanos {
        if self.free_at < now {
            self.free_at = now;
            self.carried_ps = 0;
        }
        let busy_ps = self.occupancy_ps(op).saturating_add(self.carried_ps);
        self.carried_ps = busy_ps % PS_PER_NS;
        self.free_at = self.free_at.saturating_add(busy_ps / PS_PER_NS);
        self.free_at
    }
}

impl Model for Ssd {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        let order = self.done.admit();
        let latency_ns = match op.kind {
            Kind::Read => self.spec.read_latency_ns,
            Kind::Write if op.fua => self.spec.write_latency_ns.saturating_add(self.spec.flush_ns),
            Kind::Write | Kind::Trim => self.spec.write_latency_ns,
            Kind::Flush => self.spec.flush_ns,
        };
        let end = self.occupy(now, op).saturating_add(latency_ns);
        self.done.finish(order, id, end);
    }

    fn next(&self) -> Option<Nanos> {
        self.done.next()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }
}
