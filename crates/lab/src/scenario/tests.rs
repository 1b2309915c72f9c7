// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grids, and what a sweep keeps, takes up again and refuses.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Line, Scenario, Sweep, sweep, sweeps};

/// Four points that take no time.
const SMALL: &str = "kind = \"hierarchy\"\nseed = 1\nscale = \"1/4096\"\n\n[load]\nworking_set_gib = 20\n\n\
    [grid]\n\"cache.flash_gib\" = [0, 32.0625]\n\"load.write_share\" = [0.1, 0.30000000000000004]\n";

fn scenario() -> Scenario {
    Scenario::parse("small.toml", SMALL).unwrap()
}

fn into(scenario: &Scenario, file: &Path, jobs: usize) -> Result<Vec<Line>, String> {
    let how = Sweep { file: Some(file), jobs: Some(jobs), progress: false };
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
