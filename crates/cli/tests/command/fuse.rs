// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume as a file: byte-exact under several threads, under a loop device and a file system,
//! through a stop with users and a `kill -9` with requests in flight. Needs root, `/dev/fuse` and
//! loop devices; where the machine has none, the tests say so and do nothing.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Stdio;
use std::time::{Duration, Instant};

use larder_core::request::Kind;
use larder_testkit::command::{PATIENCE, have, make_initial, run};
use larder_testkit::fuse::{
    self, Loop, Mounted, can_loop, can_mount, fuse_words, open, output, tree_sum,
};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::server::{Server, of_threads, only_child};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};

const BYTES: u64 = 8 << 20;

#[test]
fn the_file_is_the_volume_beside_nbd() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&fuse_words(&place, "vol", &["--origin", &place.word("origin")]));
    assert_eq!(server.addresses()[1], format!("fuse:{}", place.word("vol")));
    assert_eq!(place.status()["files"][0], place.word("vol"));
    let (file, meta) = (open(&place, "vol"), place.path("vol").metadata().unwrap());
    assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (BYTES, 0o600));
    let mut all = Vec::new();
    (&file).read_to_end(&mut all).unwrap();
    assert!(all == initial(0, BYTES));
    // What one door writes, the other reads at once.
    let mut client = place.client();
    let mut seen = [0; 4096];
    file.write_all_at(&[7; 100], 1000).unwrap();
    client.read_at(0, &mut seen).unwrap();
    assert_eq!(seen[1000..1100], [7; 100]);
    assert_eq!(seen[..1000], initial(0, 4096)[..1000]);
    client.write_at(4096, &[9; 4096], false).unwrap();
    file.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(seen, [9; 4096]);
    drop(client);
    drop(file);
    server.stop();
    assert!(!place.path("vol").exists(), "the file that was made is left behind");
    assert_eq!(std::fs::read(place.path("origin")).unwrap()[1000..1100], [7; 100]);
}

#[test]
fn size_and_owner_stay_and_the_end_is_an_end() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&fuse_words(&place, "vol", &["--origin", "mem:1MiB"]));
    let file = open(&place, "vol");
    assert_eq!(file.set_len(4096).unwrap_err().kind(), ErrorKind::PermissionDenied);
    file.set_len(1 << 20).unwrap();
    let mode = std::fs::Permissions::from_mode(0o666);
    assert_eq!(file.set_permissions(mode).unwrap_err().kind(), ErrorKind::PermissionDenied);
    file.set_modified(std::time::SystemTime::now()).unwrap();
    assert_eq!(file.read_at(&mut [0; 10], 1 << 20).unwrap(), 0);
    assert_eq!(file.read_at(&mut [0; 10], (1 << 20) - 3).unwrap(), 3);
    assert_eq!(file.write_at(&[1; 10], (1 << 20) - 3).unwrap(), 3);
    let full = file.write_at(&[1; 10], 1 << 20).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let grow = fallocate(&file, FallocateFlags::empty(), 0, (1 << 20) + 1);
    assert_eq!(grow, Err(rustix::io::Errno::NOSPC));
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    drop(file);
    server.stop();
}

/// Each thread has parts of the file of its own, with borders anywhere in a block, and reads back
/// what it wrote there, whatever its neighbours do in the same blocks.
#[test]
fn threads_in_the_same_blocks_lose_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_cached(4, &["--workers", "2", "--listen"]);
    let words = [words, vec![format!("fuse:{}", place.word("vol"))]].concat();
    let server = Server::start(&words);
    let file = open(&place, "vol");
    let model = fuse::hammer(&file, BYTES, 4, Duration::from_secs(6));
    let mut all = vec![0; BYTES as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == model, "the file is not what was written");
    file.sync_all().unwrap();
    drop(file);
    server.stop();
    assert!(std::fs::read(place.path("origin")).unwrap() == model, "the origin differs");
}

/// Bytes of a block are written through the file while NBD clients write all of the block: acknowledged writes of both
/// are there, in either order.
#[test]
fn bytes_beside_an_nbd_write_undo_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.file("origin", BYTES);
    let words = place.serve_cached(4, &["--workers", "2", "--listen"]);
    let server = Server::start(&[words, vec![format!("fuse:{}", place.word("vol"))]].concat());
    let begin = Instant::now();
    let is_over = || begin.elapsed() > Duration::from_secs(3);
    std::thread::scope(|scope| {
        for block in 0..2_u64 {
            let (file, place) = (open(&place, "vol"), &place);
            // A byte of the block is this thread's as far as it is not overwritten ...
            scope.spawn(move || {
                while !is_over() {
                    file.write_all_at(&[255], block * 512 + 7).unwrap();
                }
            });
            // ... and all others are that one's.
            scope.spawn(move || {
                let (mut client, mut seen) = (place.client(), [0; 512]);
                for value in (0..255).cycle() {
                    if is_over() {
                        break;
                    }
                    match value % 5 {
                        0 => client.zero(block * 512, 512, true).unwrap(),
                        _ => client.write_at(block * 512, &[value; 512], false).unwrap(),
                    }
                    client.read_at(block * 512, &mut seen).unwrap();
                    let value = if value % 5 == 0 { 0 } else { value };
                    let lost = (0..512).find(|&at| at != 7 && seen[at] != value);
                    assert_eq!(lost, None, "block {block}: not {value} but {seen:?}");
                    assert!([value, 255].contains(&seen[7]), "{}", seen[7]);
                }
            });
        }
    });
    server.stop();
}

#[test]
fn a_directory_holds_the_file_under_the_exports_name() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).unwrap();
    for (name, file) in [("db", "db"), ("", "volume")] {
        let more = ["--origin", "mem:1MiB", "--name", name];
        let server = Server::start(&fuse_words(&place, "dir", &more));
        let path = place.path("dir").join(file);
        assert_eq!(server.addresses()[1], format!("fuse:{}", path.display()));
        let entries = place.path("dir").read_dir().unwrap();
        let names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [file]);
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        assert!(File::open(place.path("dir").join("other")).is_err());
        assert!(std::fs::write(place.path("dir").join("new"), "x").is_err());
        std::fs::File::options().write(true).open(&path).unwrap().write_all(b"x").unwrap();
        server.stop();
        assert!(place.path("dir").is_dir());
    }
}

#[test]
fn a_file_system_on_a_loop_device_keeps_its_files() {
    if !can_loop() {
        return;
    }
    let place = Place::new();
    place.file("origin", 192 << 20);
    std::fs::create_dir(place.path("mnt")).unwrap();
    let mut words = place.serve_cached(64, &["--listen"]);
    words.push(format!("fuse:{}", place.word("vol")));
    let server = Server::start(&words);
    let device = Loop::over(&place, "vol");
    output("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device.path()]);
    let mounted = Mounted::mount(device.path(), &place.path("mnt"));
    let source = env!("CARGO_MANIFEST_DIR").rsplit_once('/').unwrap().0;
    output("cp", &["-a", source, &place.word("mnt/crates")]);
    let ballast = initial(5, 40 << 20);
    std::fs::write(place.path("mnt/ballast"), &ballast).unwrap();
    let sum = tree_sum(&place.path("mnt/crates"));
    std::fs::remove_file(place.path("mnt/ballast")).unwrap();
    let trimmed = output("fstrim", &["-v", &place.word("mnt")]);
    assert!(!trimmed.contains(": 0 B"), "{trimmed}");
    std::fs::write(place.path("mnt/ballast"), &ballast).unwrap();
    mounted.unmount();
    output("e2fsck", &["-fn", device.path()]);
    // Through a new loop device and a new server, whose cache is cold.
    drop(device);
    server.stop();
    let server = Server::start(&words);
    let device = Loop::over(&place, "vol");
    let mounted = Mounted::mount(device.path(), &place.path("mnt"));
    assert_eq!(tree_sum(&place.path("mnt/crates")), sum);
    assert!(std::fs::read(place.path("mnt/ballast")).unwrap() == ballast);
    mounted.unmount();
    drop(device);
    server.stop();
    // The origin is a file system by itself.
    output("e2fsck", &["-fn", &place.word("origin")]);
}

#[test]
fn a_stop_waits_for_users_and_then_goes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let more = ["--origin", "mem:1MiB", "--drain", "4s"];
    // Who goes in time is waited for.
    let mut server = Server::start(&fuse_words(&place, "vol", &more));
    let file = open(&place, "vol");
    server.signal(Signal::TERM);
    eventually("it waits", || server.log().contains("is in use"));
    file.write_all_at(&[1; 512], 0).unwrap();
    drop(file);
    let ended = server.wait(PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
    // A user of the file gets errors, and does not block the stop.
    let mut server = Server::start(&fuse_words(&place, "vol", &more));
    let (file, begin) = (open(&place, "vol"), Instant::now());
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
    let took = begin.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(8)).contains(&took), "{took:?}");
    file.read_at(&mut [0; 512], 0).unwrap_err();
    assert!(!place.path("vol").exists() && Mounted::count(&place.path("vol")) == 0);
    // After a second signal the stop waits for no user.
    let mut server = Server::start(&fuse_words(&place, "vol", &["--origin", "mem:1MiB"]));
    let (file, begin) = (open(&place, "vol"), Instant::now());
    server.signal(Signal::TERM);
    eventually("it waits", || server.log().contains("is in use"));
    server.signal(Signal::TERM);
    server.wait(PATIENCE);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(file.read_at(&mut [0; 512], 0).is_err() && !place.path("vol").exists());
}

/// The server is killed with a loop device mounted and requests in flight: nothing hangs, synced data is there, and a
/// new server starts at the same place.
#[test]
fn a_killed_server_gives_errors_and_a_new_one_takes_its_place() {
    if !can_loop() {
        return;
    }
    let place = Place::new();
    place.file("origin", 128 << 20);
    std::fs::create_dir(place.path("mnt")).unwrap();
    let origin = place.word("origin");
    let words = fuse_words(&place, "vol", &["--origin", &origin, "--workers", "2"]);
    for round in 0..3 {
        let server = Server::restart(&words);
        let device = Loop::over(&place, "vol");
        if round == 0 {
            output("mkfs.ext4", &["-q", device.path()]);
        }
        let mounted = Mounted::mount(device.path(), &place.path("mnt"));
        if round > 0 {
            assert_eq!(std::fs::read(place.path("mnt/synced")).unwrap(), [round; 10_000]);
        }
        let mut synced = File::create(place.path("mnt/synced")).unwrap();
        synced.write_all(&[round + 1; 10_000]).unwrap();
        synced.sync_all().unwrap();
        let busy = fuse::Busy::start(&place, device.path());
        std::thread::sleep(Duration::from_millis(300));
        let held = open(&place, "vol");
        server.kill();
        let ended = busy.finish();
        println!("the last request in flight ended {ended:?} after the kill");
        assert!(held.read_at(&mut [0; 512], 0).is_err() && held.sync_all().is_err());
        drop(synced);
        mounted.unmount();
        drop(device);
        // `held` stays open: the dead mount is in use and still makes room.
        let server = Server::restart(&words);
        assert_eq!(Mounted::count(&place.path("vol")), 1);
        assert!(open(&place, "vol").read_at(&mut [0; 512], 0).is_ok());
        assert!(held.read_at(&mut [0; 512], 0).is_err());
        server.stop();
        assert_eq!(Mounted::count(&place.path("vol")), 0);
    }
}

#[test]
fn paths_that_cannot_be_are_refused_in_one_line() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let refused = |path: &str, more: &[&str], code: i32, has: &str| {
        let more = [&["--origin", "mem:1MiB"], more].concat();
        let ended = Server::try_start(&fuse_words(&place, path, &more)).err().unwrap();
        let last = ended.err.lines().last().unwrap();
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(last.starts_with("larder: fuse:") && last.contains(has), "{has}: {ended:?}");
        assert!(!place.path("nbd").exists() && !place.path("control").exists());
    };
    std::fs::write(place.path("full"), "precious").unwrap();
    std::fs::create_dir_all(place.path("dir/inner")).unwrap();
    refused("nowhere/vol", &[], 2, "No such file");
    refused("full/vol", &[], 2, "Not a directory");
    refused("full", &[], 2, "is not empty");
    refused("dir", &[], 2, "is not empty");
    refused("dir/inner", &["--name", "a/b"], 2, "cannot be a file name");
    refused("../../dev/null", &[], 2, "neither a file nor a directory");
    let control = place.word("control2");
    let live = format!("fuse:{}", place.word("vol"));
    let more = ["--origin", "mem:1MiB", "--control", &control, "--listen", &live];
    let words = [&["serve"], &more[..]].concat().iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
    let server = Server::start(&words);
    refused("vol", &[], 4, "another server");
    assert_eq!(open(&place, "vol").metadata().unwrap().len(), 1 << 20);
    server.stop();
    assert_eq!(std::fs::read(place.path("full")).unwrap(), b"precious");
}

/// A request that takes the origin seconds is answered before a stop ends, and no door keeps the
/// others from being asked meanwhile.
#[test]
fn slow_requests_are_answered_by_a_stopping_server() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.file("disk", 1 << 30);
    let disk = format!("slow+{}?profile=hdd-7200", place.word("disk"));
    let mut server = Server::start(&fuse_words(&place, "vol", &["--origin", &disk]));
    let readers: Vec<_> = (0..16)
        .map(|n| {
            let file = open(&place, "vol");
            std::thread::spawn(move || {
                for i in 0..8 {
                    let at = ((n * 8 + i) * 7_919_111) % (1 << 30);
                    file.read_exact_at(&mut [0; 4096], at / 4096 * 4096).unwrap();
                }
            })
        })
        .collect();
    eventually("requests are there", || {
        place.status()["requests_open"].as_u64().unwrap_or_default() > 8
    });
    server.signal(Signal::TERM);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let ended = server.wait(PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// A user other than root mounts with fusermount3, or by the capability that a unit grants.
#[test]
fn a_user_mounts_with_the_helper() {
    if !can_mount() || !have("fusermount3", "fuse3") || !have("setpriv", "util-linux") {
        return;
    }
    for user in [&fuse::USER[..], &fuse::ADMIN_USER] {
        is_mounted_by(user);
    }
}

fn is_mounted_by(user: &[&str]) {
    let place = Place::new();
    let mut command = fuse::apart(&place, fuse::OPEN_DEVICE, user);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready at fuse:") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
    }
    let pid = child.id().into();
    let held = of_threads(pid, "CapPrm");
    assert!(held.iter().all(|held| held.trim_start_matches('0').is_empty()), "{held:?}");
    // Processes of its user cannot trace the helper: its files in /proc belong to root.
    let helper = std::path::PathBuf::from(format!("/proc/{}", only_child(pid)));
    let status = std::fs::read_to_string(helper.join("status")).unwrap();
    assert!(status.contains("Uid:\t65534"), "{status}");
    assert_eq!(helper.join("mem").metadata().unwrap().uid(), 0);
    let inside = format!("--target={}", child.id());
    let file = place.word("home/vol");
    let read = |user: &[&str]| {
        let mut command = std::process::Command::new("nsenter");
        command.args([&inside, "--mount"]).args(user).args(["cmp", "-n", "99", &file, "/dev/zero"]);
        run(&mut command)
    };
    read(&fuse::USER).ok();
    assert_ne!(read(&[]).code, 0, "root is not the owner");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    eventually("it has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!place.path("home/vol").exists());
}

/// A missing requirement is reported in one line.
#[test]
fn what_is_missing_is_named() {
    if !can_mount() || !have("setpriv", "util-linux") {
        return;
    }
    for (prepare, user, has) in [
        ("mount -t tmpfs none /dev", &[][..], "/dev/fuse is missing"),
        ("PATH=/nowhere", &fuse::USER[..], "fusermount3 is missing"),
    ] {
        let place = Place::new();
        let ended = run(&mut fuse::apart(&place, prepare, user));
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.lines().last().unwrap().contains(has), "{ended:?}");
        assert!(!place.path("home/vol").exists());
    }
}

/// A hole of the whole volume through FUSE while NBD clients are there too.
#[test]
fn holes_read_as_zeroes_through_every_door() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&fuse_words(&place, "vol", &["--origin", &place.word("origin")]));
    let file = open(&place, "vol");
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 1000, BYTES - 2000).unwrap();
    let (mut client, mut seen) = (place.client(), vec![0; BYTES as usize]);
    client.submit(Kind::Read, 0, BYTES, &[]).unwrap();
    seen.copy_from_slice(&client.wait().unwrap().result.unwrap());
    let (first, last) = (1000, BYTES as usize - 1000);
    assert!(seen[first..last].iter().all(|b| *b == 0));
    assert!(seen[..first] == initial(0, BYTES)[..first]);
    assert!(seen[last..] == initial(0, BYTES)[last..]);
    drop((file, client));
    server.stop();
}
