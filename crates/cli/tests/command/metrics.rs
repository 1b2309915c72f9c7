// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics: the document holds what the code serves, figures agree with `stats`, and clients that
//! are slow, many or wrong do not block others.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_testkit::command::{PATIENCE, larder_says};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

fn serve(place: &Place) -> Server {
    let more = ["--origin", "mem:8MiB", "--flash", "mem:4MiB", "--name", "a \"b\""];
    let mut words = place.serve(&more);
    words.extend(["--metrics".to_owned(), "127.0.0.1:0".to_owned()]);
    Server::start(&words)
}

fn address(server: &Server) -> String {
    let log = server.log();
    let at = log.lines().find_map(|l| l.strip_prefix("larder: metrics at http://"));
    at.unwrap().strip_suffix("/metrics").unwrap().to_owned()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes; whatever comes back until the server closes.
fn say(address: &str, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn scrape(address: &str) -> String {
    let answer = say(
        address,
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n",
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body.to_owned()
}

/// A sample by the start of its line.
fn sample(body: &str, start: &str) -> f64 {
    let line = body.lines().find(|l| l.starts_with(start));
    line.unwrap_or_else(|| panic!("{start}: {body}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_document_and_the_code_are_one_list() {
    let place = Place::new();
    let server = serve(&place);
    let body = scrape(&address(&server));
    let mut served = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(served.insert(name, kind).is_none(), "{name} is served twice");
        }
    }
    let mut written = BTreeMap::new();
    for row in DOCUMENT.lines().filter(|l| l.starts_with("| `") && l.matches(" | ").count() == 4) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, stability, meaning] = cells[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        assert!(["stable", "may change"].contains(&stability), "{row}");
        assert!(!meaning.is_empty() && !unit.is_empty(), "{row}");
        for unit in ["bytes", "seconds"].iter().filter(|u| name.ends_with(&format!("_{u}"))) {
            assert!(row.contains(&format!("| {unit} |")), "{row}");
        }
        assert!(written.insert(name, kind).is_none(), "{name} is written twice");
    }
    assert_eq!(written, served, "docs/metrics.md and what is served");
    for line in body.lines().filter(|l| !l.starts_with('#')) {
        let labelled = line.contains("volume=\"a \\\"b\\\"\"");
        let is_of_none =
            ["larder_build_info{", "process_"].iter().any(|start| line.starts_with(start));
        assert!(labelled || is_of_none, "{line}");
    }
    server.stop();
}

#[test]
fn a_client_that_names_no_format_gets_the_older_text() {
    let place = Place::new();
    let server = serve(&place);
    let answer = say(&address(&server), b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"), "{body}");
    // Each sample comes behind the type of its own name.
    let mut names = std::collections::BTreeSet::new();
    for line in body.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            names.insert(name.to_owned());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(names.contains(name) || names.contains(part.unwrap_or("")), "{line}");
        }
    }
    assert!(names.contains("larder_reads_total") && names.contains("larder_build_info"));
    assert!(sample(body, "process_open_fds ") > 3.0, "{body}");
    server.stop();
}

#[test]
fn figures_are_those_of_stats() {
    let place = Place::new();
    let server = serve(&place);
    let mut client = place.client();
    for _ in 0..7 {
        client.write_at(0, &[1; 4096], false).unwrap();
    }
    client.read_at(4096, &mut [0; 8192]).unwrap();
    client.flush().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let body = scrape(&address(&server));
    for key in ["reads", "writes", "read_bytes", "write_bytes", "flash_write_bytes"] {
        let value = sample(&body, &format!("larder_{key}_total{{"));
        assert_eq!(value as u64, place.stat(key), "{key}");
    }
    assert_eq!(sample(&body, "larder_units{") as u64, place.stat("units_total"));
    assert_eq!(sample(&body, "larder_connections{") as u64, 1);
    let state = |s: &str| {
        let line = body.lines().find(|l| l.contains(&format!("state=\"{s}\""))).unwrap();
        line.ends_with(" 1")
    };
    assert!(state("caching") && !state("failed"));
    let request = |what: &str, kind: &str| {
        let of = |l: &&str| {
            l.starts_with(&format!("larder_request_seconds_{what}{{"))
                && l.contains(&format!("request=\"{kind}\""))
        };
        let last = body.lines().rfind(of).unwrap_or_else(|| panic!("{what} {kind}: {body}"));
        last.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!((request("count", "write"), request("count", "flush")), (7.0, 1.0));
    assert_eq!(request("count", "read_hit") + request("count", "read_miss"), 1.0);
    assert_eq!(request("bucket", "write"), 7.0, "the last bucket holds all");
    assert!(body.contains("le=\"+Inf\""), "{body}");
    assert!(request("sum", "write") > 0.0 && request("sum", "write") < 7.0);
    drop(client);
    server.stop();
}

#[test]
fn whoever_asks_wrongly_is_told() {
    let place = Place::new();
    let server = serve(&place);
    let at = address(&server);
    for (bytes, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"GET /metricsx HTTP/1.0\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", "405"),
        (b"\n\n", "405"),
        (b"GET /metrics?x=1 HTTP/1.1\n\n", "200"),
        (&[b'x'; 8 << 10], "431"),
    ] {
        let answer = say(&at, bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let head = say(&at, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    server.stop();
}

/// Silent ones, dripping ones, and a crowd: all are cut off, and then others are answered.
#[test]
fn hostile_clients_keep_nobody_out_for_long() {
    let place = Place::new();
    let mut server = serve(&place);
    let at = address(&server);
    let crowd: Vec<TcpStream> = (0..300).map(|_| connect(&at)).collect();
    let drip = {
        let mut stream = connect(&at);
        std::thread::spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < PATIENCE && stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            begin.elapsed()
        })
    };
    let begin = Instant::now();
    loop {
        let answer = say(&at, b"GET /metrics HTTP/1.1\r\n\r\n");
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "the crowd keeps everybody out");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(drip.join().unwrap() < Duration::from_secs(10), "one that drips is listened to");
    assert!(server.is_alive());
    drop(crowd);
    server.stop();
}

/// Clients that ask for nothing, and ones that do not read their answer, keep no other from one.
#[test]
fn slow_clients_keep_no_scrape_out() {
    let place = Place::new();
    let server = serve(&place);
    let at = address(&server);
    let slow = |n: usize| {
        let mut stream = connect(&at);
        if n.is_multiple_of(2) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        }
        stream
    };
    let mut crowd = Vec::new();
    for round in 0..20 {
        crowd.extend((0..16).map(slow));
        assert!(scrape(&at).contains("larder_up"), "round {round}");
    }
    drop(crowd);
    server.stop();
}

#[test]
fn metrics_that_other_machines_can_read_are_a_warning() {
    let place = Place::new();
    for (host, warns) in [("0.0.0.0", true), ("127.0.0.1", false)] {
        let mut words = place.serve(&["--origin", "mem:8MiB"]);
        words.extend(["--metrics".to_owned(), format!("{host}:0")]);
        let server = Server::start(&words);
        let warning = format!("everyone who can reach {host} can read the metrics");
        assert_eq!(server.log().contains(&warning), warns, "{}", server.log());
        server.stop();
    }
}

#[test]
fn an_address_that_cannot_be_is_refused_before_anything_is_written() {
    let place = Place::new();
    place.file("flash", 4 << 20);
    let flash = place.word("flash");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    for (metrics, code, has) in [
        ("9470", 2, "accepted HOST:PORT"),
        ("127.0.0.1:x", 2, "accepted HOST:PORT"),
        ("192.0.2.1:9470", 2, "cannot listen"),
        (&taken, 4, "another server listens there"),
    ] {
        let mut words = place.serve(&["--origin", "mem:8MiB", "--flash", &flash]);
        words.extend(["--metrics".to_owned(), metrics.to_owned()]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = larder_says(&words);
        assert_eq!((ended.code, ended.err.lines().count()), (code, 1), "{ended:?}");
        assert!(ended.err.contains(has), "{ended:?}");
    }
    drop(listener);
    assert!(std::fs::read(&flash).unwrap().iter().all(|b| *b == 0), "the flash was written to");
}
