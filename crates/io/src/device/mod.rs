// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of a volume, opened once and used by every worker thread.
//!
//! Purpose: one handle for a file, a block device, memory, a null device, and the export of an NBD server, and for any
//! of them behind modelled latency (`slow+`) or injected faults. The handle never blocks a worker: a
//! [`Driver`](crate::Driver) runs the operations.
//!
//! Invariants: while a device is open, of its geometry only the size changes, when a caller asks the device for it
//! (`sizes.rs`). An operation outside the device, or not in whole
//! blocks, fails with `EINVAL` and has no effect.
//!
//! Why not a trait: there are six kinds, and the driver must know which of them complete at once.

mod error;
mod extents;
pub(crate) mod file;
pub(crate) mod flushes;
mod geometry;
pub(crate) mod mem;
pub(crate) mod nbd;
mod paced;
mod sizes;
mod slow;
mod sysfs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_core::exec::{Io, IoKind};
use larder_core::request::Errno;

use self::file::FileBase;
use self::flushes::Flushes;
use self::geometry::{SMALL_BLOCK, memory_geometry};
use self::mem::MemStore;
use self::nbd::{Nbd, ServerBounds};
use crate::errno::EROFS;
use crate::fault::{Fault, Verdict};
use crate::spec::DevSpec;

pub use self::error::OpenError;
pub use self::geometry::{Access, Geometry, Identity, Privacy};
pub use self::paced::{Paced, PacedOp};
pub(crate) use self::slow::Slow;

/// The largest device in memory; its table alone takes 400 MB.
const MAX_MEM_BYTES: u64 = 1 << 50;
/// The longest read or write of one operation.
pub const MAX_IO_BYTES: u64 = 1 << 30;

/// The kind of device that executes operations.
pub(crate) enum Base {
    File(FileBase),
    Mem(MemStore),
    /// Reads return zeroes, writes are discarded.
    Null,
    /// Reads and writes have no effect, not even on buffers.
    Blackhole,
    /// The export of a server.
    Nbd(Nbd),
    /// Nothing: reads and writes fail.
    Absent,
}

struct Shared {
    name: String,
    access: Access,
    /// All but its bytes, which may change.
    geometry: Geometry,
    bytes: Arc<AtomicU64>,
    base: Arc<Base>,
    slow: Option<Arc<Slow>>,
    fault: Option<Fault>,
    flushes: Arc<Flushes>,
}

/// An open device. Cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.0.name).field(&self.0.geometry).finish()
    }
}

impl Device {
    /// Opens the device that `spec` names.
    ///
    /// # Errors
    /// The device does not exist, is in use, or cannot be opened.
    pub fn open(spec: &DevSpec, access: Access) -> Result<Self, OpenError> {
        Self::open_within(spec, access, Privacy::Any, ServerBounds::default())
    }

    /// Opens a device for cached data: for all operations, and only if no other user can read or write it.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or other users have access.
    pub fn open_private(spec: &DevSpec) -> Result<Self, OpenError> {
        Self::open_within(spec, Access::ReadWrite, Privacy::Private, ServerBounds::default())
    }

    /// As [`open`](Self::open), with time limits for a server.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_within(
        spec: &DevSpec,
        access: Access,
        privacy: Privacy,
        within: ServerBounds,
    ) -> Result<Self, OpenError> {
        let name = spec.to_string();
        match spec {
            DevSpec::Path(path) => {
                let (file, geometry) = FileBase::open(path, access, privacy)?;
                Ok(Self::build(name, access, geometry, Base::File(file)))
            }
            DevSpec::Mem(bytes) | DevSpec::Null(bytes) => {
                let geometry = memory_geometry(*bytes, true);
                if geometry.bytes == 0 {
                    let (bytes, block) = (*bytes, SMALL_BLOCK);
                    return Err(OpenError::TooSmall { device: name, bytes, block });
                }
                let base = match spec {
                    DevSpec::Mem(_) if *bytes > MAX_MEM_BYTES => {
                        return Err(OpenError::TooLarge { device: name, most: MAX_MEM_BYTES });
                    }
                    DevSpec::Mem(_) => Base::Mem(MemStore::new(geometry.bytes)),
                    _ => Base::Null,
                };
                Ok(Self::build(name, access, geometry, base))
            }
            DevSpec::Slow { inner, profile, seed } => {
                let inner = Self::open_within(inner, access, privacy, within)?;
                let bytes = inner.geometry().bytes;
                let model = slow::model(profile, bytes, seed.unwrap_or(0));
                let fail = |error| OpenError::Profile { device: name.clone(), error };
                Ok(inner.with_model(model.map_err(fail)?, &name))
            }
            DevSpec::Nbd(uri) => {
                let (nbd, geometry) = Nbd::open(uri, access, within)?;
                Ok(Self::build(name, access, geometry, Base::Nbd(nbd)))
            }
        }
    }

    /// A device in this process's memory.
    #[must_use]
    pub fn mem(bytes: u64) -> Self {
        let geometry = memory_geometry(bytes, true);
        let base = Base::Mem(MemStore::new(geometry.bytes));
        Self::build(DevSpec::Mem(bytes).to_string(), Access::ReadWrite, geometry, base)
    }

    /// A device that reads as zeroes and discards writes.
    #[must_use]
    pub fn null(bytes: u64) -> Self {
        let geometry = memory_geometry(bytes, true);
        Self::build(DevSpec::Null(bytes).to_string(), Access::ReadWrite, geometry, Base::Null)
    }

    /// As [`null`](Self::null), but a read leaves the buffer unchanged, with its old content: for measuring everything
    /// except devices. No [`DevSpec`] names it, so no client can see it.
    #[must_use]
    pub fn blackhole(bytes: u64) -> Self {
        let geometry = memory_geometry(bytes, true);
        Self::build("blackhole".to_owned(), Access::ReadWrite, geometry, Base::Blackhole)
    }

    /// The place of a device that is missing: reads and writes fail with `ENXIO`. A flush succeeds, since nothing was written.
    #[must_use]
    pub fn absent(spec: &DevSpec, bytes: u64) -> Self {
        let geometry = memory_geometry(bytes, true);
        Self::build(spec.to_string(), Access::ReadWrite, geometry, Base::Absent)
    }

    /// Whether it only stands for a device that is missing.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(&*self.0.base, Base::Absent)
    }

    fn build(name: String, access: Access, geometry: Geometry, base: Base) -> Self {
        let (base, flushes) = (Arc::new(base), Arc::default());
        let bytes = Arc::new(AtomicU64::new(geometry.bytes));
        let (slow, fault) = (None, None);
        Self(Arc::new(Shared { name, access, geometry, bytes, base, slow, fault, flushes }))
    }

    /// The same device behind a latency model, which all users of the result share.
    #[must_use]
    pub fn with_model(&self, model: Box<dyn larder_model::Model>, name: &str) -> Self {
        let slow = Some(Arc::new(Slow::new(model)));
        Self(Arc::new(Shared { name: name.to_owned(), slow, ..self.parts() }))
    }

    /// The same device with the faults of `fault`, which replace those of another handle.
    #[must_use]
    pub fn with_fault(&self, fault: &Fault) -> Self {
        Self(Arc::new(Shared { fault: Some(fault.clone()), ..self.parts() }))
    }

    fn parts(&self) -> Shared {
        let Shared { name, access, geometry, bytes, base, slow, fault, flushes } = &*self.0;
        Shared {
            name: name.clone(),
            access: *access,
            geometry: *geometry,
            bytes: Arc::clone(bytes),
            base: Arc::clone(base),
            slow: slow.clone(),
            fault: fault.clone(),
            flushes: Arc::clone(flushes),
        }
    }

    /// The device as the user named it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The path of a file or block device.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &*self.0.base {
            Base::File(file) => Some(&file.path),
            _ => None,
        }
    }

    /// Size and shape.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry { bytes: self.0.bytes.load(Ordering::Acquire), ..self.0.geometry }
    }

    /// The access mode.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// Whether transfers bypass the page cache. False for files on tmpfs and the like, and for memory, which has none.
    #[must_use]
    pub fn direct(&self) -> bool {
        matches!(&*self.0.base, Base::File(file) if file.direct)
    }

    /// Whether acknowledged writes may be lost in a power cut until a flush: not on a disk that calls itself write-through.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        match &*self.0.base {
            Base::File(file) if self.is_plain() => file.has_volatile_cache(),
            _ => true,
        }
    }

    /// Requires that reads return what was written, or fail: if the device may have lost acknowledged writes, every
    /// later operation fails as if the device had been removed. Only the server of an export can lose writes unnoticed;
    /// for other devices this has no effect.
    pub fn vanish_on_loss(&self) {
        if let Some(nbd) = self.nbd() {
            nbd.vanish_on_loss();
        }
    }

    /// Whether the device may have lost acknowledged writes: reads may return older bytes. Only an export can, when a
    /// connection is lost while writes are not flushed. If so, this holds before any operation that was executed afterwards
    /// completes. Cheap.
    #[must_use]
    pub fn may_have_lost_writes(&self) -> bool {
        self.nbd().is_some_and(Nbd::may_have_lost_writes)
    }

    /// The device's current identity; `None` for memory.
    ///
    /// # Errors
    /// The system call fails.
    pub fn identity(&self) -> Result<Option<Identity>, Errno> {
        match &*self.0.base {
            Base::File(file) => file.identity().map(Some),
            _ => Ok(None),
        }
    }

    /// The modification time of a file before it was opened, in nanoseconds since 1970; `None` for other devices.
    #[must_use]
    pub fn modified_before_open_ns(&self) -> Option<i128> {
        match &*self.0.base {
            Base::File(file) => Some(file.modified_ns).filter(|ns| *ns != 0),
            _ => None,
        }
    }

    /// Allocates the blocks of a file up to this byte, so that its file system cannot run out of room for them. Other
    /// devices have theirs.
    ///
    /// # Errors
    /// The system call fails: ENOSPC, or EOPNOTSUPP if the file system cannot do it.
    pub fn allocate(&self, bytes: u64) -> Result<(), Errno> {
        match &*self.0.base {
            Base::File(file) => file.allocate(bytes),
            _ => Ok(()),
        }
    }

    /// Runs one operation on the calling thread, for tools and tests. Modelled latency does not apply, and of injected
    /// faults only failures.
    ///
    /// # Errors
    /// The device's error.
    pub fn run_blocking(&self, io: &mut Io) -> Result<(), Errno> {
        self.check(io)?;
        if let Some(Verdict::Fail(errno)) = self.fault().map(|fault| fault.verdict(io)) {
            return Err(errno);
        }
        self.0.base.run(io)
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }

    /// Whether operations run on the device directly and end with its completion.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.fault.is_none() && self.0.slow.is_none()
    }

    pub(crate) fn slow(&self) -> Option<&Slow> {
        self.0.slow.as_deref()
    }

    pub(crate) fn nbd(&self) -> Option<&Nbd> {
        match &*self.0.base {
            Base::Nbd(nbd) => Some(nbd),
            _ => None,
        }
    }

    pub(crate) fn flushes(&self) -> &Flushes {
        &self.0.flushes
    }

    pub(crate) fn base(&self) -> &Base {
        &self.0.base
    }

    /// Rejects an operation that does not fit the geometry.
    pub(crate) fn check(&self, io: &Io) -> Result<(), Errno> {
        let geometry = self.geometry();
        if !matches!(io.kind, IoKind::Read) && self.0.access == Access::ReadOnly {
            return if io.kind == IoKind::Flush { Ok(()) } else { Err(EROFS) };
        }
        if io.kind == IoKind::Flush {
            return Ok(());
        }
        let block = u64::from(geometry.block_bytes);
        let end = io.offset.checked_add(io.len);
        let inside = io.len > 0 && end.is_some_and(|end| end <= geometry.bytes);
        if !inside || (io.offset | io.len) & (block - 1) != 0 {
            return Err(Errno::EINVAL);
        }
        match io.kind {
            IoKind::Read | IoKind::Write { .. } => self.check_memory(io),
            _ => Ok(()),
        }
    }

    fn check_memory(&self, io: &Io) -> Result<(), Errno> {
        let buf = io.buf.as_ref().ok_or(Errno::EINVAL)?;
        let room = buf.len().checked_sub(io.at).ok_or(Errno::EINVAL)? as u64;
        let align = match &*self.0.base {
            Base::File(file) => file.mem_align as usize,
            _ => 1,
        };
        // The buffer itself is aligned to a page.
        if io.len > room || io.len > MAX_IO_BYTES || io.at & (align - 1) != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

impl Base {
    /// Whether [`run`](Self::run) never waits for a device.
    pub(crate) fn answers_at_once(&self) -> bool {
        match self {
            Self::File(file) => file.in_memory,
            Self::Mem(_) | Self::Null | Self::Blackhole | Self::Absent => true,
            Self::Nbd(_) => false,
        }
    }

    /// Runs a checked operation to completion.
    pub(crate) fn run(&self, io: &mut Io) -> Result<(), Errno> {
        if let Self::Nbd(nbd) = self {
            return nbd.run(io);
        }
        let (kind, offset, len) = (io.kind, io.offset, io.len);
        let memory = match &mut io.buf {
            Some(buf) if matches!(kind, IoKind::Read | IoKind::Write { .. }) => {
                &mut buf[io.at..io.at + len as usize]
            }
            _ => &mut [],
        };
        match (self, kind) {
            (Self::Blackhole | Self::Nbd(_), _) | (Self::Absent, IoKind::Flush) => Ok(()),
            (Self::Absent, _) => Err(Errno::ENXIO),
            (Self::Null, IoKind::Read) => {
                memory.fill(0);
                Ok(())
            }
            (Self::Null, _) | (Self::Mem(_), IoKind::Flush) => Ok(()),
            (Self::Mem(store), IoKind::Read) => {
                store.read(offset, memory);
                Ok(())
            }
            (Self::Mem(store), IoKind::Write { .. }) => {
                store.write(offset, memory);
                Ok(())
            }
            (Self::Mem(store), IoKind::Trim { .. } | IoKind::Zero { .. }) => {
                store.zero(offset, len);
                Ok(())
            }
            (Self::File(file), IoKind::Read) => file.read(offset, memory),
            (Self::File(file), IoKind::Flush) => file.flush(),
            (Self::File(file), IoKind::Write { fua }) => {
                file.write(offset, memory)?;
                if fua { file.flush() } else { Ok(()) }
            }
            (Self::File(file), IoKind::Trim { fua } | IoKind::Zero { fua, .. }) => {
                file.empty(kind, offset, len)?;
                if fua { file.flush() } else { Ok(()) }
            }
        }
    }
}
