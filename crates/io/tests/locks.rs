// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the recovery of a ublk device relies on: the lock of a file lasts as long as an operation of a ring on it, also when
//! the descriptor is closed, as at the death of a process. A pipe stands for the file, since an operation on it can be held.
#![allow(clippy::unwrap_used, unsafe_code)] // a test that cannot continue fails

use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, mknodat, open};

const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;

#[test]
fn a_lock_lasts_until_the_last_operation_on_its_file_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let file = |flags| open(&path, OFlags::RDWR | flags, Mode::empty()).unwrap();
    let (held, other) = (file(OFlags::empty()), file(OFlags::NONBLOCK));
    flock(&held, LOCK).unwrap();
    let mut ring = IoUring::new(4).unwrap();
    let mut byte = Box::new(0_u8);
    let read = opcode::Read::new(types::Fd(held.as_raw_fd()), &raw mut *byte, 1).build();
    // SAFETY: the byte is in a box that lives until the end of this function, after the completion.
    unsafe { ring.submission().push(&read).unwrap() };
    ring.submit().unwrap();
    drop(held);
    assert!(flock(&other, LOCK).is_err(), "the operation holds the file, and the file the lock");
    rustix::io::write(&other, &[7]).unwrap();
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), 1);
    drop(ring);
    let ended = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        flock(&other, LOCK).is_ok()
    });
    assert!(ended && *byte == 7);
}
