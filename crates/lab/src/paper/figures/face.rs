// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of FaCE ("Flash as cache extension for online transactional workloads", VLDB Journal 2015), and the tables
//! that show a course. Its figures have no printed values, its tables have.

use super::entry::{
    Figure, Panel, Series, Setting, X, Y, along, bars, columns, curves, figure, level, linear,
    list, names, numbers, percent, row, row_bars, series, steps, unit, without,
};

const SYSTEM: &str = "system";
const FLASH: &str = "flash_gib";
const DRIVE: &str = "flash";
const TPMC: &str = "/tpmc";
const HITS: &str = "/flash_hit_ratio";
const REDUCTION: &str = "/write_reduction";
const BUSY: &str = "/flash/utilisation";
const PAGES: &str = "/flash/pages_per_second";
const SIZES: (&str, &[&str]) = (FLASH, &["4", "8", "12", "16", "20"]);
const SIZE_NAMES: [&str; 5] = ["4 GB", "8 GB", "12 GB", "16 GB", "20 GB"];
/// Sizes of drives other than the 840 Pro.
const SOME: (&str, &[&str]) = (FLASH, &["4", "12", "20"]);
const TWO: (&str, &[&str]) = (FLASH, &["10", "20"]);
/// The systems as the paper and as the scenarios name them.
const GSC: (&str, &str) = ("FaCE-GSC", "face");
const BASIC: (&str, &str) = ("FaCE-Basic", "face-basic");
const LC: (&str, &str) = ("LC", "lc");
const BCACHE: [(&str, &str); 3] =
    [("FaCE", "face"), ("Bcache (LRU)", "bcache-lru"), ("Bcache (FIFO)", "bcache-fifo")];

/// All of them.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        without(1, "the components and their interactions", &[], DIAGRAM),
        without(2, "multi-version FIFO replacement", &[], DIAGRAM),
        without(3, "checkpoints of the metadata", &["FM1"], DIAGRAM),
        without(4, "the data structures in memory", &[], DIAGRAM),
        kinds(),
        reduction_table(),
        stale_table(),
        hits(),
        utilisation(),
        drives(),
        bcache(),
        writes_table(),
        bcache_drive(),
        through(),
        wear_table(),
        money(),
        disks(),
        restart_table(),
        slump(),
    ]
}

const DIAGRAM: &str = "It is a drawing of a mechanism, without values.";

fn flash_size() -> X {
    numbers("flash cache size, GB")
}

fn tpmc() -> Y {
    linear("tpmC", 1.0)
}

/// A system of the runs by size, on the 840 Pro.
fn sized((name, system): (&str, &'static str), pointer: &str) -> Series {
    series(name, along("face-sizes", &[(SYSTEM, system)], SIZES, pointer))
}

/// Points of a row at each size.
fn at_sizes(name: &str, id: &'static str, before: &str) -> Series {
    series(name, row(id, SIZES.1.iter().map(|gb| format!("{before}, {gb} GB"))))
}

fn kinds() -> Figure {
    let panel = |title: &str, pointer: &'static str, y: Y| {
        let mut all = Vec::new();
        for (name, system) in [("FaCE", "face-basic"), ("LC", "lc")] {
            all.push(sized((&format!("{name}-M"), system), pointer));
            for (kind, letter) in [("dirty", "D"), ("clean", "C")] {
                let fixed = [(SYSTEM, system), ("caches", kind)];
                let of = along("face-kinds", &fixed, SIZES, pointer);
                all.push(series(format!("{name}-{letter}"), of));
            }
        }
        curves(title, flash_size(), y, all)
    };
    figure(
        5,
        "throughput and hit ratio by what FaCE-Basic and LC cache",
        "M caches mixed pages, D dirty pages only, C clean pages only. FaCE-Basic overtakes LC at about 8 GB in \
         the paper.",
        &["F1", "F3"],
        vec![
            panel("a: throughput", TPMC, tpmc()),
            panel("b: hit ratio", HITS, percent("flash hits, %")),
        ],
    )
}

fn reduction_table() -> Figure {
    let x = names("flash cache size", &SIZE_NAMES);
    let all = vec![at_sizes("mixed", "F2", "mixed"), at_sizes("dirty only", "F2", "dirty")];
    figure(
        0,
        "disk writes that FaCE-Basic saves",
        "In the paper mixed and dirty only save almost the same.",
        &["F2"],
        vec![curves("", x, percent_of_row("saved, %"), all)],
    )
    .labelled("Table 4")
}

/// Per cent, of points that are in per cent.
fn percent_of_row(label: &'static str) -> Y {
    Y { most: Some(100.0), ..linear(label, 1.0) }
}

fn stale_table() -> Figure {
    let of = |name: &str, warehouses: &str| {
        at_sizes(name, "F4", &format!("{warehouses} warehouses")).stated("Table 5")
    };
    let all = vec![of("108 GB", "1000"), of("57 GB", "500"), of("21 GB", "200")];
    let x = names("flash cache size", &SIZE_NAMES);
    figure(
        0,
        "flash that holds old versions, by the size of the database",
        "In the paper the share grows with flash and falls with the database.",
        &["F4"],
        vec![curves("", x, percent_of_row("old versions, %"), all)],
    )
    .labelled("Table 5")
}

fn hits() -> Figure {
    let panel = |title: &str, pointer: &'static str, label| {
        let all = [LC, BASIC, GSC].map(|system| sized(system, pointer)).into();
        curves(title, flash_size(), percent(label), all)
    };
    figure(
        6,
        "flash hits and saved disk writes, Samsung 840 Pro",
        "In the paper LC is above FaCE in both, and GSC above Basic. Table 4 has the values of FaCE-Basic's saved \
         writes.",
        &["F5", "F6", "F21"],
        vec![
            panel("a: read hit rate", HITS, "flash hits, %"),
            panel("b: write reduction", REDUCTION, "disk writes saved, %"),
        ],
    )
}

fn utilisation() -> Figure {
    let of = |pointer: &'static str| [LC, BASIC, GSC].map(|system| sized(system, pointer)).into();
    figure(
        7,
        "how busy flash is, and what it does, Samsung 840 Pro",
        "In the paper LC keeps flash busy at every size (70 to 86 %) and does not gain by it, and FaCE grows with \
         flash.",
        &["F7", "F8"],
        vec![
            curves("a: I/O utilisation", flash_size(), percent("utilisation, %"), of(BUSY)),
            curves(
                "b: I/O throughput",
                flash_size(),
                linear("pages of 4 KB a second", 1.0),
                of(PAGES),
            ),
        ],
    )
}

fn drives() -> Figure {
    let alone = |name: &str, system| series(name, level("face-alone", &[(SYSTEM, system)], TPMC));
    let panel = |title: &str, drive, more: Vec<Series>| {
        let of = |(name, system): (&str, &'static str)| {
            let fixed: [Setting; 2] = [(SYSTEM, system), (DRIVE, drive)];
            series(name, along("face-drives", &fixed, SOME, TPMC))
        };
        let all = [GSC, BASIC, LC].map(of).into_iter().chain(more).collect();
        curves(title, flash_size(), tpmc(), all)
    };
    let hdd = || vec![alone("HDD-only", "hdd-only")];
    let both = vec![alone("HDD-only", "hdd-only"), alone("SSD-only", "ssd-only")];
    let pro = [GSC, BASIC, LC].map(|system| sized(system, TPMC)).into_iter().chain(hdd()).collect();
    figure(
        8,
        "throughput of FaCE and LC on four drives",
        "In the paper FaCE is ahead on all drives but the P3700. SSD-only is run with the 850 Evo alone.",
        &["F9", "F10"],
        vec![
            panel("a: Samsung 850 Evo", "ssd-850evo", both),
            curves("b: Samsung 840 Pro", flash_size(), tpmc(), pro),
            panel("c: Intel DC S3500", "ssd-s3500", hdd()),
            panel("d: Intel P3700", "ssd-p3700", hdd()),
            bars(
                ", what the text states of it",
                unit("ratio of throughputs", 1.0),
                vec![
                    series(
                        "840 Pro, 20 GB: GSC over LC",
                        row("F9", ["840 Pro, 20 GB: FaCE over LC"]),
                    ),
                    series("S3500, 20 GB: GSC over LC", row("F9", ["S3500, 20 GB: FaCE over LC"])),
                    series(
                        "840 Pro, 20 GB: GSC over Basic",
                        row("F9", ["840 Pro, 20 GB: GSC over Basic"]),
                    )
                    .stated("section 6.4.3, 'approximately twice'"),
                    series(
                        "850 Evo: SSD-only over HDD-only",
                        row("F10", ["flash alone over disks alone"]),
                    ),
                ],
            ),
        ],
    )
}

/// FaCE and both orders of bcache at two sizes.
fn beside_bcache(title: &str, pointer: &'static str, y: Y) -> Panel {
    let of = |(name, system): (&str, &'static str)| {
        series(name, along("face-bcache", &[(SYSTEM, system)], TWO, pointer))
    };
    columns(title, names("flash cache size", &["10 GB", "20 GB"]), y, BCACHE.map(of).into())
}

fn bcache() -> Figure {
    figure(
        9,
        "throughput and hits of FaCE and bcache, Samsung 840 Pro",
        "In the paper FaCE is faster at every size, with more hits.",
        &["F11"],
        vec![
            beside_bcache("a: throughput", TPMC, tpmc()),
            beside_bcache("b: cache hit ratio", HITS, percent("flash hits, %")),
            bars(
                ", what the text states at 20 GB",
                unit("FaCE over bcache", 1.0),
                row_bars(
                    "F11",
                    &[
                        ("throughput, LRU", "over bcache (LRU), throughput"),
                        ("throughput, FIFO", "over bcache (FIFO), throughput"),
                        ("hits, LRU", "over bcache (LRU), hits"),
                        ("hits, FIFO", "over bcache (FIFO), hits"),
                    ],
                ),
            ),
        ],
    )
}

fn writes_table() -> Figure {
    let systems = [
        ("FaCE", "face"),
        ("LC", "lc"),
        ("Bcache (FIFO)", "bcache-fifo"),
        ("Bcache (LRU)", "bcache-lru"),
    ];
    let panel = |title: &str, what: &str, label| {
        let of = |(name, system): (&str, &str)| {
            series(name, row("F12", [format!("{system}: {what}")])).stated("Table 6")
        };
        bars(title, unit(label, 1.0), systems.map(of).into())
    };
    figure(
        0,
        "writes to flash, 10 GB",
        "What counts as sequential the paper does not state; ours are writes that begin where the one before ended.",
        &["F12"],
        vec![
            panel(", sequentiality", "sequential, %", "% of writes"),
            panel(", average write size", "mean write, KiB", "KiB"),
        ],
    )
    .labelled("Table 6")
}

fn bcache_drive() -> Figure {
    figure(
        10,
        "how busy flash is with FaCE and with bcache, Samsung 840 Pro",
        "In the paper bcache uses up the drive, and FaCE stays below 90 % with almost twice the throughput.",
        &["F7", "F8", "F11"],
        vec![
            beside_bcache("a: I/O utilisation", BUSY, percent("utilisation, %")),
            beside_bcache("b: I/O throughput", PAGES, linear("pages of 4 KB a second", 1.0)),
        ],
    )
}

fn through() -> Figure {
    let written =
        |name: &str, system| series(name, along("face-through", &[(SYSTEM, system)], SIZES, TPMC));
    figure(
        11,
        "throughput with write-back (WB) and with write-through (WT)",
        "In the paper both are slower and saturate early when they write through, and FaCE is ahead by a fifth.",
        &["F13"],
        vec![
            curves(
                "",
                flash_size(),
                tpmc(),
                vec![
                    sized(("FaCE-GSC (WB)", GSC.1), TPMC),
                    sized(("LC (WB)", LC.1), TPMC),
                    written("FaCE-GSC (WT)", GSC.1),
                    written("LC (WT)", LC.1),
                ],
            ),
            bars(
                ", FaCE over LC, written through",
                unit("ratio of throughputs", 1.0),
                SIZES
                    .1
                    .iter()
                    .map(|gb| {
                        series(format!("{gb} GB"), row("F13", [format!("{gb} GB: FaCE over LC")]))
                    })
                    .collect(),
            ),
        ],
    )
}

fn wear_table() -> Figure {
    let names = [
        ("840 Pro: FaCE-GSC", "840 Pro: FaCE"),
        ("840 Pro: LC", "840 Pro: LC"),
        ("S3500: FaCE-GSC", "S3500: FaCE"),
        ("S3500: LC", "S3500: LC"),
    ];
    figure(
        0,
        "write amplification",
        "Ours is of a model of the translation layer, with the drive as large as the cache.",
        &["F14"],
        vec![bars(
            "",
            unit("bytes written to NAND over bytes written", 1.0),
            row_bars("F14", &names),
        )],
    )
    .labelled("Table 7")
}

fn money() -> Figure {
    let memory: (&str, &[&str]) = ("pool_mib", &["400", "600", "800", "1000", "1200"]);
    let flash: (&str, &[&str]) = (FLASH, &["2", "4", "6", "8", "10"]);
    let steps =
        ["+200 MB / 2 GB", "+400 MB / 4 GB", "+600 MB / 6 GB", "+800 MB / 8 GB", "+1 GB / 10 GB"];
    figure(
        12,
        "more memory or flash for the same money",
        "At each step 200 MB of memory or 2 GB of flash are added to 200 MB of memory and 16 disks. In the paper \
         flash is ahead at every step.",
        &["F15"],
        vec![curves(
            "",
            names("added DRAM / flash", &steps),
            tpmc(),
            vec![
                series("FaCE-GSC", along("face-money", &[], flash, TPMC)),
                series("larger DRAM", along("face-memory", &[], memory, TPMC)),
                series("HDD-only", level("face-memory", &[("pool_mib", "200")], TPMC)),
            ],
        )],
    )
}

fn disks() -> Figure {
    let disks: (&str, &[&str]) = ("disks", &["1", "2", "4", "8", "16"]);
    let of = |(name, system): (&str, &'static str)| {
        series(name, along("face-disks", &[(SYSTEM, system)], disks, TPMC))
    };
    figure(
        13,
        "throughput by the number of disks, 16 GB of flash",
        "In the paper LC is ahead with one and two disks and slows down at eight.",
        &["F16"],
        vec![curves(
            "",
            names("disks", &["1", "2", "4", "8", "16"]),
            tpmc(),
            vec![of(GSC), of(LC), of(("HDD-only", "hdd-only"))],
        )],
    )
}

fn restart_table() -> Figure {
    let of = |name: &str, ours: &str| {
        series(
            name,
            row("F17", ["100", "200", "300"].map(|seconds| format!("{ours}, {seconds} s"))),
        )
        .stated("Table 8")
    };
    figure(
        0,
        "time to restart by the interval of checkpoints",
        "Ours is modelled at a scale and stated at full size (row F17).",
        &["F17", "F18"],
        vec![columns(
            "",
            names("checkpoint interval", &["100 s", "200 s", "300 s"]),
            linear("s", 1.0),
            vec![
                of("FaCE-GSC", "FaCE"),
                of("HDD-only", "disks alone"),
                of("SSD-only", "flash alone"),
            ],
        )],
    )
    .labelled("Table 8")
}

fn slump() -> Figure {
    let of = |name: &str, system| {
        series(name, list("face-after", &[(SYSTEM, system)], "/restart/after_tpmc"))
    };
    let text = "section 6.8, 'around 10,000 tpmC' for about 400 s";
    figure(
        14,
        "throughput after a restart, checkpoints every 300 s",
        "In the paper FaCE slumps for about 400 s and stays ahead of the disks alone.",
        &["F19"],
        vec![curves(
            "",
            steps("seconds since the restart", 20.0),
            tpmc(),
            vec![
                of("FaCE-GSC", "face").printed(text, &[(200.0, 10_000.0)]),
                of("HDD-only", "hdd-only"),
            ],
        )],
    )
}
