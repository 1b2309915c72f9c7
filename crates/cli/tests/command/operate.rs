// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operator at work on a server under load: status, stats, flush, detach and attach by the
//! command line. No client notices, and what is detached is really let go.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use larder_testkit::command::{larder, make_initial, one_json, run};
use larder_testkit::load::{self, Judge, Load, Shape, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rustix::fs::{major, minor};

const BYTES: u64 = 6 << 20;

const STATS: [&str; 16] = [
    "reads",
    "read_hits",
    "writes",
    "write_hits",
    "read_bytes",
    "write_bytes",
    "flash_read_bytes",
    "flash_write_bytes",
    "origin_read_bytes",
    "origin_write_bytes",
    "populations",
    "evictions",
    "units_total",
    "units_used",
    "units_dirty",
    "memory_bytes",
];

fn load(place: &Place, depth: usize) -> Load {
    let (clients, reads, seed) = (4, 50, 3);
    let shape = Shape { bytes: BYTES, hot_bytes: BYTES / 3, clients, depth, reads, seed };
    let load = Load::start(&place.uri(), &shape, &Judge::new());
    load.progress(5);
    load
}

fn end(place: &Place, load: Load, server: Server) {
    let judge = load.finish();
    server.stop();
    judge.seen(0, &std::fs::read(place.path("origin")).unwrap());
    judge.verdict();
}

#[test]
fn detach_and_attach_under_load_go_unnoticed() {
    for workers in ["1", "3"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_cached(4, &["--workers", workers]));
        let load = load(&place, 8);
        let flash = place.word("flash");
        for _ in 0..4 {
            let before = place.stats();
            let grows = |key: &str| place.stat(key) > before[key].as_u64().unwrap();
            eventually("there are hits", || grows("read_hits") && grows("populations"));
            assert_eq!(place.ask(&["flush"]).ok(), "flushed\n");
            assert_eq!(place.ask(&["detach"]).ok(), "detached\n");
            let status = place.status();
            assert_eq!((&status["state"], &status["flash"]), (&"pass-through".into(), &().into()));
            assert!(status["advice"].as_str().unwrap().contains("larder attach DEV"), "{status}");
            let again = place.ask(&["detach"]);
            assert_eq!((again.code, again.err.lines().count()), (4, 1), "{again:?}");
            load.progress(10);
            // It is closed, and its lock gone: the same path can be attached.
            assert_eq!(place.ask(&["attach", &flash]).ok(), "attached, 32 units\n");
            assert_eq!(place.status()["state"], "caching");
            let twice = place.ask(&["attach", &flash]);
            assert_eq!((twice.code, twice.err.lines().count()), (4, 1), "{twice:?}");
        }
        end(&place, load, server);
    }
}

#[test]
fn what_cannot_be_attached_is_refused_and_changes_nothing() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_cached(4, &["--workers", "2"]));
    let load = load(&place, 4);
    assert_eq!(place.ask(&["detach", "--json"]).code, 0);
    place.file("small", 1 << 20);
    std::fs::write(place.file("foreign", 0), vec![7; 4 << 20]).unwrap();
    let (origin, small, foreign) =
        (place.word("origin"), place.word("small"), place.word("foreign"));
    let missing = place.word("missing");
    for (flash, code, what) in [
        (&origin, 4, "in use"),
        (&small, 2, "too small"),
        (&foreign, 4, "--format"),
        (&missing, 2, "no such file"),
    ] {
        let ended = place.ask(&["attach", flash]);
        assert_eq!((ended.code, ended.err.lines().count()), (code, 1), "{ended:?}");
        assert!(ended.err.contains(what), "{ended:?}");
        assert_eq!(place.status()["state"], "pass-through");
    }
    assert!(std::fs::read(place.path("foreign")).unwrap().iter().all(|b| *b == 7));
    place.ask(&["attach", &foreign, "--format"]).ok();
    assert_eq!(place.status()["state"], "caching");
    end(&place, load, server);
}

#[test]
fn status_and_stats_tell_the_truth() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_cached(4, &["--workers", "2", "--name", "vol"]));
    let mut client = place.client();
    client.write_at(0, &load::initial(0, 1 << 20), true).unwrap();
    client.read_at(0, &mut vec![0; 3 << 20]).unwrap();
    let stats = place.stats();
    for key in STATS {
        assert!(stats[key].is_u64(), "{key}: {stats}");
    }
    for (key, value) in [
        ("writes", 1),
        ("reads", 1),
        ("write_bytes", 1 << 20),
        ("read_bytes", 3 << 20),
        ("origin_write_bytes", 1 << 20),
        ("units_total", 32),
        ("units_dirty", 0),
    ] {
        assert_eq!(stats[key], value, "{key}");
    }
    assert_eq!(stats["state"], "caching");
    let status = place.status();
    for (key, value) in [
        ("name", "vol".into()),
        ("state", "caching".into()),
        ("alarm", serde_json::Value::Null),
        ("advice", serde_json::Value::Null),
        ("origin", place.word("origin").into()),
        ("origin_bytes", BYTES.into()),
        ("flash", place.word("flash").into()),
        ("unit_bytes", (64 << 10).into()),
        ("workers", 2.into()),
        ("connections", 1.into()),
        ("requests_open", 0.into()),
    ] {
        assert_eq!(status[key], value, "{key}");
    }
    for command in ["status", "stats"] {
        let text = place.ask(&[command]).ok();
        assert!(text.lines().any(|l| l.starts_with("state ") && l.ends_with(" caching")), "{text}");
    }
    drop(client);
    eventually("the connection is gone", || place.status()["connections"] == 0);
    let mode = std::fs::metadata(place.path("control")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the control socket is for its owner only");
    server.stop();
}

#[test]
fn a_volume_without_flash_is_served_and_can_get_one() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server =
        Server::start(&place.serve(&["--origin", &place.word("origin"), "--unit", "64KiB"]));
    let load = load(&place, 4);
    assert_eq!(place.stats()["state"], "pass-through");
    assert_eq!(place.ask(&["detach"]).code, 4);
    place.file("flash", 5 << 20);
    place.ask(&["attach", &place.word("flash"), "--flash-size", "3MiB"]).ok();
    assert_eq!(place.stat("units_total"), 16);
    eventually("there are hits", || place.stat("read_hits") > 0);
    end(&place, load, server);
}

/// A program smartctl.
fn smartctl(place: &Place, script: &str) {
    std::fs::create_dir_all(place.path("bin")).unwrap();
    let program = place.path("bin/smartctl");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn status_of_drives(place: &Place, more: &[&str]) -> String {
    let socket = place.word("control");
    let words = [&["status", "--drives", "--control", &socket][..], more].concat();
    let path = format!("{}:/usr/bin:/bin", place.word("bin"));
    run(larder(&words).env("PATH", path)).ok()
}

#[test]
fn status_asks_the_drives_below_flash() {
    let place = Place::new();
    place.file("origin", BYTES);
    let server = Server::start(&place.serve_cached(4, &[]));
    assert_eq!(place.status().get("drives"), None);
    smartctl(
        &place,
        r#"echo "$@" >> "$(dirname "$0")/asked"
        echo '{"model_name":"N","nvme_smart_health_information_log":{"percentage_used":7,"data_units_written":2}}'
        exit 4"#,
    );
    let found = one_json(&status_of_drives(&place, &["--json"]));
    let drives = found["drives"].as_array().unwrap();
    let dev = std::fs::metadata(place.path("flash")).unwrap().dev();
    let place_in_sysfs = format!("/sys/dev/block/{}:{}", major(dev), minor(dev));
    if std::path::Path::new(&place_in_sysfs).exists() {
        assert!(!drives.is_empty());
        for drive in drives {
            assert_eq!(
                (&drive["used_ratio"], &drive["written_bytes"]),
                (&0.07.into(), &1_024_000.into())
            );
            let asked = std::fs::read_to_string(place.path("bin/asked")).unwrap();
            let device = drive["device"].as_str().unwrap();
            assert!(asked.contains(&format!("--json=c --all {device}\n")), "{asked}");
        }
        assert!(status_of_drives(&place, &[]).contains("N, used 7 % of its endurance, "));
    } else {
        assert_eq!(drives[0]["error"], "sysfs names no block device of its file system");
    }
    server.stop();
}
