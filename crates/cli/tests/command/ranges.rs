// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cached`, `warm` and `evict` on served volumes: a volume, ranges, and files on a file system over it.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{larder_says, make_initial, one_json};
use larder_testkit::fuse::{Loop, Mounted, can_loop, output};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const BYTES: u64 = 2 * MIB;

fn ask(place: &Place, command: &str) -> Value {
    let control = place.word("control");
    let words = command.split(' ').chain(["--json", "--control", &control]);
    one_json(&larder_says(&words.collect::<Vec<_>>()).ok())
}

fn cached(place: &Place, of: &str) -> u64 {
    ask(place, &format!("cached {of}"))["cached_bytes"].as_u64().unwrap()
}

#[test]
fn a_volume_is_warmed_and_evicted_under_each_preset() {
    for preset in ["larder", "sce", "slru", "prwc", "proc", "flashcache", "bcache", "face"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_preset(preset, &["--workers", "2"]));
        assert_eq!(cached(&place, "--all"), 0, "{preset}");
        let warmed = ask(&place, "warm --all");
        let all = Value::from(BYTES);
        assert_eq!((&warmed["range_bytes"], &warmed["passed_bytes"]), (&all, &all), "{preset}");
        assert_eq!(warmed["cached_bytes"], BYTES, "{preset}");
        let hits = place.stat("read_hits");
        assert_eq!(place.read_all(BYTES), load::initial(0, BYTES), "{preset}");
        assert!(place.stat("read_hits") > hits, "{preset}");
        if preset == "face" {
            let refused = place.ask(&["evict", "--all"]);
            assert_eq!((refused.code, refused.err.lines().count()), (4, 1), "{refused:?}");
        } else {
            let half = ask(&place, "evict 0+1MiB");
            assert_eq!(half["cached_bytes"], 0, "{preset}");
            assert_eq!(cached(&place, "--all"), MIB, "{preset}");
            assert_eq!(cached(&place, "512KiB+1MiB"), MIB / 2, "{preset}");
        }
        server.stop();
        assert_eq!(std::fs::read(place.path("origin")).unwrap(), load::initial(0, BYTES));
    }
}

#[test]
fn dirty_data_is_on_the_origin_once_it_is_evicted() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("prwc", &["--workers", "2"]));
    ask(&place, "warm --all");
    place.client().write_at(4096, &[9; 8192], false).unwrap();
    assert!(place.stat("units_dirty") > 0);
    ask(&place, "evict 0+1MiB");
    assert_eq!(place.stat("units_dirty"), 0);
    assert_eq!(std::fs::read(place.path("origin")).unwrap()[4096..12288], [9; 8192]);
    server.stop();
}

#[test]
fn what_was_evicted_stays_away_and_what_was_warmed_stays_after_a_kill() {
    for preset in ["larder", "sce", "prwc"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = place.serve_preset(preset, &["--workers", "2", "--durability", "journal"]);
        let server = Server::start(&words);
        ask(&place, "warm --all");
        ask(&place, "evict 1MiB+1MiB");
        // A mapping is durable within a second.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        server.kill();
        let server = Server::restart(&words);
        assert_eq!((cached(&place, "0+1MiB"), cached(&place, "1MiB+1MiB")), (MIB, 0), "{preset}");
        server.stop();
    }
}

#[test]
fn another_cache_is_warmed_from_the_list_of_the_first() {
    for preset in ["larder", "sce", "prwc", "face"] {
        let (first, second) = (Place::new(), Place::new());
        for place in [&first, &second] {
            make_initial(&place.path("origin"), BYTES);
        }
        let words = |place: &Place| place.serve_preset(preset, &["--workers", "2"]);
        let server = Server::start(&words(&first));
        ask(&first, "warm 512KiB+1MiB");
        let held = cached(&first, "--all");
        assert!(held >= MIB, "{preset}");
        let file = first.word("heat");
        let exported = ask(&first, &format!("heat export {file}"));
        assert_eq!(exported["cached_bytes"], held, "{preset}");
        server.stop();
        let server = Server::start(&words(&second));
        let imported = ask(&second, &format!("heat import {file}"));
        assert_eq!(imported["listed_bytes"], held, "{preset}");
        assert_eq!(
            (cached(&second, "--all"), &imported["cached_bytes"]),
            (held, &held.into()),
            "{preset}"
        );
        assert_eq!(second.read_all(BYTES), load::initial(0, BYTES), "{preset}");
        server.stop();
    }
}

#[test]
fn what_a_trace_reads_is_warmed() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let csv = "ts_us,op,offset_bytes,len_bytes\n\
        1,R,1048576,8192\n2,W,524288,4096\n3,R,1050000,100\n4,R,1572864,4096\n5,R,1048576,4096\n";
    std::fs::write(place.path("t.csv"), csv).unwrap();
    let (trace, heat) = (place.word("t.csv"), place.word("heat"));
    let made = one_json(&larder_says(&["heat", "from-trace", &trace, &heat, "--json"]).ok());
    assert_eq!(made, serde_json::json!({ "parts": 3, "listed_bytes": 12_288 }));
    let text = std::fs::read_to_string(&heat).unwrap();
    assert_eq!(text, "larder-heat 1 3\n1048576 4096 3\n1052672 4096 1\n1572864 4096 1\n");
    let server = Server::start(&place.serve_preset("sce", &["--workers", "2"]));
    let done = ask(&place, &format!("heat import {heat}"));
    assert_eq!(done["passed_bytes"], 12_288);
    assert_eq!(cached(&place, "1MiB+8KiB") + cached(&place, "1536KiB+4KiB"), 12_288);
    assert_eq!(cached(&place, "512KiB+4KiB"), 0, "it was only written");
    server.stop();
    std::fs::write(place.path("t.csv"), "dev,op,offset_bytes,len_bytes\n1,R,0,4096\n2,R,0,4096\n")
        .unwrap();
    let refused = larder_says(&["heat", "from-trace", &trace, &heat]);
    assert!(refused.code == 2 && refused.err.contains("several devices; accepted"), "{refused:?}");
}

#[test]
fn the_hottest_parts_of_a_list_stay_if_it_is_larger_than_flash() {
    for preset in ["larder", "sce", "prwc"] {
        let place = Place::new();
        make_initial(&place.path("origin"), 32 * MIB);
        let server = Server::start(&place.serve_preset(preset, &["--workers", "2"]));
        let slots = place.stat("units_total");
        let status = ask(&place, "status");
        let unit = status["unit_bytes"].as_u64().unwrap();
        let fits = slots * unit;
        assert!(fits < 16 * MIB, "{preset}");
        // Flash is full of something else.
        ask(&place, &format!("warm {}+{fits}", 32 * MIB - fits));
        let (part, count) = (unit / 2, 16 * MIB / unit);
        let line = |n: u64| format!("{} {part} {}\n", n * unit, 1_000_000 - n);
        let list: String = (0..count).map(line).collect();
        std::fs::write(place.path("heat"), format!("larder-heat 1 {count}\n{list}")).unwrap();
        let done = ask(&place, &format!("heat import {}", place.word("heat")));
        let passed = done["passed_bytes"].as_u64().unwrap();
        assert!((1..16 * MIB / 2).contains(&passed), "{preset}: {done}");
        for n in 0..passed / part {
            assert_eq!(
                cached(&place, &format!("{}+{part}", n * unit)),
                part,
                "{preset}: {n} of {done}"
            );
        }
        server.stop();
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_one_line() {
    let place = Place::new();
    make_initial(&place.path("origin"), 8 * MIB);
    let server = Server::start(&place.serve_cached(4, &["--workers", "2"]));
    for (command, code, what) in [
        ("warm --all", 4, "do not fit on flash"),
        ("warm 7MiB+2MiB", 2, "not a range of the volume"),
        ("evict 8MiB+4KiB", 2, "not a range of the volume"),
        ("cached 1MiB-2MiB", 2, "OFFSET+LENGTH"),
        ("cached", 2, "--all"),
        ("warm --all 0+4KiB", 2, "--all"),
        ("warm 0+1MiB --pace 0", 2, "accepted from 1 byte"),
        ("warm 0+1MiB --bound 1ms", 2, "whole seconds"),
        ("cached --file /proc/self/status", 2, "block device"),
        ("cached --file /nowhere", 2, "--file /nowhere"),
    ] {
        let refused = place.ask(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(
            (refused.code, refused.err.lines().count()),
            (code, 1),
            "{command}: {refused:?}"
        );
        assert!(refused.err.contains(what), "{command}: {refused:?}");
    }
    assert_eq!(place.ask(&["detach"]).code, 0);
    let refused = place.ask(&["warm", "0+1MiB"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(cached(&place, "--all"), 0);
    server.stop();
}

#[test]
fn a_pace_and_a_bound_are_kept() {
    let place = Place::new();
    make_initial(&place.path("origin"), 4 * MIB);
    let server = Server::start(&place.serve_cached(6, &["--workers", "2"]));
    let began = std::time::Instant::now();
    let warmed = ask(&place, "warm --all --pace 1MiB/s --bound 1s");
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
    let passed = warmed["passed_bytes"].as_u64().unwrap();
    assert!((MIB..3 * MIB).contains(&passed), "{warmed}");
    assert_eq!(warmed["cached_bytes"], passed, "{warmed}");
    let began = std::time::Instant::now();
    let first = ask(&place, "warm 0+2MiB --pace 1 --bound 1s");
    assert_eq!(first["passed_bytes"], MIB, "{first}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
    server.stop();
}

#[test]
fn a_file_is_warmed_by_its_path() {
    if !can_loop() {
        return;
    }
    let place = Place::new();
    place.file("origin", 64 * MIB);
    let file = format!("fuse:{}", place.word("vol"));
    let server = Server::start(&place.serve_cached(32, &["--listen", &file]));
    let device = Loop::over(&place, "vol");
    output("mkfs.ext4", &["-q", device.path()]);
    std::fs::create_dir(place.path("mnt")).unwrap();
    let mounted = Mounted::mount(device.path(), &place.path("mnt"));
    std::fs::write(place.path("mnt/a"), vec![1; 3 * MIB as usize]).unwrap();
    std::fs::write(place.path("mnt/b"), vec![2; 3 * MIB as usize]).unwrap();
    output("sync", &[]);
    ask(&place, "evict --all");
    let (a, b) = (format!("--file {}", place.word("mnt/a")), place.word("mnt/b"));
    let warmed = ask(&place, &format!("warm {a}"));
    assert_eq!(warmed["range_bytes"], 3 * MIB, "{warmed}");
    assert_eq!(warmed["cached_bytes"], 3 * MIB, "{warmed}");
    assert_eq!(cached(&place, &a), 3 * MIB);
    assert!(cached(&place, &format!("--file {b}")) < MIB);
    mounted.unmount();
    drop(device);
    server.stop();
}
