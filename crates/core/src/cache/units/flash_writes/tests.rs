// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages a flush, a failed write or an eviction removes from the record.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const SLOT: u32 = 3;
const PAGE_BYTES: u64 = PAGE as u64;

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn record() -> FlashWrites {
    FlashWrites::new(&Exec::default(), 1 << 20)
}

/// Writes page 2 with this byte everywhere.
fn write(writes: &FlashWrites, byte: u8, succeeds: bool) {
    let held = now(writes.hold(SLOT, 2..3)).expect("no task holds the page");
    held.written(2 * PAGE_BYTES, &sums_of(&[byte; PAGE]), succeeds);
}

/// Verifies page 2, which has this byte everywhere; returns the bytes that are written again.
fn verify(writes: &FlashWrites, byte: u8) -> Option<Vec<u8>> {
    let held = now(writes.hold(SLOT, 2..3)).expect("no task holds the page");
    let mut bytes = vec![byte; PAGE];
    let again = held.verify(&mut bytes);
    held.verified(writes.doubts());
    again.then_some(bytes)
}

fn differs(writes: &FlashWrites, byte: u8) -> bool {
    !writes.mismatches(SLOT, 2 * PAGE_BYTES, &[byte; PAGE]).is_empty()
}

#[test]
fn a_flush_covers_the_writes_that_ended_before_it() {
    let writes = record();
    assert!(!writes.is_durable(), "an earlier life may have left writes");
    write(&writes, 1, true);
    let begun = writes.flush_begins();
    assert!(writes.flushed(begun) && writes.is_durable() && !differs(&writes, 9));
    let begun = writes.flush_begins();
    write(&writes, 2, true);
    assert!(writes.flushed(begun) && !writes.is_durable());
    assert!(differs(&writes, 1) && !differs(&writes, 2));
}

#[test]
fn a_write_waits_for_the_one_before_it() {
    let writes = record();
    let held = now(writes.hold(SLOT, 1..3)).unwrap();
    assert!(now(writes.hold(SLOT, 2..5)).is_none() && now(writes.unheld(SLOT)).is_none());
    assert!(now(writes.hold(SLOT, 3..5)).is_some() && now(writes.unheld(SLOT + 1)).is_some());
    drop(held);
    assert!(now(writes.unheld(SLOT)).is_some());
    assert_eq!(writes.state.borrow().pages.len(), 0, "nothing was written");
}

#[test]
fn after_a_failed_flush_a_page_is_written_again_or_lost() {
    let writes = record();
    write(&writes, 1, true);
    let begun = writes.flush_begins();
    writes.doubt();
    assert!(!writes.flushed(begun), "another flush succeeds");
    assert_eq!(writes.doubted(9), [(SLOT, 2)]);
    assert_eq!(verify(&writes, 1), Some(vec![1; PAGE]));
    assert_eq!((writes.doubted(9), verify(&writes, 1)), (vec![], None));
    writes.doubt();
    assert_eq!(verify(&writes, 7), None, "nothing is left to write");
    let range = (2 * PAGE_BYTES + 512, 512);
    assert!(writes.is_lost(SLOT, range) && writes.has_lost(SLOT) && differs(&writes, 7));
    assert!(!writes.is_lost(SLOT, (3 * PAGE_BYTES, PAGE_BYTES)));
    write(&writes, 2, true);
    assert!(!writes.has_any_lost() && !differs(&writes, 2));
}

#[test]
fn zeroes_that_are_lost_are_written_again() {
    let writes = record();
    write(&writes, 0, true);
    writes.doubt();
    assert_eq!(verify(&writes, 7), Some(vec![0; PAGE]));
    assert!(!writes.has_any_lost());
}

#[test]
fn after_a_failed_write_a_sector_has_the_older_or_the_newer_bytes() {
    let writes = record();
    write(&writes, 1, true);
    write(&writes, 2, false);
    assert!(!differs(&writes, 1) && !differs(&writes, 2) && differs(&writes, 3));
    writes.doubt();
    assert_eq!(verify(&writes, 2), Some(vec![2; PAGE]));
    write(&writes, 4, true);
    assert!(differs(&writes, 2) && !differs(&writes, 4));
    // Without an older write in the record a flush covers what was there.
    let other = record();
    write(&other, 2, false);
    assert!(!differs(&other, 9));
}

#[test]
fn a_read_beside_a_flush_is_repeated_only_if_it_must_be_compared() {
    let (writes, range) = (record(), (2 * PAGE_BYTES, PAGE_BYTES));
    let free = writes.watch(SLOT, range);
    write(&writes, 1, true);
    let watch = writes.watch(SLOT, range);
    let begun = writes.flush_begins();
    assert!(writes.is_current(watch) && writes.flushed(begun));
    assert!(!writes.is_current(watch) && writes.is_current(free));
}
