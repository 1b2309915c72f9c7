// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes over one flash whose devices hang or fail while a volume leaves, is outside, or is emptied at a start.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::config::{Limits, preset};
use larder_core::exec::MILLISECOND;
use larder_core::format::{OriginPlace, Wishes};
use larder_core::request::{Errno, Kind};
use larder_core::volumes::Share;
use larder_io::{Access, DevSpec, Device, Fault, Target};
use larder_testkit::load::{PATIENCE, eventually};
use larder_volume::{
    Cache, CacheConfig, FlashDevice, StateFile, Volume, VolumeConfig, VolumeError, VolumeRanges,
};

const BYTES: u64 = 4 << 20;
const NAMES: [&str; 2] = ["a", "b"];

/// A cache of two volumes in a directory, with the faults of its devices.
struct Pair {
    cache: Arc<Cache>,
    a: Arc<Volume>,
    b: Arc<Volume>,
}

/// Faults of the origin of the first volume, and of flash.
#[derive(Default)]
struct Faults {
    origin: Fault,
    flash: Fault,
}

fn open(dir: &Path, name: &str, bytes: u64) -> Device {
    let path = dir.join(name);
    if !path.exists() {
        File::create_new(&path).unwrap().set_len(bytes).unwrap();
    }
    let mut opened = None;
    eventually("the threads of the cache before have closed it", || {
        opened = Device::open(&DevSpec::Path(path.clone()), Access::ReadWrite).ok();
        opened.is_some()
    });
    opened.unwrap()
}

impl Pair {
    /// Starts the cache and attaches its flash.
    fn start(dir: &Path, name: &str, faults: &Faults) -> Self {
        let pair = Self::without_flash(dir, name, faults);
        pair.attach(dir, faults).unwrap();
        pair
    }

    fn without_flash(dir: &Path, name: &str, faults: &Faults) -> Self {
        let mut choices = preset(name.trim_end_matches("-unlogged")).unwrap().choices();
        // As --assume-dirty: what is recovered counts as dirty.
        choices.dirty_log = !name.ends_with("-unlogged");
        let place = |name: &str| OriginPlace {
            name: name.into(),
            resolved: format!("/{name}"),
            link: None,
        };
        let state = StateFile::new(&dir.join("state"), "fast", "/a").over(NAMES.map(place).into());
        let of = |name: &str| VolumeConfig {
            name: name.to_owned(),
            generation: 0,
            origin: open(dir, name, BYTES),
            share: Share::default(),
            ranges: VolumeRanges::default(),
        };
        let mut volumes: Vec<VolumeConfig> = NAMES.into_iter().map(of).collect();
        volumes[0].origin = volumes[0].origin.clone().with_fault(&faults.origin);
        let base = CacheConfig::of(volumes[0].origin.clone(), choices, 2);
        let limits = Limits { origin_patience: 500 * MILLISECOND, ..Limits::default() };
        let (name, state) = ("fast".to_owned(), Some(state));
        let config = CacheConfig { name, volumes, state, limits, ..base };
        let cache = Cache::start(config).unwrap();
        let [a, b] = cache.volumes().try_into().ok().unwrap();
        Self { cache, a, b }
    }

    fn attach(&self, dir: &Path, faults: &Faults) -> Result<(), VolumeError> {
        let flash = open(dir, "flash", 16 << 20).with_fault(&faults.flash);
        let (shape, choices) = (self.cache.shape(), &self.cache.config().choices);
        self.cache.attach(FlashDevice::prepare(
            flash,
            (None, None),
            shape,
            choices,
            Wishes::default(),
        )?)
    }

    fn stop(self) {
        self.cache.stop(PATIENCE, |_| (), || false).unwrap();
    }
}

fn ask(volume: &Volume, kind: Kind, offset: u64, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let (done, is_done) = channel();
    let (bufs, len) = match kind {
        Kind::Read => (Vec::new(), 4096),
        _ if bytes.is_empty() => (Vec::new(), 0),
        _ => (vec![Buf::copy_of(bytes)], bytes.len() as u64),
    };
    volume.call(kind, offset, len, bufs, move |result| drop(done.send(result)));
    Ok(is_done.recv_timeout(PATIENCE).unwrap()?.iter().flat_map(|buf| buf.to_vec()).collect())
}

fn write(volume: &Volume, offset: u64, byte: u8) {
    ask(volume, Kind::Write { fua: false }, offset, &[byte; 4096]).unwrap();
}

fn state_of(volume: &Volume) -> &'static str {
    volume.status().unwrap().state
}

/// Reads until two units of a volume are cached.
fn warm(volume: &Volume) {
    eventually("units are cached", || {
        for at in [0, 1 << 20] {
            ask(volume, Kind::Read, at, &[]).unwrap();
        }
        volume.stats().unwrap().units_used >= 2
    });
}

#[test]
fn a_volume_that_cannot_leave_stays_and_holds_up_no_other() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
    let pair = Pair::start(dir.path(), "flashcache", &faults);
    let (a, b) = (Arc::clone(&pair.a), Arc::clone(&pair.b));
    [&a, &b].into_iter().for_each(|volume| warm(volume));
    write(&b, 0, 7);
    faults.origin.hang(Target::All);
    let leaving = Arc::clone(&a);
    let by_another = |error: &VolumeError| error.to_string().contains("by another command");
    let leaves = std::thread::spawn(move || {
        loop {
            match leaving.leave_cache(Duration::from_secs(2)) {
                Err(error) if by_another(&error) => {}
                late => return late,
            }
        }
    });
    eventually("the first leaves", || by_another(&a.leave_cache(Duration::ZERO).unwrap_err()));
    eventually("the hang is noticed", || {
        a.status().unwrap().alarm.is_some_and(|why| why.starts_with("the origin does not answer"))
    });
    assert_eq!(b.status().unwrap().alarm, None);
    b.leave_cache(PATIENCE).unwrap();
    assert_eq!((state_of(&a), state_of(&b)), ("caching", "outside"));
    let late = leaves.join().unwrap();
    faults.origin.release();
    eventually("the answer is noticed", || a.status().unwrap().alarm.is_none());
    assert!(late.is_err(), "the origin was not flushed");
    assert_eq!(state_of(&a), "caching");
    b.join_cache().unwrap();
    [&a, &b].into_iter().for_each(|volume| warm(volume));
    [&a, &b].into_iter().for_each(|volume| volume.leave_cache(PATIENCE).unwrap());
    assert_eq!(pair.cache.stats().unwrap().units_used, 0);
    pair.stop();
    let mut found = [0; 4096];
    File::open(dir.path().join("b")).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [7; 4096]);
}

#[test]
fn a_flash_that_returns_takes_back_no_volume_that_left() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
    let pair = Pair::start(dir.path(), "sce", &faults);
    pair.b.leave_cache(PATIENCE).unwrap();
    faults.flash.fail(Target::All, Errno::EIO);
    eventually("flash fails", || {
        let _ = ask(&pair.a, Kind::Read, 0, &[]);
        state_of(&pair.a) == "failed"
    });
    let refused = pair.b.join_cache().unwrap_err().to_string();
    assert_eq!(refused, "no flash device is attached");
    faults.flash.heal();
    eventually("flash returns", || state_of(&pair.a) == "caching");
    eventually("the other is still outside", || state_of(&pair.b) == "outside");
    warm(&pair.a);
    for _ in 0..100 {
        ask(&pair.b, Kind::Read, 0, &[]).unwrap();
    }
    assert_eq!(pair.b.stats().unwrap().units_used, 0);
    pair.stop();
}

/// What flash has of the origin that changed must not be used, also if flash fails before it is gone.
#[test]
fn a_flash_that_fails_while_it_is_emptied_of_a_volume_is_not_used_for_it() {
    let dir = tempfile::tempdir().unwrap();
    for fault in [Target::All, Target::Writes, Target::Flushes] {
        let faults = Faults::default();
        let pair = Pair::start(dir.path(), "sce", &faults);
        [&pair.a, &pair.b].into_iter().for_each(|volume| warm(volume));
        pair.cache.flush(PATIENCE).unwrap();
        pair.stop();
        let changed = File::options().write(true).open(dir.path().join("b")).unwrap();
        changed.write_all_at(&[0x5a; 4096], 0).unwrap();
        changed.sync_all().unwrap();
        drop(changed);
        faults.flash.fail(fault, Errno::EIO);
        let pair = Pair::without_flash(dir.path(), "sce", &faults);
        let attached = pair.attach(dir.path(), &faults);
        if attached.is_ok() {
            assert_eq!(ask(&pair.b, Kind::Read, 0, &[]).unwrap(), [0x5a; 4096]);
        }
        let _ = pair.cache.stop(PATIENCE, |_| (), || false);
        drop(pair);
        let pair = Pair::start(dir.path(), "sce", &Faults::default());
        assert_eq!(ask(&pair.b, Kind::Read, 0, &[]).unwrap(), [0x5a; 4096], "{fault:?}");
        ask(&pair.b, Kind::Write { fua: false }, 0, &[0; 4096]).unwrap();
        pair.cache.flush(PATIENCE).unwrap();
        pair.stop();
    }
}

/// An origin that changed while another volume has dirty data costs its own units. They are not copied to the changed origin.
#[test]
fn an_origin_that_changed_is_not_overwritten_by_what_flash_has_of_it() {
    for name in ["flashcache", "flashcache-unlogged", "prwc", "prwc-unlogged"] {
        let dir = tempfile::tempdir().unwrap();
        let pair = Pair::start(dir.path(), name, &Faults::default());
        write(&pair.a, 0, 1);
        write(&pair.b, 0, 2);
        pair.b.flush(PATIENCE).unwrap();
        pair.stop();
        let b = dir.path().join("b");
        std::thread::sleep(Duration::from_millis(20));
        File::options().write(true).open(&b).unwrap().write_all_at(&[3; 8192], 0).unwrap();
        let pair = Pair::start(dir.path(), name, &Faults::default());
        assert_eq!(ask(&pair.b, Kind::Read, 0, &[]).unwrap(), [3; 4096], "{name}");
        assert_eq!(ask(&pair.a, Kind::Read, 0, &[]).unwrap(), [1; 4096], "{name}");
        pair.cache.detach(PATIENCE, |_| {}).unwrap();
        pair.stop();
        for (volume, byte) in [("a", 1), ("b", 3)] {
            let mut found = [0; 4096];
            let origin = File::open(dir.path().join(volume)).unwrap();
            origin.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, [byte; 4096], "{name}, {volume}");
        }
    }
}
