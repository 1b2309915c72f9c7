// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder and the miss-ratio curve of a served volume: `trace recent`, `status`, `advise`.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{Ended, larder_says, one_json};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use larder_trace::{Op, Options, Trace};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn serve(place: &Place, more: &[&str]) -> Server {
    let words = ["--origin=null:1GiB", "--flash=mem:64MiB", "--workers=3", "--name=db"];
    Server::start(&place.serve(&[&words[..], more].concat()))
}

/// Reads of three clients, few of whose places are much asked for, and some writes.
fn load(place: &Place, requests: u32) {
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let mut client = place.client();
            scope.spawn(move || {
                let (mut random, mut bytes) = (Pcg64::seed_from_u64(seed), vec![0; 32 << 10]);
                for n in 0..requests {
                    let place = (random.random::<f64>().powi(4) * 32_767.0) as u64;
                    // Spread over the volume.
                    let offset = place * 12_345 % 32_768 * (32 << 10);
                    match n % 8 {
                        0 => client.write_at(offset, &bytes[..4096], false).unwrap(),
                        _ => client.read_at(offset, &mut bytes).unwrap(),
                    }
                }
            });
        }
    });
}

/// A command for the server.
fn says(place: &Place, words: &[&str]) -> Ended {
    let control = place.word("control");
    larder_says(&[words, &["--control", &control]].concat())
}

fn asked(place: &Place, words: &[&str]) -> Value {
    one_json(&says(place, words).ok())
}

/// The curve, beside an LRU cache of each size to which the requests are given that the recorder kept.
#[test]
fn the_curve_is_within_two_points_of_a_replay() {
    let place = Place::new();
    let server = serve(&place, &["--recorder=16MiB"]);
    load(&place, 12_000);
    let trace = place.word("recent.btr");
    let found = asked(&place, &["trace", "recent", "--json", "--out", &trace]);
    assert_eq!(found["reads"]["requests"], 31_500);
    let status = place.status();
    let curve = &status["curve"];
    let points = curve["points"].as_array().unwrap();
    assert_eq!(curve["references"], 31_500 * 8 + 4_500);
    assert_eq!(points.len(), 7);
    let attached = status["units_total"].as_u64().unwrap() * status["unit_bytes"].as_u64().unwrap();
    assert_eq!(points[3]["flash_bytes"], attached);
    for point in points {
        let bytes = point["flash_bytes"].as_u64().unwrap() / 4096 * 4096;
        let capacity = bytes.to_string();
        let words =
            ["sim", "--hits", "--json", "--trace", &trace, "--replacement=lru", "--capacity"];
        let exact = one_json(&larder_says(&[&words[..], &[capacity.as_str()]].concat()).ok());
        let exact = 1.0 - exact["miss_ratio"].as_f64().unwrap();
        let live = point["hit_ratio"].as_f64().unwrap();
        assert!((live - exact).abs() < 0.02, "{bytes} bytes: {live}, exact {exact}");
    }
    let text = says(&place, &["status"]).ok();
    assert!(text.contains("<- attached") && text.contains("hit ratio of LRU by size"), "{text}");
    let advised = says(&place, &["advise"]).ok();
    assert!(
        advised.contains("volume 'db': hit ratio of LRU") && advised.contains("flash"),
        "{advised}"
    );
    assert_eq!(asked(&place, &["advise", "--json"])["curve"], *curve);
    server.stop();
}

#[test]
fn the_last_requests_are_shown_written_and_replayed() {
    let place = Place::new();
    let server = serve(&place, &[]);
    assert_eq!(says(&place, &["trace", "recent"]).ok(), "no requests\n");
    let none = says(&place, &["trace", "recent", "--alarm"]);
    assert!(none.code == 4 && none.err.contains("there was no alarm since"), "{none:?}");
    let empty = says(&place, &["advise", "--origin-profile=san-1g", "--flash-profile=ssd-s3500"]);
    assert!(empty.code == 2 && empty.err.contains("the recorder has no requests yet"), "{empty:?}");
    let mut client = place.client();
    client.write_at(8 * MIB, &[1; 4096], true).unwrap();
    client.read_at(8 * MIB, &mut [0; 8192]).unwrap();
    client.flush().unwrap();
    let trace = place.word("recent.btr");
    let found = asked(&place, &["trace", "recent", "--json", "--out", &trace]);
    assert_eq!((&found["alarm"], &found["slowest"][1]["ok"]), (&Value::Null, &true.into()));
    let began = found["began_unix_us"].as_u64().unwrap() / 1_000_000;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((began..began + 60).contains(&now), "{began} {now}");
    let mut records = Trace::new(trace.as_ref(), Options::default()).records().unwrap();
    let records: Vec<_> = records.next_batch().unwrap().unwrap().to_vec();
    let brief = records.iter().map(|r| (r.op, r.offset_bytes, r.len_bytes));
    assert!(brief.eq([(Op::Write, 8 * MIB, 4096), (Op::Read, 8 * MIB, 8192)]));
    assert_eq!(records[0].ts_us, 0);
    let text = says(&place, &["trace", "recent", "--last", "60s"]).ok();
    assert!(text.starts_with("2 requests in ") && text.contains("the slowest:"), "{text}");
    load(&place, 500);
    let report = place.word("advice.html");
    let words = [
        "advise",
        "--json",
        "--origin-profile=san-1g",
        "--flash-profile=ssd-s3500",
        "--report",
        &report,
    ];
    let advised = asked(&place, &words);
    assert_eq!(advised["replayed"]["requests"], 1502);
    assert!(advised["verdict"].as_str().unwrap().contains("few references yet"), "{advised}");
    assert!(std::fs::read_to_string(&report).unwrap().contains("What LRU misses"));
    server.stop();
}

#[test]
fn without_the_recorder_there_is_neither() {
    let place = Place::new();
    let server = serve(&place, &["--recorder=0"]);
    load(&place, 20);
    let refused = says(&place, &["trace", "recent"]);
    assert!(refused.code == 4 && refused.err.contains("--recorder is 0"), "{refused:?}");
    assert_eq!(place.status().get("curve"), None);
    let advised = says(&place, &["advise"]).ok();
    assert!(advised.contains("--recorder is 0"), "{advised}");
    server.stop();
}
