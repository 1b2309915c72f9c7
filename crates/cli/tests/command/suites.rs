// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exercisers of other projects on served volumes: fsx on the file of a FUSE mount, and on ext4 over it, and stress-ng on ext4.
//! The long forms, on block devices, are `tests/lab/suites`.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::path::Path;
use std::process::Command;

use larder_testkit::command::{built, have, run};
use larder_testkit::fuse::{Loop, Mounted, can_loop, can_mount, output};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

/// Presets of each kind of cache.
const PRESETS: [&str; 4] = ["sce", "larder", "prwc", "face"];
const MIB: u64 = 1 << 20;
/// Settings of fsx: of operations that keep the size of the file.
const SAME_SIZE: &str = "
    nosizechecks = true
    blockmode = true
    [opsize]
    max = 200000
    [weights]
    close_open = 0
    truncate = 0
    ";
/// All operations that ext4 has.
const ALL: &str = "
    flen = 2000000
    [opsize]
    max = 200000
    [weights]
    close_open = 1
    truncate = 5
    posix_fallocate = 2
    posix_fadvise = 2
    copy_file_range = 5
    ";
/// And of both, in `weights`.
const BOTH: &str = "
    read = 20
    write = 20
    mapread = 5
    mapwrite = 5
    invalidate = 1
    fsync = 1
    fdatasync = 1
    punch_hole = 5
    sendfile = 2
    ";

/// A server of a preset over an origin of so many bytes, which is the file `vol`.
fn serve(place: &Place, preset: &str, bytes: u64) -> Server {
    place.file("origin", bytes);
    let file = format!("fuse:{}", place.word("vol"));
    Server::start(&place.serve_preset(preset, &["--listen", &file]))
}

/// Runs fsx with these settings; what it found wrong is in its output.
fn fsx(place: &Place, (file, settings): (&Path, &str), operations: u32) {
    let Some(program) = built("fsx") else { return };
    let config = place.path("fsx.toml");
    std::fs::write(&config, [settings, BOTH].concat()).unwrap();
    let mut command = Command::new(program);
    command.args(["-S", "1", "-N", &operations.to_string(), "-P", &place.word("."), "-f"]);
    run(command.arg(config).arg(file)).ok();
}

#[test]
fn fsx_finds_nothing_wrong_in_the_file_of_a_volume() {
    if !can_mount() {
        return;
    }
    for preset in PRESETS {
        let place = Place::new();
        let server = serve(&place, preset, 8 * MIB);
        fsx(&place, (&place.path("vol"), SAME_SIZE), 3000);
        server.stop();
    }
}

#[test]
fn fsx_and_stress_ng_find_nothing_wrong_in_a_file_system() {
    if !can_loop() || !have("stress-ng", "stress-ng") {
        return;
    }
    for preset in PRESETS {
        let place = Place::new();
        let server = serve(&place, preset, 96 * MIB);
        let device = Loop::over(&place, "vol");
        output("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device.path()]);
        std::fs::create_dir(place.path("mnt")).unwrap();
        let mounted = Mounted::mount(device.path(), &place.path("mnt"));
        fsx(&place, (&place.path("mnt/file"), ALL), 2000);
        let words = "--verify --timeout 4 --hdd 1 --hdd-opts direct,fsync,wr-rnd,rd-rnd --hdd-bytes 8M \
            --fallocate 1 --fallocate-bytes 8M --seek 1 --sync-file 1 --sync-file-bytes 4M --temp-path";
        let words: Vec<_> = words.split_whitespace().collect();
        output("stress-ng", &[words, vec![&place.word("mnt")]].concat());
        mounted.unmount();
        output("e2fsck", &["-fn", device.path()]);
        drop(device);
        server.stop();
    }
}
