// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes without a name: each has a state file of its own, named after its origin.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 4 << 20;

/// Words of `serve` for the origin `NAME` behind the flash `NAME.flash`, in one directory of state files.
fn serve(place: &Place, name: &str, more: &[&str]) -> Vec<String> {
    if !place.path(name).exists() {
        make_initial(&place.path(name), BYTES);
    }
    let (origin, flash) = (place.word(name), place.word(&format!("{name}.flash")));
    let state = place.word("state");
    let words = ["--origin", &origin, "--flash", &flash, "--flash-size", "8MiB", "--unit", "64KiB"];
    let eager = "--workers 1 --checkpoint 20ms --populate-miss 0% --populate-free 0%";
    let mut words = place.serve(&[&words[..], &["--state", &state]].concat());
    if more.is_empty() {
        words.extend(eager.split(' ').map(str::to_owned));
        words.extend(["--populate-workers", "4", "--populate-period", "0"].map(str::to_owned));
    }
    words.extend(more.iter().map(|&w| w.to_owned()));
    words
}

/// Serves a volume until it holds units, and stops.
fn warm_up(place: &Place, words: &[String]) {
    let server = Server::start(words);
    let (mut client, begin) = (place.client(), Instant::now());
    while place.stat("units_used") < 4 {
        assert!(begin.elapsed() < PATIENCE, "nothing is cached");
        (0..8).for_each(|unit| client.read_at(unit * 65536, &mut [0; 4096]).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(client);
    std::thread::sleep(Duration::from_millis(100));
    server.stop();
}

fn state_files(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path("state")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn file_name(path: &std::path::Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_volume_starts_warm_after_another_was_served() {
    let place = Place::new();
    let (a, b) = (serve(&place, "a.img", &[]), serve(&place, "b.img", &[]));
    warm_up(&place, &a);
    warm_up(&place, &b);
    let server = Server::start(&a);
    assert!(place.stat("units_used") >= 4, "it started cold: {}", server.log());
    server.stop();
    let files = state_files(&place);
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(file_name(&files[0]).starts_with("a.img-"), "{files:?}");
    assert!(file_name(&files[1]).starts_with("b.img-"), "{files:?}");
}

/// Earlier versions had one file for all volumes without a name.
#[test]
fn the_state_file_of_an_earlier_version_is_moved() {
    let place = Place::new();
    let a = serve(&place, "a.img", &[]);
    warm_up(&place, &a);
    let (own, earlier) = (state_files(&place).remove(0), place.path("state/volume.json"));
    std::fs::rename(&own, &earlier).unwrap();
    warm_up(&place, &serve(&place, "b.img", &[]));
    assert!(earlier.exists(), "it is not of this volume");
    let server = Server::start(&a);
    assert!(place.stat("units_used") >= 4, "it started cold: {}", server.log());
    server.stop();
    assert!(own.exists() && !earlier.exists());
}

/// Dirty data stays with its volume, and does not stop another one.
#[test]
fn a_dirty_volume_of_an_earlier_version_is_moved_and_stops_no_other() {
    let place = Place::new();
    let more = "--preset prwc --workers 1 --checkpoint 20ms --update-period 20ms --update-hot 30";
    let more: Vec<&str> = more.split(' ').collect();
    let a = serve(&place, "a.img", &more);
    let server = Server::start(&a);
    let (mut client, begin) = (place.client(), Instant::now());
    while place.stat("units_used") < 4 {
        assert!(begin.elapsed() < PATIENCE, "nothing is cached");
        (0..8).for_each(|unit| client.read_at(unit * 65536, &mut [0; 4096]).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    while place.stat("units_dirty") == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing is dirty");
        (0..8).for_each(|unit| client.write_at(unit * 65536, &[7; 4096], true).unwrap());
    }
    drop(client);
    server.stop();
    std::fs::rename(state_files(&place).remove(0), place.path("state/volume.json")).unwrap();
    Server::start(&serve(&place, "b.img", &more)).stop();
    let server = Server::start(&a);
    let mut bytes = vec![0; 4096];
    place.client().read_at(0, &mut bytes).unwrap();
    assert!(bytes == [7; 4096], "dirty data is lost");
    server.stop();
    assert!(!place.path("state/volume.json").exists());
}
