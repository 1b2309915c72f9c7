// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of [`super`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::*;

const VALID: u64 = 1000;

fn lazy() -> Touched {
    Touched::new(Some(TouchSettings::default()), 64)
}

fn at(period: u32) -> Now {
    Now { period, used: 100, valid_regions: VALID, ..Now::default() }
}

#[test]
fn a_region_that_is_written_now_and_then_needs_one_record() {
    let mut policy = lazy();
    assert_eq!(policy.write(1, 0b10), Needs { now: 0b10, ahead: 0, before: 0 });
    for period in 1..200 {
        assert!(policy.choose(at(period), 256, (|_| false, |_, _| false)).is_empty());
        assert_eq!(policy.write(1, 0b10).now, 0);
    }
    let idle = (200..300)
        .find(|period| !policy.choose(at(*period), 256, (|_| false, |_, _| false)).is_empty());
    assert!(idle.is_some_and(|period| (229..=261).contains(&period)), "{idle:?}");
    assert_eq!(policy.write(1, 0b10).now, 0b10);
}

#[test]
fn the_oldest_are_cleaned_first_and_what_is_written_again_stays() {
    let mut policy = lazy();
    for slot in 0..40 {
        policy.write(slot, 1);
    }
    for slot in 0..10 {
        policy.write(slot, 1);
    }
    let cleaned = policy.choose(at(1), 256, (|_| false, |_, _| false));
    let slots: Vec<u32> = cleaned.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, (10..25).collect::<Vec<u32>>());
}

#[test]
fn a_sequential_writer_finds_its_regions_touched() {
    let mut policy = lazy();
    let waits = (0..256_u32).filter(|page| policy.write(7, 1 << (page / 4)).now != 0).count();
    assert!(waits <= 4, "{waits}");
    let mut policy = lazy();
    let scattered = (0..64_u64).map(|n| n * 29 % 64);
    assert!(scattered.into_iter().all(|region| policy.write(7, 1 << region).ahead == 0));
}

#[test]
fn without_settings_checkpoints_and_pauses_clean_all() {
    let mut policy = Touched::new(None, 64);
    assert_eq!(policy.write(3, 0b11).now, 0b11);
    assert_eq!(policy.write(3, 0b01), Needs::default());
    assert_eq!(policy.write(3, 0b110).now, 0b110, "the record names all regions of the write");
    assert!(policy.defers(3) && policy.choose(at(1), 256, (|_| false, |_, _| false)).is_empty());
    let quiet = Now { quiet: true, ..at(1) };
    assert_eq!(policy.choose(quiet, 256, (|_| false, |_, _| false)), [(3, 0b111)]);
    policy.write(4, 1);
    assert_eq!(policy.choose_at_checkpoint(), BTreeMap::from([(4, 1)]));
    assert!(policy.is_empty() && policy.count() == 0);
}

/// Draws numbers below a bound.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// One step of the policy beside a plain model of the touched regions.
fn step(policy: &mut Touched, model: &mut BTreeMap<u32, u64>, draws: &mut Draws, period: u32) {
    let (slot, region) = (draws.below(12), draws.below(64));
    let mask = 1_u64 << region | 1 << (region + draws.below(5)).min(63);
    match draws.below(8) {
        0 => {
            policy.forget(slot);
            model.remove(&slot);
        }
        1 => {
            policy.put_back(slot, mask);
            *model.entry(slot).or_default() |= mask;
        }
        2 => {
            let now = Now { period, valid_regions: 200, ..Now::default() };
            let chosen = policy.choose(now, 8, (|_| false, |s, _| s == slot));
            assert!(chosen.len() <= 8 && chosen.iter().all(|(s, _)| *s != slot));
            for (cleaned, bits) in chosen {
                let known = model.entry(cleaned).or_default();
                assert_eq!(*known & bits, bits, "a region that is cleaned was touched");
                *known &= !bits;
            }
        }
        _ => {
            let known = model.get(&slot).copied().unwrap_or(0);
            let needs = policy.write(slot, mask);
            assert_eq!((needs.now, needs.before), (mask & !known, known));
            assert_eq!(needs.ahead & (known | mask), 0);
            *model.entry(slot).or_default() |= needs.now | needs.ahead;
        }
    }
}

/// The touched regions are exactly those of a plain model, and the queue is bounded.
#[test]
fn regions_are_touched_as_in_a_model() {
    for seed in 0..200 {
        let settings = TouchSettings { idle_periods: 4, ..TouchSettings::default() };
        let mut policy = Touched::new(Some(settings), 64);
        let (mut model, mut draws) = (BTreeMap::new(), Draws(seed));
        for number in 0..400 {
            step(&mut policy, &mut model, &mut draws, number / 8);
            for (slot, bits) in &model {
                assert_eq!(policy.mask(*slot), *bits, "seed {seed}, step {number}");
            }
            let sum: u32 = model.values().map(|bits| bits.count_ones()).sum();
            assert_eq!(policy.count(), u64::from(sum));
            assert!(policy.queue.len() <= 2 * 12 * 64 + 64);
        }
    }
}

/// Whatever is written, a choice that no write keeps busy leaves at most three quarters of the budget.
#[test]
fn a_choice_keeps_the_budget() {
    for seed in 0..200 {
        let (mut policy, mut draws) = (lazy(), Draws(seed));
        for _ in 0..draws.below(600) {
            policy.write(draws.below(50), 1 << draws.below(64));
        }
        policy.choose(at(1), usize::MAX, (|_| false, |_, _| false));
        assert!(policy.count() <= high(50), "seed {seed}: {}", policy.count());
    }
}

#[test]
fn flushes_take_a_share_of_the_time_and_rests_end() {
    let policy = lazy();
    assert_eq!((policy.rest(0), policy.rest(1_000_000)), (0, 49_000_000));
    assert_eq!(policy.rest(10_000_000_000), 300_000_000_000);
    assert_eq!(Touched::new(None, 64).rest(1_000_000), 0);
}
