// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the shipped trace and of generated traces with known statistics.
#![allow(clippy::unwrap_used)]

use larder_trace::info::{Info, Progress, info};
use larder_trace::{Op, Options, Record, Trace, Writer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn info_of(records: impl IntoIterator<Item = Record>) -> Info {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.btr");
    let mut writer = Writer::create(&path, None).unwrap();
    records.into_iter().for_each(|record| writer.write(&record).unwrap());
    writer.finish().unwrap();
    info(&Trace::new(&path, Options::default()), false, |_| {}).unwrap()
}

fn page(ts_us: u64, page: u64) -> Record {
    Record::new(ts_us, 0, Op::Read, page * 4096, 4096).unwrap()
}

/// Compares with figures that other programs computed: accesses, pages, LRU.
#[test]
fn the_shipped_trace_has_its_known_statistics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/pg15_zipf_update.btr.zst");
    let mut reports = Vec::new();
    let trace = Trace::new(path.as_ref(), Options::default());
    let found = info(&trace, false, |t| reports.push(t)).unwrap();
    assert!(matches!(reports[..], [Progress::Exact(_)]), "{reports:?}");
    let (all, reuse) = (found.totals.all, &found.reuse);
    assert_eq!((all.requests, all.accesses, reuse.unique), (238_118, 476_972, 99_084));
    assert_eq!(found.totals.devices[&0].accesses, 465_794);
    assert_eq!(reuse.unique_of.iter().sum::<u64>(), reuse.unique);
    assert_eq!(found.totals.duration_us() / 1_000_000, 176);
    for (pages, expected) in [(990, 0.9851), (4954, 0.5529), (9908, 0.464), (24771, 0.3451)] {
        assert!((reuse.curve.miss_ratio(pages) - expected).abs() < 0.000_06, "{pages}");
    }
    assert!(found.sample_pages == 16384 && found.sample_error.unwrap() <= 0.01);
    let in_windows: u64 = reuse.working_set.iter().map(|w| w.accesses).sum();
    assert_eq!(in_windows, all.accesses);
}

/// Zipf over 200,000 pages, so that the sample is a twelfth of them.
#[test]
fn the_sampled_curve_is_close_to_the_exact_one() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let records = (0..1_000_000).map(|n| {
        let share: f64 = rng.random();
        page(n, (200_000_f64.powf(share) as u64).wrapping_mul(7919) % 200_003)
    });
    let found = info_of(records);
    assert!(found.reuse.exact && found.sample_ratio < 0.2);
    assert!(found.sample_error.unwrap() <= 0.01, "{:?}", found.sample_error);
}

#[test]
fn a_loop_has_one_distance_and_equal_windows() {
    let found = info_of((0..48_000).map(|n| page(n, n % 1000)));
    let curve = &found.reuse.curve;
    assert_eq!((curve.distance(0.01), curve.distance(0.99)), (Some(999), Some(999)));
    assert_eq!(curve.miss_ratio(999), 1.0);
    assert!((curve.miss_ratio(1000) - 1.0 / 48.0).abs() < 1e-12);
    assert_eq!(found.sample_error, Some(0.0), "with so few pages all are in the sample");
    let windows = &found.reuse.working_set;
    assert!(windows.len() == 48 && windows.iter().all(|w| w.unique == 1000 && w.accesses == 1000));
    assert_eq!(windows[47].begin, 47_000);
}

#[test]
fn an_empty_trace_has_zero_statistics() {
    let found = info_of([]);
    assert_eq!((found.totals.all.requests, found.reuse.unique), (0, 0));
    assert_eq!(found.reuse.curve.distance(0.5), None);
}
