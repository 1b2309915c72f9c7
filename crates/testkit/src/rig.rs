// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in this process, with injectable faults on both of its devices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::config::{
    AdmissionChoice, Choices, Durability, Eviction, Limits, ReplacementChoice, WritePolicy, preset,
};
use larder_core::exec::{DevId, Io, IoId, IoKind, MILLISECOND, Nanos};
use larder_core::format::Wishes;
use larder_core::pagelog::LogPolicy;
use larder_core::policy::admission::Schedule;
use larder_core::policy::admission::{Class, SelectiveSettings};
use larder_front::fuse::FuseDoor;
use larder_front::fuse::mount::Terms;
use larder_front::fuse::mounter::{Direct, Mounter};
use larder_front::listen::{ListenSpec, Listener};
use larder_front::nbd::export::{Export, Exports};
use larder_io::{Access, DevSpec, Device, Fault, OpenError};
use larder_nbd::uri::Uri;
use larder_volume::{CacheConfig, FlashDevice, Stats, Status, Volume, VolumeError};

use crate::load::{Judge, Load, PATIENCE, Shape, eventually, initial};

/// Bytes of the volume: 96 units of 64 KiB, the last one truncated within a page.
pub const BYTES: u64 = (6 << 20) - 5 * 512;
/// Bytes of flash: 24 units of 64 KiB after the header, a third less than the hot area.
const FLASH_BYTES: u64 = (1 << 20) + 24 * (64 << 10);
const HOT_BYTES: u64 = 36 * (64 << 10);

/// A kind of front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// NBD over a unix socket.
    Unix,
    /// NBD over TCP.
    Tcp,
    /// A file.
    Fuse,
}

/// Keeps a front door open.
enum Door {
    Socket(#[allow(dead_code)] Listener),
    File(FuseDoor),
}

/// A configuration of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Worker threads.
    pub workers: u32,
    /// Requests in flight of four clients together.
    pub in_flight: usize,
    /// Whether the devices are files on disk instead of memory.
    pub files: bool,
    /// Bytes of a unit.
    pub unit: u64,
    /// The preset, made eager and small where it is patient and large.
    pub preset: &'static str,
    /// The write policy of a page log.
    pub log: LogPolicy,
    /// The protocol of the clients.
    pub front: Front,
    /// See [`Limits`].
    pub flash_timeout: Duration,
    /// See [`Limits`].
    pub flash_dead_after: Duration,
}

impl Setup {
    /// Whether flash may hold dirty data.
    pub fn holds_dirty(&self) -> bool {
        self.preset == "prwc" || self.preset == "face" && self.log.holds_dirty()
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            workers: 1,
            in_flight: 4,
            files: false,
            unit: 64 << 10,
            preset: "sce",
            log: LogPolicy::Through,
            front: Front::Unix,
            flash_timeout: Duration::from_millis(200),
            flash_dead_after: 20 * PATIENCE,
        }
    }
}

/// One and three workers, few and many requests in flight, in memory and on files.
pub fn setups() -> [Setup; 3] {
    let base = Setup::default();
    [
        base,
        Setup { workers: 3, in_flight: 64, ..base },
        Setup { workers: 3, in_flight: 64, files: true, ..base },
    ]
}

/// A volume with running clients.
pub struct Rig {
    /// The volume.
    pub volume: Arc<Volume>,
    /// Faults of the origin.
    pub origin_fault: Fault,
    /// Faults of the first flash device.
    pub flash_fault: Fault,
    /// The clients.
    pub load: Load,
    origin: Device,
    setup: Setup,
    dir: tempfile::TempDir,
    door: Door,
}

/// Population begins with the first miss and displaces any unit: with a higher ceiling the hot units would keep all
/// others out, if just enough of them fill the flash.
fn choices(setup: &Setup) -> Choices {
    let unit_bytes = setup.unit;
    if setup.preset != "sce" {
        let mut choices = preset(setup.preset).unwrap().choices();
        (choices.unit_bytes, choices.durability) = (unit_bytes, Durability::Volatile);
        if let Eviction::Replacement(ReplacementChoice::Buckets { bytes, .. }) =
            &mut choices.eviction
        {
            *bytes = 64 << 10;
        }
        match &mut choices.admission {
            AdmissionChoice::OnExit(settings) => {
                settings.batch_pages = 4;
                choices.write = WritePolicy::Logged(setup.log);
                choices.durability = Durability::Log;
            }
            AdmissionChoice::Periodic(settings) => {
                settings.schedule = Schedule::Every(20 * MILLISECOND);
                settings.hot = 5;
                choices.durability = Durability::Journal;
            }
            _ => {}
        }
        return choices;
    }
    let eager = Class { workers: 4, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 0 };
    let settings = SelectiveSettings {
        classes: vec![eager],
        displace_heat: 1,
        ..SelectiveSettings::default()
    };
    let admission = AdmissionChoice::Selective(settings);
    let eviction = Eviction::Replacement(ReplacementChoice::GClock { ceiling: 1 });
    let durability = Durability::Volatile;
    Choices { unit_bytes, admission, eviction, durability, ..preset("sce").unwrap().choices() }
}

fn nanos(span: Duration) -> Nanos {
    span.as_nanos() as Nanos
}

/// Creates a file of `bytes` zeroes.
fn make_file(path: &Path, bytes: u64) {
    let file = std::fs::File::create_new(path).unwrap();
    file.set_len(bytes).unwrap();
}

fn open(path: &Path) -> Result<Device, OpenError> {
    Device::open(&DevSpec::Path(path.to_owned()), Access::ReadWrite)
}

fn run(device: &Device, kind: IoKind, offset: u64, buf: Buf) -> Buf {
    let (id, dev, len) = (IoId(0), DevId(0), buf.len() as u64);
    let mut io = Io { id, dev, kind, offset, len, buf: Some(buf), at: 0 };
    device.run_blocking(&mut io).unwrap();
    io.buf.unwrap()
}

impl Rig {
    /// A caching volume with running clients, after the first hits.
    pub fn start(setup: Setup, seed: u64) -> Self {
        let rig = Self::start_cold(setup, seed);
        rig.hits();
        rig
    }

    /// A volume with running clients and a flash device that was just attached.
    pub fn start_cold(setup: Setup, seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let origin = if setup.files {
            make_file(&dir.path().join("origin"), BYTES);
            open(&dir.path().join("origin")).unwrap()
        } else {
            Device::mem(BYTES)
        };
        Self::over(origin, dir, setup, seed)
    }

    /// As [`start_cold`](Self::start_cold), over an existing origin.
    pub fn over(origin: Device, dir: tempfile::TempDir, setup: Setup, seed: u64) -> Self {
        for offset in (0..BYTES).step_by(1 << 20) {
            let bytes = initial(offset, (1 << 20).min(BYTES - offset));
            run(&origin, IoKind::Write { fua: false }, offset, Buf::copy_of(&bytes));
        }
        let (origin_fault, flash_fault) = (Fault::new(), Fault::new());
        let limits = Limits {
            flash_timeout: nanos(setup.flash_timeout),
            flash_dead_after: nanos(setup.flash_dead_after),
            write_through_bytes: 512 << 10,
            population_io_bytes: 16 << 10,
            ..Limits::default()
        };
        let config = CacheConfig {
            limits,
            ..CacheConfig::of(origin.with_fault(&origin_fault), choices(&setup), setup.workers)
        };
        let volume = Volume::start(config).unwrap();
        let (clients, reads) = (4, 50);
        let depth = setup.in_flight / clients;
        let shape = Shape { bytes: BYTES, hot_bytes: HOT_BYTES, clients, depth, reads, seed };
        let (door, load) = enter(&volume, setup.front, dir.path(), &shape);
        let mut rig = Self { volume, origin_fault, flash_fault, load, origin, setup, dir, door };
        rig.load.progress(1);
        rig.attach_new("flash").unwrap();
        rig
    }

    /// Opens the flash device of this name with the current faults; a file must not be open already.
    pub fn flash(&self, name: &str) -> Result<Device, OpenError> {
        let device = if self.setup.files {
            let path = self.dir.path().join(name);
            if !path.exists() {
                make_file(&path, FLASH_BYTES);
            }
            open(&path)?
        } else {
            Device::mem(FLASH_BYTES)
        };
        Ok(device.with_fault(&self.flash_fault))
    }

    /// Attaches a flash device.
    pub fn attach(&self, device: &Device) -> Result<(), VolumeError> {
        let (shape, choices) = (self.volume.cache().shape(), &self.volume.cache().config().choices);
        self.volume.cache().attach(FlashDevice::prepare(
            device.clone(),
            (None, None),
            shape,
            choices,
            Wishes::default(),
        )?)
    }

    /// Attaches a new, healthy device with its own faults.
    pub fn attach_new(&mut self, name: &str) -> Result<(), VolumeError> {
        self.flash_fault = Fault::new();
        let device = self.flash(name)?;
        self.attach(&device)
    }

    /// The volume's counters.
    pub fn stats(&self) -> Stats {
        self.volume.stats().unwrap()
    }

    /// The volume's status.
    pub fn status(&self) -> Status {
        self.volume.status().unwrap()
    }

    /// Waits for a state of the volume.
    pub fn await_state(&self, state: &str) {
        eventually(&format!("the state becomes {state}"), || {
            self.load.judge.check();
            self.stats().state == state
        });
    }

    /// Waits for further hits, populations and evictions.
    pub fn hits(&self) {
        let before = self.stats();
        eventually("there are hits, populations and evictions", || {
            self.load.judge.check();
            let now = self.stats();
            now.requests.read_hits > before.requests.read_hits + 20
                && now.counters.populations > before.counters.populations
                && now.counters.evictions > before.counters.evictions
        });
    }

    /// Ends the load; verifies all reads, and the content read through the volume and from the origin. Returns the
    /// result of stopping the volume.
    pub fn close(self) -> Result<(), VolumeError> {
        let judge = self.load.finish();
        if self.setup.holds_dirty() {
            self.volume.flush(PATIENCE).unwrap();
        }
        for offset in (0..BYTES).step_by(1 << 20) {
            let len = (1 << 20).min(BYTES - offset);
            judge.seen(offset, &read(&self.volume, offset, len));
            let buf = Buf::with_len(len as usize);
            judge.seen(offset, &run(&self.origin, IoKind::Read, offset, buf));
        }
        judge.verdict();
        if let Door::File(door) = self.door {
            door.close(PATIENCE, || false);
        }
        let stopped = self.volume.cache().stop(PATIENCE, |_| {}, || false);
        assert!(self.volume.cache().has_stopped());
        stopped
    }

    /// As [`close`](Self::close), and the volume must stop without an error.
    pub fn finish(self) {
        self.close().unwrap();
    }
}

/// Opens a front door of a volume and starts clients there.
fn enter(volume: &Arc<Volume>, front: Front, dir: &Path, shape: &Shape) -> (Door, Load) {
    let judge = Judge::new();
    let spec = match front {
        Front::Unix => ListenSpec::Unix(dir.join("nbd")),
        Front::Tcp => ListenSpec::Tcp("127.0.0.1:0".to_owned()),
        Front::Fuse => {
            let path = dir.join("vol");
            let mounter = Direct::new([(path.clone(), Terms::default())]);
            let mounter: Arc<dyn Mounter> = Arc::new(mounter);
            let door = FuseDoor::open(&path, volume, &Export::of(volume), &mounter).unwrap();
            let load = Load::over_file(door.file(), shape, &judge);
            return (Door::File(door), load);
        }
    };
    let (listener, uri) = listen(volume, &spec);
    (Door::Socket(listener), Load::start(&uri, shape, &judge))
}

/// Listens for a volume; returns the listener and the URI.
pub fn listen(volume: &Arc<Volume>, spec: &ListenSpec) -> (Listener, Uri) {
    let exports = Arc::new(Exports::new(vec![Export::of(volume)]).unwrap());
    let volumes = Arc::new(vec![Arc::clone(volume)]);
    let listener = Listener::start(spec, volumes, exports).unwrap();
    let uri = listener.uri("");
    (listener, uri)
}

/// A read from within the process.
pub fn read(volume: &Volume, offset: u64, len: u64) -> Vec<u8> {
    let (done, is_done) = std::sync::mpsc::channel();
    volume.call(larder_core::request::Kind::Read, offset, len, Vec::new(), move |result| {
        done.send(result).unwrap();
    });
    let bufs = is_done.recv_timeout(PATIENCE).unwrap().unwrap();
    bufs.iter().flat_map(|buf| buf.to_vec()).collect()
}
