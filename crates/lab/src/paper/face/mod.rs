// SPDX-License-Identifier: MIT OR Apache-2.0
//! FaCE: W.-H. Kang, S.-W. Lee, B. Moon, "Flash as cache extension for online transactional workloads",
//! VLDB Journal 2015.
//!
//! Its database is modelled ([`crate::database`]): TPC-C by the standard's own laws of access, a pool,
//! models of the drives in its Table 1, the engine's page log as FaCE, and the others beside it. One thing is
//! fitted, to what is printed of LC: the processor time of a transaction (`scenarios/face-lc-processors.toml`). Tolerances:
//! - **Points of a ratio** (hits, write reduction, stale pages) where the paper prints a table: within 5.
//!   Its own two tables of the same thing (4 and the introduction's 46 to 89 %) lie as far apart.
//! - **A factor of a table** (6, 7, 8) within a quarter, see the rows.
//! - **A gain** (40 % more) that is of a figure, from half of it to twice as much.
//! - **An order** is strict, on every seed, at every size that was run.
//! - What is said of a figure without numbers is asked for as an order, a rise or a crossover.

mod arithmetic;
mod hardware;
mod hits;
mod lab;
mod restart;
mod speed;
mod writes;

use anyhow::Result;

use super::{Asked, Group, Row};

/// All of its rows.
pub const GROUPS: &[Group] = &[
    Group { ids: &["FE1"], run: arithmetic::break_even },
    Group { ids: &["FM1"], run: arithmetic::segments },
    Group { ids: &["FT1"], run: arithmetic::drives },
    Group {
        ids: &[
            "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12", "F13",
            "F14", "F15", "F16", "F17", "F18", "F19", "F20", "F21",
        ],
        run: rows,
    },
];

type RowOf = fn(&Asked) -> Result<Row>;

const ROWS: [(&str, RowOf); 21] = [
    ("F1", hits::kinds),
    ("F2", hits::reduction),
    ("F3", hits::clean),
    ("F4", hits::stale),
    ("F5", hits::hits),
    ("F6", hits::reductions),
    ("F7", speed::utilisation),
    ("F8", speed::operations),
    ("F9", speed::throughput),
    ("F10", speed::alone),
    ("F11", speed::bcache),
    ("F12", writes::sizes),
    ("F13", speed::through),
    ("F14", writes::wear),
    ("F15", hardware::money),
    ("F16", hardware::disks),
    ("F17", restart::times),
    ("F18", restart::pages),
    ("F19", restart::slump),
    ("F20", restart::stop),
    ("F21", hits::ranges),
];

fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let wanted = ROWS.iter().filter(|(id, _)| asked.wants(id));
    wanted.map(|(_, row)| row(asked)).collect()
}

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::super::figures::tests::check;
    use super::super::page::is_a_sentence;
    use super::*;
    use crate::scenario::Scenario;
    use crate::scenario_file;

    const FILES: [(&str, &str); 15] = [
        scenario_file!("face-sizes"),
        scenario_file!("face-kinds"),
        scenario_file!("face-clean"),
        scenario_file!("face-databases"),
        scenario_file!("face-drives"),
        scenario_file!("face-alone"),
        scenario_file!("face-bcache"),
        scenario_file!("face-through"),
        scenario_file!("face-wear"),
        scenario_file!("face-memory"),
        scenario_file!("face-money"),
        scenario_file!("face-disks"),
        scenario_file!("face-restart"),
        scenario_file!("face-after"),
        scenario_file!("face-stop"),
    ];

    #[test]
    fn the_rows_are_those_of_their_group() {
        let group = GROUPS.last().unwrap();
        assert!(ROWS.iter().map(|(id, _)| id).eq(group.ids));
    }

    #[test]
    fn the_files_are_lawful() {
        let counts = FILES.map(|(name, text)| {
            let scenario = Scenario::parse(name, text).unwrap();
            assert_eq!(scenario.get("scale").and_then(Value::as_str), Some("1/32"), "{name}");
            let computing = scenario.get("transaction_us").and_then(Value::as_integer);
            assert_eq!(computing, Some(10_000), "{name}");
            scenario.points().unwrap().len()
        });
        assert_eq!(counts, [20, 20, 1, 10, 27, 2, 8, 10, 8, 6, 5, 15, 9, 2, 1]);
    }

    /// At a scale at which the figures mean nothing: all points exist.
    #[test]
    fn rows_find_their_points() {
        let scale = Some("1/512".to_owned());
        let asked = Asked { scale, seed: 1, ..Asked::default() };
        let found = rows(&asked).unwrap();
        assert!(found.iter().map(|row| row.id).eq(ROWS.iter().map(|(id, _)| *id)));
        for row in &found {
            let values = row.points.iter().filter_map(|point| point.ours);
            assert!(values.into_iter().all(f64::is_finite), "{row:?}");
            assert!(is_a_sentence(&row.why) && !row.asked.is_empty(), "{row:?}");
            assert!(!row.scale.is_empty(), "{row:?}");
        }
        check("face", &asked, &found, &[]);
    }
}
