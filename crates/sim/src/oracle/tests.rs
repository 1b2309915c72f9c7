// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a history may be, in small cases.

use super::*;

fn sector_of(write: WriteId) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    fill(3, write, &mut bytes);
    bytes
}

/// A history over sector 3: writes 1 and 2 at 10..20 and 15..40.
fn two_writes() -> Oracle {
    let mut oracle = Oracle::default();
    let (first, _) = oracle.write_begins(1536, 512, 10);
    let (second, _) = oracle.write_begins(1536, 512, 15);
    oracle.answered(first, 1536, 512, 20);
    oracle.answered(second, 1536, 512, 40);
    oracle
}

#[test]
fn concurrent_writes_may_take_either_order_but_only_one() {
    let mut oracle = two_writes();
    oracle.read(1536, &sector_of(2), 16, 18).unwrap();
    oracle.read(1536, &sector_of(1), 50, 55).unwrap();
    oracle.judge().unwrap();
    oracle.read(1536, &sector_of(2), 60, 65).unwrap();
    assert!(oracle.judge().is_err(), "2, then 1, then 2 again");
}

#[test]
fn stale_future_foreign_and_torn_values_are_told() {
    let mut oracle = two_writes();
    let mut read = |w, s, e| oracle.read(1536, &sector_of(w), s, e);
    assert!(read(0, 50, 60).unwrap_err().what.contains("came after it"));
    assert!(read(2, 5, 9).unwrap_err().what.contains("before it began"));
    assert!(read(9, 50, 60).unwrap_err().what.contains("never wrote"));
    let mut torn = sector_of(1);
    torn[256..].copy_from_slice(&sector_of(2)[256..]);
    assert!(oracle.read(1536, &torn, 50, 60).unwrap_err().what.contains("torn"));
    assert!(oracle.read(1024, &sector_of(1), 50, 60).unwrap_err().what.contains("of sector 3"));
}

#[test]
fn new_then_old_is_no_order() {
    let mut oracle = Oracle::default();
    let (_, _) = oracle.write_begins(1536, 512, 10); // never answered
    oracle.read(1536, &sector_of(1), 20, 30).unwrap();
    oracle.read(1536, &sector_of(0), 40, 50).unwrap();
    assert!(oracle.judge().is_err());
}

#[test]
fn nothing_older_than_what_was_answered_under_fua_is_durable() {
    let mut oracle = two_writes();
    let zero = oracle.zero_begins(1536, 512, 50);
    oracle.answered(zero, 1536, 512, 60);
    oracle.durable_fua(3, Value::Of(2)).unwrap();
    oracle.answered_fua(zero, 1536, 512);
    oracle.durable_fua(3, Value::Zero).unwrap();
    assert!(oracle.durable_fua(3, Value::Of(2)).is_err());
    let (third, _) = oracle.write_begins(1536, 512, 70);
    oracle.answered(third, 1536, 512, 80);
    oracle.answered_fua(third, 1536, 512);
    oracle.durable_fua(3, Value::Of(3)).unwrap();
    assert!(oracle.durable_fua(3, Value::Zero).is_err());
}

#[test]
fn zeroes_need_a_zeroing_that_nothing_wiped_out() {
    let mut oracle = two_writes();
    assert!(oracle.read(1536, &[0; 512], 50, 60).is_err());
    let zero = oracle.zero_begins(1536, 512, 70);
    oracle.answered(zero, 1536, 512, 80);
    oracle.read(1536, &[0; 512], 90, 95).unwrap();
    assert!(oracle.read(1536, &sector_of(2), 90, 95).is_err());
}
