// SPDX-License-Identifier: MIT OR Apache-2.0
//! PRWC: S. H. Baek and K.-W. Park, "A fully persistent and consistent read/write cache using
//! flash-based general SSDs for desktop workloads", Information Systems 2016.
//!
//! Its traces are not available; the load is a stand-in that meets what is printed of them
//! ([`crate::load::desktop`]), its visits as long as fits the paper's figures of SLRU and PROC, and its devices
//! are models of like ones. So most of what follows are gains of one system over another:
//! - **A gain** (54 % more) counts as reproduced from half of it to twice as much. The paper's own
//!   figures for the same two systems spread as far: 29 to 67 % over SLRU_n and 19 to 39 % over PROC,
//!   by the sizes of SSD and segment; its abstract and its conclusion differ by a third (48 and 37 %).
//! - **Similar** is closer than 19 %, the least that the paper calls one system better than another
//!   by (Figure 18, 128 KiB).
//! - What is said "on average" is the mean over the users of what each user has over ten days.
//! - An order is strict.
//!
//! Invariant: all scenarios of the load have the same visits.

mod arithmetic;
mod backup;
mod crash;
mod days;
mod recovery;
mod sizes;

use super::Group;

/// All of its rows.
pub const GROUPS: &[Group] = &[
    Group { ids: &["P1"], run: arithmetic::load },
    Group { ids: &["P2", "P3", "P4", "P5", "P6", "P7", "P8", "P12"], run: days::rows },
    Group { ids: &["P9", "P10"], run: sizes::flash },
    Group { ids: &["P11"], run: backup::rows },
    Group { ids: &["P13"], run: sizes::units },
    Group { ids: &["P14"], run: sizes::write_back },
    Group { ids: &["P15"], run: recovery::rows },
    Group { ids: &["P16"], run: arithmetic::collision },
    Group { ids: &["P17"], run: crash::rows },
    Group { ids: &["PT1"], run: arithmetic::table },
];

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::super::figures::tests::check;
    use super::super::page::is_a_sentence;
    use super::super::runs::{is_gain, range, rounded};
    use super::super::{Asked, Verdict};
    use super::days::is_similar;
    use super::*;
    use crate::load::desktop::FITTED_RUN;
    use crate::scenario::Scenario;
    use crate::scenario_file;

    const FILES: [(&str, &str); 8] = [
        scenario_file!("prwc-days"),
        scenario_file!("prwc-reset"),
        scenario_file!("prwc-uncached"),
        scenario_file!("prwc-sizes"),
        scenario_file!("prwc-backup"),
        scenario_file!("prwc-units"),
        scenario_file!("prwc-write-through"),
        scenario_file!("prwc-write-back"),
    ];

    #[test]
    fn the_files_are_lawful() {
        let counts = FILES.map(|(name, text)| {
            let scenario = Scenario::parse(name, text).unwrap();
            assert_eq!(scenario.get("scale").and_then(Value::as_str), Some("1/4"), "{name}");
            let visit = scenario.get("visit").and_then(Value::as_integer);
            assert_eq!(visit, Some(FITTED_RUN as i64), "{name}");
            scenario.points().unwrap().len()
        });
        assert_eq!(counts, [20, 5, 3, 9, 8, 12, 6, 2]);
    }

    /// At a scale at which the figures mean nothing: all points exist.
    #[test]
    fn groups_give_their_rows() {
        let asked = Asked { scale: Some("1/256".to_owned()), seed: 1, ..Asked::default() };
        let scaled = |group: &&Group| !["P1", "P15", "P17"].contains(&group.ids[0]);
        let mut all = Vec::new();
        for group in GROUPS.iter().filter(scaled) {
            let found = (group.run)(&asked).unwrap();
            let ids: Vec<&str> = found.iter().map(|row| row.id).collect();
            assert_eq!(ids, group.ids);
            for row in &found {
                let values = row.points.iter().filter_map(|point| point.ours);
                assert!(values.into_iter().all(f64::is_finite), "{row:?}");
                assert!(is_a_sentence(&row.why) && !row.scale.is_empty(), "{row:?}");
                assert_eq!(row.asked.is_empty(), row.verdict == Verdict::NotMeasured, "{row:?}");
            }
            all.extend(found);
        }
        check("prwc", &asked, &all, &["row P1.", "row P15."]);
    }

    #[test]
    fn gains_are_alike_from_half_to_twice() {
        assert!(is_gain(1.27, 1.54) && is_gain(2.08, 1.54) && !is_gain(1.26, 1.54));
        assert!(!is_gain(2.09, 1.54) && !is_gain(0.6, 1.54) && is_gain(0.7, 0.59));
        assert!(!is_gain(1.3, 0.59));
        assert!(is_similar(1.0) && is_similar(1.19) && is_similar(0.85) && !is_similar(0.83));
    }

    #[test]
    fn a_median_is_of_the_middle() {
        assert_eq!(rounded(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(rounded(&[1.0, 2.0]), 1.5);
        assert_eq!(range(&[3.0, 1.0, 2.0]), "1 to 3");
    }
}
