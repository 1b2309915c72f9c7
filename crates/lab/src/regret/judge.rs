// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of regret.
//!
//! - The **regret ratio** of a row in a cell is its throughput over that of the best *other* row of the same contract
//!   there. Below 1 a user who took this row would have done better with another; above 1 the row leads by so much.
//! - Its ratio **over no cache** is its throughput over that of the origin alone.
//! - A row has its **worst** and its **median** cell by each ratio. Of equal ones the first is the worst.
//!
//! Invariant: rows without a contract that competes ([`Contract::competes`]) have no regret and cause none.
//!
//! Why over the best *other* and not over the best: else the leader's ratio would be 1 everywhere, and by how much it
//! leads would not show.

use serde::Serialize;

use super::cells::{Place, Run};
use super::rows::{Contract, Row};

/// A run with its ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The best other row of the contract here, and the ratio over it.
    pub best: Option<(usize, f64)>,
    /// Over no cache; none of that row itself.
    pub over_no_cache: Option<f64>,
}

/// A cell of a row: the worst by a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The ratio.
    pub ratio: f64,
    /// The place of the run in the list.
    #[serde(skip)]
    pub run: usize,
}

/// A row over all its cells, by one ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The worst cell.
    pub worst: Worst,
    /// The median over the cells.
    pub median_ratio: f64,
    /// Cells below 1, of so many.
    pub below_one: usize,
    /// Cells.
    pub cells: usize,
}

fn rate(run: &Run) -> f64 {
    run.point.requests_per_second
}

/// The ratios of all runs, in their order.
#[must_use]
pub fn judge(rows: &[Row], runs: &[Run]) -> Vec<Judged> {
    let contract = |run: &Run| rows.get(run.row).map_or(Contract::NoCache, |row| row.contract);
    let one = |run: &Run| {
        let competes = |other: &&Run| {
            other.place == run.place
                && other.row != run.row
                && contract(run).competes()
                && contract(other) == contract(run)
        };
        let best = runs.iter().filter(competes).max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let alone = |other: &&Run| {
            let same = |place: Place| (place.load, place.origin);
            contract(other) == Contract::NoCache
                && other.row != run.row
                && same(other.place) == same(run.place)
        };
        let alone = runs.iter().find(alone);
        let over = |other: &Run| rate(run) / rate(other).max(f64::MIN_POSITIVE);
        Judged { best: best.map(|best| (best.row, over(best))), over_no_cache: alone.map(over) }
    };
    runs.iter().map(one).collect()
}

/// A row over its cells; none without a cell that has the ratio.
#[must_use]
pub fn verdict(ratios: impl Iterator<Item = (usize, f64)>) -> Option<Verdict> {
    let mut all: Vec<Worst> = ratios.map(|(run, ratio)| Worst { ratio, run }).collect();
    all.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let cells = all.len();
    let at = |place: usize| all.get(place).map(|one| one.ratio);
    Some(Verdict {
        worst: *all.first()?,
        median_ratio: f64::midpoint(at((cells - 1) / 2)?, at(cells / 2)?),
        below_one: all.iter().filter(|one| one.ratio < 1.0).count(),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replays::Point;

    fn row(name: &str, contract: Contract) -> Row {
        let (name, system) = (name.to_owned(), "sce");
        Row { name, system, durability: None, updates: false, contract }
    }

    fn run(row: usize, load: usize, percent: Option<usize>, rate: f64) -> Run {
        let point = serde_json::json!({ "requests_per_second": rate });
        let place = Place { load, origin: 0, percent };
        Run { row, place, point: Point::of("sce", &point) }
    }

    #[test]
    fn a_row_is_compared_with_the_best_other_one_of_its_contract() {
        use Contract::{AllFlash, Journal, NoCache, Volatile, WriteBack};
        let rows = [
            row("no-cache", NoCache),
            row("a", Journal),
            row("b", Journal),
            row("c", Journal),
            row("v", Volatile),
            row("w", WriteBack),
            row("all-flash", AllFlash),
        ];
        let at = Some(0);
        let runs = [
            run(0, 0, None, 10.0),
            run(1, 0, at, 40.0),
            run(2, 0, at, 50.0),
            run(3, 0, at, 20.0),
            // None of these is of their contract.
            run(4, 0, at, 80.0),
            run(5, 0, at, 90.0),
            run(6, 0, None, 100.0),
            // Another load, and a row that is alone there.
            run(0, 1, None, 5.0),
            run(1, 1, at, 4.0),
        ];
        let judged = judge(&rows, &runs);
        let best: Vec<_> = judged.iter().map(|one| one.best).collect();
        assert_eq!(best[1..4], [Some((2, 0.8)), Some((1, 1.25)), Some((2, 0.4))]);
        assert!([0, 4, 5, 6, 7, 8].iter().all(|i| best[*i].is_none()), "{best:?}");
        let over: Vec<_> = judged.iter().map(|one| one.over_no_cache).collect();
        assert_eq!(over[..3], [None, Some(4.0), Some(5.0)]);
        assert_eq!((over[6], over[8]), (Some(10.0), Some(0.8)));
    }

    #[test]
    fn worst_median_and_how_many_are_below_one() {
        let of = |ratios: &[f64]| verdict(ratios.iter().copied().enumerate());
        let found = of(&[1.5, 0.9, 1.0, 3.0]).unwrap();
        assert_eq!(found.worst, Worst { ratio: 0.9, run: 1 });
        assert_eq!((found.median_ratio, found.below_one, found.cells), (1.25, 1, 4));
        let found = of(&[0.5, 0.5, 2.0]).unwrap();
        assert_eq!((found.worst.run, found.median_ratio, found.below_one), (0, 0.5, 2));
        assert_eq!(of(&[]), None);
    }
}
