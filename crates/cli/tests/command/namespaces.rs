// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in a PID namespace of its own, as in a container, whose clients are outside.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::process::{Command, Stdio};

use larder_testkit::command::{make_initial, program};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;

const BYTES: u64 = 1 << 20;

#[test]
fn a_server_in_a_pid_namespace_serves_clients_outside_it() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("skipped: needs root and unshare, to make a PID namespace");
        return;
    }
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let log = File::create(place.path("log")).unwrap();
    let words = place.serve(&["--origin", &place.word("origin")]);
    let mut server = unshare().arg(program()).args(&words).stderr(log).spawn().unwrap();
    eventually("it is ready", || place.path("nbd").exists() && place.path("control").exists());
    let (all, status) = (place.read_all(BYTES), place.status());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(all == initial(0, BYTES));
    assert_eq!(status["origin_bytes"], BYTES);
}
