// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of SCE ("Flash-conscious cache population for enterprise database workloads", ADMS 2014).

use super::entry::{
    Figure, Panel, Series, Unit, along, bars, columns, curves, figure, level, linear, list, names,
    row, row_bars, series, steps, unit, without,
};

const LARGE: &str = "sce-large";
const SMALL: &str = "sce-small";
const SYSTEM: &str = "system";
const RATES: &str = "/samples/transactions_per_second";
/// One of ten transactions counts as TPC-E counts (`crates/lab/src/load`).
const COUNTED: f64 = 0.1;
const TPSE: &str = "TpsE";
const HITS: Unit = Unit { label: "read hit rate, %", times: 1.0 };
const MIB: f64 = 1.0 / (1 << 20) as f64;
const GIB: f64 = 1.0 / (1 << 30) as f64;
/// The middle of the paper's last hour, of eight and of four.
const LAST_OF_8: f64 = 7.5;
const LAST_OF_4: f64 = 3.5;
/// The systems as the paper and as the scenarios name them.
const ALL_FLASH: (&str, &str) = ("all-flash", "all-flash");
const SCE: (&str, &str) = ("SCE", "sce");
const FLASHCACHE: (&str, &str) = ("flashcache", "flashcache");
const BCACHE: (&str, &str) = ("bcache", "bcache");
const ENHANCEIO: (&str, &str) = ("EnhanceIO", "enhanceio");
const NO_CACHE: (&str, &str) = ("no-cache", "no-cache");
/// The caches, by their names of either kind, as groups of columns.
const CACHES: [&str; 4] = ["flashcache", "bcache", "EnhanceIO", "SCE"];
const CACHE_NAMES: (&str, &[&str]) = (SYSTEM, &["flashcache", "bcache", "enhanceio", "sce"]);

/// All of them.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        random_reads(),
        peers(),
        without(3, "how SCE populates in the background", &[], DIAGRAM),
        without(4, "asynchronous write-through", &[], DIAGRAM),
        without(5, "the maps of fragments and of valid pages", &[], DIAGRAM),
        without(
            6,
            "the two servers of the measurements",
            &[],
            "It is a drawing of the paper's machines.",
        ),
        large(),
        traffic(),
        small(),
        write_back(),
        ablation(),
        wear(),
        memory(),
    ]
}

const DIAGRAM: &str = "It is a drawing of a mechanism, without values.";

/// Transactions of every minute.
fn rates(file: &'static str, (name, system): (&'static str, &'static str)) -> Series {
    series(name, list(file, &[(SYSTEM, system)], RATES))
}

fn throughput(title: &str, all: Vec<Series>) -> Panel {
    curves(title, steps("hours", 1.0 / 60.0), linear(TPSE, COUNTED), all)
}

fn random_reads() -> Figure {
    let of = |name: &str, pass: u32, key: &str| {
        series(
            name,
            along(
                "sce-figure-1",
                &[],
                (SYSTEM, &CACHE_NAMES.1[..3]),
                &format!("/passes/{pass}/{key}"),
            ),
        )
    };
    let panel = |title: &str, pass, written: &[(f64, f64)], read: &[(f64, f64)]| {
        columns(
            title,
            names("", &CACHES[..3]),
            linear("MiB", MIB),
            vec![
                of("SSD read", pass, "flash_read_bytes").paper(read),
                of("SSD write", pass, "flash_write_bytes").paper(written),
                of("volume read", pass, "origin_read_bytes"),
            ],
        )
    };
    let stated = [(0.0, 100.0), (1.0, 80.0), (2.0, 100.0)];
    figure(
        1,
        "what 100 MiB of random reads cost, the first and the fourth time",
        "In the paper bcache populates 80 % of what it reads; the paper gives no cause for it.",
        &["S3"],
        vec![panel(", first pass", 0, &stated, &[]), panel(", fourth pass", 3, &[], &stated)],
    )
}

/// The printed rates of the last hour.
fn peer_rates() -> Vec<Series> {
    let last = |tpse: f64| [(LAST_OF_8, tpse)];
    let printed = |system, tpse: f64| rates(LARGE, system).printed(TABLE, &last(tpse));
    vec![
        printed(ALL_FLASH, 87.9),
        rates(LARGE, FLASHCACHE).printed(TABLE, &[(4.6, 45.0), (LAST_OF_8, 56.9)]),
        printed(ENHANCEIO, 17.5),
        printed(BCACHE, 17.3),
        printed(NO_CACHE, 11.2),
    ]
}

const TABLE: &str = "Table 1 and section 2, in the middle of the last hour";

fn peers() -> Figure {
    figure(
        2,
        "transactions with the open-source caches, eight hours, 200 GiB of flash",
        "In the paper flashcache gains five times, and the others one and a half times with nearly the same hit \
         rate.",
        &["S1", "S2"],
        vec![throughput("", peer_rates())],
    )
}

fn large() -> Figure {
    let mut all = peer_rates();
    all.insert(1, rates(LARGE, SCE).printed(RATIO_A, &[(LAST_OF_8, 82.6)]));
    let hits = [SCE, FLASHCACHE, BCACHE, ENHANCEIO];
    figure(
        7,
        "eight hours with 200 GiB of flash, which hold all of the data",
        "In the paper SCE warms up in a third of flashcache's time and comes near all-flash. Response times are \
         those that the text states, multiples of all-flash's.",
        &["S4", "S5", "S6", "S7", "S8"],
        vec![
            throughput("a: throughput", all),
            bars("b: read hit rate of the last hour", HITS, row_bars("S7", &hits)),
            bars(
                "c: response time of the last hour",
                TIMES,
                row_bars(
                    "S8",
                    &[
                        ("SCE", "sce over all-flash"),
                        ("flashcache", "flashcache over all-flash"),
                        ("bcache", "bcache over all-flash"),
                        ("EnhanceIO", "enhanceio over all-flash"),
                    ],
                ),
            ),
        ],
    )
}

const RATIO_A: &str = "SCE's by its ratio to all-flash (4.2)";
const TIMES: Unit = Unit { label: "times all-flash's", times: 1.0 };

fn traffic() -> Figure {
    let of = |name: &str, key: &str| series(name, along(SMALL, &[], CACHE_NAMES, key));
    let ratio = [
        ("flashcache", "flashcache, read over written"),
        ("bcache", "bcache, read over written"),
        ("EnhanceIO", "enhanceio, read over written"),
        ("SCE", "sce, read over written"),
    ];
    figure(
        8,
        "bytes of flash and volume in four hours with 30 GiB of flash",
        "Reads of flash are service, writes of flash are population. Bytes are those of the scaled run.",
        &["S12"],
        vec![
            columns(
                "",
                names("", &CACHES),
                linear("GiB", GIB),
                vec![
                    of("SSD read", "/flash_read_bytes"),
                    of("SSD write", "/flash_write_bytes"),
                    of("volume read", "/origin_read_bytes"),
                    of("volume write", "/origin_write_bytes"),
                ],
            ),
            bars(
                ", service over population",
                unit("SSD bytes read over written", 1.0),
                row_bars("S12", &ratio),
            ),
        ],
    )
}

fn small() -> Figure {
    let last = |tpse: f64| [(LAST_OF_4, tpse)];
    let by_ratio = |system, tpse: f64| rates(SMALL, system).printed(RATIO_B, &last(tpse));
    let hits = [SCE, FLASHCACHE, BCACHE, ENHANCEIO];
    figure(
        9,
        "four hours with 30 GiB of flash, which hold less than a fifth of the data",
        "In the paper SCE keeps two thirds of the speed of all-flash, and the others fall back. Response times are \
         multiples of all-flash's.",
        &["S9", "S10", "S11"],
        vec![
            throughput(
                "a: throughput",
                vec![
                    rates(SMALL, ALL_FLASH),
                    by_ratio(SCE, 61.0),
                    by_ratio(FLASHCACHE, 17.0),
                    by_ratio(BCACHE, 14.9),
                    by_ratio(ENHANCEIO, 12.5),
                    rates(SMALL, NO_CACHE),
                ],
            ),
            bars("b: read hit rate of the last hour", HITS, row_bars("S9", &hits)),
            bars(
                "c: response time of the last hour",
                TIMES,
                row_bars(
                    "S11",
                    &[
                        ("SCE", "SCE over all-flash"),
                        ("flashcache", "flashcache over all-flash"),
                        ("bcache", "bcache over all-flash"),
                        ("EnhanceIO", "enhanceio over all-flash"),
                    ],
                ),
            ),
        ],
    )
}

const RATIO_B: &str =
    "by the ratios to no-cache and among each other (4.3), in the middle of the last hour";

fn write_back() -> Figure {
    let back = |name: &str, file, tpse: f64| {
        let rate = level(file, &[], "/transactions_per_second_last_hour");
        series(name, rate).printed(GAINS, &[(0.0, tpse)])
    };
    let sce = along(SMALL, &[], (SYSTEM, &["sce"]), "/transactions_per_second_last_hour");
    figure(
        10,
        "the open-source caches as write-back, 30 GiB of flash, with SCE beside them",
        "In the paper write-back helps all of them, and SCE, which writes through, stays ahead. Parts b (hit \
         rates) and c (response times) have no printed values.",
        &["S13", "S14"],
        vec![bars(
            "a: throughput of the last hour",
            unit(TPSE, COUNTED),
            vec![
                series("SCE, write-through", sce).printed(GAINS, &[(0.0, 61.0)]),
                back("flashcache", "sce-back-flashcache", 33.4),
                back("bcache", "sce-back-bcache", 27.2),
                back("EnhanceIO", "sce-back-enhanceio", 29.4),
            ],
        )],
    )
}

const GAINS: &str = "by the gains that section 4.4 states (S13)";

fn ablation() -> Figure {
    let fragment =
        |name: &str, kib| series(name, list("sce-fragments", &[("unit_kib", kib)], RATES));
    let cases =
        [("base", "base"), ("no AWT", "no AWT"), ("128 KiB", "128 KiB"), ("8 MiB", "8 MiB")];
    figure(
        11,
        "SCE without asynchronous write-through, and with other fragments, 30 GiB of flash",
        "Base has fragments of 1 MiB. In the paper writes without AWT leave holes, small fragments warm up late, \
         and large ones cost too much population.",
        &["S15", "S16", "S17", "S18"],
        vec![
            throughput(
                "a: throughput",
                vec![
                    fragment("base", "1024"),
                    series("no AWT", list("sce-write-around", &[], RATES)),
                    fragment("128 KiB", "128"),
                    fragment("8 MiB", "8192"),
                ],
            ),
            bars("b: read hit rate of the last hour", HITS, row_bars("S15", &cases)),
            bars("c: response time of the last hour", unit("ms", 1.0), row_bars("S16", &cases)),
            bars(
                ", what the text states of it",
                unit("times base's", 1.0),
                vec![
                    series("ramp, 128 KiB", row("S17", ["times as long"])),
                    series("SSD writes, 8 MiB", row("S18", ["8 MiB over base, bytes written"])),
                ],
            ),
        ],
    )
}

fn wear() -> Figure {
    let of = |name: &str, file| {
        series(name, along(file, &[], CACHE_NAMES, "/flash_bytes_per_transaction"))
    };
    figure(
        12,
        "bytes written to flash for each transaction",
        "In the paper SCE writes less than the next best, and all write more with 30 GiB than with 200 GiB.",
        &["S19", "S20"],
        vec![
            columns(
                "",
                names("", &CACHES),
                linear("SSD writes, KiB a transaction", 1.0 / 1024.0),
                vec![of("200 GiB", LARGE), of("30 GiB", SMALL)],
            ),
            bars(
                ", SCE over the next best",
                unit("times the bytes a transaction", 1.0),
                row_bars(
                    "S19",
                    &[
                        ("200 GiB, over flashcache", "A, SCE over flashcache"),
                        ("30 GiB, over bcache", "B, SCE over bcache"),
                    ],
                ),
            ),
        ],
    )
}

fn memory() -> Figure {
    let panel = |title: &str, size: &str| {
        let of = |name: &'static str| {
            series(name, row("SM4", [format!("{name}, {size}, MiB")])).stated("Table 1")
        };
        bars(title, unit("MiB", 1.0), CACHES.into_iter().map(of).collect())
    };
    figure(
        13,
        "memory of the caches",
        "Ours is what this engine needs with the choices of each, as larder size prints it; bcache itself has its \
         index on flash. The paper prints the values at 200 GiB, and at 1 TiB that flashcache needs 66 times and \
         EnhanceIO 23 times as much as SCE.",
        &["SM4", "SM5"],
        vec![panel(", 200 GiB of flash", "200 GiB"), panel(", 1 TiB of flash", "1 TiB")],
    )
}
