// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin that takes its time is written by several threads at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_core::request::Errno;
use larder_shared::{Devices, Member, Memory, Origin, Pages, Shape};

/// A write that takes so long waits for a device.
const SLOW: Duration = Duration::from_micros(400);

#[derive(Default)]
struct State {
    has: BTreeMap<u64, u8>,
    /// Writes, at the moment and in all, and how many there were at a time.
    now: usize,
    writes: usize,
    most: usize,
}

/// An origin that takes its time, and counts who is in it.
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
fn a_slow_origin_is_written_by_several_and_what_it_refuses_is_told() {
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
        flash: Arc::new(flash.try_clone().unwrap().into()),
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
    let brought = |page: u64| state().has.get(&page) == Some(&(page as u8));
    assert!((100..228).chain(1000..1512).all(brought));
    assert!(state().most > 1, "one after the other");
    // The first pages show how slow it is; behind them neighbours go together.
    assert!(state().writes < 64 + 60, "{} writes", state().writes);
    put(64..80);
    put(200..210);
    assert_eq!(pages.flush(), Err(Errno::EIO));
    // What lies beside the bad one may not be there either.
    assert!((64..77).chain(200..210).all(brought));
    assert!(!brought(77));
    let dirty = pages.status().dirty;
    assert!((1..=16).contains(&dirty), "{dirty}");
}
