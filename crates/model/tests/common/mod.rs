// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives models in virtual time for the tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use larder_model::{
    Description, DeviceSpec, DiskSpec, Kind, LinkSpec, Model, Nanos, Op, SplitMix64, SsdSpec,
    described, profile,
};

pub const SECOND_NS: f64 = 1e9;
pub const CAPACITY_BYTES: u64 = 1_000_000_000_000;
pub const PAGE_BYTES: u64 = 4 << 10;
pub const CHUNK_BYTES: u64 = 128 << 10;

/// The result of a closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    pub requests: u64,
    pub mean_ns: f64,
    pub max_ns: Nanos,
    /// Completion times of the first and the last counted request.
    pub first: Nanos,
    pub end: Nanos,
}

impl Run {
    /// From the first completion to the last, so that filling an empty pipe does not count.
    pub fn iops(&self) -> f64 {
        (self.requests - 1) as f64 * SECOND_NS / (self.end - self.first) as f64
    }

    pub fn bytes_per_second(&self, bytes: u64) -> f64 {
        self.iops() * bytes as f64
    }
}

/// A drive with a page map takes time and memory in proportion to its capacity.
pub fn capacity(name: &str, bytes: u64) -> u64 {
    if name.ends_with("-ftl") { bytes.min(1 << 30) } else { bytes }
}

pub fn device(name: &str) -> Box<dyn Model> {
    profile(name, capacity(name, CAPACITY_BYTES), 1).expect("a known profile")
}

/// The same; a drive with a page map was only filled sequentially.
pub fn device_filled_in_order(name: &str) -> Box<dyn Model> {
    let mut description = described(name).expect("a known profile");
    if let DeviceSpec::Ssd(SsdSpec { ftl: Some(ftl), .. }) = &mut description.device {
        ftl.overwrites = Some(0);
    }
    description.build(capacity(name, CAPACITY_BYTES), 1)
}

pub fn disk_spec(name: &str) -> DiskSpec {
    match described(name) {
        Ok(Description { device: DeviceSpec::Disk(disk), .. }) => disk,
        other => panic!("{name} is not a disk: {other:?}"),
    }
}

pub fn ssd_spec(name: &str) -> SsdSpec {
    match described(name) {
        Ok(Description { device: DeviceSpec::Ssd(ssd), .. }) => ssd,
        other => panic!("{name} is not a drive: {other:?}"),
    }
}

pub fn link_spec(name: &str) -> LinkSpec {
    described(name).expect("a known profile").link.expect("one behind a link")
}

/// Keeps `depth` requests in flight until `requests` have completed, from `start` on. Those in flight at the end are
/// waited for and count only for `max_ns`, which reveals one that starves.
pub fn closed_loop(
    model: &mut dyn Model,
    start: Nanos,
    depth: u64,
    requests: u64,
    mut next_op: impl FnMut() -> Op,
) -> Run {
    let mut sent = vec![start; depth as usize];
    for id in 0..depth {
        model.submit(start, id, next_op());
    }
    let (mut count, mut sum_ns, mut max_ns, mut first, mut end) = (0, 0, 0, start, start);
    while let Some(now) = model.next() {
        while let Some((id, at)) = model.poll(now) {
            assert_eq!(at, now, "a timely poll finds completions in time");
            let latency_ns = at - sent[id as usize];
            max_ns = max_ns.max(latency_ns);
            if count == requests {
                continue;
            }
            if count == 0 {
                first = at;
            }
            count += 1;
            sum_ns += latency_ns;
            end = at;
            if count < requests {
                sent[id as usize] = at;
                model.submit(at, id, next_op());
            }
        }
        if model.in_flight() == 0 {
            break;
        }
    }
    assert_eq!(count, requests);
    Run { requests, mean_ns: sum_ns as f64 / count as f64, max_ns, first, end }
}

/// Small requests at random offsets.
pub fn random_ops(kind: Kind, bytes: u64, seed: u64) -> impl FnMut() -> Op {
    let mut random = SplitMix64::new(seed);
    move || {
        let offset = random.below(CAPACITY_BYTES / bytes) * bytes;
        Op { kind, offset, len: bytes, fua: false }
    }
}

/// Consecutive requests from an offset on.
pub fn sequential_ops(kind: Kind, bytes: u64, from: u64) -> impl FnMut() -> Op {
    let mut offset = from;
    move || {
        let op = Op { kind, offset, len: bytes, fua: false };
        offset += bytes;
        op
    }
}

/// Submits one request and waits for it; returns its latency and its completion time.
pub fn one(model: &mut dyn Model, now: Nanos, op: Op) -> (Nanos, Nanos) {
    let run = closed_loop(model, now, 1, 1, || op);
    (run.max_ns, run.end)
}

#[track_caller]
pub fn assert_near(what: &str, got: f64, want: f64, tolerance: f64) {
    let off = (got - want).abs() / want;
    assert!(off <= tolerance, "{what}: got {got:.1}, want {want:.1} within {tolerance}");
}
