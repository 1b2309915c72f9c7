// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choices that a check is run with: any that are lawful, or those of a preset.

use larder_core::config::{
    AdmissionChoice, Choices, Durability, Eviction, FRAGMENT_BYTES_LEAST, PRESETS, Placement,
    ReplacementChoice, WritePolicy,
};
use larder_core::exec::MILLISECOND;
use larder_core::policy::admission::{Class, OnMissSettings, SelectiveSettings};
use larder_core::policy::replacement::BucketOrder;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{Check, MICRO};

/// Choices of every kind: mostly selective admission, with any replacement.
pub(super) fn choices(check: &Check, rng: &mut Pcg64Mcg) -> Choices {
    if let Some(name) = check.preset {
        return of_preset(name, check, rng);
    }
    let any = ReplacementChoice::NAMED[rng.random_range(0..ReplacementChoice::NAMED.len())].1;
    let clock = ReplacementChoice::GClock { ceiling: rng.random_range(1..4) };
    let replacement = if rng.random_bool(0.5) { clock } else { any };
    let write = match rng.random_range(0..10) {
        0 => WritePolicy::WriteAround,
        1 | 2 => WritePolicy::WriteThrough,
        _ => WritePolicy::AsyncWriteThrough,
    };
    let on_miss = check.unit_bytes < FRAGMENT_BYTES_LEAST || rng.random_bool(0.2);
    let admission = if on_miss {
        AdmissionChoice::OnMiss(OnMissSettings {
            client_waits: rng.random_bool(0.5),
            on_write: rng.random_bool(0.7),
            bypass_bytes: [0, 4 * check.unit_bytes][rng.random_range(0..2)],
        })
    } else {
        AdmissionChoice::Selective(selective(rng))
    };
    let durability = Durability::Volatile;
    let placement = Placement::Anywhere;
    let unit_bytes = check.unit_bytes;
    let eviction = Eviction::Replacement(replacement);
    let mut choices = Choices { unit_bytes, placement, admission, eviction, write, durability };
    if on_miss && rng.random_bool(0.5) {
        let ways = rng.random_range(1..6);
        choices.placement = Placement::Sets { ways, hashed: rng.random_bool(0.5) };
        let policy = [ReplacementChoice::Lru, ReplacementChoice::Fifo][rng.random_range(0..2)];
        choices.eviction = Eviction::Replacement(policy);
    } else if on_miss && rng.random_bool(0.5) {
        let order = [BucketOrder::Lru, BucketOrder::Fifo, BucketOrder::Random(check.seed)];
        let order = order[rng.random_range(0..3)];
        let bytes = check.unit_bytes * rng.random_range(1..5);
        choices.eviction = Eviction::Replacement(ReplacementChoice::Buckets { bytes, order });
    }
    choices
}

/// A preset on a tiny volume: its numbers are shrunk, and its workers impatient, so that all of it
/// happens within some hundred requests.
fn of_preset(name: &str, check: &Check, rng: &mut Pcg64Mcg) -> Choices {
    let found = PRESETS.iter().find(|preset| preset.name == name);
    let mut choices = found.unwrap_or(&PRESETS[0]).choices();
    choices.unit_bytes = check.unit_bytes;
    match &mut choices.admission {
        AdmissionChoice::Selective(settings) => *settings = selective(rng),
        AdmissionChoice::OnMiss(settings) if settings.bypass_bytes > 0 => {
            settings.bypass_bytes = 4 * check.unit_bytes;
        }
        AdmissionChoice::OnMiss(_) | AdmissionChoice::OnExit(_) => {}
        AdmissionChoice::Periodic(settings) => {
            (settings.period, settings.hot) = (rng.random_range(1..5) * MILLISECOND, 10);
        }
    }
    if let Placement::Sets { ways, .. } = &mut choices.placement {
        *ways = rng.random_range(2..6);
    }
    match &mut choices.eviction {
        Eviction::Replacement(ReplacementChoice::GClock { ceiling }) => {
            *ceiling = rng.random_range(1..=*ceiling);
        }
        Eviction::Replacement(ReplacementChoice::Buckets { bytes, .. }) => {
            *bytes = check.unit_bytes * rng.random_range(2..5);
        }
        _ => {}
    }
    choices
}

fn selective(rng: &mut Pcg64Mcg) -> SelectiveSettings {
    let worker = |workers, target_miss_ratio, min_free_ratio, period_ns| Class {
        workers,
        target_miss_ratio,
        min_free_ratio,
        period_ns,
    };
    SelectiveSettings {
        classes: vec![
            worker(8, 0.35, 0.1, 0),
            worker(4, 0.15, 0.0, 0),
            worker(2, 0.0, 0.0, rng.random_range(1..500) * MICRO),
        ],
        list_length: rng.random_range(2..20),
        window_ns: 5 * MILLISECOND,
        displace_heat: 1,
    }
}
