// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dirty data on flash, in cached units or in a page log, is never lost: not by `kill -9` (except data that the clients of
//! a page log did not flush), not by a start without that flash, not by a detach.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_testkit::command::make_initial;
use larder_testkit::load::{Judge, Load, Shape, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 4 << 20;
const UNIT: u64 = 64 << 10;

/// Presets under which the flash holds dirty data.
const OWNED: [&str; 2] = ["prwc", "face"];

/// `serve` with a preset of periodic update, every 20 ms, with page logs, or with write-back of the pages that miss.
fn words(place: &Place, preset: &str, more: &[&str]) -> Vec<String> {
    let (origin, flash, state) = (place.word("origin"), place.word("flash"), place.word("state"));
    let mut words = place.serve(&["--origin", &origin, "--flash", &flash, "--state", &state]);
    let rest = match preset {
        "face" => "--unit 64KiB --batch-pages 8",
        "flashcache" | "bcache" => "--write-policy write-back --checkpoint 20ms",
        _ => "--unit 64KiB --update-period 20ms --update-hot 30 --checkpoint 20ms",
    };
    words.extend(["--flash-size", "9MiB"].map(str::to_owned));
    words.extend(rest.split_whitespace().map(str::to_owned));
    words.extend(["--preset", preset].map(str::to_owned));
    if !more.contains(&"--workers") {
        words.extend(["--workers", "2"].map(str::to_owned));
    }
    words.extend(more.iter().map(|&w| w.to_owned()));
    words
}

fn origin(place: &Place) -> Vec<u8> {
    std::fs::read(place.path("origin")).unwrap()
}

/// Until the first unit is cached, or its first page; then that page is written.
fn make_dirty(place: &Place) {
    let mut client = place.client();
    eventually("the first unit is cached", || {
        client.read_at(0, &mut [0; 4096]).unwrap();
        client.read_at(9 * UNIT, &mut [0; 4096]).unwrap();
        place.stat("units_used") >= 2
    });
    client.write_at(0, &[7; 4096], false).unwrap();
    client.flush().unwrap();
    assert_eq!(place.stat("units_dirty"), 1);
    assert_ne!(origin(place)[..4096], [7; 4096], "only the flash holds it");
}

/// What of what clients wrote is there after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// All that was answered, on the origin.
    OnOrigin,
    /// All that was answered.
    Answered,
    /// All that was flushed, on flash, and the cache is warm.
    Flushed,
    /// All that was flushed, on the origin, and the cache is cold.
    FlushedToOrigin,
}

/// Lives of a volume: 10, or the value of LARDER_TEST_LIVES.
fn rounds() -> u64 {
    std::env::var("LARDER_TEST_LIVES").map_or(10, |lives| lives.parse().unwrap())
}

/// Many lives of one volume, each ended at a random moment.
fn lives(preset: &str, more: &[&str], kept: Kept) {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = words(&place, preset, more);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    let flushed = [Kept::Flushed, Kept::FlushedToOrigin].contains(&kept);
    let seen = |served: &[u8]| if flushed { judge.crashed(served) } else { judge.seen(0, served) };
    let on_origin = [Kept::OnOrigin, Kept::FlushedToOrigin].contains(&kept);
    let (mut random, mut warm) = (Pcg64::seed_from_u64(5), 0);
    for round in 0..rounds() {
        let server = Server::restart(&words);
        warm += u64::from(place.stat("units_used") > 0);
        let served = place.read_all(BYTES);
        seen(&served);
        assert!(!on_origin || served == origin(&place), "round {round}: a stale page");
        let shape = Shape {
            bytes: BYTES,
            hot_bytes: BYTES / 4,
            clients: 4,
            depth: 4,
            reads: 30,
            seed: round,
        };
        let load = Load::start(&place.uri(), &shape, &judge);
        std::thread::sleep(Duration::from_millis(random.random_range(50..400)));
        server.kill();
        load.finish();
    }
    match kept {
        Kept::FlushedToOrigin => assert_eq!(warm, 0, "what was not flushed is gone"),
        _ => assert!(warm >= rounds() * 7 / 10, "warm after {warm} of {} kills", rounds() - 1),
    }
    let server = Server::restart(&words);
    let served = place.read_all(BYTES);
    seen(&served);
    assert!(place.stat("evictions") + place.stat("populations") > 0 || warm > 0);
    place.ask(&["detach"]).ok();
    assert!(origin(&place) == served, "all is on the origin after a detach");
    server.stop();
    judge.verdict();
}

#[test]
fn what_flash_alone_had_survives_kills() {
    lives("prwc", &[], Kept::Answered);
}

#[test]
fn a_persistent_read_only_cache_survives_kills_and_is_never_stale() {
    lives("proc", &[], Kept::OnOrigin);
}

#[test]
fn what_was_flushed_to_a_page_log_survives_kills() {
    lives("face", &[], Kept::Flushed);
    lives("face", &["--workers", "3"], Kept::Flushed);
}

#[test]
fn what_was_flushed_to_pages_that_missed_survives_kills() {
    lives("flashcache", &["--write-back-after", "100ms"], Kept::Flushed);
    lives("bcache", &["--write-back-after", "0", "--write-back-order", "place"], Kept::Flushed);
    let left_to_eviction = ["--write-back-after", "never", "--write-back-above", "1"];
    lives("flashcache", &left_to_eviction, Kept::Flushed);
}

/// A volume that is stopped keeps its dirty pages on flash; the syncer writes them to the origin when they are old.
#[test]
fn the_syncer_writes_dirty_pages_to_the_origin_and_they_stay_cached() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&words(&place, "flashcache", &["--write-back-after", "never"]));
    let mut client = place.client();
    (0..20).for_each(|page| client.write_at(page * 4096, &[3; 4096], false).unwrap());
    assert_eq!(place.stat("units_dirty"), 20);
    drop(client);
    server.stop();
    assert_ne!(origin(&place)[..4096], [3; 4096], "only the flash holds it");
    let server = Server::start(&words(&place, "flashcache", &["--write-back-after", "50ms"]));
    eventually("nothing is dirty", || place.stat("units_dirty") == 0);
    assert!(place.stat("units_used") >= 20, "the pages stay cached");
    assert_eq!(origin(&place)[..20 * 4096], [3; 20 * 4096]);
    server.stop();
}

#[test]
fn what_was_flushed_through_a_bounded_page_log_survives_kills() {
    lives("face", &["--write-policy", "bounded"], Kept::FlushedToOrigin);
}

/// A FLUSH reaches the log of every worker, whichever of them took the client in.
#[test]
fn one_flush_covers_the_pages_of_all_workers() {
    for (policy, to_origin) in [("full", false), ("bounded", true)] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, "face", &["--workers", "3", "--write-policy", policy]);
        let (server, units) = (Server::start(&words), BYTES / UNIT);
        let (mut client, mut expected) = (place.client(), origin(&place));
        for unit in 0..units {
            client.write_at(unit * UNIT, &[unit as u8 + 1; 4096], false).unwrap();
            expected[(unit * UNIT) as usize..][..4096].fill(unit as u8 + 1);
        }
        assert_eq!(place.stat("units_dirty"), units, "{policy}: only the flash holds it");
        client.flush().unwrap();
        assert_eq!(place.stat("units_dirty"), if to_origin { 0 } else { units });
        server.kill();
        assert_eq!(origin(&place) == expected, to_origin, "{policy}");
        let server = Server::restart(&words);
        assert!(place.read_all(BYTES) == expected, "{policy}: something flushed is lost");
        server.stop();
    }
}

/// After a clean stop the cache is warm under each policy. If its data does not survive a crash, the origin is complete
/// without the flash.
#[test]
fn a_page_log_is_warm_after_a_stop() {
    for policy in ["full", "bounded", "through"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, "face", &["--write-policy", policy]);
        let server = Server::start(&words);
        let mut client = place.client();
        (0..20).for_each(|unit| client.write_at(unit * UNIT, &[3; 4096], false).unwrap());
        let served = place.read_all(BYTES);
        let mut used = 0;
        eventually("pages that were read have entered", || {
            std::thread::sleep(Duration::from_millis(500));
            std::mem::replace(&mut used, place.stat("units_used")) == used
        });
        drop(client);
        let ended = server.stop();
        let alone = ended.err.contains("only the flash holds some of them");
        assert_eq!((alone, origin(&place) == served), (policy == "full", policy != "full"));
        let server = Server::start(&words);
        assert_eq!(place.stat("units_used"), used, "{policy}");
        assert!(place.read_all(BYTES) == served, "{policy}");
        server.stop();
    }
}

fn refused(what: &str, words: &[String], reason: &str) {
    let Err(ended) = Server::try_start(words) else { panic!("{what}: it started") };
    assert_eq!(ended.code, 4, "{what}: {ended:?}");
    assert!(ended.err.contains(reason), "{what}: {ended:?}");
}

#[test]
fn an_earlier_copy_of_the_flash_is_refused() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, preset, &[]);
        let server = Server::start(&words);
        make_dirty(&place);
        server.stop();
        let copy = |from: &str, to: &str| std::fs::copy(place.path(from), place.path(to)).unwrap();
        copy("flash", "older");
        let server = Server::start(&words);
        place.client().write_at(4096, &[8; 4096], false).unwrap();
        server.stop();
        copy("flash", "newer");
        copy("older", "flash");
        refused("an older copy", &words, "a copy from before the last start or stop");
        copy("newer", "flash");
        // After a crash too, whatever was written.
        let server = Server::start(&words);
        place.client().write_at(4096, &[8; 4096], true).unwrap();
        server.kill();
        copy("flash", "crashed");
        copy("newer", "flash");
        refused("a copy of the last stop", &words, "a copy from before the last start or stop");
        copy("crashed", "flash");
        let server = Server::start(&words);
        assert_eq!(place.read_all(8192), [[7; 4096], [8; 4096]].concat());
        server.stop();
    }
}

#[test]
fn dirty_flash_of_another_origin_is_refused_and_can_be_adopted() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, preset, &["--name", "v"]);
        let server = Server::start(&words);
        make_dirty(&place);
        server.kill();
        // Moved, or another of the same size: nothing but the path shows which.
        std::fs::rename(place.path("origin"), place.path("second")).unwrap();
        let to_second = |word: &String| match *word == place.word("origin") {
            true => place.word("second"),
            false => word.clone(),
        };
        let mut moved: Vec<String> = words.iter().map(to_second).collect();
        refused("another origin", &moved, "the state file records it for the origin");
        moved.push("--adopt".to_owned());
        let server = Server::restart(&moved);
        assert_eq!(place.read_all(BYTES)[..4096], [7; 4096], "{preset}");
        server.stop();
        moved.pop();
        Server::restart(&moved).stop();
    }
}

#[test]
fn a_flash_whose_state_file_is_lost_can_be_adopted() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, preset, &[]);
        let server = Server::start(&words);
        make_dirty(&place);
        server.kill();
        std::fs::rename(place.path("state"), place.path("lost")).unwrap();
        refused("no state file", &words, "with --adopt if only its state file is lost");
        let adopting: Vec<String> = words.iter().cloned().chain(["--adopt".to_owned()]).collect();
        // A volume of another name records it: that volume is named, and --adopt is not suggested again.
        std::fs::rename(place.path("lost"), place.path("state")).unwrap();
        let named = [&adopting[..], &["--name".to_owned(), "b".to_owned()]].concat();
        let ended = Server::try_start(&named).err().unwrap();
        let (start, end) = ended.err.split_once("; start it with the settings").unwrap();
        assert!(start.contains("cannot be used") && !end.contains("--adopt"), "{ended:?}");
        let record = format!("records it for the origin {}", place.word("origin"));
        assert!(end.contains("state file ") && end.contains(&record), "{ended:?}");
        std::fs::rename(place.path("state"), place.path("lost")).unwrap();
        // Nor is it another origin's.
        std::fs::rename(place.path("origin"), place.path("right")).unwrap();
        make_initial(&place.path("origin"), BYTES * 2);
        refused("another origin", &adopting, "the origin has another size");
        std::fs::rename(place.path("right"), place.path("origin")).unwrap();

        let server = Server::restart(&adopting);
        assert_eq!(place.read_all(BYTES)[..4096], [7; 4096]);
        server.kill();
        // Once is enough, and a flash that a state file knows is judged by that file.
        let server = Server::restart(&words);
        assert_eq!(place.read_all(BYTES)[..4096], [7; 4096]);
        assert_eq!(place.ask(&["detach"]).code, 0);
        server.stop();
        assert_eq!(origin(&place)[..4096], [7; 4096]);
        let server = Server::restart(&adopting);
        assert_eq!(place.stat("units_used"), 0, "it was detached: cold");
        server.stop();
    }
}

#[test]
fn flush_and_detach_bring_everything_to_the_origin() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&words(&place, preset, &[]));
        make_dirty(&place);
        place.ask(&["flush"]).ok();
        assert_eq!((place.stat("units_dirty"), &origin(&place)[..4096]), (0, &[7; 4096][..]));
        assert!(place.stat("units_used") > 0, "it stays cached");
        place.client().write_at(512, &[8; 512], false).unwrap();
        assert_eq!(place.stat("units_dirty"), 1);
        // Trim and zero go where the data is.
        place.client().zero(2048, 1024, false).unwrap();
        place.ask(&["detach"]).ok();
        let bytes = origin(&place);
        assert_eq!((&bytes[512..1024], &bytes[2048..3072]), (&[8; 512][..], &[0; 1024][..]));
        place.client().write_at(0, &[1; 4096], false).unwrap();
        assert_eq!(origin(&place)[..4096], [1; 4096], "pass-through");
        server.stop();
        // It was detached with nothing on it: another start without it is fine.
        let (state, from) = (place.word("state"), place.word("origin"));
        Server::start(&place.serve(&["--origin", &from, "--state", &state])).stop();
    }
}

/// A start that would lose dirty data is refused, and the error states the alternatives.
#[test]
fn dirty_flash_is_not_left_behind() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let owning = words(&place, preset, &[]);
        let server = Server::start(&owning);
        make_dirty(&place);
        let ended = server.stop();
        assert!(ended.err.contains("only the flash holds some of them"), "{ended:?}");
        let (state, from) = (place.word("state"), place.word("origin"));
        let alone = "may hold dirty data of it";
        refused("pass-through", &place.serve(&["--origin", &from, "--state", &state]), alone);
        let other = ["--origin", &from, "--state", &state, "--flash", "mem:8MiB"];
        refused("a volatile cache", &place.serve(&other), alone);
        let named = [&other[..], &["--name", "other", "--durability", "journal"]].concat();
        refused("another name", &place.serve(&named), alone);
        refused("another preset", &words(&place, "proc", &[]), "cannot be used");
        refused("other workers", &words(&place, preset, &["--workers", "1"]), "cannot be used");
        if preset == "face" {
            for more in ["--batch-pages 16", "--flash-size 8MiB", "--write-policy through"] {
                let other: Vec<&str> = more.split_whitespace().collect();
                let mut words = owning.clone();
                // What is given twice would be a slip.
                if let Some(at) = words.iter().position(|w| w == other[0]) {
                    words.drain(at..at + 2);
                }
                words.extend(other.iter().map(|&w| w.to_owned()));
                refused(more, &words, "cannot be used");
            }
        }
        let ended = Server::try_start(
            &place.serve(&["--origin", &from, "--state", &state, "--preset", preset]),
        );
        assert_eq!(ended.err().unwrap().code, 2, "{preset} without a flash");
        std::fs::rename(place.path("state"), place.path("aside")).unwrap();
        refused("without its state", &owning, "--format");
        let mut sce = place.serve(&["--origin", &from, "--flash", &place.word("flash")]);
        sce.extend(["--state", &state].map(str::to_owned));
        refused("a volatile cache on it, without its state", &sce, "--format");
        std::fs::rename(place.path("aside"), place.path("state")).unwrap();
        make_initial(&place.path("elsewhere"), BYTES);
        let flash = place.word("flash");
        let pass = ["--origin", &place.word("elsewhere"), "--name", "else", "--state", &state];
        let server = Server::start(&place.serve(&pass));
        let refused_at = place.ask(&["attach", &flash, "--name", "else"]);
        assert!(refused_at.err.contains("--format"), "{refused_at:?}");
        server.stop();

        let bytes = origin(&place);
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(place.path("origin"), &bytes).unwrap();
        refused("an origin written to meanwhile", &owning, "written to while it was not served");
        // The user may know that the content is unchanged.
        let mut adopting = owning.clone();
        adopting.push("--adopt".to_owned());
        let server = Server::start(&adopting);
        assert!(server.log().contains("used on the user's word"), "{}", server.log());
        assert_eq!(place.read_all(4096), [7; 4096]);
        server.stop();
        let server = Server::restart(&owning);
        assert_eq!(place.read_all(4096), [7; 4096]);
        server.stop();
        let mut formatted = owning.clone();
        formatted.push("--format".to_owned());
        let server = Server::start(&formatted);
        assert!(place.read_all(BYTES) == bytes, "what flash had is lost, as was asked for");
        server.stop();
    }
}

/// Where the origin has everything a flash of another kind is no obstacle, and of no use.
#[test]
fn a_clean_flash_of_another_kind_starts_cold() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let through = ["--write-policy", "through"];
    let few = ["--write-policy", "through", "--workers", "1"];
    for (first, words) in [
        words(&place, "proc", &[]),
        words(&place, "face", &through),
        words(&place, "face", &few),
        words(&place, "proc", &[]),
    ]
    .iter()
    .enumerate()
    {
        let server = Server::start(words);
        // That a new flash is cold is no warning.
        let warned = server.log().contains("it was formatted for ");
        assert_eq!(warned, first > 0, "{}", server.log());
        assert!(place.read_all(BYTES) == origin(&place));
        server.stop();
    }
}

/// A detach during a flush: data that is written meanwhile is on the origin too.
#[test]
fn a_detach_during_a_flush_loses_nothing() {
    for preset in OWNED {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let mut owning = words(&place, preset, &[]);
        let slow = format!("slow+{}?profile=hdd-7200", place.word("origin"));
        let at = owning.iter().position(|w| *w == place.word("origin")).unwrap();
        owning[at] = slow;
        let server = Server::start(&owning);
        let mut client = place.client();
        let units = 24;
        eventually("units are cached", || {
            (0..units).for_each(|unit| client.read_at(unit * UNIT, &mut [0; 4096]).unwrap());
            place.stat("units_used") >= units / 2
        });
        // Every other page: many small writes for the flush to do.
        for page in (0..units * UNIT / 4096).step_by(2) {
            client.write_at(page * 4096, &[1; 512], false).unwrap();
        }
        assert!(place.stat("units_dirty") >= units / 2);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| place.ask(&["flush", "--bound", "1s"]));
            eventually("the flush is in progress", || place.stat("write_back_bytes") > 0);
            let detach = scope.spawn(|| place.ask(&["detach"]));
            let mut round = 1;
            while !detach.is_finished() {
                round = round % 250 + 1;
                for unit in 0..units {
                    client.write_at(unit * UNIT, &[round; 512], false).unwrap();
                    let mut seen = [0; 512];
                    client.read_at(unit * UNIT, &mut seen).unwrap();
                    assert_eq!(seen, [round; 512], "unit {unit}");
                }
            }
            flush.join().unwrap();
            detach.join().unwrap().ok();
            for unit in 0..units {
                let mut seen = [0; 512];
                client.read_at(unit * UNIT, &mut seen).unwrap();
                assert_eq!(seen, [round; 512], "unit {unit}");
            }
        });
        let (served, held) = (place.read_all(BYTES), origin(&place));
        assert!(served == held, "pass-through");
        server.stop();
    }
}
