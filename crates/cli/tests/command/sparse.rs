// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holes of a volume as clients receive them: exactly those of the origin's file, through every front; never a range
//! with an acknowledged write.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::Uri;
use larder_testkit::command::{self, have, one_json, tool};
use larder_testkit::fuse;
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{SeekFrom, seek};

const BYTES: u64 = 32 << 20;
const PAGE: u64 = 4096;

/// A file of random runs of data and holes, more of them than one answer has; its data.
fn make_sparse(path: &Path, seed: u64) -> u64 {
    let file = File::create(path).unwrap();
    file.set_len(BYTES).unwrap();
    let mut random = Pcg64::seed_from_u64(seed);
    let (mut at, mut data) = (PAGE, 0);
    while at < BYTES {
        let most = if random.random_bool(0.9) { 4 } else { 400 };
        let len = (random.random_range(1..=most) * PAGE).min(BYTES - at);
        file.write_all_at(&vec![random.random_range(1..=255); len as usize], at).unwrap();
        data += len;
        at += len + random.random_range(1..=most) * PAGE;
    }
    file.sync_all().unwrap();
    data
}

/// The runs of a file, as its file system reports them: where each begins, and whether it is a hole.
fn runs(file: &File) -> Vec<(u64, bool)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < BYTES {
        let data = seek(file, SeekFrom::Data(at)).unwrap_or(BYTES);
        if data > at {
            found.push((at, true));
        }
        if data < BYTES {
            found.push((data, false));
        }
        at = if data < BYTES { seek(file, SeekFrom::Hole(data)).unwrap() } else { BYTES };
    }
    found
}

/// The same as a program of another project finds it in an export.
fn told(uri: &str) -> Vec<(u64, bool)> {
    let map = one_json(&tool(&["nbdinfo", "--map", "--json", uri]).ok());
    let mut found: Vec<(u64, bool)> = Vec::new();
    let mut at = 0;
    for extent in map.as_array().unwrap() {
        assert_eq!(extent["offset"], at, "{map}");
        at += extent["length"].as_u64().unwrap();
        let hole = match extent["type"].as_u64().unwrap() {
            0 => false,
            3 => true,
            other => panic!("{other}: {map}"),
        };
        if found.last().is_none_or(|last| last.1 != hole) {
            found.push((extent["offset"].as_u64().unwrap(), hole));
        }
    }
    assert_eq!(at, BYTES);
    found
}

fn client(uri: &Uri) -> Client {
    Client::connect(uri, &Options { allocation: true, ..Options::default() }).unwrap()
}

/// A server of `origin` at the sockets `NAME` and `NAME.control`; its address.
fn serve(place: &Place, name: &str, origin: &str, more: &[&str]) -> (Server, String) {
    let (listen, control) = (place.word(name), place.word(&format!("{name}.control")));
    let listen = format!("nbd+unix:{listen}");
    let mut words = vec!["serve", "--origin", origin, "--listen", &listen, "--control", &control];
    words.extend(more);
    let server = Server::start(&words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>());
    let uri = server.addresses()[0].clone();
    (server, uri)
}

/// Whether the tests can be run: files here have holes, and the tools are there.
fn can(place: &Place) -> bool {
    make_sparse(&place.path("origin"), 1);
    let file = File::open(place.path("origin")).unwrap();
    let sparse = runs(&file).len() > 512;
    if !sparse {
        println!("skipped: this file system reports no holes");
    }
    sparse && have("nbdinfo", "libnbd-bin") && have("qemu-img", "qemu-utils")
}

#[test]
fn holes_are_those_of_the_file_through_every_origin() {
    let place = Place::new();
    if !can(&place) {
        return;
    }
    let origin = place.word("origin");
    for seed in 1..4 {
        make_sparse(&place.path("origin"), seed);
        let expected = runs(&File::open(&origin).unwrap());
        let (near, near_uri) = serve(&place, "near", &origin, &["--workers", "2"]);
        assert!(told(&near_uri) == expected, "a file");
        // A volume whose origin is the export of another one, and so on.
        let (far, far_uri) = serve(&place, "far", &near_uri, &[]);
        assert!(told(&far_uri) == expected, "an export");
        let (farther, farther_uri) = serve(&place, "farther", &far_uri, &[]);
        assert!(told(&farther_uri) == expected, "the export of an export");
        drop([farther, far, near].map(Server::stop));
    }
    let expected = runs(&File::open(&origin).unwrap());
    let slow = format!("slow+{origin}?profile=cloud");
    let (server, uri) = serve(&place, "slow", &slow, &[]);
    assert!(told(&uri) == expected, "a slow file");
    server.stop();
    let (server, uri) = serve(&place, "mem", "mem:32MiB", &[]);
    assert_eq!(told(&uri), [(0, false)], "what is not known is data");
    server.stop();
    if !have("nbdkit", "nbdkit") {
        return;
    }
    // A server that reports extents, one that does not, and one that accepts a single connection.
    let no_extents = ["--filter=noextents"];
    for (name, filters, same) in [
        ("kit", &[][..], true),
        ("dumb", &no_extents, false),
        ("one", &["--filter=multi-conn"], true),
    ] {
        let socket = place.word(name);
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U", &socket]).args(filters).args(["file", &origin]);
        command.args(if name == "one" { &["multi-conn-mode=disable"][..] } else { &[] });
        let mut kit = command.spawn().unwrap();
        load::accepts(Path::new(&socket));
        let (server, uri) = serve(&place, "front", &format!("nbd+unix:///?socket={socket}"), &[]);
        let expected = if same { expected.clone() } else { vec![(0, false)] };
        assert!(told(&uri) == expected, "nbdkit, {name}");
        server.stop();
        kit.kill().unwrap();
        kit.wait().unwrap();
    }
}

/// Copies read what is data and nothing else, and keep the holes.
#[test]
fn copies_keep_the_holes_and_do_not_read_them() {
    let place = Place::new();
    if !can(&place) || !have("nbdcopy", "libnbd-bin") {
        return;
    }
    let data = make_sparse(&place.path("origin"), 7);
    let server = Server::start(&place.serve_cached(4, &["--workers", "2"]));
    let (uri, copy) = (place.uri_word(), place.word("copy"));
    let expected = std::fs::read(place.path("origin")).unwrap();
    let blocks = place.path("origin").metadata().unwrap().blocks();
    let check = |what: &str, words: &[&str]| {
        let before = place.stat("read_bytes");
        tool(words).ok();
        let read = place.stat("read_bytes") - before;
        assert!(read <= data + data / 8, "{what} reads {read} bytes of {data}");
        assert!(std::fs::read(&copy).unwrap() == expected, "{what}");
        let copied = Path::new(&copy).metadata().unwrap().blocks();
        assert!(copied <= blocks + blocks / 16, "{what}: {copied} blocks of {blocks}");
        std::fs::remove_file(&copy).unwrap();
    };
    check("nbdcopy", &["nbdcopy", &uri, &copy]);
    check("qemu-img", &["qemu-img", "convert", "-f", "raw", "-O", "raw", "-S", "0", &uri, &copy]);
    let map = tool(&["qemu-img", "map", "--output=json", "-f", "raw", &uri]).ok();
    let holes = |v: &serde_json::Value| v["zero"] == true;
    let holes = one_json(&map).as_array().unwrap().iter().filter(|v| holes(v)).count();
    let file = File::open(place.path("origin")).unwrap();
    assert_eq!(holes, runs(&file).iter().filter(|run| run.1).count());
    server.stop();
}

#[test]
fn the_file_of_fuse_has_the_same_holes() {
    let place = Place::new();
    if !can(&place) || !fuse::can_mount() {
        return;
    }
    let origin = place.word("origin");
    let server = Server::start(&fuse::fuse_words(&place, "vol", &["--origin", &origin]));
    let (file, own) = (fuse::open(&place, "vol"), File::open(&origin).unwrap());
    assert!(runs(&file) == runs(&own));
    for at in [1, 511, 4097, BYTES / 2 + 1, BYTES - 1, BYTES, BYTES + 1] {
        for place in [SeekFrom::Data(at), SeekFrom::Hole(at)] {
            assert_eq!(seek(&file, place), seek(&own, place), "{place:?}");
        }
    }
    drop(file);
    server.stop();
}

/// Pages of a volume of holes are written, once each, in any order, for a while; others ask.
fn fill(uri: &Uri) {
    let written: Vec<AtomicBool> = (0..BYTES / PAGE).map(|_| AtomicBool::new(false)).collect();
    let (is_over, begin) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|n| {
                let written = &written;
                scope.spawn(move || {
                    let (mut client, mut page) = (client(uri), n);
                    while page < BYTES / PAGE && begin.elapsed() < Duration::from_millis(1500) {
                        // Each page once, all over the place.
                        let at = page * 3019 % (BYTES / PAGE);
                        client.write_at(at * PAGE, &[1; PAGE as usize], false).unwrap();
                        written[at as usize].store(true, Ordering::SeqCst);
                        page += 4;
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (written, is_over) = (&written, &is_over);
            scope.spawn(move || {
                let (mut client, mut random) = (client(uri), Pcg64::seed_from_u64(seed));
                while !is_over.load(Ordering::SeqCst) {
                    let first = random.random_range(0..BYTES / PAGE);
                    let count = random.random_range(1..=512).min(BYTES / PAGE - first);
                    let before: Vec<bool> =
                        written.iter().map(|page| page.load(Ordering::SeqCst)).collect();
                    let one = random.random_bool(0.2);
                    let list = client.extents(first * PAGE, (count * PAGE) as u32, one).unwrap();
                    assert!(!one || list.len() == 1);
                    let mut at = first * PAGE;
                    for extent in list {
                        let end = at + extent.len;
                        let pages = at / PAGE..end.div_ceil(PAGE);
                        let lost = pages.clone().find(|p| extent.zero && before[*p as usize]);
                        assert_eq!(lost, None, "a page that was written is reported as zero");
                        at = end;
                    }
                    assert!(at <= (first + count) * PAGE);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn what_was_written_is_never_a_hole() {
    for preset in command::PRESETS {
        let place = Place::new();
        place.file("origin", BYTES);
        let server = Server::start(&place.serve_preset(preset, &["--workers", "2"]));
        fill(&place.uri());
        server.stop();
    }
    // And through an export, over several connections.
    let place = Place::new();
    place.file("origin", BYTES);
    let (near, near_uri) = serve(&place, "near", &place.word("origin"), &[]);
    let (far, far_uri) = serve(&place, "far", &near_uri, &[]);
    fill(&far_uri.parse().unwrap());
    drop([far, near].map(Server::stop));
}
