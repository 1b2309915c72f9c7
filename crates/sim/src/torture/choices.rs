// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choices of a tiny volume: those of a preset, or any that go together, with settings under which a thousand
//! requests meet more than hours of a real load.

use larder_core::buf::PAGE;
use larder_core::config::{
    AdmissionChoice, Choices, Eviction, FRAGMENT_BYTES_LEAST, Limits, Placement, ReplacementChoice,
    WritePolicy,
};
use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::pagelog::Geometry;
use larder_core::policy::admission::{
    Class, ExtendedSettings, InvestmentSettings, OnMissSettings, PeriodicSettings, Schedule,
    SelectiveSettings, SequentialSettings, SinglesSettings,
};
use larder_core::policy::balance::BalanceSettings;
use larder_core::policy::replacement::BucketOrder;
use larder_core::policy::syncer::{SyncOrder, SyncerSettings};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

const MICRO: Nanos = 1_000;

/// Draws choices for units of so many bytes; blocks of a page log.
pub(super) type Tune = fn(&mut Choices, u64, &mut Pcg64Mcg) -> u32;

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
            sequential: settings.sequential.map(|_| any_sequential(rng)),
            ..settings.clone()
        };
    }
    if let Some(settings) = choices.periodic_mut() {
        settings.schedule = Schedule::Every(rng.random_range(500..8_000) * MICRO);
        settings.hot = [0, 20, 50][rng.random_range(0..3)];
    }
    0
}

/// Choices of a cache of units whose hits the origin serves often, whatever the load.
pub(super) fn tune_balanced(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.balance = Some(BalanceSettings {
        least_in_flight: 0,
        most_slower: [1.0, 10.0, 100.0][rng.random_range(0..3)],
        probe_every: rng.random_range(1..4),
        // What is remembered for no time is always unknown, and probed.
        remembered: [0, MILLISECOND, 100 * MILLISECOND][rng.random_range(0..3)],
    });
    tune_units(choices, unit_bytes, rng)
}

/// Choices of a cache whose updates may wait until clients are idle.
pub(super) fn tune_patient(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    let blocks = tune_units(choices, unit_bytes, rng);
    if let Some(settings) = choices.periodic_mut() {
        settings.idle = [0, 100 * MICRO, 2 * MILLISECOND][rng.random_range(0..3)];
    }
    blocks
}

/// Choices of a cache with a syncer, whatever its settings.
pub(super) fn tune_synced(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    let blocks = tune_units(choices, unit_bytes, rng);
    choices.sync = any_sync(rng);
    blocks
}

/// The same; a unit is written back as soon as it is dirty.
pub(super) fn tune_synced_at_once(
    choices: &mut Choices,
    unit_bytes: u64,
    rng: &mut Pcg64Mcg,
) -> u32 {
    let blocks = tune_units(choices, unit_bytes, rng);
    choices.sync = SyncerSettings { period_ns: Some(0), ..any_sync(rng) };
    blocks
}

/// The same; a unit is written back when eviction wants its slot.
pub(super) fn tune_synced_by_eviction(
    choices: &mut Choices,
    unit_bytes: u64,
    rng: &mut Pcg64Mcg,
) -> u32 {
    let blocks = tune_units(choices, unit_bytes, rng);
    choices.sync = SyncerSettings { together: rng.random_range(1..9), ..SyncerSettings::NONE };
    blocks
}

/// Any choices of a cache of pages that each miss admits, with a syncer.
pub(super) fn any_synced(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.unit_bytes = unit_bytes;
    choices.placement = Placement::Anywhere;
    any_on_miss(choices, rng);
    choices.sync = any_sync(rng);
    0
}

fn any_sync(rng: &mut Pcg64Mcg) -> SyncerSettings {
    let span = |rng: &mut Pcg64Mcg| match rng.random_range(0..3) {
        0 => None,
        1 => Some(0),
        _ => Some(rng.random_range(0..8_000) * MICRO),
    };
    SyncerSettings {
        period_ns: span(rng),
        most_dirty: [0.0, 0.2, 0.5, 1.0][rng.random_range(0..4)],
        idle_ns: span(rng),
        order: [SyncOrder::Age, SyncOrder::Place][rng.random_range(0..2)],
        together: rng.random_range(1..9),
    }
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

/// Any choices of a clean cache of units.
pub(super) fn any_units(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.unit_bytes = unit_bytes;
    choices.placement = Placement::Anywhere;
    choices.write = match rng.random_range(0..10) {
        0 | 1 => WritePolicy::WriteAround,
        2..5 => WritePolicy::WriteThrough,
        _ => WritePolicy::AsyncWriteThrough,
    };
    match rng.random_range(0..10) {
        0 => any_update(choices, rng),
        1..8 if unit_bytes >= FRAGMENT_BYTES_LEAST => {
            choices.admission = AdmissionChoice::Selective(any_selective(rng));
            choices.eviction = Eviction::Replacement(any_replacement(rng));
        }
        _ => any_on_miss(choices, rng),
    }
    0
}

/// Any choices of a cache whose units are exchanged by updates alone.
pub(super) fn any_updated(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.unit_bytes = unit_bytes;
    any_update(choices, rng);
    0
}

/// Any choices of page logs.
pub(super) fn any_log(choices: &mut Choices, unit_bytes: u64, rng: &mut Pcg64Mcg) -> u32 {
    choices.eviction = Eviction::LogOrder { second_chance: rng.random_bool(0.5) };
    tune_log(choices, unit_bytes, rng)
}

fn any_update(choices: &mut Choices, rng: &mut Pcg64Mcg) {
    let (period, hot) = (rng.random_range(200..20_000) * MICRO, rng.random_range(0..60));
    let schedule = Schedule::Every(period);
    choices.admission = AdmissionChoice::Periodic(PeriodicSettings { schedule, idle: 0, hot });
    choices.eviction = Eviction::Update;
}

fn any_selective(rng: &mut Pcg64Mcg) -> SelectiveSettings {
    let class = |workers, target_miss_ratio, min_free_ratio, period_ns| Class {
        workers,
        target_miss_ratio,
        min_free_ratio,
        period_ns,
    };
    SelectiveSettings {
        classes: vec![
            class(rng.random_range(1..9), 0.35, 0.1, 0),
            class(rng.random_range(1..5), 0.15, 0.0, 0),
            class(2, 0.0, 0.0, rng.random_range(1..500) * MICRO),
        ],
        list_length: rng.random_range(2..100),
        window_ns: 5 * MILLISECOND,
        displace_heat: rng.random_range(1..4),
        extended: rng.random_bool(0.5).then(ExtendedSettings::default),
        by_benefit: rng.random_bool(0.5),
        investment: rng.random_bool(0.5).then(InvestmentSettings::default),
        singles: rng.random_bool(0.5).then(SinglesSettings::default),
        sequential: rng.random_bool(0.5).then(|| any_sequential(rng)),
    }
}

/// Streams of a few requests are recognised.
fn any_sequential(rng: &mut Pcg64Mcg) -> SequentialSettings {
    SequentialSettings { recognised_bytes: [0, 8 << 10, 64 << 10][rng.random_range(0..3)] }
}

fn any_replacement(rng: &mut Pcg64Mcg) -> ReplacementChoice {
    let named = ReplacementChoice::NAMED;
    let any = named[rng.random_range(0..named.len())].1;
    let clock = ReplacementChoice::GClock { ceiling: rng.random_range(1..5) };
    if rng.random_bool(0.3) { clock } else { any }
}

/// Every miss is admitted, in sets, in buckets or anywhere.
fn any_on_miss(choices: &mut Choices, rng: &mut Pcg64Mcg) {
    choices.admission = AdmissionChoice::OnMiss(OnMissSettings {
        client_waits: rng.random_bool(0.5),
        on_write: rng.random_bool(0.7),
        bypass_bytes: [0, 4 * choices.unit_bytes][rng.random_range(0..2)],
    });
    let replacement = match rng.random_range(0..4) {
        0 => {
            let ways = rng.random_range(1..9);
            choices.placement = Placement::Sets { ways, hashed: rng.random_bool(0.5) };
            [ReplacementChoice::Lru, ReplacementChoice::Fifo][rng.random_range(0..2)]
        }
        1 => {
            let order = [BucketOrder::Lru, BucketOrder::Fifo, BucketOrder::Random(rng.random())];
            let bytes = choices.unit_bytes * rng.random_range(1..5);
            ReplacementChoice::Buckets { bytes, order: order[rng.random_range(0..3)] }
        }
        _ => any_replacement(rng),
    };
    choices.eviction = Eviction::Replacement(replacement);
}

/// Any limits beside the time limits, which go with the device.
pub(super) fn any_limits(limits: &mut Limits, rng: &mut Pcg64Mcg) {
    limits.write_through_bytes = [4 << 10, 64 << 10, 8 << 20][rng.random_range(0..3)];
    limits.population_io_bytes = 4096 << rng.random_range(0..9);
    limits.population_share = [0.0, 0.01, 0.25, 1.0][rng.random_range(0..4)];
    limits.flash_errors = rng.random_range(1..40);
}
