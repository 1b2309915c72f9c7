// SPDX-License-Identifier: MIT OR Apache-2.0
//! A solid state drive, from its four rated figures, with or without a flash translation layer.
//!
//! Under load a request occupies the drive for `alpha + beta * bytes`, separately for reads and writes, one request
//! after the other. The two unknowns follow from the rated random 4 KiB IOPS and the rated sequential 128 KiB
//! bandwidth, so both are met exactly (fractions of a nanosecond are carried over, in picoseconds). A latency that
//! overlaps with other requests is added; it is nearly the whole latency of a single small request.
//!
//! Choices:
//! - Reads and writes share one server in order of arrival: on these drives a stream of writes slows reads down, and
//!   the ratings do not allow queues to be distinguished.
//! - A flush waits for all earlier requests, then takes `flush_ns`, and delays no other request. FUA adds the same to
//!   its write. Drives with capacitors (S3500, P3700) have a short one.
//! - A trim costs `alpha` of a write.
//!
//! Why not parallel channels: four figures cannot determine their number, and a serial server has the same throughput
//! at every depth from two or three on.
//!
//! Without an FTL a write costs the same wherever it goes, because the rating is that of a drive in its steady state.
//! With one ([`SsdSpec::ftl`]) it costs the flash operations that it causes: pages programmed, pages relocated, blocks
//! erased. From the same ratings:
//! - a page written sequentially costs `4 KiB / bandwidth`, because nothing is relocated then; the time of an erasure
//!   is spread over the block's pages, and the rest is one *program*;
//! - a page written at random to a full drive costs `1 / IOPS`. One program and the erasures of a steady state are
//!   known; the rest is shared by the relocations, of which there are `W - 1`, where `W` is the write amplification of
//!   the geometry (`ftl/greedy.rs`).
//!
//! So write amplification is not a parameter, both ratings hold in the state in which they are measured (filled
//! sequentially, or overwritten at random), and a drive in another state is faster or slower than rated. For the 840
//! Pro a relocation takes 9.2 us and a program 8.8 us: its sequential rate and its spare flash fully explain its random
//! writes. There is no command overhead: a write within a page costs a page, and so does a trim, for the drive's own
//! log. If ratings contradict each other (random writes faster than sequential ones), relocations cost nothing and
//! random writes are slower than rated.

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::ftl::{Ftl, FtlSpec, PAGE_BYTES, Wear};
use crate::{Kind, Nanos, Op};

const PS_PER_NS: u64 = 1_000;
const PS_PER_SECOND: f64 = 1e12;
const RANDOM_BYTES: u64 = 4 << 10;
const SEQUENTIAL_BYTES: u64 = 128 << 10;

/// The parameters of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct SsdSpec {
    /// Random 4 KiB reads per second under load.
    #[serde(deserialize_with = "bounds::rate")]
    pub read_iops: u64,
    /// Random 4 KiB writes per second under load.
    #[serde(deserialize_with = "bounds::rate")]
    pub write_iops: u64,
    /// Sequential 128 KiB reads under load.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub read_bytes_per_second: u64,
    /// Sequential 128 KiB writes under load.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub write_bytes_per_second: u64,
    /// Part of a read's latency that overlaps with other requests.
    #[serde(deserialize_with = "bounds::nanos")]
    pub read_latency_ns: Nanos,
    /// Part of a write's latency that overlaps with other requests.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_latency_ns: Nanos,
    /// Duration of a flush once all earlier requests are complete; FUA adds the same.
    #[serde(deserialize_with = "bounds::nanos")]
    pub flush_ns: Nanos,
    /// The flash translation layer, if writes cost their flash operations.
    pub ftl: Option<FtlSpec>,
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

    /// Rounded to the nearest picosecond; 0 where the line is negative.
    fn at(&self, bytes: u64) -> u64 {
        (self.alpha_ps + self.beta_ps * bytes as f64 + 0.5) as u64
    }
}

/// A drive with a page map, and the duration of each flash operation in picoseconds.
struct Mapped {
    ftl: Ftl,
    program_ps: u64,
    relocate_ps: u64,
    erase_ps: u64,
}

impl Mapped {
    /// A drive in the state of its description.
    fn new(spec: &SsdSpec, ftl_spec: &FtlSpec, capacity_bytes: u64, seed: u64) -> Self {
        let mut ftl = Ftl::new(ftl_spec, capacity_bytes);
        let erase_ps = ftl_spec.erase_ns.saturating_mul(PS_PER_NS);
        let erase_share_ps = erase_ps as f64 / f64::from(ftl.pages_per_block());
        let bytes_ps = PS_PER_SECOND / spec.write_bytes_per_second.max(1) as f64;
        let program_ps = (bytes_ps * PAGE_BYTES as f64 - erase_share_ps).max(0.0);
        let random_ps = PS_PER_SECOND / spec.write_iops.max(1) as f64;
        let amplification = ftl.steady_write_amplification();
        let relocated = amplification - 1.0;
        let rest_ps = random_ps - program_ps - amplification * erase_share_ps;
        let relocate_ps = if relocated > 0.0 { (rest_ps / relocated).max(0.0) } else { 0.0 };
        if let Some(overwrites) = ftl_spec.overwrites {
            ftl.precondition(overwrites, seed);
        }
        let rounded = |ps: f64| (ps + 0.5) as u64;
        Self { ftl, program_ps: rounded(program_ps), relocate_ps: rounded(relocate_ps), erase_ps }
    }

    /// The first page and the number of pages of a range; for a trim, only pages completely inside.
    fn pages(op: Op) -> (u64, u64) {
        let end = op.offset.saturating_add(op.len);
        let (first, end) = match op.kind {
            Kind::Trim => (op.offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES),
            _ => (op.offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES)),
        };
        (first, end.saturating_sub(first))
    }

    fn write_ps(&mut self, op: Op) -> u64 {
        let (first, count) = Self::pages(op);
        let did = self.ftl.write(first, count);
        let programs_ps = did.host_pages.saturating_mul(self.program_ps);
        let relocations_ps = did.relocated_pages.saturating_mul(self.relocate_ps);
        let erasures_ps = did.erased_blocks.saturating_mul(self.erase_ps);
        programs_ps.saturating_add(relocations_ps).saturating_add(erasures_ps)
    }

    fn trim_ps(&mut self, op: Op) -> u64 {
        let (first, count) = Self::pages(op);
        self.ftl.trim(first, count);
        self.program_ps
    }
}

/// The cost of writes.
enum Writes {
    Rated(Line),
    Mapped(Box<Mapped>),
}

/// A solid state drive.
pub type Ssd = Foreseen<Server>;

/// Serves one request after the other.
pub struct Server {
    read_latency_ns: Nanos,
    write_latency_ns: Nanos,
    flush_ns: Nanos,
    reads: Line,
    writes: Writes,
    free_at: Nanos,
    carried_ps: u64,
}

impl Ssd {
    /// An idle drive. Capacity and seed matter only with an FTL: for the size of the map, and for the random writes
    /// that precondition the drive.
    #[must_use]
    pub fn new(spec: &SsdSpec, capacity_bytes: u64, seed: u64) -> Self {
        let writes = match &spec.ftl {
            None => Writes::Rated(Line::through(spec.write_iops, spec.write_bytes_per_second)),
            Some(ftl) => Writes::Mapped(Box::new(Mapped::new(spec, ftl, capacity_bytes, seed))),
        };
        Self::by(Server {
            read_latency_ns: spec.read_latency_ns,
            write_latency_ns: spec.write_latency_ns,
            flush_ns: spec.flush_ns,
            reads: Line::through(spec.read_iops, spec.read_bytes_per_second),
            writes,
            free_at: 0,
            carried_ps: 0,
        })
    }
}

impl Server {
    /// How long a request delays the next one, in picoseconds.
    fn occupancy_ps(&mut self, op: Op) -> u64 {
        match (op.kind, &mut self.writes) {
            (Kind::Read, _) => self.reads.at(op.len),
            (Kind::Flush, _) => 0,
            (Kind::Write, Writes::Rated(line)) => line.at(op.len),
            (Kind::Trim, Writes::Rated(line)) => line.at(0),
            (Kind::Write, Writes::Mapped(mapped)) => mapped.write_ps(op),
            (Kind::Trim, Writes::Mapped(mapped)) => mapped.trim_ps(op),
        }
    }

    /// Occupies the drive for a request that arrives at `now`; returns when that ends.
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

impl EndsAt for Server {
    fn ends_at(&mut self, now: Nanos, op: Op) -> Nanos {
        let latency_ns = match op.kind {
            Kind::Read => self.read_latency_ns,
            Kind::Write if op.fua => self.write_latency_ns.saturating_add(self.flush_ns),
            Kind::Write | Kind::Trim => self.write_latency_ns,
            Kind::Flush => self.flush_ns,
        };
        self.occupy(now, op).saturating_add(latency_ns)
    }

    fn wear(&self) -> Option<Wear> {
        match &self.writes {
            Writes::Rated(_) => None,
            Writes::Mapped(mapped) => Some(mapped.ftl.wear()),
        }
    }
}
