// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole table, tiny.

#![allow(clippy::unwrap_used)]

use super::*;

const TINY: Size = Size { name: "tiny", data_mib: 16, most_requests: 3_000 };

fn asked(only: &[&str], points: Option<std::path::PathBuf>, jobs: usize) -> Asked {
    let only = only.iter().map(|word| (*word).to_owned()).collect();
    Asked { size: TINY, seed: 1, only, traces: None, points, jobs: Some(jobs) }
}

#[test]
fn every_row_has_its_cells_and_equal_seeds_give_equal_bytes() {
    let only = ["half-writes", "log", "huge", "cloud", "20%"];
    let found = run(&asked(&only, None, 1)).unwrap();
    let text = |found: &Regret| serde_json::to_string(found).unwrap();
    assert_eq!(text(&found), text(&run(&asked(&only, None, 2)).unwrap()));
    assert_eq!(found.cells.len(), 3 * rows::rows().len());
    for row in &found.rows {
        let competes = row.contract.competes();
        assert_eq!(row.regret.is_some(), competes, "{}", row.row);
        assert_eq!(row.over_no_cache.is_some(), row.contract != Contract::NoCache);
        let worst = row.regret.as_ref().map(|one| &found.cells[one.worst_cell]);
        assert!(worst.is_none_or(|cell| cell.row == row.row && cell.best_other.is_some()));
    }
    // All caches of a cell have the same flash.
    for load in &found.loads {
        let own = found.cells.iter().filter(|cell| cell.load == load.name);
        let sizes =
            own.filter(|cell| cell.flash_percent.is_some()).map(|cell| cell.point.flash_bytes);
        assert_eq!(sizes.collect::<std::collections::BTreeSet<_>>().len(), 1, "{}", load.name);
        assert!(load.footprint_bytes > 1 << 20, "{load:?}");
    }
    let (all, folded) = tables(&found);
    assert_eq!((all.rows.len(), folded.len()), (found.rows.len(), 3));
    assert_eq!(figures(&found).len(), 2);
}

#[test]
fn a_selection_continues_what_another_began() {
    let dir = tempfile::tempdir().unwrap();
    let points = || Some(dir.path().to_owned());
    let first = run(&asked(&["sce", "scan", "hdd-7200", "5%"], points(), 1)).unwrap();
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!((first.cells.len(), files()), (2, 2));
    let kept = dir.path().join("regret-tiny-seed1-scan-hdd-7200-sce-5.jsonl");
    let text = std::fs::read_to_string(&kept).unwrap();
    // What is kept is believed.
    let rate = first.cells[1].point.requests_per_second;
    let changed =
        text.replace(&format!("\"requests_per_second\":{rate}"), "\"requests_per_second\":1.5");
    assert_ne!(text, changed);
    std::fs::write(&kept, changed).unwrap();
    let only = ["sce", "proc", "scan", "hdd-7200", "5%", "100%"];
    let more = run(&asked(&only, points(), 2)).unwrap();
    assert_eq!((more.cells.len(), files()), (5, 5));
    let sce = more.cells.iter().find(|c| c.row == "sce" && c.flash_percent == Some(5)).unwrap();
    assert!((sce.point.requests_per_second - 1.5).abs() < 1e-9);
}
