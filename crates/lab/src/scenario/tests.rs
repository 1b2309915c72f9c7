// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grids, and what a sweep keeps, takes up again and refuses.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Line, Scenario, Shard, Sweep, merge, sweep, sweeps};

/// Four points that take no time.
const SMALL: &str = "kind = \"hierarchy\"\nseed = 1\nscale = \"1/4096\"\n\n[load]\nworking_set_gib = 20\n\n\
    [grid]\n\"cache.flash_gib\" = [0, 32.0625]\n\"load.write_share\" = [0.1, 0.30000000000000004]\n";

fn scenario() -> Scenario {
    Scenario::parse("small.toml", SMALL).unwrap()
}

fn into(scenario: &Scenario, file: &Path, jobs: usize) -> Result<Vec<Line>, String> {
    let how = Sweep { file: Some(file), jobs: Some(jobs), ..Sweep::default() };
    sweep(scenario, how).map_err(|error| format!("{error:#}"))
}

#[test]
fn points_are_all_combinations_the_last_path_fastest() {
    let points: Vec<String> =
        scenario().points().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(points[0], "cache.flash_gib 0, load.write_share 0.1");
    assert_eq!(points[1], "cache.flash_gib 0, load.write_share 0.30000000000000004");
    assert_eq!(points[2], "cache.flash_gib 32.0625, load.write_share 0.1");
    assert_eq!(points.len(), 4);
}

#[test]
fn a_path_has_a_name_between_two_dots() {
    for path in ["", ".seed", "load..write_share", "load."] {
        let error = scenario().set(path, 3.into()).unwrap_err().to_string();
        assert!(error.contains("is no path; accepted:"), "{error}");
    }
}

/// Wherever a sweep was interrupted, and with any number of threads, the file ends with the same bytes.
#[test]
fn an_interrupted_sweep_goes_on_to_the_same_bytes() {
    let dir = TempDir::new().unwrap();
    let (whole, cut) = (dir.path().join("whole.jsonl"), dir.path().join("cut.jsonl"));
    let lines = into(&scenario(), &whole, 2).unwrap();
    let bytes = fs::read(&whole).unwrap();
    for at in (0..bytes.len()).step_by(97).chain([bytes.len()]) {
        fs::write(&cut, &bytes[..at]).unwrap();
        assert_eq!(into(&scenario(), &cut, 1).unwrap(), lines, "cut at byte {at}");
        assert!(fs::read(&cut).unwrap() == bytes, "cut at byte {at}");
    }
}

/// Points of several sweeps on the same threads: lines and files as of each alone.
#[test]
fn sweeps_that_share_threads_give_what_each_gives_alone() {
    let dir = TempDir::new().unwrap();
    let mut other = scenario();
    other.set("seed", 7.into()).unwrap();
    let both = [scenario(), other];
    let file = |name: &str, n: usize| dir.path().join(format!("{name}{n}.jsonl"));
    let together = [file("together", 0), file("together", 1)];
    let parts: Vec<_> = both.iter().zip(&together).map(|(s, f)| (s, Some(f.as_path()))).collect();
    let lines = sweeps(&parts, Some(3), false).unwrap();
    assert_ne!(lines[0], lines[1]);
    for (n, scenario) in both.iter().enumerate() {
        assert_eq!(into(scenario, &file("alone", n), 1).unwrap(), lines[n]);
        assert!(fs::read(file("alone", n)).unwrap() == fs::read(&together[n]).unwrap());
    }
}

#[test]
fn a_grid_may_grow() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("grows.jsonl");
    let mut few = scenario();
    few.set("cache.flash_gib", 0.into()).unwrap();
    into(&few, &file, 1).unwrap();
    let all = into(&scenario(), &file, 1).unwrap();
    assert_eq!(all, sweep(&scenario(), Sweep::default()).unwrap());
}

#[test]
fn what_is_not_of_this_sweep_is_refused_and_stays() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("other");
    let mut other = scenario();
    other.set("seed", 7.into()).unwrap();
    into(&other, &file, 1).unwrap();
    let of_other = fs::read(&file).unwrap();
    for (content, said) in [
        (of_other.as_slice(), "line 1: is a point that small.toml does not have"),
        (b"my only notes", "line 1: is no line of a sweep"),
        (b"{\"point\":0}\n", "line 1: is no line of a sweep"),
        (b"\xff\xfe\n", "line 1: is no line of a sweep"),
    ] {
        fs::write(&file, content).unwrap();
        let error = into(&scenario(), &file, 1).unwrap_err();
        assert!(error.contains(said) && error.contains("accepted: a new file"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), content);
    }
    let error = into(&scenario(), dir.path(), 1).unwrap_err();
    assert!(error.contains("is no regular file; accepted:"), "{error}");
}

/// Runs shards; the result is that of the last.
fn shards(all: &[&str], scenario: &Scenario, file: &Path) -> Result<Vec<Line>, String> {
    let run = |shard: &&str| {
        let shard = Some(shard.parse::<Shard>()?);
        let how = Sweep { file: Some(file), jobs: Some(1), progress: false, shard };
        sweep(scenario, how).map_err(|error| format!("{error:#}"))
    };
    let mut results: Vec<_> = all.iter().map(run).collect();
    results.pop().unwrap()
}

#[test]
fn shards_merge_to_the_bytes_of_one_sweep() {
    let dir = TempDir::new().unwrap();
    // The first and the last point of the load are equal, and a shard of two has both.
    let mut scenario = scenario();
    scenario.vary("load.write_share", vec![0.1.into(), 0.5.into(), 0.1.into()]);
    let whole = dir.path().join("whole.jsonl");
    let lines = into(&scenario, &whole, 2).unwrap();
    assert_eq!(lines.len(), 6);
    for of in [1, 2, 4, 6, 9] {
        let file = dir.path().join(format!("{of}.jsonl"));
        for number in (1..=of).rev() {
            let own = shards(&[&format!("{number}/{of}")], &scenario, &file).unwrap();
            assert!(own.iter().all(|line| line.point % of + 1 == number));
        }
        assert!(!file.exists());
        for _ in 0..2 {
            assert_eq!(merge(&scenario, &file).unwrap(), lines);
            assert!(fs::read(&file).unwrap() == fs::read(&whole).unwrap(), "{of} shards");
        }
    }
}

#[test]
fn a_merge_names_parts_that_are_missing_and_writes_nothing() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("all.jsonl");
    let said = || merge(&scenario(), &file).map(drop).map_err(|e| format!("{e:#}")).unwrap_err();
    assert!(said().contains("all.jsonl: has no parts, as "), "{}", said());
    shards(&["1/4", "3/4", "4/4"], &scenario(), &file).unwrap();
    fs::write(dir.path().join("all.jsonl.3-of-4"), "{\"point\":2,").unwrap();
    let error = said();
    assert!(error.contains("of 4 parts, 2 incomplete: 2/4 (no file "), "{error}");
    assert!(error.contains("3/4 (1 of 1 points are missing); accepted: complete parts"), "{error}");
    shards(&["1/2"], &scenario(), &file).unwrap();
    assert!(said().contains("parts of 2 and of 4 shards; accepted: parts of one division"));
    fs::remove_file(dir.path().join("all.jsonl.1-of-2")).unwrap();
    shards(&["2/4", "3/4"], &scenario(), &file).unwrap();
    let mut other = scenario();
    other.set("seed", 7.into()).unwrap();
    fs::remove_file(dir.path().join("all.jsonl.2-of-4")).unwrap();
    shards(&["2/4"], &other, &file).unwrap();
    let error = said();
    let expected =
        "all.jsonl.2-of-4: line 1: is a point that shard 2/4 of small.toml does not have";
    assert!(error.contains(expected), "{error}");
    assert!(!file.exists());
    fs::write(&file, "notes").unwrap();
    fs::remove_file(dir.path().join("all.jsonl.2-of-4")).unwrap();
    shards(&["2/4"], &scenario(), &file).unwrap();
    assert!(said().contains("all.jsonl: line 1: is no line of a sweep"), "{}", said());
    assert_eq!(fs::read(&file).unwrap(), b"notes");
}

#[test]
fn shards_are_numbered_from_one() {
    for bad in
        ["0/4", "5/4", "x", "", "1/0", "1/", "/4", "1/4/4", "-1/4", "+1/4", " 1/4", "1/100001"]
    {
        let error = bad.parse::<Shard>().unwrap_err();
        assert!(error.contains(&format!("got '{bad}', accepted i/n, from 1/n to n/n")), "{error}");
    }
    assert_eq!("4/4".parse::<Shard>().unwrap().to_string(), "4/4");
}
