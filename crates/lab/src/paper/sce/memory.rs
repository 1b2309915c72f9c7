// SPDX-License-Identifier: MIT OR Apache-2.0
//! SM1 to SM5: what the paper states of memory, as sums.
//!
//! The verdict is of the paper's arithmetic: its formula with its figures, against what it prints.
//! The result of `larder size` for the same case stands beside it.

use anyhow::{Context, Result};
use larder_core::config::Memory;
use larder_core::config::{Limits, preset};

use super::super::{Asked, At, Kind, Row};

const MIB: f64 = (1u64 << 20) as f64;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// The unit of all its cases, and the others'.
const FRAGMENT_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4 << 10;
/// A table entry for each fragment of the source, a descriptor for each of flash (SCE 3.4).
const ENTRY_BYTES: u64 = 4;
const DESCRIPTOR_BYTES: u64 = 72;
/// Population and write-through (SCE 3.6).
const BUFFERS_MIB: f64 = 16.0;
/// For each cached page (SCE 2).
const FLASHCACHE_BYTES: u64 = 24;
const ENHANCEIO_BYTES: u64 = 8;
/// What the paper measured at 200 GiB, in MiB: what exceeds the pages' share is there at any size.
const FLASHCACHE_200_GIB: f64 = 1212.0;
const ENHANCEIO_200_GIB: f64 = 415.0;
const BCACHE_200_GIB: f64 = 15.0;

/// The rows.
pub(super) fn rows(_: &Asked) -> Result<Vec<Row>> {
    Ok(vec![
        formula("SM1", (2 * TIB, 2 * TIB))?,
        two_parts()?,
        formula("SM3", (1024 * TIB, 256 * TIB))?,
        others()?,
        less()?,
    ])
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

/// The paper's table and descriptors.
fn paper_mib(origin: u64, flash: u64) -> (f64, f64) {
    let fragments = |bytes: u64| bytes / FRAGMENT_BYTES;
    (mib(fragments(origin) * ENTRY_BYTES), mib(fragments(flash) * DESCRIPTOR_BYTES))
}

/// Of flash caches by the page: as measured at 200 GiB, the pages' share at this size.
fn page_cache_mib(flash: u64, each: u64, at_200_gib: f64) -> f64 {
    let pages = |flash: u64| mib(flash / PAGE_BYTES * each);
    pages(flash) + at_200_gib - pages(200 * GIB)
}

fn sum_mib(origin: u64, flash: u64) -> f64 {
    let (table, descriptors) = paper_mib(origin, flash);
    table + descriptors
}

/// What `larder size` prints without buffers, which the paper's sums leave out as well.
fn ours(origin: u64, flash: u64) -> Result<[At; 2]> {
    let choices = preset("sce").context("no preset sce")?.choices();
    let memory = Memory::of(origin, flash, &choices, &Limits::default(), 1);
    let at = |words: &str, bytes: u64| At {
        at: format!("larder size without buffers, {words}"),
        paper: None,
        ours: Some(mib(bytes - memory.buffer_bytes).round()),
    };
    Ok([
        at("every fragment fully valid", memory.full_bytes()),
        at("every fragment partly valid", memory.worst_bytes()),
    ])
}

const EQUAL: &str =
    "Equal, in whole MiB; what `larder size` needs for the same is among the points.";

fn formula(id: &str, (origin, flash): (u64, u64)) -> Result<Row> {
    let (row, sum) = (Row::new(id, Kind::Exact)?, sum_mib(origin, flash));
    let equal = sum == row.paper_number();
    Ok(row.ours(sum).points(ours(origin, flash)?.to_vec()).judged(
        equal,
        EQUAL,
        "The formula of 3.4 with the paper's figures gives it.",
    ))
}

fn two_parts() -> Result<Row> {
    let (origin, flash) = (100 * TIB, 16 * TIB);
    let (table, descriptors) = paper_mib(origin, flash);
    let part = |at: &str, paper: f64, ours: f64| At {
        at: at.into(),
        paper: Some(paper),
        ours: Some(ours),
    };
    let mut points = vec![part("table", 400.0, table), part("descriptors", 1152.0, descriptors)];
    points.extend(ours(origin, flash)?);
    Ok(Row::new("SM2", Kind::Exact)?.ours(table + descriptors).points(points).judged(
        (table, descriptors) == (400.0, 1152.0),
        EQUAL,
        "The formula of 3.4 with the paper's figures gives both.",
    ))
}

/// At 1 TiB, as Figure 13 has it: SCE's sum with its buffers, the others by the page.
fn at_a_tib() -> (f64, f64, f64) {
    let sce = sum_mib(TIB, TIB) + BUFFERS_MIB;
    let flashcache = page_cache_mib(TIB, FLASHCACHE_BYTES, FLASHCACHE_200_GIB);
    (sce, flashcache, page_cache_mib(TIB, ENHANCEIO_BYTES, ENHANCEIO_200_GIB))
}

/// What Figure 13 shows: the paper prints the values of 200 GiB, and this engine needs so much with the choices of each.
fn figure_13() -> Result<Vec<At>> {
    let printed = [
        ("flashcache", Some(FLASHCACHE_200_GIB)),
        ("bcache", Some(BCACHE_200_GIB)),
        ("EnhanceIO", Some(ENHANCEIO_200_GIB)),
        ("SCE", None),
    ];
    let mut points = Vec::new();
    for (size, origin, flash) in [("200 GiB", 160 * GIB, 200 * GIB), ("1 TiB", TIB, TIB)] {
        for (name, paper) in printed {
            let of = preset(&name.to_lowercase()).with_context(|| format!("no preset {name}"))?;
            let memory = Memory::of(origin, flash, &of.choices(), &Limits::default(), 1);
            points.push(At {
                at: format!("{name}, {size}, MiB"),
                paper: paper.filter(|_| size == "200 GiB"),
                ours: Some(mib(memory.worst_bytes()).round()),
            });
        }
    }
    Ok(points)
}

fn others() -> Result<Row> {
    let (sce, flashcache, enhanceio) = at_a_tib();
    let two = |each| mib(2 * TIB / PAGE_BYTES * each) / 1024.0;
    let at = |at: &str, paper: f64, ours: f64| At {
        at: at.into(),
        paper: Some(paper),
        ours: Some(ours),
    };
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let mut points = vec![
        at("flashcache over SCE, 1 TiB", 66.0, tenth(flashcache / sce)),
        at("EnhanceIO over SCE, 1 TiB", 23.0, tenth(enhanceio / sce)),
        at("flashcache, 2 TiB, in GiB", 12.0, two(FLASHCACHE_BYTES)),
        at("EnhanceIO, 2 TiB, in GiB", 4.0, two(ENHANCEIO_BYTES)),
    ];
    points.extend(ours(TIB, TIB)?);
    points.extend(figure_13()?);
    // The paper measured in whole MiB and prints whole ratios: the sums come within one of them.
    let near = |ours: f64, paper: f64| (ours - paper).abs() < 1.0;
    let holds = near(flashcache / sce, 66.0)
        && near(enhanceio / sce, 23.0)
        && (two(FLASHCACHE_BYTES), two(ENHANCEIO_BYTES)) == (12.0, 4.0);
    Ok(Row::new("SM4", Kind::Absolute)?
        .ours(format!("{:.1}; {:.1}", flashcache / sce, enhanceio / sce))
        .points(points)
        .judged(
            holds,
            "Within one of the paper's ratios, which are of measured memory and printed in whole numbers: 76 MiB of \
             metadata and 16 MiB of buffers against 24 and 8 bytes for each page, and what was measured beyond that \
             at 200 GiB. No sum gives bcache's 15 MiB, as its index lies on flash.",
            "The sums of what the paper states of each system give its ratios.",
        ))
}

fn less() -> Result<Row> {
    let (sce, _, enhanceio) = at_a_tib();
    let tenth = |share: f64| (share * 1000.0).round() / 10.0;
    let large = 1.0 - sce / enhanceio;
    let flash = 200 * GIB;
    let small = 1.0 - (sum_mib(flash, flash) + BUFFERS_MIB) / ENHANCEIO_200_GIB;
    let at = |at: &str, paper, ours| At { at: at.into(), paper, ours: Some(tenth(ours)) };
    let mut points = vec![at("1 TiB", Some(95.0), large), at("200 GiB", None, small)];
    points.extend(ours(TIB, TIB)?);
    Ok(Row::new("SM5", Kind::Absolute)?.ours(tenth(large)).points(points).judged(
        large >= 0.945,
        "At least 95 % in whole numbers, at 1 TiB.",
        format!(
            "It is so at 1 TiB, and {} % less at 200 GiB, where buffers weigh more.",
            tenth(small)
        ),
    ))
}
