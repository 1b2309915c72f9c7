// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choices of a tiny volume: those of a preset, with settings under which a thousand requests meet more than hours
//! of a real load.

use larder_core::buf::PAGE;
use larder_core::config::{AdmissionChoice, Choices, FRAGMENT_BYTES_LEAST, Placement};
use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::pagelog::Geometry;
use larder_core::policy::admission::{Class, OnMissSettings, SelectiveSettings};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

const MICRO: Nanos = 1_000;

/// Choices of a cache of units.
pub(super) fn tune_units(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    if choices.unit_bytes >= FRAGMENT_BYTES_LEAST {
        choices.unit_bytes = unit_bytes;
    }
    if let Placement::Sets { ways, .. } = &mut choices.placement {
        *ways = rng.random_range(1..9);
    }
    if unit_bytes < FRAGMENT_BYTES_LEAST
        && let AdmissionChoice::Selective(_) = choices.admission
    {
        let client_waits = rng.random_bool(0.5);
        let settings = OnMissSettings { client_waits, on_write: true, bypass_bytes: 0 };
        choices.admission = AdmissionChoice::OnMiss(settings);
    }
    if let Some(settings) = choices.selective_mut() {
        let class = |workers, target_miss_ratio, period_ns| Class {
            workers,
            target_miss_ratio,
            min_free_ratio: 0.0,
            period_ns,
        };
        *settings = SelectiveSettings {
            classes: vec![class(4, 0.2, 0), class(2, 0.0, rng.random_range(0..200) * MICRO)],
            list_length: rng.random_range(2..20),
            window_ns: 5 * MILLISECOND,
            displace_heat: 1,
        };
    }
    if let Some(settings) = choices.periodic_mut() {
        settings.period = rng.random_range(500..8_000) * MICRO;
        settings.hot = [0, 20, 50][rng.random_range(0..3)];
    }
    0
}

/// Choices of page logs: small batches, and logs of a few of them, so that laps are short.
pub(super) fn tune_log(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.unit_bytes = unit_bytes;
    let mut settings = choices.on_exit();
    settings.batch_pages = [2, 4, 8][rng.random_range(0..3)];
    settings.reads = rng.random_bool(0.8);
    choices.admission = AdmissionChoice::OnExit(settings);
    let (page_bytes, batch_pages) = (PAGE as u32, settings.batch_pages);
    let log = Geometry { base: 0, blocks: 0, page_bytes, batch_pages, volume: 0 };
    let least = log.least_blocks();
    let log = Geometry { blocks: least + rng.random_range(0..2 * least), ..log };
    log.grown_to(log.bytes()).map_or(log.blocks, |log| log.blocks)
}
