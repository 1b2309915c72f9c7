// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that change while a server runs: `larder set`, and SIGHUP for the configuration.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{PRESETS, larder_says, make_initial, one_json};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rustix::process::Signal;
use serde_json::Value;

const BYTES: u64 = 16 << 20;

fn set(place: &Place, words: &[&str]) -> Value {
    one_json(&place.ask(&[&["set", "--json"], words].concat()).ok())
}

/// Reads every unit a few times; whether that admits anything.
fn reads_admit(place: &Place) -> bool {
    let admitted = || ["units_used", "populations", "evictions"].map(|key| place.stat(key));
    let before = admitted();
    let mut client = place.client();
    for _ in 0..8 {
        for offset in (0..BYTES).step_by(64 << 10) {
            client.read_at(offset, &mut [0; 4096]).unwrap();
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    admitted() != before
}

#[test]
fn without_population_reads_leave_the_cache_as_it_is() {
    for preset in PRESETS {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_preset(preset, &["--populate", "off"]));
        assert_eq!(set(&place, &[])["populate"], false, "{preset}");
        assert!(!reads_admit(&place), "{preset}: admitted");
        assert_eq!((place.stat("units_used"), place.stat("populations")), (0, 0), "{preset}");
        assert_eq!(set(&place, &["--populate", "on"])["populate"], true);
        eventually("reads admit", || reads_admit(&place));
        eventually("there are hits", || reads_admit(&place) || place.stat("read_hits") > 0);
        set(&place, &["--populate", "off"]);
        // What had begun ends.
        eventually("population has ended", || !reads_admit(&place));
        let (used, hits) = (place.stat("units_used"), place.stat("read_hits"));
        assert!(!reads_admit(&place), "{preset}: admitted");
        assert_eq!(place.stat("units_used"), used, "{preset}");
        assert!(place.stat("read_hits") > hits, "{preset}: what flash has is read from it");
        server.stop();
    }
}

/// After a crash units lack the pages that were being written. They are completed once population may.
#[test]
fn units_that_are_valid_in_part_wait_for_population() {
    const WARM: u64 = 2 << 20;
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = |populate| place.serve_cached(4, &["--preset", "sce", "--populate", populate]);
    let cached = || {
        let found = one_json(&place.ask(&["cached", "0+2MiB", "--json"]).ok());
        found["cached_bytes"].as_u64().unwrap()
    };
    let server = Server::start(&words("on"));
    place.ask(&["warm", "0+2MiB"]).ok();
    assert_eq!(cached(), WARM);
    // A mapping is durable within a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let mut client = place.client();
    for offset in (0..WARM).step_by(64 << 10) {
        client.write_at(offset, &[1; 4096], false).unwrap();
    }
    server.kill();
    let server = Server::restart(&words("off"));
    let found = cached();
    assert!((WARM / 2..WARM).contains(&found), "{found}");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(cached(), found);
    set(&place, &["--populate", "on"]);
    eventually("the units are completed", || cached() == WARM);
    server.stop();
}

/// The write policy and what is evicted change under clients, and back.
#[test]
fn choices_that_concern_memory_change_while_clients_use_the_volume() {
    for preset in ["larder", "sce", "slru", "flashcache"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_preset(preset, &[]));
        let mut client = place.client();
        let mut read = |at: u64| client.read_at(at, &mut [0; 4096]).unwrap();
        (0..8).for_each(|_| read(0));
        eventually("the page is on flash", || {
            let hits = place.stat("read_hits");
            read(0);
            place.stat("read_hits") > hits
        });
        let mut client = place.client();
        for (round, policy) in [(1, "around"), (2, "through"), (3, "async"), (4, "around")] {
            let replacement = if round % 2 == 0 { "lru" } else { "fifo" };
            let now = set(&place, &["--write-policy", policy, "--replacement", replacement]);
            assert_eq!(
                (&now["write_policy"], &now["replacement"]),
                (&policy.into(), &replacement.into())
            );
            let flash = place.stat("flash_write_bytes");
            client.write_at(0, &[round; 4096], true).unwrap();
            client.flush().unwrap();
            if policy == "around" {
                assert_eq!(place.stat("flash_write_bytes"), flash, "{preset}");
            }
            let mut found = [0; 4096];
            client.read_at(0, &mut found).unwrap();
            assert_eq!(found, [round; 4096], "{preset}");
        }
        let printed = place.ask(&["set", "--print-config"]).ok();
        assert!(
            printed.contains("write_policy = \"around\"") && !printed.contains("clock_ceiling"),
            "{printed}"
        );
        let file = place.path("printed.toml");
        std::fs::write(&file, &printed).unwrap();
        let again = larder_says(&["serve", &place.word("printed.toml"), "--print-config"]).ok();
        assert!(
            again.contains("write_policy = \"around\"\n")
                && again.contains("replacement = \"lru\"\n"),
            "{again}"
        );
        server.stop();
    }
}

/// What flash may hold alone, and where it lies there, does not change while a cache serves.
#[test]
fn choices_that_concern_flash_are_refused() {
    for (preset, words, why) in [
        (
            "prwc",
            ["--write-policy", "around"],
            "write_policy: got around, accepted while serving: write-back; others need a restart",
        ),
        ("prwc", ["--replacement", "lru"], "replacement: got lru, accepted while serving: none"),
        (
            "face",
            ["--write-policy", "around"],
            "write_policy: got around, accepted while serving: through; others need a restart",
        ),
        ("face", ["--replacement", "lru"], "accepted while serving: none"),
        ("bcache", ["--replacement", "lru"], "accepted while serving: none"),
        (
            "enhanceio",
            ["--replacement", "sieve"],
            "replacement: got sieve, but units are placed in sets; accepted: lru, fifo",
        ),
        (
            "larder",
            ["--write-policy", "write-back"],
            "got 'write-back', accepted async, through, around",
        ),
        ("larder", ["--replacement", "best"], "got 'best', accepted gclock, lru,"),
    ] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_preset(preset, &[]));
        let before = set(&place, &[]);
        let ended = place.ask(&[&["set"][..], &words].concat());
        assert!(ended.code == 2 && ended.err.contains(why), "{preset}: {ended:?}");
        assert_eq!(set(&place, &[]), before);
        server.stop();
    }
}

#[test]
fn bad_values_change_nothing() {
    let place = Place::new();
    let server = Server::start(&place.serve(&["--origin=mem:16MiB", "--flash=mem:8MiB"]));
    let before = set(&place, &[]);
    for (words, why) in [
        (["--recorder", "2GiB"], "recorder: got 2GiB, accepted up to 1GiB"),
        (["--populate-share", "200%"], "accepted 0% to 100%"),
        (
            ["--populate-io", "5000"],
            "populate_io: got 5000, accepted a multiple of 4KiB up to 1MiB",
        ),
        (["--client-idle", "1ms"], "client_idle: got 1ms, accepted 0 (never), or 1s"),
        (
            ["--flash-timeout", "31s"],
            "flash_timeout: got 31s, accepted above 0 and at most flash_dead_after, 30s",
        ),
        (["--flash-dead-after", "1s"], "accepted above 0 and at most flash_dead_after, 1s"),
        (["--flash-errors-per-minute", "0"], "flash_errors_per_minute: got 0, accepted at least 1"),
        (["--ordered-lag", "99ms"], "ordered_lag: got 99ms, accepted 100ms to 31 years"),
        (["--write-buffer", "2TiB"], "write_buffer: got 2TiB, accepted up to 1TiB"),
    ] {
        let ended = place.ask(&[&["set", "--populate", "off"][..], &words].concat());
        assert!(ended.code == 2 && ended.err.contains(why), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
    assert_eq!(set(&place, &[]), before);
    let text = place.ask(&["set", "--recorder", "1MiB", "--client-idle", "5s"]).ok();
    assert!(
        text.contains("recorder = \"1MiB\"") && text.contains("client_idle = \"5s\""),
        "{text}"
    );
    server.stop();
}

#[test]
fn sighup_takes_what_changed_in_the_configuration() {
    let place = Place::new();
    let file = place.path("larder.toml");
    let at = |name: &str| place.word(name);
    let write = |more: &str| {
        let text = format!(
            "origin = \"mem:16MiB\"\nlisten = [\"nbd+unix:{}\"]\ncontrol = \"{}\"\nname = \"db\"\n{more}\n",
            at("nbd"),
            at("control")
        );
        // As an editor replaces it.
        std::fs::write(place.path("new"), text).unwrap();
        std::fs::rename(place.path("new"), &file).unwrap();
    };
    write("flash = \"mem:8MiB\"\npopulate_share = \"70%\"");
    let mut server = Server::start_config(&file, 1);
    assert_eq!(set(&place, &[])["populate_share_ratio"], 0.7);
    set(&place, &["--recorder", "0"]);
    write(
        "flash = \"mem:8MiB\"\nwrite_policy = \"around\"\nflash_timeout = \"3s\"\nreplacement = \"arc\"",
    );
    server.signal(Signal::HUP);
    eventually("the limit is in use", || set(&place, &[])["flash_timeout_ns"] == 3_000_000_000_u64);
    let now = set(&place, &[]);
    assert_eq!((&now["write_policy"], &now["replacement"]), (&"around".into(), &"arc".into()));
    write(
        "flash = \"mem:12MiB\"\npopulate_share = \"50%\"\npreset = \"slru\"\nclient_idle = \"7s\"",
    );
    server.signal(Signal::HUP);
    eventually("the share is in use", || set(&place, &[])["populate_share_ratio"] == 0.5);
    let now = set(&place, &[]);
    assert_eq!(
        (&now["client_idle_ns"], &now["recorder_bytes"]),
        (&7_000_000_000_u64.into(), &(8 << 20).into())
    );
    eventually("the rest is named", || server.log().contains("in use after a restart: "));
    assert!(
        server.log().contains(" flash,") && server.log().contains("preset"),
        "{}",
        server.log()
    );
    // Those of another preset need a restart with it.
    assert_eq!((&now["write_policy"], &now["replacement"]), (&"around".into(), &"arc".into()));
    let printed = place.ask(&["set", "--print-config"]).ok();
    assert!(
        printed.contains("flash = \"mem:8MiB\"\n") && printed.contains("client_idle = \"7s\""),
        "{printed}"
    );
    std::fs::write(place.path("printed.toml"), &printed).unwrap();
    larder_says(&["serve", &at("printed.toml"), "--print-config"]).ok();
    write("flash = \"mem:8MiB\"\npopulate_share = \"much\"");
    server.signal(Signal::HUP);
    eventually("the error is named", || server.log().contains("populate_share: got 'much'"));
    assert_eq!(set(&place, &[]), now);
    write("flash = \"mem:8MiB\"\npopulate_io = \"5000\"");
    server.signal(Signal::HUP);
    eventually("the error is named", || server.log().contains("populate_io: got 5000"));
    assert_eq!(set(&place, &[]), now);
    assert!(server.is_alive());
    server.stop();
}

/// What a file may not change while the server runs is named, and the rest is taken.
#[test]
fn sighup_names_choices_that_need_a_restart() {
    for (preset, before, after, named) in [
        ("prwc", "", "write_policy = \"around\"", "write_policy"),
        ("bcache", "", "replacement = \"lru\"", "replacement"),
        ("larder", "", "clock_ceiling_count = 8", "clock_ceiling_count"),
        (
            "larder",
            "replacement = \"lru\"",
            "replacement = \"gclock\"\nclock_ceiling_count = 8",
            "clock_ceiling_count",
        ),
        (
            "slru",
            "",
            "write_policy = \"write-back\"\ndurability = \"journal\"\nunit = \"4KiB\"",
            "write_policy",
        ),
    ] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let file = place.path("larder.toml");
        let at = |name: &str| place.word(name);
        let write = |more: &str| {
            let text = format!(
                "origin = \"{}\"\nflash = \"{}\"\nflash_size = \"5MiB\"\nstate = \"{}\"\nlisten = [\"nbd+unix:{}\"]\n\
                 control = \"{}\"\npreset = \"{preset}\"\n{more}\n",
                at("origin"),
                at("flash"),
                at("state"),
                at("nbd"),
                at("control")
            );
            std::fs::write(&file, text).unwrap();
        };
        write(before);
        let server = Server::start_config(&file, 1);
        let was = set(&place, &[]);
        write(&format!("{after}\nflash_timeout = \"3s\""));
        server.signal(Signal::HUP);
        eventually("the limit is in use", || {
            set(&place, &[])["flash_timeout_ns"] == 3_000_000_000_u64
        });
        eventually("the rest is named", || {
            server
                .log()
                .lines()
                .any(|line| line.contains("in use after a restart: ") && line.contains(named))
        });
        assert_eq!(set(&place, &[])["write_policy"], was["write_policy"], "{preset}");
        server.stop();
    }
}

/// More memory than the machine has is refused, by the command and by SIGHUP.
#[test]
fn a_buffer_that_memory_cannot_hold_is_refused() {
    let place = Place::new();
    let server = Server::start(&place.serve(&["--origin=mem:16MiB", "--flash=mem:8MiB"]));
    let before = set(&place, &[]);
    let ended = place.ask(&["set", "--write-buffer", "1TiB"]);
    assert!(ended.code == 4 && ended.err.contains("of memory at worst"), "{ended:?}");
    assert_eq!(set(&place, &[]), before);
    server.stop();
}
