// SPDX-License-Identifier: MIT OR Apache-2.0
//! Label, metadata or page log, and state file, damaged together: flipped bits, zeroed sectors, cut files, old copies
//! put back, by seed. Where the origin has everything a start is warm or cold, or refused in one line, and
//! no read ever returns a wrong byte. A flash with dirty data is served with all of it or refused; then neither it nor
//! the state file is written.
//!
//! Two faults at one place are not promised to be noticed (docs/recovery.md), so of what is there
//! twice a case damages the same copy everywhere, and a state file is put back by itself.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod damage;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::config::{AdmissionChoice, Choices, Limits, WritePolicy, preset};
use larder_core::format::Wishes;
use larder_core::pagelog::LogPolicy;
use larder_core::policy::admission::Class;
use larder_core::policy::admission::Schedule;
use larder_core::request::{Errno, Kind, pieces};
use larder_io::{Access, DevSpec, Device, Fault, OpenError, Target};
use larder_volume::{CacheConfig, FlashDevice, StateFile, Volume, VolumeError};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use damage::{Image, harm};

const PATIENCE: Duration = Duration::from_secs(30);
const CASES: u64 = 150;
const UNIT: u64 = 64 << 10;
const UNITS: u64 = 24;
const FLASH_BYTES: u64 = 3 << 20;

/// What lies on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    /// Units, by a preset.
    Units(&'static str),
    /// Pages in a log.
    Pages(LogPolicy),
}

/// Those under which flash holds dirty data after a stop.
const OWNING: [Cache; 2] = [Cache::Units("prwc"), Cache::Pages(LogPolicy::Full)];

impl Cache {
    /// Whether flash holds dirty data after a stop.
    fn owns(self) -> bool {
        OWNING.contains(&self)
    }

    fn choices(self) -> Choices {
        let name = if let Self::Units(name) = self { name } else { "face" };
        let mut choices = preset(name).unwrap().choices();
        choices.unit_bytes = UNIT;
        if let Self::Pages(policy) = self {
            choices.write = WritePolicy::Logged(policy);
        }
        match &mut choices.admission {
            AdmissionChoice::Periodic(settings) => settings.schedule = Schedule::Every(20_000_000),
            AdmissionChoice::Selective(settings) => {
                let (workers, target_miss_ratio, min_free_ratio, period_ns) = (2, 0.0, 0.0, 0);
                settings.classes =
                    vec![Class { workers, target_miss_ratio, min_free_ratio, period_ns }];
            }
            AdmissionChoice::OnExit(settings) => settings.batch_pages = 4,
            AdmissionChoice::OnMiss(_) => {}
        }
        choices
    }
}

/// The thread of the last flush may hold it for a moment after a stop.
fn open(path: &Path) -> Result<Device, VolumeError> {
    let begin = Instant::now();
    loop {
        match Device::open(&DevSpec::Path(path.to_owned()), Access::ReadWrite) {
            Err(OpenError::InUse { .. }) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return Ok(opened?),
        }
    }
}

/// A volume over the files in a directory, its flash attached.
struct Served(Arc<Volume>);

impl Served {
    fn start(dir: &Path, cache: Cache) -> Result<Self, VolumeError> {
        Self::start_on(dir, cache, &Fault::new())
    }

    /// With faults of flash.
    fn start_on(dir: &Path, cache: Cache, fault: &Fault) -> Result<Self, VolumeError> {
        Self::start_with(dir, cache, &Fault::new(), fault)
    }

    /// With faults of the origin, and of flash.
    fn start_with(
        dir: &Path,
        cache: Cache,
        origin: &Fault,
        fault: &Fault,
    ) -> Result<Self, VolumeError> {
        let origin = open(&dir.join("origin"))?.with_fault(origin);
        let limits = Limits { checkpoint: 10_000_000, ..Limits::default() };
        let state = Some(StateFile::new(&dir.join("state"), "v", "/the/origin"));
        let choices = cache.choices();
        let config = CacheConfig::of(origin, choices.clone(), 1).named("v");
        let config = CacheConfig { limits, state, ..config };
        let served = Self(Volume::start(config)?);
        let flash = open(&dir.join("flash"))?.with_fault(fault);
        let shape = served.0.cache().shape();
        served.0.cache().attach(FlashDevice::prepare(
            flash,
            (None, None),
            shape,
            &choices,
            Wishes::default(),
        )?)?;
        Ok(served)
    }

    fn call(&self, kind: Kind, offset: u64, len: u64, bufs: Vec<Buf>) -> Vec<u8> {
        let (done, is_done) = channel();
        self.0.call(kind, offset, len, bufs, move |result| drop(done.send(result)));
        let bufs = is_done.recv_timeout(PATIENCE).unwrap().unwrap();
        bufs.iter().flat_map(|buf| buf.to_vec()).collect()
    }

    fn write(&self, model: &mut [u8], page: u64, fill: u8) {
        let data = [fill; 4096];
        let bufs = pieces(page * 4096, 4096, UNIT).map(|_| Buf::copy_of(&data)).collect();
        self.call(Kind::Write { fua: false }, page * 4096, 4096, bufs);
        model[page as usize * 4096..][..4096].copy_from_slice(&data);
    }

    /// Asks for units in turn until flash answers for all of them.
    fn warm(&self, units: std::ops::Range<u64>) {
        let (begin, want) = (Instant::now(), units.end - units.start);
        loop {
            let before = self.0.stats().unwrap().requests.read_hits;
            for unit in units.clone() {
                self.call(Kind::Read, unit * UNIT, UNIT, Vec::new());
            }
            if self.0.stats().unwrap().requests.read_hits - before == want {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "not everything enters");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(self) {
        self.0.cache().stop(PATIENCE, |_| {}, || false).unwrap();
    }
}

impl Drop for Served {
    /// Requests in flight are aborted: the files are not read again.
    fn drop(&mut self) {
        if !self.0.cache().has_stopped() {
            let _ = self.0.cache().stop(PATIENCE, |_| {}, || true);
        }
    }
}

/// The files at three moments: under an older formatting; early under the present one, without dirty data; and last. And
/// the content of the volume at the last moment.
struct Past {
    older: Image,
    early: Image,
    last: Image,
    model: Vec<u8>,
}

fn past(cache: Cache) -> Past {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut model: Vec<u8> = (0..UNITS * UNIT).map(|at| (at / 4096 % 251) as u8).collect();
    fs::write(path.join("origin"), &model).unwrap();
    fs::File::create(path.join("flash")).unwrap().set_len(FLASH_BYTES).unwrap();

    let served = Served::start(path, cache).unwrap();
    served.warm(0..8);
    for page in 0..40 {
        served.write(&mut model, page * 7, 0xa1);
    }
    served.stop();
    let older = Image::of(path);

    let served = Served::start(path, cache).unwrap();
    served.0.cache().detach(PATIENCE, |_| {}).unwrap();
    served.stop();
    let served = Served::start(path, cache).unwrap();
    served.warm(2..10);
    served.stop();
    let early = Image::of(path);

    let served = Served::start(path, cache).unwrap();
    for page in 0..60 {
        served.write(&mut model, page * 5 + 1, 0xd4);
    }
    let stats = served.0.stats().unwrap();
    let holds = cache.choices().write.flash_owns();
    assert!(stats.units_used >= 8 && (stats.units_dirty > 0) == holds);
    served.stop();
    let last = Image::of(path);
    Past { older, early, last, model }
}

/// Starts from an image; what the volume reads as, or the line that refuses it.
fn start(dir: &Path, cache: Cache) -> Result<(Vec<u8>, bool), String> {
    let served = Served::start(dir, cache).map_err(|error| error.to_string())?;
    let warm = served.0.stats().unwrap().units_used > 0;
    let once = served.call(Kind::Read, 0, UNITS * UNIT, Vec::new());
    let again = served.call(Kind::Read, 0, UNITS * UNIT, Vec::new());
    assert!(once == again);
    Ok((once, warm))
}

fn cases(cache: Cache) {
    let (past, owns) = (past(cache), cache.owns());
    let (mut warm_starts, mut cold_starts, mut refusals) = (0, 0, 0);
    for seed in 0..CASES {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let (image, what) = harm(&past, owns, &mut rng);
        let dir = tempfile::tempdir().unwrap();
        image.lay_out(dir.path());
        match start(dir.path(), cache) {
            Ok((bytes, warm)) => {
                let wrong = bytes.iter().zip(&past.model).position(|(is, was)| is != was);
                assert_eq!(wrong, None, "seed {seed}: wrong from this byte on, after {what:?}");
                *(if warm { &mut warm_starts } else { &mut cold_starts }) += 1;
            }
            Err(line) => {
                assert!(!line.contains(char::is_control), "seed {seed}: {line:?}");
                assert!(line.len() > 20, "seed {seed}: {line:?}");
                if owns {
                    let changed = image.differs(&Image::of(dir.path()));
                    assert_eq!(changed, None, "seed {seed}: written to, after {what:?}: {line}");
                }
                refusals += 1;
            }
        }
    }
    println!("{warm_starts} warm, {cold_starts} cold, {refusals} refused");
    assert!(warm_starts > CASES / 10 && refusals > CASES / 10);
    assert_eq!(cold_starts > 0, !owns, "cold where the origin has everything, and only there");
}

#[test]
fn a_clean_flash_starts_or_is_refused_and_serves_no_wrong_byte() {
    cases(Cache::Units("sce"));
}

#[test]
fn a_dirty_flash_is_served_whole_or_refused() {
    cases(Cache::Units("prwc"));
}

#[test]
fn a_log_written_through_starts_or_is_refused_and_serves_no_wrong_byte() {
    cases(Cache::Pages(LogPolicy::Through));
}

#[test]
fn a_bounded_log_starts_or_is_refused_and_serves_no_wrong_byte() {
    cases(Cache::Pages(LogPolicy::Bounded));
}

#[test]
fn a_log_that_owns_is_served_whole_or_refused() {
    cases(Cache::Pages(LogPolicy::Full));
}

/// It can be read, and not be written to: a start would have to.
#[test]
fn a_log_that_cannot_be_opened_is_refused_or_done_without() {
    for policy in [LogPolicy::Full, LogPolicy::Bounded, LogPolicy::Through] {
        let cache = Cache::Pages(policy);
        let (mut past, dir) = (past(cache), tempfile::tempdir().unwrap());
        past.last.lay_out(dir.path());
        let fault = Fault::new();
        fault.fail(Target::Writes, Errno::EIO);
        match Served::start_on(dir.path(), cache, &fault) {
            Ok(served) => {
                assert!(!cache.owns(), "it starts");
                served.write(&mut past.model, 5, 0xee);
                assert!(served.call(Kind::Read, 0, UNITS * UNIT, Vec::new()) == past.model);
                assert_eq!(served.0.stats().unwrap().state, "failed");
                served.stop();
                assert!(
                    start(dir.path(), cache).unwrap() == (past.model, false),
                    "cold, not stale"
                );
            }
            Err(refused) => {
                let refused = refused.to_string();
                assert!(cache.owns() && refused.contains("may hold dirty data"));
                let now = Image { state: past.last.state.clone(), ..Image::of(dir.path()) };
                assert_eq!(past.last.differs(&now), None, "{refused}");
                assert!(
                    start(dir.path(), cache).unwrap() == (past.model, true),
                    "once it is mended"
                );
            }
        }
    }
}

/// A state file from before anything was dirty, and an origin that was written to since: the flash
/// itself knows better.
#[test]
fn an_old_state_file_does_not_make_a_dirty_flash_clean() {
    for cache in OWNING {
        let past = past(cache);
        let dir = tempfile::tempdir().unwrap();
        let (state, modified) =
            (past.early.state.clone(), past.last.modified + Duration::from_secs(1));
        let image = Image { state, modified, ..past.last.clone() };
        assert!(
            String::from_utf8_lossy(image.state.as_ref().unwrap()).contains("\"dirty\": false")
        );
        image.lay_out(dir.path());
        let refused = start(dir.path(), cache).map(|_| "it starts").unwrap_err();
        assert!(refused.contains("may hold dirty data"), "{refused}");
        assert_eq!(image.differs(&Image::of(dir.path())), None);
    }
}

/// A detach that is killed between saying that the origin has everything and emptying the logs.
#[test]
fn logs_that_a_detach_did_not_empty_are_known_to_be_clean() {
    let cache = Cache::Pages(LogPolicy::Full);
    let past = past(cache);
    let state = String::from_utf8(past.last.state.clone().unwrap()).unwrap();
    let detached = state.replace("\"in_use\": true", "\"in_use\": false");
    let detached = detached.replace("\"dirty\": true", "\"dirty\": false").into_bytes();
    assert_eq!(detached.len(), state.len() + 2, "both were there");
    let image = Image { origin: past.model.clone(), state: Some(detached), ..past.last };
    let dir = tempfile::tempdir().unwrap();
    image.lay_out(dir.path());
    assert!(start(dir.path(), cache).unwrap() == (past.model, false));
}

/// What a stop could not bring to the origin is there before the next start serves anybody: a crash after it
/// takes nothing back.
#[test]
fn a_bounded_log_that_a_failing_origin_left_dirty_is_brought_there_by_a_start() {
    let cache = Cache::Pages(LogPolicy::Bounded);
    let dir = tempfile::tempdir().unwrap();
    let mut model = vec![0x11; (UNITS * UNIT) as usize];
    fs::write(dir.path().join("origin"), &model).unwrap();
    fs::File::create(dir.path().join("flash")).unwrap().set_len(FLASH_BYTES).unwrap();
    let fault = Fault::new();
    let served = Served::start_with(dir.path(), cache, &fault, &Fault::new()).unwrap();
    fault.fail(Target::Writes, Errno::ENOSPC);
    (0..9).for_each(|page| served.write(&mut model, page * 3, 0x77));
    let (done, is_done) = channel();
    served.0.call(Kind::Flush, 0, 0, Vec::new(), move |result| {
        let _ = done.send(result.err());
    });
    assert_eq!(is_done.recv_timeout(PATIENCE).unwrap(), Some(Errno::ENOSPC));
    let alarm = served.0.status().unwrap().alarm.unwrap();
    assert!(alarm.contains("the origin refuses dirty data from flash"), "{alarm}");
    served.stop();
    drop(fault);
    let mended = Fault::new();
    mended.fail(Target::Writes, Errno::EIO);
    let refused = Served::start_with(dir.path(), cache, &mended, &Fault::new()).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot be brought up to date"), "{refused}");
    // Nor is it forgotten without a state file.
    fs::rename(dir.path().join("state"), dir.path().join("aside")).unwrap();
    let refused = start(dir.path(), cache).unwrap_err();
    assert!(refused.contains("may hold dirty data"), "{refused}");
    fs::rename(dir.path().join("aside"), dir.path().join("state")).unwrap();
    let served = Served::start(dir.path(), cache).unwrap();
    assert!(fs::read(dir.path().join("origin")).unwrap() == model);
    assert!(served.call(Kind::Read, 0, UNITS * UNIT, Vec::new()) == model);
}

#[test]
fn an_origin_that_refuses_dirty_units_is_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = vec![0x11; (UNITS * UNIT) as usize];
    fs::write(dir.path().join("origin"), &model).unwrap();
    fs::File::create(dir.path().join("flash")).unwrap().set_len(FLASH_BYTES).unwrap();
    let fault = Fault::new();
    let cache = Cache::Units("prwc");
    let served = Served::start_with(dir.path(), cache, &fault, &Fault::new()).unwrap();
    served.warm(0..8);
    (0..9).for_each(|page| served.write(&mut model, page * 3, 0x77));
    assert!(served.0.stats().unwrap().units_dirty > 0);
    fault.fail(Target::Writes, Errno::ENOSPC);
    assert!(served.0.cache().detach(Duration::from_secs(1), |_| {}).is_err());
    let alarm = served.0.status().unwrap().alarm.unwrap_or_default();
    assert!(alarm.contains("the origin refuses dirty data from flash (ENOSPC"), "{alarm}");
    fault.heal();
    served.0.cache().detach(PATIENCE, |_| {}).unwrap();
    assert_eq!(served.0.status().unwrap().alarm, None);
    served.stop();
    assert!(fs::read(dir.path().join("origin")).unwrap() == model);
}

/// As by a file system that was full when it was copied.
#[test]
fn a_dirty_flash_that_was_cut_short_is_refused() {
    for cache in OWNING {
        let past = past(cache);
        let flash = past.last.flash[..2 << 20].to_vec();
        let image = Image { flash, ..past.last };
        let dir = tempfile::tempdir().unwrap();
        image.lay_out(dir.path());
        let refused = start(dir.path(), cache).map(|_| "it starts").unwrap_err();
        assert!(refused.contains("may hold dirty data"), "{refused}");
        assert_eq!(image.differs(&Image::of(dir.path())), None);
    }
}

/// Another flash, while one that is not there has data: not even its label is written.
#[test]
fn nothing_is_written_to_a_flash_that_is_refused_for_another() {
    for cache in OWNING {
        let past = past(cache);
        let dir = tempfile::tempdir().unwrap();
        let image = Image { flash: vec![0; FLASH_BYTES as usize], ..past.last.clone() };
        image.lay_out(dir.path());
        let refused = start(dir.path(), cache).map(|_| "it starts").unwrap_err();
        assert!(refused.contains("may hold dirty data of it"), "{refused}");
        assert_eq!(image.differs(&Image::of(dir.path())), None);
    }
}
