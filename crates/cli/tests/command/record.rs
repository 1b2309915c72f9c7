// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace record`: what is recorded is what clients asked for, however the recording ends;
//! and a volume does not care who records it, or how they go.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use larder_core::request::Kind;
use larder_testkit::command::{Ended, larder, larder_says, one_json};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use larder_trace::{Op, Options, Record, Trace};
use rustix::process::{Pid, Signal, kill_process};

fn serve(place: &Place) -> Server {
    Server::start(&place.serve(&["--origin=mem:64MiB", "--flash=mem:16MiB", "--workers=3"]))
}

/// A recorder that has begun.
struct Recorder {
    child: Child,
    err: BufReader<ChildStderr>,
}

impl Recorder {
    fn start(place: &Place, file: &str, more: &[&str]) -> Self {
        let (control, file) = (place.word("control"), place.word(file));
        let words = ["trace", "record", "--json", "--control", &control, "--out", &file];
        let mut command = larder(words.iter().chain(more));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        assert_eq!(line, "larder: recording; Ctrl-C ends it\n");
        Self { child, err }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(mut self) -> Ended {
        let mut status = None;
        eventually("the recorder ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        Ended { code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()), out, err }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads and writes of three clients, one after the other, and what a trace has of them.
fn ask(place: &Place, count: u64) -> Vec<(Op, u64, u32)> {
    let mut clients = [place.client(), place.client(), place.client()];
    let mut asked = Vec::new();
    for n in 0..count {
        let client = &mut clients[n as usize % 3];
        // Some cross the border of a unit, and one is of megabytes.
        let (offset, len) = (n * 7919 % 8000 * 4096, if n == 5 { 2 << 20 } else { 512 << (n % 6) });
        if n % 4 == 0 {
            client.write_at(offset, &vec![7; len], n % 8 == 0).unwrap();
            asked.push((Op::Write, offset, len as u32));
        } else {
            client.read_at(offset, &mut vec![0; len]).unwrap();
            asked.push((Op::Read, offset, len as u32));
        }
        // What traces have no word for.
        if n % 50 == 0 {
            client.flush().unwrap();
            client.trim(32 << 20, 1 << 20).unwrap();
            client.zero(33 << 20, 4096, true).unwrap();
        }
    }
    asked
}

/// What a file has, and the times in order.
fn recorded(place: &Place, file: &str) -> Vec<(Op, u64, u32)> {
    let trace = Trace::new(&place.path(file), Options::default());
    let records: Vec<Record> = trace.records().unwrap().map(Result::unwrap).collect();
    assert!(records.is_sorted_by_key(|record| record.ts_us) && records.iter().all(|r| r.dev == 0));
    records.into_iter().map(|r| (r.op, r.offset_bytes, r.len_bytes)).collect()
}

#[test]
fn what_clients_asked_for_is_what_is_recorded() {
    let place = Place::new();
    let server = serve(&place);
    // What came before is not part of it.
    ask(&place, 20);
    let recorder = Recorder::start(&place, "t.btr.zst", &[]);
    let asked = ask(&place, 600);
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.ends_with("t.btr.zst: 600 requests\n"), "{ended:?}");
    let told = one_json(&ended.out);
    assert_eq!(
        (&told["requests"], &told["reads"], &told["writes"]),
        (&600.into(), &450.into(), &150.into())
    );
    assert!(told["lost"] == 0 && told["duration_seconds"].as_f64() > Some(0.0));
    assert_eq!(recorded(&place, "t.btr.zst"), asked);
    server.stop();
}

#[test]
fn a_recording_ends_at_its_limit_its_time_or_with_the_volume() {
    let place = Place::new();
    let server = serve(&place);
    let recorder = Recorder::start(&place, "limit.csv", &["--limit", "100"]);
    let asked = ask(&place, 150);
    assert_eq!(recorder.wait().code, 0);
    assert_eq!(recorded(&place, "limit.csv"), asked[..100]);

    // Without requests of clients the recording ends all the same.
    let recorder = Recorder::start(&place, "time.btr", &["--for", "300ms"]);
    let ended = recorder.wait();
    assert_eq!((ended.code, recorded(&place, "time.btr").len()), (0, 0), "{ended:?}");

    let recorder = Recorder::start(&place, "stop.btr", &[]);
    let asked = ask(&place, 150);
    server.stop();
    let ended = recorder.wait();
    assert!(ended.code == 0 && ended.err.contains("the volume has stopped"), "{ended:?}");
    assert_eq!(recorded(&place, "stop.btr"), asked);
}

#[test]
fn a_volume_goes_on_when_its_recorder_is_killed_and_can_be_recorded_again() {
    let place = Place::new();
    let mut server = serve(&place);
    let recorder = Recorder::start(&place, "a.btr", &[]);
    ask(&place, 100);
    recorder.signal(Signal::KILL);
    assert_eq!(recorder.wait().code, 128 + 9);
    assert!(!place.path("a.btr").exists());
    ask(&place, 100);
    assert!(server.is_alive());
    let control = place.word("control");
    let short = ["trace", "record", "--for", "10ms", "--control", &control, "--out"];
    eventually("the place of the dead recorder is free", || {
        larder_says(&[&short[..], &[&place.word("b.btr")]].concat()).code == 0
    });
    let recorder = Recorder::start(&place, "c.btr", &[]);
    let asked = ask(&place, 100);
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.wait().code, 0);
    assert_eq!(recorded(&place, "c.btr"), asked);
    assert!(!server.log().contains("panicked"), "{}", server.log());
    server.stop();
}

#[test]
fn a_second_recorder_is_refused_in_one_line_and_leaves_no_file() {
    let place = Place::new();
    let server = serve(&place);
    let recorder = Recorder::start(&place, "first.btr", &[]);
    let (control, file) = (place.word("control"), place.word("second.btr"));
    let words = ["trace", "record", "--control", &control, "--out", &file];
    let ended = larder_says(&words);
    assert_eq!((ended.code, ended.err.lines().count()), (4, 1), "{ended:?}");
    assert!(ended.err.contains("accepted: one recording at a time"), "{ended:?}");
    assert!(!place.path("second.btr").exists() && !place.path("second.btr.part").exists());
    let asked = ask(&place, 50);
    recorder.signal(Signal::INT);
    assert_eq!(recorder.wait().code, 0);
    assert_eq!(recorded(&place, "first.btr"), asked);

    server.stop();
    let ended = larder_says(&words);
    assert_eq!((ended.code, ended.err.lines().count()), (2, 1), "{ended:?}");
    let odd = larder_says(&["trace", "record", "--control", &control, "--out", &place.word("t")]);
    assert_eq!((odd.code, odd.err.lines().count()), (2, 1), "{odd:?}");
}

#[test]
fn when_the_server_is_killed_what_came_before_is_kept() {
    let place = Place::new();
    let server = serve(&place);
    let recorder = Recorder::start(&place, "t.btr", &[]);
    let asked = ask(&place, 100);
    // Time for what is in the rings to settle and to be sent.
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let ended = recorder.wait();
    assert!(ended.code == 3 && ended.err.contains("has the 100 requests"), "{ended:?}");
    assert_eq!(recorded(&place, "t.btr"), asked);
}

/// One signal ends a recording in good order, a second one does not wait for that.
#[test]
fn a_second_signal_ends_the_command_at_once_and_leaves_nothing() {
    let place = Place::new();
    let server = serve(&place);
    let recorder = Recorder::start(&place, "t.btr", &[]);
    ask(&place, 10);
    // So that it does not say how the recording ended.
    server.signal(Signal::STOP);
    recorder.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    assert!(place.path("t.btr.part").exists());
    recorder.signal(Signal::INT);
    assert_eq!(recorder.wait().code, 128 + 2);
    assert!(!place.path("t.btr").exists() && !place.path("t.btr.part").exists());
    server.signal(Signal::CONT);
    server.stop();
}

/// A recorder that does not read delays no client: requests that do not fit are counted.
#[test]
fn what_a_slow_recorder_loses_is_counted_and_said() {
    const COUNT: u64 = 120_000;
    const DEPTH: usize = 64;
    let place = Place::new();
    let server = serve(&place);
    let recorder = Recorder::start(&place, "t.btr", &[]);
    recorder.signal(Signal::STOP);
    let mut client = place.client();
    for n in 0..COUNT {
        if client.open() == DEPTH {
            client.wait().unwrap().result.unwrap();
        }
        client.submit(Kind::Read, n % 1024 * 512, 512, &[]).unwrap();
    }
    while client.open() > 0 {
        client.wait().unwrap().result.unwrap();
    }
    recorder.signal(Signal::CONT);
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    assert_eq!(ended.code, 1, "{ended:?}");
    let told = one_json(&ended.out);
    let (requests, lost) = (told["requests"].as_u64().unwrap(), told["lost"].as_u64().unwrap());
    assert!(lost > 0 && requests + lost == COUNT, "{told}");
    assert!(ended.err.lines().last().unwrap().contains(&format!("{lost} were lost")), "{ended:?}");
    assert_eq!(recorded(&place, "t.btr").len() as u64, requests);
    // The volume was never slower than its clients.
    assert!(place.stat("reads") >= COUNT);
    server.stop();
}
