// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential streams under the preset `larder`: a stream that does not return bypasses the cache, one that returns is
//! read ahead.

use larder_core::buf::Buf;
use larder_core::config::{CacheSpec, Durability, Limits, preset};
use larder_core::exec::{DevId, Io, IoKind, MILLISECOND, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::{Kind, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;

const ORIGIN: DevId = DevId(0);
const UNIT: u64 = 1 << 20;
const LEN: u64 = 64 << 10;
const UNITS: u64 = 64;

/// A shard on devices without bytes: each operation takes a millisecond.
struct Rig {
    shard: Shard,
    now: Nanos,
    in_flight: Vec<(Nanos, Io)>,
    /// Bytes of the reads of the origin since the last look.
    origin_reads: Vec<u64>,
    /// Whether the last read hit.
    hit: Option<bool>,
}

impl Rig {
    fn new(slots: u64) -> Self {
        let mut choices = preset("larder").expect("the preset exists").choices();
        choices.durability = Durability::Volatile;
        let spec = CacheSpec::try_from(choices).expect("a preset is lawful");
        let shape = Shape::new(UNITS * UNIT, UNIT, 1);
        let shard = Shard::new(shape, &spec, Limits::default(), ORIGIN);
        let plan = UnitsPlan::volatile(Frame::BARE, UNIT, slots, 512).place(DevId(1), 0);
        shard.attach(plan, None);
        Self { shard, now: 0, in_flight: Vec::new(), origin_reads: Vec::new(), hit: None }
    }

    fn step(&mut self) -> bool {
        self.shard.run(self.now);
        while let Some(reply) = self.shard.next_reply() {
            self.hit = Some(reply.hit);
        }
        while let Some(io) = self.shard.next_io() {
            if io.dev == ORIGIN && io.kind == IoKind::Read {
                self.origin_reads.push(io.len);
            }
            self.in_flight.push((self.now + MILLISECOND, io));
        }
        let ends = self.in_flight.first().map(|(at, _)| *at);
        let Some(next) = ends.into_iter().chain(self.shard.next_deadline()).min() else {
            return false;
        };
        self.now = next.max(self.now);
        while self.in_flight.first().is_some_and(|(at, _)| *at <= self.now) {
            let (_, io) = self.in_flight.remove(0);
            self.shard.complete(io.id, Ok(()), io.buf);
        }
        true
    }

    fn read(&mut self, offset: u64, len: u64) -> bool {
        let buf = Some(Buf::with_len(len as usize));
        self.shard.submit(0, Request { kind: Kind::Read, offset, len, buf, passive: false });
        self.hit = None;
        while self.hit.is_none() && self.step() {}
        self.hit.expect("it was answered")
    }

    /// Reads these units in order; returns the share of hits.
    fn stream(&mut self, units: std::ops::Range<u64>) -> f64 {
        self.stream_of(units, LEN)
    }

    /// The same by requests of so many bytes.
    fn stream_of(&mut self, units: std::ops::Range<u64>, len: u64) -> f64 {
        let requests = (units.start * UNIT..units.end * UNIT).step_by(len as usize);
        let count = requests.clone().count();
        requests.filter(|at| self.read(*at, len)).count() as f64 / count as f64
    }

    fn rest(&mut self) {
        let until = self.now + 60 * SECOND;
        while self.now < until && self.step() {}
        self.now = until;
    }

    fn used(&self) -> u64 {
        self.shard.cache_status().expect("flash is attached").units_used
    }
}

#[test]
fn a_stream_that_does_not_return_bypasses_a_full_cache() {
    let mut rig = Rig::new(16);
    rig.stream(0..UNITS);
    rig.rest();
    assert!((14..=16).contains(&rig.used()), "{} units: nothing was evicted", rig.used());
    let bypasses = rig.shard.counters().read_bypasses;
    assert!(bypasses >= (UNITS - 16) * UNIT / LEN, "{bypasses}");
    assert!(rig.stream(0..14) > 0.99);
    rig.stream(UNITS / 2..UNITS / 2 + 1);
    assert_eq!(rig.shard.counters().read_bypasses, bypasses, "it is short");
}

#[test]
fn a_stream_that_bypasses_reads_its_own_range_of_the_origin_only() {
    let mut rig = Rig::new(16);
    rig.stream(0..16);
    rig.rest();
    rig.origin_reads.clear();
    rig.stream(16..UNITS);
    let others = rig.origin_reads.iter().filter(|len| **len != LEN).count() as u64;
    // Blocks of the unit in which it is recognised, and populations before that.
    assert!(others <= 3 * UNIT / (256 << 10), "{others} reads of more than its own range");
}

#[test]
fn while_slots_are_free_a_stream_is_read_ahead_and_then_served_by_flash() {
    let mut rig = Rig::new(2 * UNITS);
    rig.stream(0..UNITS);
    let blocks = rig.origin_reads.iter().filter(|len| **len == 256 << 10).count() as u64;
    // Workers without a candidate complete the rest of some units.
    assert!(blocks >= UNITS, "{blocks} blocks of 256 KiB");
    assert!(rig.shard.counters().read_bypasses <= UNITS / 8 * UNIT / LEN);
    rig.rest();
    assert!(rig.stream(0..UNITS * 7 / 8) > 0.99);
}

#[test]
fn a_stream_is_admitted_whatever_its_requests() {
    for len in [16 << 10, 256 << 10, 512 << 10, UNIT] {
        let mut rig = Rig::new(2 * UNITS);
        rig.stream_of(0..UNITS, len);
        rig.rest();
        // No shard has more slots than units, and the last tenth of them is not for streams.
        assert!(rig.stream_of(0..UNITS * 7 / 8, len) > 0.99, "{len}");
    }
}

/// A full cache: other units have all slots, and no reads lately.
#[test]
fn in_a_full_cache_a_stream_that_returns_displaces_what_is_not_read() {
    let mut rig = Rig::new(16);
    rig.stream(0..16);
    rig.rest();
    let passes = (0..40).map(|_| {
        rig.rest();
        rig.stream(32..40)
    });
    let last = passes.last().expect("there are some");
    assert!(last > 0.99, "{last}");
}
