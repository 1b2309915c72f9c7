// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regret table as pictures and tables for a report: a heat map for each origin and ratio, and all numbers.

use larder_report::{Cell as Field, Column, Figure, Heat, Table, TableRow};

use super::{Cell, ORIGINS, PERCENTS, Regret};

/// A ratio of a cell.
type Ratio = fn(&Cell) -> Option<f64>;

/// A heat map for each origin: over the best other row, and over no cache.
#[must_use]
pub fn figures(regret: &Regret) -> Vec<Figure> {
    let kinds: [(&str, &str, Ratio); 2] = [
        (
            "Over the best other row",
            "Throughput over that of the best other row of the same contract. Columns: flash in per cent of the \
             footprint.",
            |cell| cell.ratio,
        ),
        (
            "Over no cache",
            "Throughput over that of the origin alone. Columns: flash in per cent of the footprint.",
            |cell| cell.over_no_cache_ratio,
        ),
    ];
    let origins = ORIGINS.iter().filter(|name| regret.cells.iter().any(|c| c.origin == **name));
    let figure = |origin: &str, (title, caption, ratio): (&str, &str, Ratio)| {
        Figure::heat(&format!("{title}: {origin}"), caption, heat(regret, origin, ratio))
    };
    let of = |origin| kinds.map(|kind| figure(origin, kind));
    origins.flat_map(|origin| of(origin)).collect()
}

/// The ratios of an origin, of the rows that have any.
fn heat(regret: &Regret, origin: &str, ratio: Ratio) -> Heat {
    let percents: Vec<u32> = PERCENTS
        .into_iter()
        .filter(|percent| regret.cells.iter().any(|cell| cell.flash_percent == Some(*percent)))
        .collect();
    let value = |row: &str, load: &str, percent: u32| {
        let is_it = |cell: &&Cell| {
            cell.row == row
                && cell.load == load
                && cell.origin == origin
                && cell.flash_percent.is_none_or(|own| own == percent)
        };
        regret.cells.iter().find(is_it).and_then(ratio)
    };
    let row = |name: &str| {
        let loads = regret.loads.iter().map(|load| load.name.as_str());
        let values = loads.flat_map(|load| percents.iter().map(move |p| (load, *p)));
        (name.to_owned(), values.map(|(load, percent)| value(name, load, percent)).collect())
    };
    let rows = regret.rows.iter().map(|found| row(&found.row));
    Heat {
        groups: regret.loads.iter().map(|load| load.name.clone()).collect(),
        columns: percents.iter().map(ToString::to_string).collect(),
        rows: rows
            .filter(|(_, values): &(_, Vec<Option<f64>>)| values.iter().any(Option::is_some))
            .collect(),
    }
}

/// The rows, and the cells of each load.
#[must_use]
pub fn tables(regret: &Regret) -> (Table, Vec<Table>) {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns = vec![
        words("row"),
        words("contract"),
        numbers("worst"),
        words("where"),
        numbers("median"),
        numbers("below 1"),
        numbers("over no cache: worst"),
        words("where"),
        numbers("median"),
    ];
    let place = |cell: usize| regret.cells.get(cell).map(Cell::place).unwrap_or_default();
    let row = |found: &super::RowFound| {
        let mut cells = vec![Field::text(&found.row), Field::text(found.contract.name())];
        let regret = found.regret.as_ref();
        cells.push(Field::number(regret.map(|one| one.worst_ratio)));
        cells.push(Field::text(&regret.map(|one| place(one.worst_cell)).unwrap_or_default()));
        cells.push(Field::number(regret.map(|one| one.median_ratio)));
        let below = regret.map(|one| format!("{} of {}", one.cells_below_one, one.cells));
        cells.push(Field::text(&below.unwrap_or_default()));
        let none = found.over_no_cache.as_ref();
        cells.push(Field::number(none.map(|one| one.worst_ratio)));
        cells.push(Field::text(&none.map(|one| place(one.worst_cell)).unwrap_or_default()));
        cells.push(Field::number(none.map(|one| one.median_ratio)));
        TableRow { cells, note: String::new() }
    };
    let rows = regret.rows.iter().map(row).collect();
    let all = Table { title: "Rows".to_owned(), columns, rows };
    (all, regret.loads.iter().map(|load| cells(regret, &load.name)).collect())
}

/// The cells of a load.
fn cells(regret: &Regret, load: &str) -> Table {
    const NUMBERS: [&str; 8] = [
        "flash %",
        "requests/s",
        "mean us",
        "p99 us",
        "flash MiB written",
        "warm-up s",
        "over best other",
        "over no cache",
    ];
    let titles =
        ["origin", "row"].map(Column::words).into_iter().chain(NUMBERS.map(Column::numbers));
    let row = |cell: &Cell| {
        let point = &cell.point;
        let numbers = [
            cell.flash_percent.map(f64::from),
            Some(point.requests_per_second),
            Some(point.request_us_mean),
            point.request_us_p99,
            cell.flash_percent.map(|_| point.run_flash_write_bytes as f64 / f64::from(1 << 20)),
            point.warm_up_seconds,
            cell.ratio,
            cell.over_no_cache_ratio,
        ];
        let words = [Field::text(cell.origin), Field::text(&cell.row)].into_iter();
        let cells = words.chain(numbers.map(Field::number)).collect();
        TableRow {
            cells,
            note: cell
                .best_other
                .as_ref()
                .map(|best| format!("best other: {best}"))
                .unwrap_or_default(),
        }
    };
    let rows = regret.cells.iter().filter(|cell| cell.load == load).map(row).collect();
    Table { title: format!("Cells: {load}"), columns: titles.collect(), rows }
}
