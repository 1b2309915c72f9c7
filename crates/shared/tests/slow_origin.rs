// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slow origin is written by several threads at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_core::request::Errno;
use larder_shared::{Devices, Member, Memory, Origin, Pages, Shape};

/// Duration of a write, long enough to count as slow.
const SLOW: Duration = Duration::from_micros(400);

#[derive(Default)]
struct State {
    has: BTreeMap<u64, u8>,
    /// Writes in flight, writes in all, and the most in flight at a time.
    now: usize,
    writes: usize,
    most: usize,
}

/// A slow origin that counts its concurrent writes.
#[derive(Clone, Default)]
struct Slowly(Arc<Mutex<State>>);

impl Origin for Slowly {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn write(&self, page: u64, pages: &[Buf], _: &Member) -> Result<(), Errno> {
        {
            let mut state = self.0.lock().expect("no panic");
            state.writes += 1;
            state.now += 1;
            state.most = state.most.max(state.now);
        }
        std::thread::sleep(SLOW);
        let mut state = self.0.lock().expect("no panic");
        state.now -= 1;
        for (page, bytes) in (page..).zip(pages) {
            if page == 77 {
                return Err(Errno::EIO);
            }
            state.has.insert(page, bytes[0]);
        }
        Ok(())
    }
    fn flush(&self, _: &Member) -> Result<(), Errno> {
        Ok(())
    }
    fn again(&self) -> Option<Box<dyn Origin + Send>> {
        Some(Box::new(self.clone()))
    }
}

#[test]
fn a_slow_origin_is_written_in_parallel_and_failed_writes_are_reported() {
    let log = Geometry { base: 0, blocks: 0, page_bytes: 4096, batch_pages: 64, volume: 9 };
    let log = log.grown_to(2000 * 4096).unwrap();
    let flash = rustix::fs::memfd_create("flash", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let flash = std::fs::File::from(flash);
    for (at, bytes) in log.blank() {
        std::os::unix::fs::FileExt::write_all_at(&flash, &bytes, at).unwrap();
    }
    let settings = LogSettings { policy: LogPolicy::Bounded, second_chance: false };
    let memory = Memory::anonymous(Shape { log, settings, user_words: 0 }).unwrap();
    let origin = Slowly::default();
    let devices = || Devices {
        flash: std::os::fd::OwnedFd::from(flash.try_clone().unwrap()).into(),
        origin: Box::new(origin.clone()),
    };
    let (pages, _) = Pages::start(&memory, devices()).unwrap();
    let put = |range: std::ops::Range<u64>| {
        range.for_each(|page| pages.write(page, &[page as u8; 4096]).unwrap());
    };
    put(100..228);
    put(1000..1512);
    pages.flush().unwrap();
    let state = || origin.0.lock().unwrap();
    let written = |page: u64| state().has.get(&page) == Some(&(page as u8));
    assert!((100..228).chain(1000..1512).all(written));
    assert!(state().most > 1, "writes were not parallel");
    // The first pages measure the speed; after them neighbours are written together.
    assert!(state().writes < 64 + 60, "{} writes", state().writes);
    put(64..80);
    put(200..210);
    assert_eq!(pages.flush(), Err(Errno::EIO));
    // Neighbours of the failing page may be missing too.
    assert!((64..77).chain(200..210).all(written));
    assert!(!written(77));
    let dirty = pages.status().dirty;
    assert!((1..=16).contains(&dirty), "{dirty}");
}
