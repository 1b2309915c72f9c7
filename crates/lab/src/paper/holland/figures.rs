// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paper's figures, redrawn. It prints no values beside its curves but those of the text.

use anyhow::Result;
use larder_report::{Axis, Curve, Figure};

use super::super::runs::{Runs, median};
use super::values::{
    self, ARCHITECTURE, ARCHITECTURES, FLASH, FLASH_FACTORS, POLICIES, RAM_SIZES, READ, SET, WRITE,
    WRITE_SHARES,
};

/// A curve through the medians over seeds, where one setting takes values.
fn curve(
    runs: &Runs,
    name: &str,
    fixed: &[(&str, &str)],
    (path, values): (&str, &[&str]),
    what: &str,
) -> Result<Curve> {
    let mut ours = Vec::new();
    for value in values {
        let mut set = fixed.to_vec();
        set.push((path, value));
        let y = median(&runs.at(&set, what)?);
        ours.push((value.parse().unwrap_or(0.0), y));
    }
    Ok(Curve { name: name.to_owned(), ours, paper: Vec::new() })
}

fn sets() -> Axis {
    Axis::log("working set, GB")
}

fn read_axis() -> Axis {
    Axis::linear("read latency, us")
}

/// Figure 2, as a curve for each of flash's policies.
pub(super) fn policies(runs: &Runs) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (what, words, label) in [(READ, "reads", "us"), (WRITE, "writes", "us (logarithmic)")] {
        for architecture in ARCHITECTURES {
            let mut curves = Vec::new();
            for flash in POLICIES {
                let mut ours = Vec::new();
                for (i, ram) in POLICIES.into_iter().enumerate() {
                    let set = [
                        (ARCHITECTURE, architecture),
                        ("cache.ram_policy", ram),
                        ("cache.flash_policy", flash),
                    ];
                    ours.push((i as f64 + 1.0, median(&runs.at(&set, what)?)));
                }
                curves.push(Curve { name: format!("flash {flash}"), ours, paper: Vec::new() });
            }
            let y = if what == READ { Axis::linear(label) } else { Axis::log(label) };
            let x =
                Axis::linear("RAM's policy: 1 sync, 2 async, 3 to 6 every 1, 5, 15, 30 s, 7 none");
            let title = format!("Holland, Figure 2: {words}, {architecture}");
            figures.push(Figure::curves(&title, "80 GB working set.", x, y, curves));
        }
    }
    Ok(figures)
}

/// Figure 3.
pub(super) fn effective(runs: &Runs) -> Result<Vec<Figure>> {
    let values = (SET, ["20", "40", "60", "80", "160"].as_slice());
    let mut curves = Vec::new();
    for (architecture, flash, is_ram, name) in [
        ("naive", "64", "false", "naive 8 + 64"),
        ("unified", "64", "false", "unified 8 + 64"),
        ("naive", "64", "true", "naive, all RAM"),
        ("unified", "56", "true", "unified 8 + 56, all RAM"),
        ("unified", "64", "true", "unified 8 + 64, all RAM"),
    ] {
        let fixed =
            [(ARCHITECTURE, architecture), (FLASH, flash), ("devices.flash_is_ram", is_ram)];
        curves.push(curve(runs, name, &fixed, values, READ)?);
    }
    let caption = "What counts is the size of both caches together.";
    Ok(vec![Figure::curves("Holland, Figure 3", caption, sets(), read_axis(), curves)])
}

/// Figure 4.
pub(super) fn working_sets(runs: &Runs) -> Result<Vec<Figure>> {
    let mut curves = Vec::new();
    for flash in ["0", "32", "64", "128"] {
        let name = if flash == "0" { "no flash".to_owned() } else { format!("{flash} GB") };
        curves.push(curve(runs, &name, &[(FLASH, flash)], (SET, &values::SETS), READ)?);
    }
    let caption = "8 GB of RAM, 30 % writes.";
    Ok(vec![Figure::curves("Holland, Figure 4", caption, sets(), read_axis(), curves)])
}

/// Figure 5.
pub(super) fn read_ahead(runs: &Runs) -> Result<Vec<Figure>> {
    let mut curves = Vec::new();
    for (flash, fast, name) in [
        ("0", "0.8", "no flash, 80 %"),
        ("0", "0.95", "no flash, 95 %"),
        ("64", "0.8", "64 GB, 80 %"),
        ("64", "0.95", "64 GB, 95 %"),
    ] {
        let fixed = [(FLASH, flash), ("devices.fast_read_share", fast)];
        curves.push(curve(runs, name, &fixed, (SET, &values::SETS), READ)?);
    }
    let caption = "The pocket lies between 64 GB at 80 % and no flash at 95 %.";
    Ok(vec![Figure::curves("Holland, Figure 5", caption, sets(), read_axis(), curves)])
}

/// Figure 6.
pub(super) fn buffers(runs: &Runs) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (what, words) in [(READ, "read"), (WRITE, "write")] {
        let mut curves = Vec::new();
        for (set, name) in [("3.75", "60 GB"), ("5", "80 GB")] {
            for policy in ["async", "1s"] {
                let fixed = [("cache.ram_policy", policy), (SET, set)];
                let name = format!("{name}, {policy}");
                let values = ("cache.ram_mib", &RAM_SIZES[1..]);
                curves.push(curve(runs, &name, &fixed, values, what)?);
            }
        }
        let y = format!("{words} latency, us");
        let y = if what == READ { Axis::linear(&y) } else { Axis::log(&y) };
        let x = Axis::log("RAM, MiB (512 stands for the paper's 8 GB)");
        let title = format!("Holland, Figure 6: {words}s");
        figures.push(Figure::curves(&title, "4 GiB of flash stand for 64 GB.", x, y, curves));
    }
    Ok(figures)
}

/// Figure 8.
pub(super) fn writes(runs: &Runs) -> Result<Vec<Figure>> {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for set in ["60", "80"] {
        let name = format!("{set} GB");
        let path = "load.write_share";
        reads.push(curve(runs, &name, &[(SET, set)], (path, &WRITE_SHARES[..8]), READ)?);
        writes.push(curve(runs, &name, &[(SET, set)], (path, &WRITE_SHARES[1..]), WRITE)?);
    }
    let x = || Axis::linear("share of writes");
    let y = Axis::log("write latency, us");
    Ok(vec![
        Figure::curves("Holland, Figure 8: reads", "64 GB of flash.", x(), read_axis(), reads),
        Figure::curves("Holland, Figure 8: writes", "64 GB of flash.", x(), y, writes),
    ])
}

/// Figure 9.
pub(super) fn timings(runs: &Runs) -> Result<Vec<Figure>> {
    let mut curves = Vec::new();
    for architecture in ARCHITECTURES {
        for set in ["60", "80"] {
            let queues = ("devices.one_packet_at_a_time", "true");
            let fixed = [queues, (ARCHITECTURE, architecture), (SET, set)];
            let name = format!("{architecture}, {set} GB");
            let values = ("devices.flash_factor", FLASH_FACTORS.as_slice());
            let mut one = curve(runs, &name, &fixed, values, READ)?;
            one.ours.iter_mut().for_each(|(x, _)| *x *= 88.0);
            curves.push(one);
        }
    }
    let x = Axis::linear("flash read latency, us (writes in proportion)");
    Ok(vec![Figure::curves("Holland, Figure 9", "", x, read_axis(), curves)])
}

/// Figure 10.
pub(super) fn persistence(runs: &Runs) -> Result<Vec<Figure>> {
    let mut bars = Vec::new();
    for set in ["60", "80"] {
        for (name, persistent, warm, flash) in [
            ("not kept, warm", "false", "true", "64"),
            ("kept, warm", "true", "true", "64"),
            ("cold", "false", "false", "64"),
            ("no flash", "false", "true", "0"),
        ] {
            let [persistent, warm] = [("cache.persistent", persistent), ("cache.warm", warm)];
            let read = runs.at(&[persistent, warm, (FLASH, flash), (SET, set)], READ)?;
            bars.push((format!("{set}: {name}"), median(&read)));
        }
    }
    let caption = "60 and 80 GB working sets.";
    Ok(vec![Figure::bars("Holland, Figure 10", caption, "read latency, us", bars)])
}

/// Figures 11 and 12.
pub(super) fn hosts(by_share: &Runs, by_set: &Runs) -> Result<Vec<Figure>> {
    const SHARES: [&str; 5] = ["0.1", "0.3", "0.5", "0.7", "0.9"];
    const SETS: [&str; 8] = ["5", "10", "20", "40", "60", "80", "160", "320"];
    let mut figures = Vec::new();
    for (what, label) in [
        ("/invalidating_write_ratio", "share of writes that invalidate"),
        (READ, "read latency, us"),
    ] {
        let (mut eleven, mut twelve) = (Vec::new(), Vec::new());
        for (flash, name) in [("64", "64 GB of flash"), ("0", "no flash")] {
            for set in ["60", "80"] {
                let fixed = [(FLASH, flash), (SET, set)];
                let name = format!("{set} GB, {name}");
                let values = ("load.write_share", SHARES.as_slice());
                eleven.push(curve(by_share, &name, &fixed, values, what)?);
            }
            twelve.push(curve(by_set, name, &[(FLASH, flash)], (SET, &SETS), what)?);
        }
        let y = || Axis::linear(label);
        let title = |n: u32| format!("Holland, Figure {n}: {label}");
        let x = Axis::linear("share of writes");
        figures.push(Figure::curves(&title(11), "Two hosts, one working set.", x, y(), eleven));
        let caption = "Two hosts, one working set, 30 % writes.";
        figures.push(Figure::curves(&title(12), caption, sets(), y(), twelve));
    }
    Ok(figures)
}
