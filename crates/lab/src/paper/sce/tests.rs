// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every claim is there once, with a reason; sums and Figure 1 come out.

#![allow(clippy::unwrap_used)]

use std::fs;

use super::super::figures::tests::check;
use super::super::page::is_a_sentence;
use super::super::{Asked, Made, Verdict, run};
use super::{GROUPS, memory};
use crate::scenario::Scenario;

fn asked(only: &[&str]) -> Asked {
    let only = only.iter().map(|id| (*id).to_owned()).collect();
    Asked { scale: Some("1/1024".to_owned()), seed: 1, only, ..Asked::default() }
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// At a scale at which figures mean little: all groups return the rows that they
/// promise, with reasons, and only finite numbers.
#[test]
fn every_group_gives_its_rows_and_says_why() {
    let asked = asked(&[]);
    let found = run("sce", &asked).unwrap();
    let all = || found.iter();
    let rows = all().map(|row| row.id.to_owned()).collect();
    let groups = GROUPS.iter().flat_map(|group| group.ids).map(|id| (*id).to_owned());
    assert_eq!(sorted(rows), sorted(groups.collect()));
    for row in all() {
        assert!(
            is_a_sentence(&row.why) && !row.claim.is_empty() && !row.paper.is_null(),
            "{row:?}"
        );
        let asks = [Verdict::Holds, Verdict::Differs].contains(&row.verdict);
        assert_eq!((asks, asks), (!row.ours.is_null(), !row.asked.is_empty()), "{}", row.id);
        assert!(row.points.iter().all(|p| p.ours.is_some_and(f64::is_finite)), "{row:?}");
    }
    let exact = all().find(|row| row.id == "S3").unwrap();
    assert_eq!(exact.verdict, Verdict::Differs, "{exact:?}");
    check("sce", &asked, &found, &[]);
}

/// Rows and files as in one go, though the last line of one file was torn and another file is missing.
#[test]
fn what_was_interrupted_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut asked = asked(&["S3"]);
    asked.points = Some(dir.path().join("points"));
    // Each time as a command of its own, which has made no runs yet.
    let rows = |asked: &Asked| {
        let asked = Asked { made: Made::default(), ..asked.clone() };
        format!("{:?}", run("sce", &asked).unwrap())
    };
    let file = |seed| dir.path().join(format!("points/sce-figure-1-1of1024-seed{seed}.jsonl"));
    let whole = rows(&asked);
    let text = fs::read_to_string(file(1)).unwrap();
    fs::write(file(1), &text[..text.len() - 20]).unwrap();
    fs::remove_file(file(2)).unwrap();
    assert_eq!(rows(&asked), whole);
    assert_eq!(fs::read_to_string(file(1)).unwrap(), text);
    // What is there is taken, not run again.
    fs::write(file(1), text.replace("\"result\":{", "\"result\":{\"told\":1,")).unwrap();
    assert_eq!(rows(&asked), whole);
    assert!(fs::read_to_string(file(1)).unwrap().contains("told"));
}

#[test]
fn the_papers_sums_come_out() {
    let found = memory::rows(&asked(&[])).unwrap();
    for row in &found {
        assert_eq!(row.verdict, Verdict::Holds, "{row:?}");
    }
    let ours: Vec<_> = found.iter().map(|row| row.ours_text()).collect();
    assert_eq!(ours, ["152", "1552", "22528", "66.9; 22.4", "95.5"]);
}

#[test]
fn scenario_files_can_be_run() {
    let files = [
        crate::scenario_file!("sce-figure-1"),
        crate::scenario_file!("sce-large"),
        crate::scenario_file!("sce-small"),
        crate::scenario_file!("sce-fragments"),
        crate::scenario_file!("sce-write-around"),
        crate::scenario_file!("sce-back-flashcache"),
        crate::scenario_file!("sce-back-bcache"),
        crate::scenario_file!("sce-back-enhanceio"),
        crate::scenario_file!("sce-large-whole"),
        crate::scenario_file!("sce-small-whole"),
    ];
    for ((name, text), points) in files.into_iter().zip([4, 6, 6, 3, 1, 1, 1, 1, 6, 6]) {
        assert_eq!(Scenario::parse(name, text).unwrap().points().unwrap().len(), points, "{name}");
    }
}
