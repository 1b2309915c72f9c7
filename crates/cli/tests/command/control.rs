// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket against clients that send nonsense, send nothing, or never finish: each gets one answer or none,
//! and the server continues to serve the others.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use larder_testkit::command::PATIENCE;
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::Value;

fn serve(place: &Place) -> Server {
    Server::start(&place.serve(&["--origin", "mem:8MiB", "--flash", "mem:4MiB"]))
}

fn connect(place: &Place) -> UnixStream {
    let stream = UnixStream::connect(place.path("control")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes; the lines that come back until the server closes.
fn say(place: &Place, bytes: &[u8]) -> Vec<Value> {
    let mut stream = connect(place);
    // The server may close before it has read all of it.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8(answer).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn nonsense_gets_one_error_and_the_server_goes_on() {
    let place = Place::new();
    let mut server = serve(&place);
    let deep = [vec![b'['; 60_000], b"\n".to_vec()].concat();
    let huge = vec![b'x'; 4 << 20];
    let huge_line = [b"{\"command\":\"".to_vec(), huge.clone(), b"\"}\n".to_vec()].concat();
    let nonsense: [&[u8]; 16] = [
        b"\n",
        b"",
        b"\0\0\0\0\n",
        b"\xff\xfe garbage \x80\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"{\"command\":\"reboot\"}\n",
        b"{\"command\":\"flush\"}\n",
        b"{\"command\":\"flush\",\"bound_seconds\":-1}\n",
        b"{\"command\":\"attach\",\"flash\":7,\"format\":true}\n",
        b"{\"command\":\"status\",\"extra\":1}{\"command\":\"detach\"}\n",
        &deep,
        &huge,
        &huge_line,
    ];
    for bytes in nonsense {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        let answers = say(&place, bytes);
        // A client that still sends after the server has rejected it may lose its answer.
        if bytes.len() < 60_000 || !answers.is_empty() {
            assert_eq!(answers.len(), 1, "{shown}");
            assert_eq!(answers[0]["error"]["code"], 2, "{shown}: {}", answers[0]);
            let message = answers[0]["error"]["message"].as_str().unwrap();
            assert!(message.contains("accepted") || message.contains("UTF-8"), "{message}");
        }
        assert!(server.is_alive(), "{shown}: {}", server.log());
    }
    assert_eq!(place.status()["state"], "caching");
    assert!(!server.log().contains("panicked"), "{}", server.log());
    server.stop();
}

/// Times and sizes at the end of their range.
#[test]
fn extreme_numbers_are_lived_with() {
    let place = Place::new();
    let mut server = serve(&place);
    let requests = [
        format!("{{\"command\":\"flush\",\"bound_seconds\":{}}}\n", u64::MAX),
        "{\"command\":\"flush\",\"bound_seconds\":0}\n".to_owned(),
        "{\"command\":\"attach\",\"flash\":\"mem:4MiB\",\"flash_bytes\":0,\"format\":true}\n"
            .to_owned(),
        format!("{{\"command\":\"detach\",\"bound_seconds\":{}}}\n", u64::MAX),
        format!(
            "{{\"command\":\"attach\",\"flash\":\"mem:4MiB\",\"flash_bytes\":{},\"format\":true}}\n",
            u64::MAX
        ),
        "{\"command\":\"detach\",\"bound_seconds\":0}\n".to_owned(),
        "{\"command\":\"attach\",\"flash\":\"mem:16383PiB\",\"format\":true}\n".to_owned(),
    ];
    for request in &requests {
        let answers = say(&place, request.as_bytes());
        assert!(server.is_alive(), "{request}: {}", server.log());
        assert!(!answers.is_empty(), "{request}");
    }
    assert!(place.status()["state"].is_string());
    server.stop();
}

/// Half a line and silence, or a byte now and then: both have the same ten seconds in all. Until
/// then others are served.
#[test]
fn the_slow_are_cut_off_and_keep_nobody_waiting() {
    let place = Place::new();
    let server = serve(&place);
    let half = |bytes: &[u8]| {
        let mut stream = connect(&place);
        stream.write_all(bytes).unwrap();
        stream
    };
    // With `status` fewer than a user's places, so that only time disconnects them.
    let silent: Vec<UnixStream> = (0..4).map(|_| half(b"{\"command\":")).collect();
    let mut dripping: Vec<UnixStream> = (0..2).map(|_| half(b"{")).collect();
    let begin = Instant::now();
    let mut cut_off = None;
    while begin.elapsed() < Duration::from_secs(14) {
        assert_eq!(place.status()["state"], "caching");
        std::thread::sleep(Duration::from_millis(500));
        if dripping.iter_mut().any(|s| s.write_all(b" ").is_err()) {
            cut_off = cut_off.or(Some(begin.elapsed()));
        }
    }
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("a silent client is still connected");
        assert!(answer.is_empty() || answer.contains("\"code\":2"), "{answer}");
    }
    assert!(cut_off.is_some(), "a client that drips is still listened to after 14 s");
    server.stop();
}

/// More silent clients than the limit: a later client is not kept waiting for ever.
#[test]
fn a_crowd_of_the_silent_goes_away() {
    let place = Place::new();
    let mut server = serve(&place);
    let crowd: Vec<UnixStream> = (0..200).map(|_| connect(&place)).collect();
    let begin = Instant::now();
    while place.ask(&["status"]).code != 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the crowd keeps everybody out");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(server.is_alive());
    drop(crowd);
    server.stop();
}

/// Clients that leave in the middle of a long command leave nothing behind.
#[test]
fn clients_that_leave_early_are_forgotten() {
    let place = Place::new();
    let server = serve(&place);
    for _ in 0..100 {
        let mut stream = connect(&place);
        // A client above the limit is rejected, perhaps before it sent its request.
        let _ = stream.write_all(b"{\"command\":\"stats\"}\n");
        drop(stream);
    }
    // As long as the last of them are being forgotten, there may be no room.
    eventually("there is room", || place.ask(&["stats"]).code == 0);
    assert_eq!(place.stats()["state"], "caching");
    server.stop();
}
