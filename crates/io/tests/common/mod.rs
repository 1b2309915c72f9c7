// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of this crate's tests. None waits longer than [`PATIENCE`].
#![allow(clippy::unwrap_used)] // a test that cannot continue fails
#![allow(dead_code)] // each test uses a part of this module

pub mod server;

use std::path::Path;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::request::Errno;
use larder_io::{Access, DevSpec, Device, Done, Driver, NetEvent};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const DEV: DevId = DevId(3);
pub const OWNER: u32 = 77;

pub fn driver_for(device: &Device) -> Driver {
    let mut driver = Driver::new().unwrap();
    driver.attach(DEV, device.clone());
    driver
}

pub fn io(kind: IoKind, offset: u64, len: u64) -> Io {
    let buf = match kind {
        IoKind::Read => Some(Buf::copy_of(&vec![0xEE; len as usize])),
        _ => None,
    };
    Io { id: IoId(1), dev: DEV, kind, offset, len, buf, at: 0 }
}

pub fn write_io(offset: u64, data: &[u8], fua: bool) -> Io {
    Io { buf: Some(Buf::copy_of(data)), ..io(IoKind::Write { fua }, offset, data.len() as u64) }
}

/// Turns the driver until `take` returns something.
pub fn turn_until<T>(driver: &mut Driver, mut take: impl FnMut(&mut Driver) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = take(driver) {
            return found;
        }
        assert!(Instant::now() < deadline, "no event within the time limit");
        driver.turn(Some(driver.now() + 100_000_000)).unwrap();
    }
}

pub fn next_done(driver: &mut Driver) -> Done {
    turn_until(driver, Driver::next_done)
}

pub fn next_net(driver: &mut Driver) -> NetEvent {
    turn_until(driver, Driver::next_net)
}

/// Turns for a while and asserts that no operation ends.
pub fn expect_nothing(driver: &mut Driver, span: Duration) {
    let deadline = Instant::now() + span;
    while Instant::now() < deadline {
        assert!(driver.next_done().is_none());
        driver.turn(Some(driver.now() + 5_000_000)).unwrap();
    }
}

pub fn run(driver: &mut Driver, io: Io) -> Result<Option<Buf>, Errno> {
    let id = io.id;
    driver.start(OWNER, io);
    let done = next_done(driver);
    assert_eq!((done.id, done.owner), (id, OWNER));
    done.result.map(|()| done.buf)
}

pub fn write(driver: &mut Driver, offset: u64, data: &[u8], fua: bool) -> Result<(), Errno> {
    run(driver, write_io(offset, data, fua)).map(|_| ())
}

pub fn read(driver: &mut Driver, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
    run(driver, io(IoKind::Read, offset, len)).map(|buf| buf.unwrap().to_vec())
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (((i + seed) * 2_654_435_761) >> 13) as u8).collect()
}

/// A file of `bytes` in `dir`.
pub fn file_in(dir: &Path, bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(dir).unwrap();
    file.as_file().set_len(bytes).unwrap();
    file
}

pub fn open(path: &Path) -> Device {
    Device::open(&DevSpec::Path(path.to_owned()), Access::ReadWrite).unwrap()
}
