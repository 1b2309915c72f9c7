// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder check`: reports the content of a flash file, writes only with --repair, repairs a lost label.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use larder_testkit::command::{Ended, PATIENCE, larder_says, make_initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::Value;

const BYTES: u64 = 4 << 20;

/// A stopped volume with some units cached.
fn used(preset: &[&str]) -> (Place, Vec<String>) {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let (origin, flash, state) = (place.word("origin"), place.word("flash"), place.word("state"));
    let mut words = place.serve(&["--origin", &origin, "--flash", &flash, "--state", &state]);
    let rest = "--flash-size 5MiB --unit 64KiB --workers 2 --checkpoint 20ms";
    words.extend(rest.split_whitespace().map(str::to_owned));
    if !preset.contains(&"face") {
        words.extend(["--durability", "journal"].map(str::to_owned));
    }
    words.extend(preset.iter().map(|&w| w.to_owned()));
    let server = Server::start(&words);
    let (mut client, begin) = (place.client(), Instant::now());
    while place.stat("units_used") < 4 {
        assert!(begin.elapsed() < PATIENCE, "nothing is cached");
        (0..8).for_each(|unit| client.read_at(unit * 65536, &mut [0; 4096]).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    client.write_at(0, &[1; 4096], false).unwrap();
    drop(client);
    server.stop();
    (place, words)
}

fn check(place: &Place, more: &[&str]) -> Ended {
    larder_says(&[&["check", &place.word("flash"), "--state", &place.word("state")], more].concat())
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap()
}

/// Where the metadata of both shards begins; it takes a MiB.
const METADATA: u64 = 1 << 20;

fn garble(place: &Place, from: u64, len: usize) {
    let file = std::fs::OpenOptions::new().write(true).open(place.path("flash")).unwrap();
    file.write_all_at(&vec![0xA5; len], from).unwrap();
}

#[test]
fn a_clean_cache_is_told_and_repaired() {
    let (place, words) = used(&[]);
    let before = std::fs::read(place.path("flash")).unwrap();
    let told = check(&place, &["--json"]);
    assert_eq!(told.code, 0, "{told:?}");
    let report = json(&told);
    assert_eq!(report["verdict"], "starts warm");
    assert_eq!((&report["labels"], report["shards"].as_array().unwrap().len()), (&2.into(), 2));
    assert!(report["units_used"].as_u64().unwrap() >= 4 && report["origin_bytes"] == BYTES);
    assert!(before == std::fs::read(place.path("flash")).unwrap(), "it only looks");

    garble(&place, 0, 4096);
    let told = check(&place, &[]);
    assert_eq!((told.code, told.out.contains("1 of 2 copies whole")), (1, true), "{told:?}");
    check(&place, &["--repair"]).ok();
    assert!(before == std::fs::read(place.path("flash")).unwrap(), "the label is as it was");

    garble(&place, METADATA, 1 << 20);
    let told = check(&place, &["--json"]);
    let verdict = json(&told)["verdict"].as_str().unwrap().to_owned();
    assert!(told.code == 1 && verdict.starts_with("starts cold: it holds"), "{told:?}");
    let told = check(&place, &["--repair", "--json"]);
    assert_eq!((told.code, &json(&told)["repaired"]), (1, &Value::Array(Vec::new())), "{told:?}");
    let server = Server::start(&words);
    assert!(server.log().contains(&verdict), "{}", server.log());
    let mut bytes = vec![0; BYTES as usize];
    place.client().read_at(0, &mut bytes).unwrap();
    assert!(bytes == std::fs::read(place.path("origin")).unwrap());
    let told = check(&place, &[]);
    assert_eq!((told.code, told.err.contains("in use")), (4, true), "{told:?}");
    server.stop();
}

/// The state file decides too: after a detach the flash is out of date, and without a state file it is unknown.
#[test]
fn the_report_states_what_a_start_does_and_where_the_state_file_is() {
    let (place, words) = used(&[]);
    let told = json(&check(&place, &["--json"]));
    let file = told["state_file"].as_str().unwrap();
    assert!(file.starts_with(&place.word("state")) && told["in_use"] == true, "{told}");
    let told = check(&place, &[]).ok();
    assert!(told.contains(file) && told.contains("with this flash a server starts warm"), "{told}");
    let elsewhere = ["check", &place.word("flash"), "--json", "--state", &place.word("other")];
    let told = json(&larder_says(&elsewhere));
    assert_eq!(told["verdict"], "starts cold: there is no state file that names it");
    assert!(told["state_file"].is_null(), "{told}");

    let server = Server::start(&words);
    place.ask(&["detach"]).ok();
    server.stop();
    let told = json(&check(&place, &["--json"]));
    assert!(told["verdict"].as_str().unwrap().contains("detached"), "{told}");
    assert_eq!(told["in_use"], false);
    agrees(&place, &words);
}

/// One more run, in which clients write to every unit.
fn run_with_writes(place: &Place, words: &[String]) {
    let server = Server::start(words);
    let mut client = place.client();
    (0..8).for_each(|unit| client.write_at(unit * 65536, &[2; 4096], false).unwrap());
    drop(client);
    std::thread::sleep(Duration::from_millis(200));
    server.stop();
}

/// Starts a server, which must give the decision and the reason of the report.
fn agrees(place: &Place, words: &[String]) -> String {
    let report = json(&check(place, &["--json"]));
    let verdict = report["verdict"].as_str().unwrap().to_owned();
    match (Server::try_start(words), verdict.strip_prefix("is refused: ")) {
        (Ok(server), None) => {
            let cold = verdict.starts_with("starts cold: ");
            assert!(cold || verdict == "starts warm", "{verdict}");
            let log = server.log();
            assert_eq!(log.contains("starts cold: "), cold, "{verdict}: {log}");
            assert!(!cold || log.contains(&verdict), "{verdict}: {log}");
            server.stop();
        }
        (Err(ended), Some(why)) => {
            assert!(ended.code == 4 && ended.err.contains(why), "{verdict}: {ended:?}");
        }
        (Ok(_), Some(_)) => panic!("it started: {verdict}"),
        (Err(ended), None) => panic!("it is refused: {verdict}: {ended:?}"),
    }
    verdict
}

/// The report depends on the origin, the state file and how far the flash has come, as a start does.
#[test]
fn a_start_gives_the_decision_and_the_reason_of_the_report() {
    let write_back = ["--preset", "prwc", "--update-period", "20ms", "--update-hot", "30"];
    let full = ["--preset", "face", "--batch-pages", "8", "--write-policy", "full"];
    for (preset, cold) in [(&[][..], true), (&write_back, false), (&full, false)] {
        let what = if cold { "starts cold: " } else { "is refused: " };
        let (place, words) = used(preset);
        let (flash, origin) = (place.path("flash"), place.path("origin"));
        let earlier = std::fs::read(&flash).unwrap();
        assert_eq!(agrees(&place, &words), "starts warm");
        run_with_writes(&place, &words);

        let modified = std::fs::metadata(&origin).unwrap().modified().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&origin).unwrap();
        file.set_modified(modified + Duration::from_secs(1)).unwrap();
        let verdict = json(&check(&place, &["--json"]))["verdict"].as_str().unwrap().to_owned();
        assert!(verdict.starts_with(what) && verdict.contains("written to"), "{verdict}");
        if !cold {
            agrees(&place, &words);
            file.set_len(BYTES + 512).unwrap();
            let verdict = json(&check(&place, &["--json"]))["verdict"].as_str().unwrap().to_owned();
            assert!(verdict.contains("another size"), "{verdict}");
            file.set_len(BYTES).unwrap();
        }
        file.set_modified(modified).unwrap();

        std::fs::write(&flash, earlier).unwrap();
        let verdict = agrees(&place, &words);
        assert!(verdict.starts_with(what) && verdict.contains("a copy from before"), "{verdict}");

        let file = std::fs::OpenOptions::new().write(true).open(&flash).unwrap();
        file.set_len(4 << 20).unwrap();
        if cold {
            // Units need no more of the device than holds dirty data.
            check(&place, &[]).ok();
            assert_eq!(Server::start(&words).stop().code, 0);
            continue;
        }
        if preset != full {
            let verdict = agrees(&place, &words);
            assert!(verdict.contains("a copy from before"), "{verdict}");
            continue;
        }
        let told = check(&place, &[]);
        assert_eq!((told.code, told.err.lines().count()), (4, 1), "{told:?}");
        let ended = Server::try_start(&words).err().expect("it is refused");
        let (_, why) = told.err.split_once(": holds ").unwrap();
        assert!(ended.err.contains(why), "{told:?}: {ended:?}");
    }
}

/// A start does not use a copy of the flash from before the last start, and the report states it.
#[test]
fn an_earlier_copy_of_the_flash_is_recognised() {
    let (place, words) = used(&[]);
    let earlier = std::fs::read(place.path("flash")).unwrap();
    run_with_writes(&place, &words);
    std::fs::write(place.path("flash"), earlier).unwrap();
    assert!(agrees(&place, &words).contains("a copy from before"));
}

#[test]
fn what_flash_alone_has_is_not_repaired_away() {
    let (place, words) =
        used(&["--preset", "prwc", "--update-period", "20ms", "--update-hot", "30"]);
    let told = json(&check(&place, &["--json"]));
    assert_eq!((&told["write_back"], &told["units_dirty"]), (&true.into(), &1.into()), "{told}");
    let before = std::fs::read(place.path("flash")).unwrap();
    garble(&place, METADATA, 1 << 20);
    let told = check(&place, &["--repair", "--json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(json(&told)["verdict"].as_str().unwrap().starts_with("is refused"));
    let Err(ended) = Server::try_start(&words) else { panic!("it started") };
    assert_eq!(ended.code, 4, "{ended:?}");
    std::fs::write(place.path("flash"), before).unwrap();
    Server::start(&words).stop();
}

#[test]
fn a_page_log_is_told() {
    for (policy, killed, verdict) in [
        ("full", false, "starts warm"),
        ("full", true, "starts warm"),
        ("through", false, "starts warm"),
        ("through", true, "starts cold: 2 of its page logs were not closed, as after a crash"),
    ] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let state = place.word("state");
        let more = ["--write-policy", policy, "--workers", "2", "--state", &state];
        let words = place.serve_preset("face", &more);
        let server = Server::start(&words);
        let mut client = place.client();
        (0..8).for_each(|unit| client.write_at(unit * 65536, &[1; 4096], false).unwrap());
        client.flush().unwrap();
        drop(client);
        if killed {
            server.kill();
        } else {
            server.stop();
        }
        let before = std::fs::read(place.path("flash")).unwrap();
        let told = check(&place, &["--json"]);
        let report = json(&told);
        assert_eq!((told.code, report["verdict"].as_str().unwrap()), (0, verdict), "{policy}");
        let dirty = if policy == "full" { 8 } else { 0 };
        assert_eq!((&report["units_dirty"], &report["batch_pages"]), (&dirty.into(), &8.into()));
        let told = check(&place, &["--repair"]);
        assert!(told.out.contains("a repair has nothing to write"), "{told:?}");
        assert!(before == std::fs::read(place.path("flash")).unwrap(), "it only looks");

        garble(&place, METADATA, 1 << 20);
        let told = check(&place, &["--json"]);
        let refused = json(&told)["verdict"].as_str().unwrap().starts_with("is refused");
        assert_eq!((told.code, refused), (1, policy == "full"), "{told:?}");
    }
}

#[test]
fn what_is_no_cache_is_refused_in_one_line() {
    let place = Place::new();
    for (what, bytes) in [("nothing of Larder's", 4 << 20), ("nothing of Larder's", 4096)] {
        place.file("flash", bytes);
        let told = check(&place, &[]);
        assert_eq!((told.code, told.err.lines().count()), (4, 1), "{told:?}");
        assert!(told.err.contains(what), "{told:?}");
    }
    let (place, _) = used(&[]);
    let file = std::fs::OpenOptions::new().write(true).open(place.path("flash")).unwrap();
    file.set_len(2 << 20).unwrap();
    let told = check(&place, &[]);
    assert_eq!((told.code, told.err.contains("cut short")), (4, true), "{told:?}");
}
