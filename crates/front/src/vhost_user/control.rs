// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of a client: what it negotiates, the guest's memory, and when queues run.
//!
//! Invariants: a queue runs from the moment when it has all that it needs and is enabled, until the client asks for its place
//! (`GET_VRING_BASE`), disables it, resets the device or leaves. A queue that stops has answered what it took. A message that
//! cannot be obeyed ends the connection, with one line.
//!
//! Why stopping a queue has no time limit: its client would take the requests as ended, and a write that is late would
//! overwrite a newer one. The end of the server, or of the volume, ends the wait.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_volume::Volume;
use larder_volume::peer::Peer;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};
use virtio_queue::{Queue as Ring, QueueT as _};
use vm_memory::GuestAddress;

use super::device::{Device, MOST_DEPTH, MOST_QUEUES, PROTOCOL, has_event_index};
use super::inflight::Area;
use super::link::{Bells, Link, lock};
use super::memory::{Memory, Table};
use super::queue::{GuestQueue, NAME_BYTES, Setup};
use crate::blocks::Rules;
use crate::grant::Grant;
use crate::lines::Lines;

/// How often a wait for the end of a queue looks around.
const LOOK: Duration = Duration::from_millis(50);
/// After so long a queue without requests in flight does not wait for its client to take a call.
const CALL_BOUND: Duration = Duration::from_secs(1);
/// After so long a wait is reported.
const TELL: Duration = Duration::from_secs(5);

const LOST: &str = "the guest continues after a server whose answered writes may be lost; its requests fail until it resets the disk";

/// A queue as the client describes it.
#[derive(Default)]
struct Vring {
    size: u16,
    /// Addresses in the client: descriptors, available ring, used ring.
    places: Option<[u64; 3]>,
    base: u16,
    kick: Option<Arc<OwnedFd>>,
    bells: Arc<Bells>,
    enabled: bool,
    runs: Option<Arc<Link>>,
}

/// What clients share, one after another.
pub struct Host {
    pub volume: Arc<Volume>,
    pub grant: Grant,
    /// The socket, for messages.
    pub title: String,
    /// Lines of the log that clients and guests cause.
    pub lines: Arc<Lines>,
    /// No queue waits for its end any more.
    pub abandoned: AtomicBool,
    guests: Mutex<Guests>,
}

/// What is known of the guest's queues.
struct Guests {
    /// Queues that a guest began with this server.
    begun: [bool; MOST_QUEUES as usize],
    /// Queues that began with an earlier one, whose answers may be lost.
    strangers: Vec<u16>,
}

impl Host {
    /// That of a socket without clients.
    pub fn new(volume: Arc<Volume>, grant: Grant, title: String) -> Self {
        let guests = Guests { begun: [false; MOST_QUEUES as usize], strangers: Vec::new() };
        let (lines, abandoned) = (Arc::default(), AtomicBool::new(false));
        Self { volume, grant, title, lines, abandoned, guests: Mutex::new(guests) }
    }
}

/// The state of a client, see the module.
pub struct Client {
    host: Arc<Host>,
    peer: Peer,
    setup: Arc<Setup>,
    features: u64,
    vrings: Vec<Vring>,
    area: Option<Area>,
    closed: bool,
}

/// An error of a message, for the log.
fn wrong(what: impl std::fmt::Display) -> Error {
    Error::ReqHandlerError(std::io::Error::other(what.to_string()))
}

impl Client {
    /// A client that has connected.
    pub fn new(host: Arc<Host>, peer: Peer) -> Self {
        let Host { volume, grant, title, lines, .. } = &*host;
        let mut name = [0; NAME_BYTES];
        let text = if volume.name().is_empty() { "larder" } else { volume.name() };
        name.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        let device = Arc::new(Device::of(volume, *grant));
        let doubted = AtomicBool::new(!lock(&host.guests).strangers.is_empty());
        let setup = Arc::new(Setup {
            title: title.clone(),
            lines: (Arc::clone(lines), peer),
            name,
            rules: Rules::of(volume, *grant),
            device,
            memory: Memory::default(),
            doubted,
        });
        let vrings = (0..MOST_QUEUES).map(|_| Vring::default()).collect();
        Self { host, peer, setup, features: 0, vrings, area: None, closed: false }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        let vring = self.vrings.get_mut(index as usize);
        vring
            .ok_or_else(|| wrong(format_args!("queue {index}; accepted: 0 to {}", MOST_QUEUES - 1)))
    }

    /// A queue that does not run.
    fn resting(&mut self, index: u32, what: &str) -> Result<&mut Vring> {
        let vring = self.vring(index)?;
        match vring.runs {
            None => Ok(vring),
            Some(_) => Err(wrong(format_args!("{what} of queue {index} while it runs"))),
        }
    }

    /// Starts a queue that has all it needs.
    fn start(&mut self, index: u32) -> Result<()> {
        let closed = self.closed;
        let Vring { size, places, base, kick, bells, enabled, runs } = self.vring(index)?;
        let (Some(places), Some(kick)) = (*places, kick.clone()) else { return Ok(()) };
        if !*enabled || runs.is_some() || *size == 0 || closed {
            return Ok(());
        }
        let (size, base, bells) = (*size, *base, Arc::clone(bells));
        let link = Link::new(bells);
        let number = index as u16;
        let refused = |why: &dyn std::fmt::Display| wrong(format_args!("queue {index}: {why}"));
        let table = self.setup.memory.table();
        let mut ring = ring(&table, size, places).map_err(|why| refused(&why))?;
        ring.set_event_idx(has_event_index(self.features));
        let used = ring.used_idx(&table.memory, Ordering::SeqCst).map_err(|e| refused(&e))?.0;
        let mut record = self.area.as_ref().and_then(|area| area.record(number));
        let again = match &mut record {
            Some(record) => record.recover(used, size).map_err(|why| refused(&why))?,
            None => Vec::new(),
        };
        ring.set_next_used(used);
        ring.set_next_avail(match record {
            Some(_) => used.wrapping_add(again.len() as u16),
            None => base,
        });
        self.judge(number, used != 0 || !again.is_empty());
        let config = self.host.volume.cache().config();
        let (purse, worker) = (config.clients.budget.purse(self.peer), index % config.workers);
        let queue = GuestQueue::new(
            (number, Arc::clone(&self.setup)),
            (ring, kick),
            Arc::clone(&link),
            (record, again),
            purse,
        );
        self.vring(index)?.runs = Some(link);
        self.host.volume.welcome_queue(worker, Box::new(queue));
        Ok(())
    }

    /// Decides whether the guest may have lost answered writes: it began before this server, and they did not survive.
    fn judge(&self, queue: u16, continues: bool) {
        if self.host.volume.answers_survive() {
            return;
        }
        let Guests { begun, strangers } = &mut *lock(&self.host.guests);
        strangers.retain(|other| *other != queue);
        let begun = &mut begun[usize::from(queue)];
        *begun |= !continues;
        if !*begun {
            if strangers.is_empty() {
                tracing::error!("{}: {LOST}", self.host.title);
            }
            strangers.push(queue);
        }
        self.setup.doubted.store(!strangers.is_empty(), Ordering::SeqCst);
    }

    /// Stops a queue, and waits until it has answered what it took.
    fn stop(&mut self, index: u32) -> Result<()> {
        let Some(link) = self.vring(index)?.runs.take() else { return Ok(()) };
        link.stop();
        let (begun, mut told) = (Instant::now(), false);
        loop {
            if let Some(next) = link.wait(LOOK) {
                self.vring(index)?.base = next;
                return Ok(());
            }
            let lost = self.host.volume.cache().has_lost_a_worker();
            if lost || self.host.abandoned.load(Ordering::SeqCst) {
                return Err(wrong(format_args!("queue {index} does not end")));
            }
            if begun.elapsed() > CALL_BOUND {
                link.hurry();
            }
            if begun.elapsed() > TELL && !std::mem::replace(&mut told, true) {
                tracing::info!(
                    "{}: queue {index} waits for its requests in flight",
                    self.host.title
                );
            }
        }
    }

    fn stop_all(&mut self) {
        // All of them at once, then the waits.
        self.vrings.iter().filter_map(|vring| vring.runs.as_ref()).for_each(|link| link.stop());
        for index in 0..u32::from(MOST_QUEUES) {
            if let Err(e) = self.stop(index) {
                tracing::warn!("{}: {e}", self.host.title);
            }
        }
    }

    /// Stops all queues; none starts again.
    pub fn close(&mut self) {
        self.closed = true;
        self.stop_all();
    }
}

/// A ring at addresses of the client.
fn ring(table: &Table, size: u16, places: [u64; 3]) -> std::result::Result<Ring, String> {
    let place = |at: u64| {
        let found = table.guest_address(at);
        found.ok_or_else(|| format!("the address {at:#x} is not in the memory that was given"))
    };
    let [descriptors, available, used] = places;
    let mut ring = Ring::new(MOST_DEPTH).map_err(|e| e.to_string())?;
    let set = |ring: &mut Ring, at: [GuestAddress; 3]| {
        ring.try_set_size(size)?;
        ring.try_set_desc_table_address(at[0])?;
        ring.try_set_avail_ring_address(at[1])?;
        ring.try_set_used_ring_address(at[2])
    };
    let places = [place(descriptors)?, place(available)?, place(used)?];
    set(&mut ring, places).map_err(|e| e.to_string())?;
    ring.set_ready(true);
    match ring.is_valid(&table.memory) {
        true => Ok(ring),
        false => Err("its rings are not within the guest's memory".to_owned()),
    }
}

/// An event descriptor of the client. Another kind might block a worker, or never.
fn event(file: File) -> Result<Arc<OwnedFd>> {
    let kind = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match kind.is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]") {
        true => Ok(Arc::new(file.into())),
        false => Err(wrong("a descriptor that is no eventfd")),
    }
}

impl VhostUserBackendReqHandlerMut for Client {
    fn set_owner(&mut self) -> Result<()> {
        self.setup.device.begin();
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.vrings.iter_mut().for_each(|vring| vring.enabled = false);
        self.setup.device.begin();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.setup.device.features)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let strange = features & !self.setup.device.features;
        if strange != 0 {
            return Err(wrong(format_args!("features {strange:#x}, which were not offered")));
        }
        self.features = features;
        self.setup.device.set_features(features);
        if features & PROTOCOL == 0 {
            for index in 0..u32::from(MOST_QUEUES) {
                self.vring(index)?.enabled = true;
                self.start(index)?;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.setup.memory.set(Table::map(regions, files).map_err(wrong)?);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let vring = self.resting(index, "the size")?;
        let fits = size.is_power_of_two() && size <= MOST_DEPTH.into();
        if !fits {
            return Err(wrong(format_args!(
                "queue {index}: {size} descriptors; accepted: powers of two up to {MOST_DEPTH}"
            )));
        }
        vring.size = size as u16;
        self.start(index)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let places = [descriptors, available, used];
        let vring = self.vring(index)?;
        // QEMU repeats them while the queue runs.
        if vring.runs.is_some() && vring.places == Some(places) {
            return Ok(());
        }
        self.resting(index, "the addresses")?.places = Some(places);
        self.start(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base);
        let base = base.map_err(|_| wrong(format_args!("queue {index}: a place beyond 65535")))?;
        self.resting(index, "the place")?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let vring = self.vring(index)?;
        vring.kick = None;
        Ok(VhostUserVringState::new(index, vring.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file.ok_or_else(|| wrong("a queue without a descriptor for kicks"))?;
        let kick = event(file)?;
        // A queue that runs takes the new one.
        self.stop(index.into())?;
        self.vring(index.into())?.kick = Some(kick);
        self.start(index.into())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(event).transpose()?;
        let vring = self.vring(index.into())?;
        *lock(&vring.bells.call) = call;
        vring.runs.iter().for_each(|link| link.ring());
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let error = file.map(event).transpose()?;
        *lock(&self.vring(index.into())?.bells.error) = error;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(Device::protocol())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !Device::protocol().bits() {
            0 => Ok(()),
            strange => {
                Err(wrong(format_args!("protocol features {strange:#x}, which were not offered")))
            }
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MOST_QUEUES.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.vring(index)?.enabled = enable;
        if enable { self.start(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(self.setup.device.config(offset, size))
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        match self.setup.device.set_config(offset, bytes) {
            true => Ok(()),
            false => Err(wrong(format_args!(
                "{} bytes at {offset} of the configuration; accepted: the cache mode",
                bytes.len()
            ))),
        }
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, depth) = (asked.num_queues, asked.queue_size);
        if !(1..=MOST_QUEUES).contains(&queues) || !(1..=MOST_DEPTH).contains(&depth) {
            return Err(wrong(format_args!(
                "memory for {queues} queues of {depth}; accepted: up to {MOST_QUEUES} of {MOST_DEPTH}"
            )));
        }
        let (area, file, given) = Area::create(queues, depth).map_err(wrong)?;
        self.area = Some(area);
        // A client that has no record begins: those that continue bring theirs.
        let Guests { begun, strangers } = &mut *lock(&self.host.guests);
        begun.fill(true);
        strangers.clear();
        self.setup.doubted.store(false, Ordering::SeqCst);
        Ok((given, file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        if given.num_queues > MOST_QUEUES || given.queue_size > MOST_DEPTH {
            return Err(wrong("memory of requests in flight for too many queues or requests"));
        }
        self.area = Some(Area::open(given, file).map_err(wrong)?);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a disk has no screen"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("shared objects are not offered"))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(Error::InvalidOperation("memory slots are not offered"))
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(Error::InvalidOperation("memory slots are not offered"))
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(Error::InvalidOperation("memory slots are not offered"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("the device's state is not transferred"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the device's state is not transferred"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("shared memory is not offered"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("a log of changed memory is not offered"))
    }
}
