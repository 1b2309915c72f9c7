// SPDX-License-Identifier: MIT OR Apache-2.0
//! The helper process, which mounts the files of a server that is restricted: what the server keeps, and what happens
//! when either of them is killed. Needs root and `/dev/fuse`.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use larder_front::fuse::descriptor::{receive, send};
use larder_testkit::command::{PATIENCE, larder};
use larder_testkit::fuse::{Mounted, can_mount, fuse_words, open, output};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::{Server, of_threads, only_child};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, getpgid, kill_process, test_kill_process};

/// The bit of CAP_SYS_ADMIN, and of CAP_SYS_PTRACE.
const ADMIN: u64 = 1 << 21 | 1 << 19;

fn pid_of(place: &Place) -> u64 {
    place.status()["pid"].as_u64().unwrap()
}

/// The helper of the server of a place.
fn helper_of(place: &Place) -> Pid {
    only_child(pid_of(place))
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

#[test]
fn a_server_with_a_file_is_restricted() {
    if !can_mount() {
        return;
    }
    let (place, elsewhere) = (Place::new(), Place::new());
    place.file("origin", 4 << 20);
    let other = elsewhere.file("flash", 4 << 20).to_str().unwrap().to_owned();
    let file = format!("fuse:{}", place.word("vol"));
    for unrestricted in [false, true] {
        let more = ["--listen", &file, "--unrestricted"];
        let more = if unrestricted { &more[..] } else { &more[..2] };
        let server = Server::start(&place.serve_cached(4, more));
        let (pid, helper) = (pid_of(&place), helper_of(&place));
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            let threads = of_threads(pid, set);
            let admin = |value: &String| u64::from_str_radix(value, 16).unwrap() & ADMIN != 0;
            assert!(threads.len() > 3);
            assert!(unrestricted || !threads.iter().any(admin), "{set}: {threads:?}");
        }
        for (key, expected) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
            let threads = of_threads(pid, key);
            let all = threads.iter().all(|value| value == expected);
            assert!(unrestricted || all, "{key}: {threads:?}");
        }
        open(&place, "vol").write_all_at(&[7; 512], 0).unwrap();
        place.ask(&["detach"]).ok();
        let attached = place.ask(&["attach", &other, "--format"]);
        assert_eq!(attached.code, if unrestricted { 0 } else { 2 }, "{attached:?}");
        server.stop();
        assert!(!place.path("vol").exists() && Mounted::count(&place.path("vol")) == 0);
        assert!(is_gone(helper), "the helper is left");
    }
}

#[test]
fn a_killed_server_leaves_no_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&fuse_words(&place, "vol", &["--origin", "mem:1MiB"]));
    let (helper, held) = (helper_of(&place), open(&place, "vol"));
    server.kill();
    assert!(held.read_at(&mut [0; 512], 0).is_err());
    eventually("it is unmounted", || Mounted::count(&place.path("vol")) == 0);
    eventually("the helper has ended", || is_gone(helper));
    assert!(!place.path("vol").exists(), "the file that was made is left behind");
}

#[test]
fn a_killed_helper_is_reported_and_the_file_stays() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let words = fuse_words(&place, "vol", &["--origin", "mem:1MiB"]);
    let mut server = Server::start(&words);
    kill_process(helper_of(&place), Signal::KILL).unwrap();
    eventually("it is reported", || server.log().contains("the helper process ended (signal: 9"));
    let file = open(&place, "vol");
    file.write_all_at(&[7; 512], 0).unwrap();
    drop(file);
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
    let path = place.word("vol");
    assert!(ended.err.contains(&format!("{path} stays mounted: the helper process")), "{ended:?}");
    assert_eq!(ended.err.matches("the helper process ended").count(), 1, "{ended:?}");
    assert_eq!(Mounted::count(&place.path("vol")), 1);
    // The next server takes its place.
    let server = Server::start(&words);
    assert_eq!(Mounted::count(&place.path("vol")), 1);
    open(&place, "vol").read_exact_at(&mut [0; 512], 0).unwrap();
    server.stop();
    assert_eq!(Mounted::count(&place.path("vol")), 0);
}

/// A terminal interrupts a group of processes, and systemd signals all processes of a unit.
/// The kernel may give both mounts the same device number.
#[test]
fn a_late_helper_leaves_the_file_of_the_next_server() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let words = fuse_words(&place, "vol", &["--origin", "mem:1MiB"]);
    let first = Server::start(&words);
    let late = helper_of(&place);
    kill_process(late, Signal::STOP).unwrap();
    first.kill();
    let next = Server::start(&words);
    kill_process(late, Signal::CONT).unwrap();
    eventually("the late helper has ended", || is_gone(late));
    open(&place, "vol").read_exact_at(&mut [0; 512], 0).unwrap();
    next.stop();
    assert_eq!(Mounted::count(&place.path("vol")), 0);
}

#[test]
fn a_stop_does_not_wait_long_for_a_helper_that_does_not_answer() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let words = fuse_words(&place, "vol", &["--origin", "mem:1MiB", "--drain", "1s"]);
    let mut server = Server::start(&words);
    let helper = helper_of(&place);
    kill_process(helper, Signal::STOP).unwrap();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(ended.err.contains("the helper process does not answer within 3 s"), "{ended:?}");
    kill_process(helper, Signal::CONT).unwrap();
    eventually("it unmounts the file when it continues", || is_gone(helper));
    assert_eq!(Mounted::count(&place.path("vol")), 0);
}

#[test]
fn signals_that_stop_a_server_do_not_end_its_helper() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&fuse_words(&place, "vol", &["--origin", "mem:1MiB"]));
    let helper = helper_of(&place);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        kill_process(helper, signal).unwrap();
    }
    assert_eq!(getpgid(Some(helper)).unwrap(), helper, "it is in a group of its own");
    open(&place, "vol").read_exact_at(&mut [0; 512], 0).unwrap();
    let ended = server.stop();
    assert!(!ended.err.contains("helper"), "{ended:?}");
    assert_eq!(Mounted::count(&place.path("vol")), 0);
}

/// A helper for one file, and the socket of its server.
fn start(place: &Place) -> (Child, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut command = larder(["helper", "--", &format!("fuse:{}", place.word("vol"))]);
    (command.stdin(its).stderr(Stdio::null()).spawn().unwrap(), ours)
}

fn ask(socket: &OwnedFd, request: &[u8]) -> (Vec<u8>, Option<OwnedFd>) {
    send(socket, request, None).unwrap();
    let mut bytes = [0; 4096];
    let (len, fd) = receive(socket, &mut bytes).unwrap();
    (bytes[..len].to_vec(), fd)
}

#[test]
fn a_request_that_is_not_known_ends_the_helper() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for wrong in [&b"mount 1"[..], b"mount /etc", b"unmount /", b"execute 0", &[0xff; 9000]] {
        let (mut helper, socket) = start(&place);
        let (reply, fd) = ask(&socket, b"mount 0");
        assert_eq!(reply, [b"file ", place.word("vol").as_bytes()].concat());
        assert!(fd.is_some() && Mounted::count(&place.path("vol")) == 1);
        assert!(ask(&socket, wrong).0.is_empty(), "{wrong:?}");
        assert_eq!(helper.wait().unwrap().code(), Some(3), "{wrong:?}");
        assert_eq!(Mounted::count(&place.path("vol")), 0, "{wrong:?}");
        assert!(!place.path("vol").exists());
    }
}

/// It unmounts only what it mounted.
#[test]
fn a_mount_of_another_process_stays() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("vol")).unwrap();
    let (mut helper, socket) = start(&place);
    let (_, fd) = ask(&socket, b"mount 0");
    assert!(fd.is_some());
    // Without a server nothing may touch the directory but an unmount.
    output("umount", &["--lazy", &place.word("vol")]);
    output("mount", &["-t", "tmpfs", "none", &place.word("vol")]);
    for request in [&b"unmount 0"[..], b"detach 0"] {
        assert_eq!(ask(&socket, request).0, b"done ");
    }
    drop(socket);
    assert!(helper.wait().unwrap().success());
    assert_eq!(Mounted::count(&place.path("vol")), 1);
    output("umount", &[&place.word("vol")]);
    // Started by hand it has no socket.
    let ended = larder(["helper"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert_eq!(open_missing(&place), ErrorKind::NotFound);
}

fn open_missing(place: &Place) -> ErrorKind {
    std::fs::File::open(place.path("vol/volume")).unwrap_err().kind()
}
