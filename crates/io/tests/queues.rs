// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events and commands of queues on the ring.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::turn_until;
use larder_core::request::Errno;
use larder_io::{Driver, QueueEvent, QueueOp};
use rustix::event::{EventfdFlags, eventfd};

fn event(flags: EventfdFlags) -> Arc<OwnedFd> {
    Arc::new(eventfd(0, flags | EventfdFlags::CLOEXEC).unwrap())
}

fn signal(event: &OwnedFd) {
    rustix::io::write(event, &3_u64.to_ne_bytes()).unwrap();
}

fn next(driver: &mut Driver) -> QueueEvent {
    turn_until(driver, Driver::next_queue_event)
}

fn is_silent(driver: &mut Driver) -> bool {
    let end = driver.now() + 30_000_000;
    while driver.now() < end {
        driver.turn(Some(end)).unwrap();
    }
    driver.next_queue_event().is_none()
}

#[test]
fn an_event_ends_its_wait_and_is_reset_whether_or_not_its_descriptor_blocks() {
    let mut driver = Driver::new().unwrap();
    for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
        let event = event(flags);
        for token in 0..3 {
            driver.queue_op(7, token, QueueOp::Event(Arc::clone(&event)));
            assert!(is_silent(&mut driver), "there was no event");
            signal(&event);
            assert_eq!(next(&mut driver), QueueEvent { queue: 7, token, result: Ok(0) });
        }
        // An event that comes before its wait is not lost.
        signal(&event);
        driver.queue_op(7, 9, QueueOp::Event(Arc::clone(&event)));
        assert_eq!(next(&mut driver).token, 9);
    }
}

#[test]
fn a_peer_that_takes_an_event_back_blocks_nothing() {
    let mut driver = Driver::new().unwrap();
    let stolen = event(EventfdFlags::NONBLOCK);
    driver.queue_op(1, 1, QueueOp::Event(Arc::clone(&stolen)));
    driver.turn(Some(driver.now())).unwrap();
    signal(&stolen);
    rustix::io::read(&stolen, &mut [0; 8]).unwrap();
    assert!(is_silent(&mut driver));
    signal(&stolen);
    assert_eq!(next(&mut driver).token, 1);
}

#[test]
fn a_signal_reaches_its_descriptor_and_a_full_one_blocks_nothing() {
    let mut driver = Driver::new().unwrap();
    for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
        let event = event(flags);
        driver.queue_op(4, 1, QueueOp::Signal(Arc::clone(&event)));
        assert_eq!(next(&mut driver), QueueEvent { queue: 4, token: 1, result: Ok(0) });
        let mut word = [0; 8];
        rustix::io::read(&event, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 1);
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        driver.queue_op(4, 2, QueueOp::Signal(Arc::clone(&event)));
        driver.turn(Some(driver.now() + 30_000_000)).unwrap();
        driver.drop_queue(4);
        assert!(is_silent(&mut driver));
    }
}

#[test]
fn a_dropped_queue_has_no_event_and_its_number_can_be_used_again() {
    let mut driver = Driver::new().unwrap();
    let (old, new) = (event(EventfdFlags::empty()), event(EventfdFlags::NONBLOCK));
    driver.queue_op(2, 1, QueueOp::Event(Arc::clone(&old)));
    driver.queue_op(2, 2, QueueOp::Event(Arc::clone(&new)));
    driver.turn(Some(driver.now())).unwrap();
    driver.drop_queue(2);
    driver.queue_op(2, 3, QueueOp::Event(Arc::clone(&new)));
    assert!(is_silent(&mut driver));
    signal(&old);
    signal(&new);
    assert_eq!(next(&mut driver), QueueEvent { queue: 2, token: 3, result: Ok(0) });
    assert!(is_silent(&mut driver));
    // The driver owned the descriptor until its wait was cancelled.
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
}

#[test]
fn a_command_that_no_driver_knows_fails() {
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let mut driver = Driver::new().unwrap();
    let command = QueueOp::Command { device: file, number: 1, arguments: [0; 16] };
    driver.queue_op(3, 5, command);
    let QueueEvent { queue: 3, token: 5, result: Err(errno) } = next(&mut driver) else {
        panic!("a file takes no commands")
    };
    assert!([Errno::EOPNOTSUPP, Errno::EINVAL].contains(&errno), "{errno}");
}

#[test]
fn a_driver_with_waits_in_flight_ends_at_once() {
    let mut driver = Driver::new().unwrap();
    let events: Vec<_> = (0..600).map(|_| event(EventfdFlags::empty())).collect();
    for (token, event) in (0..).zip(&events) {
        driver.queue_op(1, token, QueueOp::Event(Arc::clone(event)));
    }
    let began = Instant::now();
    drop(driver);
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(events.iter().all(|event| Arc::strong_count(event) == 1));
}
