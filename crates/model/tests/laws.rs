// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invariants of every model under arbitrary requests.

mod common;

use common::{
    CAPACITY_BYTES, CHUNK_BYTES, Run, closed_loop, device, disk_spec, random_ops, sequential_ops,
};
use larder_model::{
    Array, ArraySpec, ByOffset, Disk, DiskSpec, Jitter, Kind, Link, LinkSpec, Model, Nanos, Op,
    SplitMix64, WriteCacheSpec, profile, profiles,
};

const SMALL_BYTES: u64 = 4 << 30;
const PATIENT_NS: Nanos = 60_000_000_000;

fn small_cache_disk() -> DiskSpec {
    let cache = WriteCacheSpec { size_bytes: 1 << 20, battery_backed: false };
    DiskSpec { cache: Some(cache), queue_depth: 4, ..disk_spec("hdd-15k") }
}

/// Every profile, and combinations without a profile.
fn models(seed: u64) -> Vec<(String, Box<dyn Model>)> {
    let mut all: Vec<(String, Box<dyn Model>)> = profiles()
        .iter()
        .map(|info| {
            let bytes = if info.name.ends_with("-ftl") { 1 << 26 } else { SMALL_BYTES };
            (info.name.to_owned(), profile(info.name, bytes, seed).expect("a known profile"))
        })
        .collect();
    let volatile = ArraySpec { disks: 3, stripe_bytes: 1 << 16, disk: small_cache_disk() };
    let segment = LinkSpec { bytes_per_second: 125_000_000, latency_ns: 0, packet_ns: 8_200 };
    let boxed: Box<dyn Model> = device("cloud");
    all.push(("small".into(), Box::new(Disk::new(&small_cache_disk(), SMALL_BYTES, seed))));
    all.push(("volatile".into(), Box::new(Array::new(&volatile, SMALL_BYTES, seed))));
    all.push(("jitter".into(), Box::new(Jitter::new(seed, 1_000, 9_000_000))));
    all.push(("boxed".into(), Box::new(Link::new(boxed, segment))));
    let parts = [(0, "san-1g"), (1 << 19, "cloud"), (SMALL_BYTES / 2, "hdd-7200")];
    let part = |(start, name): (u64, &str)| {
        (start, profile(name, SMALL_BYTES, seed).expect("a known profile"))
    };
    all.push(("by offset".into(), Box::new(ByOffset::new(parts.map(part).into()))));
    all
}

/// A mix of all requests, in bursts and with pauses.
fn random_log(seed: u64, count: u64) -> Vec<(Nanos, Op)> {
    let mut random = SplitMix64::new(seed);
    let mut now = 0;
    let mut log = Vec::new();
    for _ in 0..count {
        now += match random.below(10) {
            0..4 => 0,
            4..8 => random.below(1_000_000),
            8 => random.below(10_000_000),
            _ => random.below(60_000_000),
        };
        let kind = match random.below(20) {
            0..9 => Kind::Read,
            9..17 => Kind::Write,
            17..19 => Kind::Flush,
            _ => Kind::Trim,
        };
        let area_bytes = [SMALL_BYTES, 1 << 20][random.below(2) as usize];
        let len = [512, 4096, 65_536, 300_000, 2 << 20][random.below(5) as usize];
        let offset = random.below(area_bytes) / 512 * 512;
        log.push((now, Op { kind, offset, len, fua: random.below(5) == 0 }));
    }
    log
}

fn drain(model: &mut dyn Model, now: Nanos, out: &mut Vec<(u64, Nanos)>) {
    while let Some((id, at)) = model.poll(now) {
        assert!(at <= now);
        assert!(out.last().is_none_or(|last| last.1 <= at), "the time decreased");
        out.push((id, at));
    }
    assert!(model.next().is_none_or(|next| next > now), "next is in the past");
}

/// Polls at every event.
fn timely(model: &mut dyn Model, log: &[(Nanos, Op)]) -> Vec<(u64, Nanos)> {
    let mut out = Vec::new();
    for (id, (at, op)) in log.iter().enumerate() {
        while let Some(next) = model.next().filter(|next| next <= at) {
            drain(model, next, &mut out);
        }
        model.submit(*at, id as u64, *op);
        assert_eq!(model.in_flight(), id + 1 - out.len());
    }
    while let Some(next) = model.next() {
        drain(model, next, &mut out);
    }
    assert_eq!(model.in_flight(), 0);
    out
}

/// Polls at random times, mostly late, sometimes without need.
fn sloppy(model: &mut dyn Model, log: &[(Nanos, Op)], seed: u64) -> Vec<(u64, Nanos)> {
    let mut random = SplitMix64::new(seed);
    let mut out = Vec::new();
    for (id, (at, op)) in log.iter().enumerate() {
        if random.below(10) == 0 {
            drain(model, *at, &mut out);
        }
        model.submit(*at, id as u64, *op);
    }
    let mut now = log.last().map_or(0, |(at, _)| *at);
    while let Some(next) = model.next() {
        now = now.max(next) + random.below(20_000_000);
        drain(model, now, &mut out);
    }
    out
}

#[test]
fn each_request_is_returned_once_in_order_of_time() {
    for seed in 0..6 {
        let log = random_log(seed, 1_500);
        for (name, mut model) in models(seed) {
            let out = timely(&mut model, &log);
            assert_eq!(out.len(), log.len(), "{name}");
            let mut seen = vec![false; log.len()];
            for (id, at) in out {
                let (sent, _) = log[id as usize];
                assert!(at >= sent, "{name}: complete before its submission");
                assert!(!std::mem::replace(&mut seen[id as usize], true), "{name}: twice");
            }
        }
    }
}

#[test]
fn equal_submissions_give_equal_completions() {
    for seed in 0..3 {
        let log = random_log(seed + 100, 1_500);
        let again = models(seed);
        for ((name, mut model), (_, mut twin)) in models(seed).into_iter().zip(again) {
            assert_eq!(timely(&mut model, &log), timely(&mut twin, &log), "{name}");
        }
    }
}

#[test]
fn the_frequency_of_polls_has_no_effect() {
    for seed in 0..6 {
        let log = random_log(seed + 200, 1_500);
        let again = models(seed);
        for ((name, mut model), (_, mut twin)) in models(seed).into_iter().zip(again) {
            let (want, got) = (timely(&mut model, &log), sloppy(&mut twin, &log, seed));
            assert!(want == got, "{name} {:?}", want.iter().zip(&got).find(|(a, b)| a != b));
        }
    }
}

#[test]
fn seeds_matter_to_random_devices_only() {
    let log = random_log(1, 50);
    for (name, differ) in [("hdd-7200", true), ("array-16", true), ("cloud", false)] {
        let run = |seed| timely(&mut profile(name, SMALL_BYTES, seed).unwrap(), &log);
        assert_eq!(run(1) != run(2), differ, "{name}");
    }
}

/// These figures are part of published results; changing them changes those.
#[test]
fn completions_are_the_same_in_every_build() {
    let log = random_log(42, 400);
    let mut digests = Vec::new();
    for info in &profiles()[..10] {
        let name = info.name;
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for (id, at) in timely(&mut profile(name, SMALL_BYTES, 42).unwrap(), &log) {
            hash = (hash ^ id).wrapping_mul(0x0100_0000_01b3);
            hash = (hash ^ at).wrapping_mul(0x0100_0000_01b3);
        }
        digests.push((name, hash));
    }
    let want = [
        ("hdd-7200", 13_231_116_434_529_895_411),
        ("hdd-15k", 4_884_725_118_387_433_733),
        ("san-1g", 9_589_030_061_633_902_148),
        ("array-16", 7_558_231_366_958_587_655),
        ("cloud", 10_091_614_327_916_315_732),
        ("ssd-840pro", 14_451_164_114_591_481_311),
        ("ssd-850evo", 405_204_343_960_686_570),
        ("ssd-s3500", 10_911_395_400_290_054_404),
        ("ssd-p3700", 1_049_814_522_195_917_304),
        ("none", 10_377_673_675_806_415_258),
    ];
    assert_eq!(digests, want);
}

/// One distant request beside a stream that is always closer.
#[test]
fn a_stream_does_not_starve_a_far_request() {
    for name in ["hdd-7200", "hdd-15k", "san-1g", "array-16"] {
        // Enough requests that one of the stream is always in the queue.
        let mut stream = sequential_ops(Kind::Read, CHUNK_BYTES, 0);
        let mut count = 0;
        let far_first = move || {
            count += 1;
            if count == 40 { Op::read(CAPACITY_BYTES - 4096, 4096) } else { stream() }
        };
        let mut model = profile(name, CAPACITY_BYTES, 3).unwrap();
        let Run { max_ns, .. } = closed_loop(&mut model, 0, 32, 20_000, far_first);
        assert!(max_ns < 250_000_000, "{name}: {max_ns} ns");
    }
}

/// Deep queues of random requests wait no longer than `patience` allows.
#[test]
fn random_requests_wait_a_bounded_time() {
    for (name, bound_ns) in [("hdd-7200", 2_600_000_000), ("hdd-15k", 1_000_000_000)] {
        let mut model = profile(name, CAPACITY_BYTES, 3).unwrap();
        let ops = random_ops(Kind::Read, 4096, 8);
        let run = closed_loop(&mut model, 0, 32, 50_000, ops);
        println!("{name} QD32: mean {:.0} ns, longest {} ns", run.mean_ns, run.max_ns);
        assert!(run.max_ns < bound_ns, "{name}: {} ns", run.max_ns);
    }
}

/// Reads, writes and flushes at once, each as fast as possible: all progress.
#[test]
fn readers_writers_and_flushers_all_make_progress() {
    // Without latency everything would happen at the same time, indefinitely.
    for (name, mut model) in models(5).into_iter().filter(|(name, _)| name != "none") {
        let mut random = SplitMix64::new(6);
        let mut back = [0_u64; 3];
        let mut op = |id: u64| {
            let offset = random.below(SMALL_BYTES / 4096) * 4096;
            match id % 32 {
                0 => Op::flush(),
                1..16 => Op::read(offset, 4096),
                _ => Op { fua: id % 32 == 16, ..Op::write(offset, 4096) },
            }
        };
        let mut sent = [0; 32];
        for id in 0..32 {
            model.submit(0, id, op(id));
        }
        for _ in 0..30_000 {
            let now = model.next().unwrap();
            while let Some((id, at)) = model.poll(now) {
                assert!(at - sent[id as usize] < PATIENT_NS, "{name} {id}");
                back[[0, 1, 2][(id % 32 > 0) as usize + (id % 32 > 15) as usize]] += 1;
                sent[id as usize] = at;
                model.submit(at, id, op(id));
            }
        }
        assert!(back.iter().all(|&count| count > 0), "{name}: {back:?}");
    }
}

#[test]
fn invalid_requests_do_no_harm() {
    for (name, mut model) in models(1) {
        let strange = [(0, 0), (SMALL_BYTES, 4096), (u64::MAX, 1), (u64::MAX - 5, 5), (7, 1)];
        let mut id = 0;
        for (offset, len) in strange {
            for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim] {
                for fua in [false, true] {
                    // The clock decreases constantly, which counts as standing still.
                    model.submit(1_000_000 - id, id, Op { kind, offset, len, fua });
                    id += 1;
                }
            }
        }
        let mut out = Vec::new();
        while let Some(next) = model.next() {
            drain(&mut model, next, &mut out);
        }
        assert_eq!(out.len(), id as usize, "{name}");
    }
}
