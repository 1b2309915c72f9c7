// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace` and `larder sim --hits` as a user meets them.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{larder_says, one_json};
use larder_testkit::place::Place;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/data/pg15_zipf_update.btr.zst");

#[test]
fn what_a_trace_is_like_survives_conversion() {
    let place = Place::new();
    let csv = place.word("t.csv.zst");
    let ended = larder_says(&["trace", "convert", TRACE, &csv]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let both = [TRACE, &csv].map(|trace| {
        let ended = larder_says(&["trace", "info", trace, "--json"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.err.contains("of memory"), "{}", ended.err);
        one_json(&ended.out)
    });
    assert_eq!(both[0], both[1]);
    let info = &both[0];
    assert_eq!((info["accesses"].as_u64(), info["unique"].as_u64()), (Some(476_972), Some(99_084)));
    assert_eq!(info["exact"], true);
    assert_eq!(info["lru"].as_array().unwrap().len(), 100);
    let text = larder_says(&["trace", "info", TRACE, "--dev", "1"]);
    assert!(text.out.contains("device 1") && !text.out.contains("device 0"), "{}", text.out);
    assert!(text.out.contains("11178 of 4 KiB"), "{}", text.out);
}

#[test]
fn replays_have_the_reference_miss_ratios() {
    for (policy, capacity, expected) in [
        ("lru", "10%", 0.464),
        ("fifo", "10%", 0.4968),
        ("belady", "10%", 0.3032),
        // 9908 pages and a part of one.
        ("lru", "40587264", 0.464),
        ("2q", "10%", 0.4265),
    ] {
        let words = ["sim", "--hits", "--trace", TRACE, "--replacement", policy, "--json"];
        let ended = larder_says(&[&words[..], &["--capacity", capacity]].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        let found = one_json(&ended.out);
        let ratio = found["miss_ratio"].as_f64().unwrap();
        assert!((ratio - expected).abs() < 0.000_06, "{policy} {capacity}: {ratio}");
        let counts = ["accesses", "unique"].map(|key| found[key].as_u64().unwrap());
        assert_eq!(counts, [476_972, 99_084]);
        assert!(found["accesses_per_second"].as_f64() > Some(0.0));
        assert!(found["wall_seconds"].as_f64() > Some(0.0));
        assert_eq!(ended.err.contains("belady keeps the trace"), policy == "belady");
    }
}

#[test]
fn what_is_wrong_is_one_line_that_says_what_and_where() {
    let place = Place::new();
    std::fs::write(place.path("bad.csv"), "offset,length\n0,4096\n512,x\n").unwrap();
    std::fs::write(place.path("empty.csv"), "offset,length\n").unwrap();
    std::fs::write(place.path("noise"), [1, 2, 3]).unwrap();
    std::fs::create_dir(place.path("d.csv")).unwrap();
    let far = format!("time,offset,length\n{},0,4096\n0,0,4096\n", u64::MAX);
    std::fs::write(place.path("far.csv"), far).unwrap();
    let words = |name: &str| place.word(name);
    let (bad, empty, noise, out) =
        (words("bad.csv"), words("empty.csv"), words("noise"), words("o"));
    let sim = |trace: &str, policy: &str, capacity: &str| {
        let words = ["sim", "--hits", "--trace", trace, "--replacement", policy];
        let words = [&words[..], &["--capacity", capacity]].concat();
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let trace = |words: &[&str]| -> Vec<String> {
        ["trace"].iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    for (words, why) in [
        (sim(&bad, "lru", "1%"), "bad.csv: line 3: length 'x'"),
        (sim(TRACE, "lru", "10"), "--capacity: got 10, accepted at least one unit, 4KiB"),
        (sim(TRACE, "lru", "0.001%"), "a capacity of 0 units"),
        (sim(TRACE, "lru", "101%"), "is no share"),
        (sim(TRACE, "mru", "1%"), "accepted gclock, lru"),
        (sim(&empty, "lru", "4KiB"), "has no requests"),
        (sim("/nowhere", "lru", "1%"), "/nowhere: cannot be opened"),
        (trace(&["info", &noise]), "--format btr, fio"),
        (trace(&["info", &empty]), "has no requests"),
        (trace(&["info", TRACE, "--columns", "x"]), "accepted: time=NAME:UNIT"),
        (trace(&["convert", &bad, &bad]), "is also the input"),
        (trace(&["convert", TRACE, &out]), "by its flag: btr"),
        (trace(&["convert", &bad, &words("o.btr")]), "line 3"),
        (trace(&["convert", TRACE, &words("d.csv")]), "exists and is not a regular file"),
    ] {
        let ended = larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ended.code, 2, "{words:?}: {}", ended.err);
        let last = ended.err.lines().last().unwrap();
        assert!(
            last.contains(why) && last.contains("accepted") || last.contains("cannot"),
            "{last}"
        );
        assert!(last.contains(why), "{words:?}: {last}");
        assert_eq!(ended.out, "");
    }
    // Times from one end of all to the other.
    larder_says(&["trace", "info", &words("far.csv")]).ok();
    assert!(!place.path("o.btr").exists() && !place.path("o.btr.part").exists());
}
