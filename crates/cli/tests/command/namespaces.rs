// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server as the first process of a PID namespace, as in a container, whose clients are outside.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use larder_testkit::command::{make_initial, program};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use rustix::process::{Pid, Signal, kill_process};

const BYTES: u64 = 1 << 20;

/// A command that makes a PID namespace, unless the machine cannot.
fn unshare() -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("skipped: needs root and unshare, to make a PID namespace");
        return None;
    }
    Some(unshare())
}

/// The first process of the namespace that a command made.
fn first_of(unshare: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let first = || std::fs::read_to_string(&children).ok()?.trim().parse().ok();
    eventually("it forks", || first().is_some());
    Pid::from_raw(first().unwrap()).unwrap()
}

#[test]
fn a_server_in_a_pid_namespace_serves_clients_outside_it() {
    let Some(mut unshare) = unshare() else { return };
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let log = File::create(place.path("log")).unwrap();
    let words = place.serve(&["--origin", &place.word("origin")]);
    let mut server = unshare.arg(program()).args(&words).stderr(log).spawn().unwrap();
    eventually("it is ready", || place.path("nbd").exists() && place.path("control").exists());
    let (all, status) = (place.read_all(BYTES), place.status());
    kill_process(first_of(&server), Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(all == initial(0, BYTES));
    assert_eq!(status["origin_bytes"], BYTES);
}

#[test]
fn a_signal_ends_the_first_process_of_a_namespace_while_it_starts() {
    let Some(mut unshare) = unshare() else { return };
    let place = Place::new();
    // A server that accepts and never answers: the start waits for it.
    let silent = UnixListener::bind(place.path("silent")).unwrap();
    let origin = format!("nbd+unix:///?socket={}", place.word("silent"));
    let log = File::create(place.path("log")).unwrap();
    let words = place.serve(&["--origin", &origin]);
    let mut server = unshare.arg(program()).args(&words).stderr(log).spawn().unwrap();
    let _connection = silent.accept().unwrap();
    kill_process(first_of(&server), Signal::TERM).unwrap();
    let mut ended = None;
    eventually("it ends", || {
        ended = server.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(128 + Signal::TERM.as_raw()));
}
