// SPDX-License-Identifier: MIT OR Apache-2.0
//! Laws that every extension keeps, and what sets each of them apart.

use larder_core::config::{Eviction, ReplacementChoice};
use larder_core::exec::{MILLISECOND, SECOND};
use larder_model::profile;

use super::buckets::BUCKET_PAGES;
use super::*;

const LOG: System = System::Log(PageLog { second_chance: true, batches: true });
const BASIC: System = System::Log(PageLog { second_chance: false, batches: false });
const LC: System = System::InPlace(InPlace::LC);
const TAC: System = System::InPlace(InPlace::TAC);
const EXADATA: System = System::InPlace(InPlace::EXADATA);

fn spec(system: System) -> Spec {
    Spec {
        warehouses: 1,
        pool_pages: 400,
        flash_pages: 6_000,
        clients: 20,
        processors: 12,
        computing: 0,
        checkpoint: 2 * SECOND,
        system,
        caches: Caches::Mixed,
        sync: Sync::Back,
        fill_laps: 1,
        fill_transactions: 2_000,
        warm_transactions: 200,
        transactions: 1_500,
        crash: None,
        audit: true,
        seed: 5,
    }
}

fn outcome(spec: &Spec) -> Outcome {
    let device = |name| profile(name, 1 << 30, 1).unwrap();
    run(spec, Devices { disk: device("array-4"), flash: device("ssd-840pro") })
}

#[test]
fn every_page_that_left_is_found_as_it_left() {
    let systems = [System::None, LC, TAC, EXADATA, LOG, BASIC];
    let buckets = [BucketOrder::Lru, BucketOrder::Fifo].map(System::Buckets);
    let mut specs: Vec<Spec> = systems.into_iter().chain(buckets).map(spec).collect();
    for system in [LC, LOG, BASIC] {
        for caches in [Caches::Clean, Caches::Dirty] {
            specs.push(Spec { caches, ..spec(system) });
        }
        specs.push(Spec { sync: Sync::Through, ..spec(system) });
    }
    specs.push(Spec { sync: Sync::Through, ..spec(TAC) });
    specs.push(Spec { sync: Sync::Around, ..spec(EXADATA) });
    for spec in specs {
        let found = outcome(&spec);
        assert_eq!((found.pool.wrong, found.audited.1), (0, 0), "{spec:?}");
        assert!(found.audited.0 > 1_000 && found.transactions >= 1_500, "{spec:?} {found:?}");
        let has_hits = spec.system != System::None;
        assert_eq!(found.pool.flash_hits > 0, has_hits, "{spec:?} {found:?}");
        assert!(found.frames.used <= found.frames.all, "{found:?}");
    }
}

#[test]
fn equal_specs_give_equal_runs_and_other_seeds_others() {
    for system in [LC, LOG, System::Buckets(BucketOrder::Lru)] {
        let one = outcome(&spec(system));
        assert_eq!(one, outcome(&spec(system)));
        assert_ne!(one, outcome(&Spec { seed: 6, ..spec(system) }));
    }
}

#[test]
fn what_caches_clean_pages_alone_or_writes_through_saves_no_write() {
    let all = [
        Spec { caches: Caches::Clean, ..spec(LC) },
        Spec { caches: Caches::Clean, ..spec(LOG) },
        Spec { sync: Sync::Through, ..spec(LC) },
        Spec { sync: Sync::Through, ..spec(BASIC) },
        Spec { sync: Sync::Through, ..spec(TAC) },
        Spec { sync: Sync::Around, ..spec(EXADATA) },
        spec(System::None),
    ];
    for spec in all {
        let stop = Some(Crash { stops: true, spans: 0, span: 1 });
        let found = outcome(&Spec { crash: stop, ..spec.clone() });
        assert_eq!(found.totals.0, found.totals.1, "{spec:?}");
        assert_eq!(found.frames.dirty, 0, "{spec:?}");
    }
    for system in [LC, EXADATA, LOG, BASIC] {
        let found = outcome(&spec(system));
        assert!(found.totals.1 < found.totals.0, "{system:?} {found:?}");
    }
}

#[test]
fn the_cleaner_keeps_a_fifth_of_lcs_slots_clean() {
    // Flash is larger than what is changed, so that nothing is cleaned by leaving.
    let dirty = |cleans_above| {
        let how = InPlace { cleans_above, ..InPlace::LC };
        let dirty = Caches::Dirty;
        let spec = Spec { caches: dirty, transactions: 4_000, ..spec(System::InPlace(how)) };
        let found = outcome(&spec);
        found.frames.dirty as f64 / found.frames.all as f64
    };
    let (lazy, eager, none) = (dirty(Some(0.8)), dirty(Some(0.3)), dirty(None));
    assert!((0.7..0.82).contains(&lazy) && (0.2..0.32).contains(&eager), "{lazy} {eager}");
    assert!(none > 0.85, "{none}");
}

#[test]
fn a_log_writes_in_order_what_slots_write_at_random() {
    let (log, slots) = (outcome(&spec(LOG)), outcome(&spec(LC)));
    let mean = |tally: Tally| tally.written_bytes / tally.writes;
    assert_eq!(mean(slots.flash), PAGE_BYTES);
    assert!(mean(log.flash) > 40 * PAGE_BYTES, "{}", mean(log.flash));
    assert!(log.frames.stale > 0 && slots.frames.stale == 0);
    let single = outcome(&spec(BASIC));
    assert!(mean(single.flash) < 2 * PAGE_BYTES, "{}", mean(single.flash));
}

#[test]
fn buckets_are_as_large_as_the_presets() {
    let choices = larder_core::config::preset("bcache").unwrap().choices();
    let Eviction::Replacement(ReplacementChoice::Buckets { bytes, order }) = choices.eviction
    else {
        panic!("{choices:?}")
    };
    assert_eq!((bytes, order), (u64::from(BUCKET_PAGES) * PAGE_BYTES, BucketOrder::Lru));
}

#[test]
fn processors_bound_what_clients_do_while_devices_do_not() {
    let rate = |processors, computing| {
        let found = outcome(&Spec { processors, computing, ..spec(LOG) });
        found.transactions as f64 * SECOND as f64 / found.span_ns as f64
    };
    let (two, four, none) = (rate(2, 50 * MILLISECOND), rate(4, 50 * MILLISECOND), rate(4, 0));
    assert!((38.0..=40.5).contains(&two) && (76.0..=81.0).contains(&four), "{two} {four}");
    assert!(none > 1.2 * four, "{none}");
}

#[test]
fn tacs_directory_costs_two_writes_an_entry() {
    let writes = |directory| {
        let how = InPlace { directory, ..InPlace::TAC };
        let found = outcome(&Spec { sync: Sync::Through, ..spec(System::InPlace(how)) });
        (found.flash.writes as f64, found.entered as f64)
    };
    let ((with, entered), (without, _)) = (writes(true), writes(false));
    let more = (with - without) / entered;
    assert!((1.9..2.1).contains(&more), "{more}");
}

#[test]
fn what_was_logged_outlives_a_crash_and_comes_from_flash() {
    for seed in 1..4 {
        for system in [System::None, LOG, BASIC] {
            let crash = Some(Crash { stops: false, spans: 4, span: 200 * MILLISECOND });
            let found = outcome(&Spec { crash, seed, ..spec(system) });
            let restart = found.restart.unwrap();
            assert_eq!((restart.wrong, found.audited.1), (0, 0), "{system:?} {restart:?}");
            assert!(restart.changes > 0 && restart.redo_fetches > 0, "{restart:?}");
            let on_flash = restart.redo_flash_hits > restart.redo_fetches / 2;
            assert_eq!(on_flash, system != System::None, "{system:?} {restart:?}");
            assert!(restart.new_orders.iter().sum::<u64>() > 0);
        }
    }
    // What memory alone knows is lost with it.
    let crash = Some(Crash { stops: false, spans: 0, span: 1 });
    assert_eq!(outcome(&Spec { crash, audit: false, ..spec(LC) }).restart, None);
}

#[test]
fn a_stop_makes_all_safe_and_takes_longer_on_disk() {
    let stop = |system| {
        let crash = Some(Crash { stops: true, spans: 0, span: 1 });
        // No checkpoint before: else there is next to nothing to be made safe.
        let found = outcome(&Spec { crash, checkpoint: 1_000 * SECOND, ..spec(system) });
        assert_eq!(found.audited.1, 0);
        found.restart.unwrap().stop_ns
    };
    assert!(stop(LOG) < stop(System::None));
}
