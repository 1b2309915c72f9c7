// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of PRWC ("A fully persistent and consistent read/write cache using flash-based general SSDs for desktop
//! workloads", Information Systems 2016). Its curves are of days; the text states means over them.

use super::entry::{
    Figure, Of, Panel, Setting, Unit, X, Y, along, bars, columns, curves, figure, level, linear,
    names, row, row_bars, series, unit, without,
};

const SYSTEM: &str = "system";
const USER: &str = "user";
const USERS: &[&str] = &["U1", "U2", "U3", "U4", "U5"];
const DAYS: [&str; 10] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
/// The systems as the paper and as the scenarios name them.
const SYSTEMS: [(&str, &str); 4] =
    [("PRWC", "prwc"), ("PROC", "proc"), ("SLRU_n", "slru"), ("HDD only", "no-cache")];
const MB: f64 = 1e-6;
const RATIO: Unit = Unit { label: "ratio", times: 1.0 };

/// All of them.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        without(
            1,
            "trade-offs of write policies",
            &[],
            "It is a sketch of staleness and speed, without values.",
        ),
        without(2, "the mapping of segments", &[], DIAGRAM),
        without(3, "the two metadata regions on the SSD", &["PT1"], DIAGRAM),
        without(4, "the metadata in memory", &[], DIAGRAM),
        without(5, "an example of decay and update", &[], EXAMPLE),
        without(6, "the order in which the regions are written", &[], DIAGRAM),
        without(7, "the update of the cache, step by step", &[], EXAMPLE),
        without(8, "recovery of the metadata in memory", &["P17"], EXAMPLE),
        without(9, "two states of the cache with the same metadata", &["P17"], EXAMPLE),
        coverage(),
        total_bandwidth(),
        write_bandwidth(),
        read_bandwidth(),
        latency(),
        sizes(),
        read_hits(),
        all_hits(),
        segments(),
        segment_hits(),
        write_back(),
        recovery(),
    ]
}

const DIAGRAM: &str = "It is a drawing of a mechanism, without values.";
const EXAMPLE: &str = "It is an example of a mechanism with a handful of segments; torture checks the mechanism itself (P17).";

fn days() -> X {
    names("day", &DAYS)
}

fn bandwidth() -> Y {
    linear("MB/s", MB)
}

fn hit_rate(label: &'static str) -> Y {
    Y { most: Some(1.0), ..linear(label, 1.0) }
}

/// A picture for each user and one of their mean, of so many of the systems.
fn by_user(pointer: &'static str, y: Y, systems: usize) -> Vec<Panel> {
    let panel = |title: String, user: Option<&'static str>| {
        let of = |(name, system): (&str, &'static str)| {
            let mut fixed: Vec<Setting> = vec![(SYSTEM, system)];
            fixed.extend(user.map(|user| (USER, user)));
            let mean = if user.is_none() { Some((USER, USERS)) } else { None };
            series(name, Of::Days { file: "prwc-days", fixed, pointer, mean })
        };
        curves(title, days(), y, SYSTEMS.into_iter().take(systems).map(of).collect())
    };
    let users = USERS.iter().map(|user| panel(format!(", user {}", &user[1..]), Some(*user)));
    users.chain([panel(", mean of the users".to_owned(), None)]).collect()
}

/// What the text states of the whole run, after the pictures by user.
fn and_text(
    mut panels: Vec<Panel>,
    unit: Unit,
    id: &'static str,
    points: &[(&'static str, &'static str)],
) -> Vec<Panel> {
    panels.push(bars(", what the text states of ten days", unit, row_bars(id, points)));
    panels
}

fn coverage() -> Figure {
    let of = |name: &str, what: &str| {
        series(name, row("P1", USERS.iter().map(|user| format!("{user}: {what}"))))
            .stated("section 3.2")
    };
    let users = || names("user", &["1", "2", "3", "4", "5"]);
    figure(
        10,
        "what the users' ten days cover, in segments of 1 MiB",
        "Ours is the load that stands in for the traces: the values are its inputs, which come out of it again.",
        &["P1"],
        vec![
            columns(
                "a to c: coverage",
                users(),
                linear("GB", 1.0),
                vec![of("writes", "written, GB"), of("reads", "read, GB"), of("total", "all, GB")],
            ),
            columns(
                "d and e: portions of writes",
                users(),
                linear("%", 100.0),
                vec![
                    of("of the coverage", "written of what is covered"),
                    of("of the amount", "writes of the bytes"),
                ],
            ),
        ],
    )
}

fn total_bandwidth() -> Figure {
    let pictures = by_user("all/bytes_per_second", bandwidth(), 4);
    let points = [("PRWC over SLRU_n", "over SLRU_n"), ("PRWC over PROC", "over PROC")];
    let mut panels = and_text(pictures, RATIO, "P3", &points);
    panels.push(bars(
        ", SLRU on the first day after a reset",
        unit("of SLRU_n", 1.0),
        row_bars("P5", &[("SLRU_r", "of SLRU_n")]),
    ));
    figure(
        11,
        "total bandwidth of five users by day",
        "In the paper PRWC has no hits on the first day, rises until the fourth, and is ahead after the third.",
        &["P2", "P3", "P4", "P5"],
        panels,
    )
}

fn write_bandwidth() -> Figure {
    let points = [("PRWC over PROC, all users", "all users"), ("PRWC over PROC, user 1", "U1")];
    figure(
        12,
        "write bandwidth of five users by day",
        "In the paper PRWC is far ahead, as it alone keeps writes on flash.",
        &["P6"],
        and_text(by_user("write/bytes_per_second", bandwidth(), 4), RATIO, "P6", &points),
    )
}

fn read_bandwidth() -> Figure {
    figure(
        13,
        "read bandwidth of five users by day",
        "In the paper the three caches are similar, and another one is best for each user.",
        &["P7"],
        by_user("read/bytes_per_second", bandwidth(), 4),
    )
}

fn latency() -> Figure {
    figure(
        14,
        "total latency of five users by day",
        "In the paper it is the inverse of bandwidth.",
        &["P8"],
        by_user("all/mean_us", linear("latency, ms", 1e-3), 4),
    )
}

fn sizes() -> Figure {
    let panel = |title: &str, size| {
        let of = |(name, system): (&str, &'static str)| {
            let fixed = vec![(SYSTEM, system), ("flash_gb", size)];
            series(
                name,
                Of::Days { file: "prwc-sizes", fixed, pointer: "all/bytes_per_second", mean: None },
            )
        };
        curves(title, days(), bandwidth(), SYSTEMS.into_iter().take(3).map(of).collect())
    };
    let gains = |title: &str, peer: &str| {
        let of = |gb: &str| format!("{gb} GB, over {peer}");
        let all = ["8", "32", "128"].map(|gb| series(format!("{gb} GB"), row("P9", [of(gb)])));
        bars(title, RATIO, all.into())
    };
    let backup = |(name, system): (&str, &'static str)| {
        let fixed = vec![(SYSTEM, system), ("backup_day", "8")];
        series(name, Of::Days { file: "prwc-backup", fixed, pointer: "read/hit_ratio", mean: None })
    };
    let loads = SYSTEMS.into_iter().take(3).map(backup).collect();
    figure(
        15,
        "total bandwidth of user 5 by the size of the SSD",
        "Flash of 128 GB holds all that user 5 covers. The paper's curves have a backup on the eighth day; ours are \
         without one, and hits beside one have a picture of their own, without the backup's own requests. HDD only is \
         in Figure 11, user 5.",
        &["P9", "P10", "P11"],
        vec![
            panel("a: 8 GB", "8"),
            panel("b: 32 GB", "32"),
            panel("c: 128 GB", "128"),
            gains(", PRWC over SLRU_n over ten days", "SLRU_n"),
            gains(", PRWC over PROC over ten days", "PROC"),
            curves(
                ", 32 GB with a backup on day 8: read hits",
                days(),
                hit_rate("read hit rate"),
                loads,
            ),
        ],
    )
}

fn read_hits() -> Figure {
    let points = [("SLRU_n less PROC", "read hits fewer by")];
    figure(
        16,
        "read hit rate of five users by day",
        "In the paper the caches that are updated once a day hit a little less than the one that is updated on \
         demand.",
        &["P2", "P4"],
        and_text(
            by_user("read/hit_ratio", hit_rate("read hit rate"), 3),
            unit("hit rate", 1.0),
            "P4",
            &points,
        ),
    )
}

fn all_hits() -> Figure {
    let points = [("PRWC over SLRU_n", "all users")];
    figure(
        17,
        "total hit rate of five users by day",
        "In the paper PRWC is ahead, as it alone hits with writes.",
        &["P2", "P12"],
        and_text(by_user("all/hit_ratio", hit_rate("total hit rate"), 3), RATIO, "P12", &points),
    )
}

const UNITS: (&str, &[&str]) = ("unit_kib", &["128", "256", "512", "1024"]);
const UNIT_NAMES: [&str; 4] = ["128 KiB", "256 KiB", "512 KiB", "1 MiB"];

const SIZES_TEXT: &str = "section 3.6";

/// A value of each size of a segment, of the row that has the paper's.
fn by_unit(what: &str) -> Of {
    row("P13", UNITS.1.iter().map(|kib| format!("{kib} KiB, {what}")))
}

fn segments() -> Figure {
    let of = |(name, system): (&str, &'static str)| {
        series(name, along("prwc-units", &[(SYSTEM, system)], UNITS, "/total/all/bytes_per_second"))
    };
    let all = SYSTEMS.into_iter().take(3).map(of).collect();
    let gains = vec![
        series("over SLRU_n", by_unit("over SLRU_n")).stated(SIZES_TEXT),
        series("over PROC", by_unit("over PROC")).stated(SIZES_TEXT),
    ];
    figure(
        18,
        "bandwidth of user 5 by the size of a segment",
        "In the paper PRWC gains by larger segments, and the more over the others.",
        &["P13"],
        vec![
            columns("", names("segment", &UNIT_NAMES), bandwidth(), all),
            columns(
                ", PRWC over the others",
                names("segment", &UNIT_NAMES),
                linear("ratio", 1.0),
                gains,
            ),
        ],
    )
}

fn segment_hits() -> Figure {
    let of = |(name, system): (&str, &'static str)| {
        series(name, along("prwc-units", &[(SYSTEM, system)], UNITS, "/total/all/hit_ratio"))
    };
    let mut all = vec![series("PRWC", by_unit("hits")).stated(SIZES_TEXT)];
    all.extend(SYSTEMS.into_iter().skip(1).take(2).map(of));
    figure(
        19,
        "hit rate of user 5 by the size of a segment",
        "In the paper a larger segment brings neighbours along; the text states PRWC's values.",
        &["P13"],
        vec![columns("", names("segment", &UNIT_NAMES), hit_rate("total hit rate"), all)],
    )
}

/// The disk's own write cache is on.
const CACHED: (&str, &str) = ("disk_cache", "true");

fn write_back() -> Figure {
    let of = |name: &str, system, kind: &str| {
        let pointer = format!("/total/{kind}/bytes_per_second");
        series(name, level("prwc-write-through", &[CACHED, (SYSTEM, system)], &pointer))
    };
    let panel = |title: &str, kind: &str| {
        let all = vec![
            of("PRWC", "prwc", kind),
            of("PROC", "proc", kind),
            of("write-through", "flashcache", kind),
            series(
                "write-back",
                level("prwc-write-back", &[CACHED], &format!("/total/{kind}/bytes_per_second")),
            ),
        ];
        bars(title, unit("MB/s", MB), all)
    };
    figure(
        20,
        "flashcache's write-back and write-through beside PRWC and PROC, user 1",
        "In the paper write-back gains over write-through, and PRWC gains more over PROC.",
        &["P6", "P14"],
        vec![
            panel("a: read bandwidth", "read"),
            panel("b: write bandwidth", "write"),
            bars(
                ", what the text states of the write bandwidth",
                RATIO,
                vec![
                    series("PRWC over PROC", row("P6", ["U1"])),
                    series(
                        "write-back over write-through",
                        row("P14", ["writes, back over through"]),
                    ),
                ],
            ),
        ],
    )
}

fn recovery() -> Figure {
    let parts = ["0", "25", "50", "75", "99"];
    let of = |part: &str| {
        series(format!("{part} %"), row("P15", [format!("{part} %, s")])).stated("Table 2")
    };
    figure(
        0,
        "recovery time by how far the update was when it crashed",
        "Ours are the reads of the modelled flash; the paper's times include its processor.",
        &["P15"],
        vec![bars("", unit("s", 1.0), parts.into_iter().map(of).collect())],
    )
    .labelled("Table 2")
}
