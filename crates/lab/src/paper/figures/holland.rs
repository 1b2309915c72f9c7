// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of Holland et al. ("Flash caching on the storage client", USENIX ATC 2013). The paper prints few values beside
//! its curves.

use super::super::holland::values::{
    ARCHITECTURE, ARCHITECTURES, FLASH, FLASH_FACTORS, POLICIES, RAM_SIZES, READ, SET, SETS, WRITE,
    WRITE_SHARES,
};
use super::entry::{
    Figure, Panel, Places, Series, X, Y, along, bars, columns, curves, figure, linear, log,
    logarithmic, names, numbers, percent, row_bars, series, stated, unit, without,
};

const RAM: &str = "cache.ram_mib";
const POLICY: &str = "cache.ram_policy";
const SHARE: &str = "load.write_share";
/// Sizes of RAM, as the paper's.
const RAM_NAMES: [&str; 7] = ["0", "256 KB", "1 MB", "4 MB", "16 MB", "64 MB", "8 GB"];

/// All of them.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        without(
            1,
            "latencies of a drive over time",
            &["H1"],
            "It is a measurement of drives of 2013 that are not named, and a model of a drive would show what was \
             put in.",
        ),
        policies(),
        effective(),
        working_sets(),
        read_ahead(),
        growing(),
        buffers(),
        small_set(),
        write_shares(),
        timings(),
        persistence(),
        by_share(),
        by_set(),
    ]
}

fn read_latency() -> Y {
    linear("read latency, us", 1.0)
}

fn sets() -> X {
    logarithmic("working set size, GB")
}

/// Percent of a share of writes.
fn write_percent() -> X {
    X { label: "write percentage", at: Places::Numbers { log: false, times: 100.0 } }
}

fn policies() -> Figure {
    let panel = |title: &str, architecture, pointer, y: Y| {
        let of = |flash| {
            let fixed = [(ARCHITECTURE, architecture), ("cache.flash_policy", flash)];
            let one = series(
                format!("flash {flash}"),
                along("holland-fig2", &fixed, (POLICY, &POLICIES), pointer),
            );
            // The text states the write latency of RAM every second with flash asynchronous.
            match (pointer, architecture, flash) {
                (WRITE, "unified", "async") => one.paper(&[(2.0, 18.71)]),
                (WRITE, _, "async") => one.printed("section 7.1, RAM's 0.4 us", &[(2.0, 0.4)]),
                _ => one,
            }
        };
        let all = POLICIES.into_iter().map(of).collect();
        curves(
            format!("{title}, {architecture}"),
            names("RAM's write-back policy", &POLICIES),
            y,
            all,
        )
    };
    let reads = |architecture| panel(": reads", architecture, READ, read_latency());
    let writes =
        |architecture| panel(": writes", architecture, WRITE, log("write latency, us", 1.0));
    let panels = ARCHITECTURES.into_iter().map(reads).chain(ARCHITECTURES.into_iter().map(writes));
    figure(
        2,
        "latencies by the write-back policies of RAM and flash, working set 80 GB",
        "The paper draws a surface over both policies; here each of flash's policies is a curve. In the paper they \
         are alike unless a write waits for the filer.",
        &["H2", "H3", "H5"],
        panels.collect(),
    )
}

fn effective() -> Figure {
    let of = |name: &str, architecture, flash, is_ram| {
        let fixed =
            [(ARCHITECTURE, architecture), (FLASH, flash), ("devices.flash_is_ram", is_ram)];
        let sets: &[&str] = &["20", "40", "60", "80", "160"];
        series(name, along("holland-fig3", &fixed, (SET, sets), READ))
    };
    figure(
        3,
        "read latency by the size of both caches together",
        "RAM-only pretends that flash is as fast as RAM. In the paper unified with 8 + 56 GB is then naive with 8 \
         + 64 GB.",
        &["H4", "H6"],
        vec![curves(
            "",
            sets(),
            read_latency(),
            vec![
                of("naive, 8 + 64", "naive", "64", "false"),
                of("unified, 8 + 64", "unified", "64", "false"),
                of("RAM-only naive, 8 + 64", "naive", "64", "true"),
                of("RAM-only unified, 8 + 56", "unified", "56", "true"),
                of("RAM-only unified, 8 + 64", "unified", "64", "true"),
            ],
        )],
    )
}

fn working_sets() -> Figure {
    let of = |name: &str, flash| {
        series(name, along("holland-fig4", &[(FLASH, flash)], (SET, &SETS), READ))
    };
    let hits = [
        ("RAM", "RAM"),
        ("no flash", "0 GB of flash"),
        ("32 GB", "32 GB of flash"),
        ("64 GB", "64 GB of flash"),
        ("128 GB", "128 GB of flash"),
    ];
    figure(
        4,
        "read latency by the size of the working set and of flash",
        "In the paper flash helps beyond its own size, and drops latency where the set fits. The text states hit \
         rates without the working set; 160 GB is where RAM's is the paper's.",
        &["H7", "H8"],
        vec![
            curves(
                "",
                sets(),
                read_latency(),
                vec![
                    of("no flash", "0"),
                    of("32 GB", "32"),
                    of("64 GB", "64"),
                    of("128 GB", "128"),
                ],
            ),
            bars(
                ", hit rates that the text states",
                unit("% of reads, working set 160 GB", 1.0),
                row_bars("H7", &hits),
            ),
        ],
    )
}

fn read_ahead() -> Figure {
    let of = |name: &str, flash, fast| {
        let fixed = [(FLASH, flash), ("devices.fast_read_share", fast)];
        series(name, along("holland-fig5", &fixed, (SET, &SETS), READ))
    };
    figure(
        5,
        "read latency by the share of reads that the filer has read ahead",
        "In the paper flash at 80 % is better than no flash at 95 % only where the set fits flash and not RAM.",
        &["H9"],
        vec![curves(
            "",
            sets(),
            read_latency(),
            vec![
                of("no flash, 80 %", "0", "0.8"),
                of("no flash, 95 %", "0", "0.95"),
                of("64 GB, 80 %", "64", "0.8"),
                of("64 GB, 95 %", "64", "0.95"),
            ],
        )],
    )
}

fn growing() -> Figure {
    let sizes: &[&str] = &["0", "8", "16", "32", "48", "64", "80", "96", "128"];
    let of =
        |name: &str, set| series(name, along("holland-7.4", &[(SET, set)], (FLASH, sizes), READ));
    figure(
        0,
        "read latency by the size of flash",
        "The paper leaves this graph out, as it shows nothing unexpected.",
        &["H10"],
        vec![curves(
            "",
            numbers("flash, GB"),
            read_latency(),
            vec![of("60 GB", "60"), of("80 GB", "80")],
        )],
    )
    .labelled("Section 7.4")
}

/// Curves of four loads, with or without RAM.
fn by_ram(title: &str, y: Y, pointer: &str, from: usize) -> Panel {
    let mut all: Vec<Series> = Vec::new();
    for (set, name) in [("3.75", "60 GB"), ("5", "80 GB")] {
        for (policy, short) in [("async", "a"), ("1s", "p1")] {
            let fixed = [(POLICY, policy), (SET, set)];
            let of = along("holland-fig6", &fixed, (RAM, &RAM_SIZES[from..]), pointer);
            all.push(series(format!("{name} ({short})"), of));
        }
    }
    curves(title, names("RAM", &RAM_NAMES[from..]), y, all)
}

fn buffers() -> Figure {
    figure(
        6,
        "latencies with little RAM",
        "(a) writes RAM through asynchronously, (p1) every second: in the paper 256 KB suffice for the first, 64 \
         MB for the second. 4 GB of flash stand for 64 GB, and 512 MB of RAM for 8 GB; smaller RAM is not \
         scaled.",
        &["H11"],
        vec![
            by_ram(": reads", read_latency(), READ, 0),
            by_ram(": writes", log("write latency, us", 1.0), WRITE, 0),
        ],
    )
}

fn small_set() -> Figure {
    let panel = |title: &str, y: Y, pointer: &'static str| {
        let of = |name: &str, flash| {
            series(name, along("holland-fig7", &[(FLASH, flash)], (RAM, &RAM_SIZES[1..]), pointer))
        };
        curves(title, names("RAM", &RAM_NAMES[1..]), y, vec![of("64 GB", "4"), of("no flash", "0")])
    };
    figure(
        7,
        "latencies with little RAM, working set 5 GB",
        "In the paper reads take 25 to 30 % longer with little RAM, and five times as long without flash. The set, \
         flash and 8 GB of RAM are a sixteenth here.",
        &["H12"],
        vec![
            panel(": reads", read_latency(), READ),
            panel(": writes", log("write latency, us", 1.0), WRITE),
            bars(
                ", what the text states of it",
                unit("times the read latency with 8 GB of RAM", 1.0),
                stated(
                    "section 7.5, the middle of 25 to 30 %, and a factor of five",
                    row_bars(
                        "H12",
                        &[
                            ("256 KB, 64 GB of flash", "with flash"),
                            ("256 KB, no flash", "without flash"),
                        ],
                    ),
                ),
            ),
        ],
    )
}

fn write_shares() -> Figure {
    let panel = |title: &str, shares: &[&'static str], pointer: &'static str, y: Y| {
        let of = |name: &str, set| {
            series(name, along("holland-fig8", &[(SET, set)], (SHARE, shares), pointer))
        };
        curves(title, write_percent(), y, vec![of("60 GB", "60"), of("80 GB", "80")])
    };
    figure(
        8,
        "latencies by the share of writes",
        "In the paper both are flat below 90 %, and its authors disclaim what lies above. Its caption has seconds, \
         ours microseconds.",
        &["H13"],
        vec![
            panel(": reads", &WRITE_SHARES[..8], READ, read_latency()),
            panel(": writes", &WRITE_SHARES[1..], WRITE, log("write latency, us", 1.0)),
        ],
    )
}

fn timings() -> Figure {
    let mut all: Vec<Series> = Vec::new();
    for architecture in ARCHITECTURES {
        for (set, name) in [("60", "60 GB"), ("80", "80 GB")] {
            let queues = ("devices.one_packet_at_a_time", "true");
            let fixed = [queues, (ARCHITECTURE, architecture), (SET, set)];
            let of = along("holland-fig9", &fixed, ("devices.flash_factor", &FLASH_FACTORS), READ);
            all.push(series(format!("{architecture}, {name}"), of));
        }
    }
    let x = X { label: "flash read latency, us", at: Places::Numbers { log: false, times: 88.0 } };
    figure(
        9,
        "read latency by the speed of flash",
        "Flash's write latency is in proportion. The leftmost point stands for phase-change memory.",
        &["H14"],
        vec![curves("", x, read_latency(), all)],
    )
}

fn persistence() -> Figure {
    let of = |name: &str, flash, persistent, warm| {
        let fixed = [(FLASH, flash), ("cache.persistent", persistent), ("cache.warm", warm)];
        series(name, along("holland-fig10", &fixed, (SET, &["60", "80"]), READ))
    };
    figure(
        10,
        "read latency with and without a persistent cache",
        "Persistent doubles the time of each write of flash, which does not show in the paper. Not warmed is a \
         crash at the beginning of the run without persistence.",
        &["H15"],
        vec![columns(
            "",
            names("working set size", &["60 GB", "80 GB"]),
            read_latency(),
            vec![
                of("warmed", "64", "false", "true"),
                of("warmed, persistent", "64", "true", "true"),
                of("not warmed", "64", "false", "false"),
                of("no flash", "0", "false", "true"),
            ],
        )],
    )
}

const INVALIDATING: &str = "/invalidating_write_ratio";
const INVALIDATIONS: &str = "blocks written that invalidate, %";

fn by_share() -> Figure {
    let panel = |title: &str, pointer: &'static str, y: Y| {
        let mut all: Vec<Series> = Vec::new();
        for (flash, with) in [("64", "64 GB"), ("0", "no flash")] {
            for (set, name) in [("60", "60 GB"), ("80", "80 GB")] {
                let shares: &[&str] = &["0.1", "0.3", "0.5", "0.7", "0.9"];
                let of =
                    along("holland-fig11", &[(FLASH, flash), (SET, set)], (SHARE, shares), pointer);
                all.push(series(format!("{name} set, {with}"), of));
            }
        }
        curves(title, write_percent(), y, all)
    };
    figure(
        11,
        "two hosts that share a working set: invalidations and read latency by the share of writes",
        "A write of one host invalidates the copy of the other.",
        &["H16"],
        vec![
            panel(": invalidations", INVALIDATING, percent(INVALIDATIONS)),
            panel(": reads", READ, read_latency()),
        ],
    )
}

fn by_set() -> Figure {
    let panel = |title: &str, pointer: &'static str, y: Y| {
        let of = |name: &str, flash| {
            series(name, along("holland-fig12", &[(FLASH, flash)], (SET, &SETS[..8]), pointer))
        };
        curves(title, sets(), y, vec![of("64 GB", "64"), of("no flash", "0")])
    };
    figure(
        12,
        "two hosts that share a working set: invalidations and read latency by its size",
        "30 % writes. In the paper invalidations fall off more slowly with flash than with RAM alone.",
        &["H16"],
        vec![
            panel(": invalidations", INVALIDATING, percent(INVALIDATIONS)),
            panel(": reads", READ, read_latency()),
        ],
    )
}
