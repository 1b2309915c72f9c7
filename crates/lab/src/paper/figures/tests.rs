// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every figure of the papers is there once; entries name points that scenarios have; values are those of the claims.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use larder_report::{About, Picture, Section, html};

use super::super::claims::claim;
use super::super::page::is_a_sentence;
use super::super::{Asked, Row, report, run};
use super::entry::{Of, Series, Shows};
use super::tables;
use crate::scenario::Scenario;

/// The figures of each paper, counted in the papers.
const FIGURES: [(&str, u32); 4] = [("sce", 13), ("holland", 12), ("prwc", 20), ("face", 14)];

fn page(paper: &str, asked: &Asked, rows: &[Row]) -> String {
    let about = About { title: paper.into(), command: "c".into(), seeds: "1".into() };
    html(&about, &report(paper, asked, rows).unwrap())
}

#[test]
fn every_figure_of_every_paper_is_on_the_page_once_and_in_order() {
    let all = page("all", &Asked::default(), &[]);
    for ((paper, count), table) in FIGURES.into_iter().zip(tables()) {
        assert_eq!(paper, table.paper);
        let labels: Vec<String> = (1..=count).map(|number| format!("Figure {number}")).collect();
        let ours = table.figures.iter().map(|figure| figure.label.clone());
        let ours: Vec<String> = ours.filter(|label| label.starts_with("Figure ")).collect();
        assert_eq!(ours, labels, "{paper}");
        for figure in &table.figures {
            let anchor = format!("id=\"{}\"", figure.anchor(paper));
            assert_eq!(all.matches(&anchor).count(), 1, "{anchor}");
            assert!(all.contains(&format!("href=\"#{}\"", figure.anchor(paper))));
        }
    }
}

#[test]
fn a_page_without_runs_says_so_of_each_picture() {
    let parts = report("all", &Asked::default(), &[]).unwrap();
    let pictures = parts.iter().flat_map(|part| &part.figures);
    let words: Vec<&String> = pictures
        .map(|figure| match &figure.picture {
            Picture::Missing(words) => words,
            other => panic!("{}: {other:?}", figure.title),
        })
        .collect();
    let links = page("all", &Asked::default(), &[]);
    for id in ["S7", "H9", "P15", "F19"] {
        assert!(!links.contains(&format!("#{id}")), "{id} is not on the page");
    }
    assert!(words.len() > 60 && words.iter().all(|w| w.starts_with("Not run: ")), "{words:?}");
}

#[test]
fn a_figure_has_claims_that_exist_a_caption_or_a_reason() {
    for figure in tables().iter().flat_map(|table| &table.figures) {
        assert!(figure.claims.iter().all(|id| claim(id).is_ok()), "{}", figure.label);
        match &figure.shows {
            Shows::Nothing(why) => assert!(is_a_sentence(why), "{why}"),
            Shows::Panels(panels) => {
                assert!(!panels.is_empty() && !figure.claims.is_empty(), "{}", figure.title);
                assert!(figure.caption.ends_with('.'), "{}", figure.caption);
            }
        }
    }
}

fn all_series() -> Vec<(Vec<&'static str>, Series)> {
    let mut all = Vec::new();
    for figure in tables().into_iter().flat_map(|table| table.figures) {
        let Shows::Panels(panels) = figure.shows else { continue };
        let series = panels.into_iter().flat_map(|panel| panel.series);
        all.extend(series.map(|one| (figure.claims.clone(), one)));
    }
    all
}

/// Whether the scenario has a point at these settings: the first of them decides, as in a lookup.
fn has(scenario: &Scenario, settings: &[(&str, &str)]) -> bool {
    scenario.points().unwrap().iter().any(|point| {
        let at = point.at_json();
        let is = |(path, value): &(&str, &str)| {
            let found = at.get(*path).map(|found| match found {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            found.as_deref() == Some(*value)
        };
        settings.iter().all(is)
    })
}

#[test]
fn series_name_points_that_their_scenarios_have() {
    let mut checked = 0;
    for (_, one) in all_series() {
        let Some(file) = one.of.file() else { continue };
        let path = format!("{}/scenarios/{file}.toml", env!("CARGO_MANIFEST_DIR"));
        let scenario = Scenario::parse(file, &std::fs::read_to_string(path).unwrap()).unwrap();
        let (fixed, varied): (_, Vec<(&str, &str)>) = match &one.of {
            Of::Along { fixed, path, values, .. } => {
                (fixed.clone(), values.iter().map(|value| (*path, *value)).collect())
            }
            Of::Days { fixed, mean: Some((path, values)), .. } => {
                (fixed.clone(), values.iter().map(|value| (*path, *value)).collect())
            }
            Of::Days { fixed, .. } | Of::Level { fixed, .. } | Of::List { fixed, .. } => {
                (fixed.clone(), Vec::new())
            }
            Of::Row { .. } => unreachable!(),
        };
        assert!(has(&scenario, &fixed), "{file}: {fixed:?}");
        for more in varied {
            let mut set = fixed.clone();
            set.push(more);
            assert!(has(&scenario, &set), "{file}: {set:?}");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked}");
}

/// The numbers in the words of a claim.
fn numbers(id: &str) -> Vec<f64> {
    let claim = claim(id).unwrap();
    let text = format!("{} {}", claim.statement, claim.number).replace(',', "");
    let split = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    split.filter_map(|word| word.trim_end_matches('.').parse().ok()).collect()
}

#[test]
fn values_that_claims_state_are_those_of_the_claims() {
    let mut compared = 0;
    for (claims, one) in all_series().into_iter().filter(|(_, one)| one.printed.is_none()) {
        let stated: Vec<f64> = claims.iter().flat_map(|id| numbers(id)).collect();
        for (_, value) in &one.paper {
            assert!(stated.contains(value), "{}: {value} of {claims:?}: {stated:?}", one.name);
            compared += 1;
        }
    }
    assert!(compared > 5, "{compared}");
}

/// Checks the pictures of a paper whose rows were run: only those that need these rows are absent, and the values that rows
/// bring are those of their claims, or come with a place.
pub(in super::super) fn check(paper: &str, asked: &Asked, rows: &[Row], absent: &[&str]) {
    let parts = report(paper, asked, rows).unwrap();
    for figure in parts.iter().flat_map(|part: &Section| &part.figures) {
        if let Picture::Missing(words) = &figure.picture {
            assert!(absent.iter().any(|id| words.contains(id)), "{}: {words}", figure.title);
        }
    }
    let mut compared = BTreeSet::new();
    for (_, one) in all_series().into_iter().filter(|(_, one)| one.printed.is_none()) {
        let Of::Row { id, at } = one.of else { continue };
        let Some(row) = rows.iter().find(|row| row.id == id) else { continue };
        for value in row.points.iter().filter(|p| at.contains(&p.at)).filter_map(|p| p.paper) {
            assert!(numbers(id).contains(&value), "{id}: {value}: {:?}", numbers(id));
            compared.insert(id);
        }
    }
    assert!(!compared.is_empty());
    assert_eq!(page(paper, asked, rows), page(paper, asked, rows));
}

/// The points of two runs, and not one of them drawn twice.
#[test]
fn equal_seeds_give_equal_bytes() {
    let once = || {
        let only = ["S3", "SM4", "H15"].map(str::to_owned).to_vec();
        let asked = Asked { scale: Some("1/1024".into()), seed: 1, only, ..Asked::default() };
        let rows = run("all", &asked).unwrap();
        page("all", &asked, &rows)
    };
    let page = once();
    assert_eq!(page, once());
    assert_eq!(page.matches(">Not run: ").count(), page.matches("class=\"missing\"").count());
    assert!(page.contains("<title>bcache, SSD read, the paper: 80</title>"));
}

/// At a scale at which the figures mean nothing: all points that entries name have the numbers that they name.
#[test]
fn hierarchies_have_what_entries_name() {
    let only = ["H2", "H4", "H7", "H9", "H10", "H13", "H14", "H15", "H16"].map(str::to_owned);
    let asked =
        Asked { scale: Some("1/16384".into()), seed: 1, only: only.to_vec(), ..Asked::default() };
    let rows = run("holland", &asked).unwrap();
    check("holland", &asked, &rows, &["H12", "holland-fig6", "holland-fig7"]);
}
