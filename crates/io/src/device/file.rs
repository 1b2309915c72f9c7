// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular files and block devices: opening them, and their capabilities.
//!
//! Purpose: everything about a file that does not depend on a ring, and blocking operations (for files in memory, where
//! they are the fastest way, and for tools).
//!
//! Invariants: the file is opened once, and the descriptor lives as long as the device. Direct I/O is used wherever the
//! file system supports it; then offsets and lengths are multiples of `block`, and memory is aligned to `mem_align`. A
//! method that turned out to be unsupported is not tried again.
//!
//! Why not `O_DIRECT` in `open`: on a file system without direct I/O the whole open would fail; set afterwards, only
//! the flag fails.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use larder_core::buf::{Buf, PAGE};
use larder_core::exec::IoKind;
use larder_core::request::Errno;
use larder_private::Refuse;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Statx, StatxFlags,
};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};

use super::error::OpenError;
use super::geometry::{Access, Geometry, Identity, Privacy};
use super::sysfs;
use crate::errno::{from_sys, is_unsupported};

/// Magic numbers of file systems in memory: tmpfs and ramfs.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// The longest write of zeroes, where a range cannot be deallocated.
pub(crate) const ZERO_CHUNK: u64 = 1 << 20;
/// The alignment of direct I/O that is assumed where the system does not state it.
const UNKNOWN_ALIGN: u32 = PAGE as u32;

/// Ways to make a range read as zeroes or to trim it, as bits of [`FileBase::missing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// The block layer's discard, through the ring.
    Discard = 1,
    /// `fallocate` with `PUNCH_HOLE`: zeroes, deallocated.
    Punch = 2,
    /// `fallocate` with `ZERO_RANGE`: zeroes, space kept.
    ZeroRange = 4,
    /// Writes of zeroes.
    WriteZeroes = 8,
    /// No action, for a trim, which is only a hint.
    Nothing = 16,
}

impl Way {
    /// The mode of `fallocate`, if this way uses it.
    pub(crate) fn fallocate_flags(self) -> Option<FallocateFlags> {
        match self {
            Self::Punch => Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            Self::ZeroRange => Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            _ => None,
        }
    }
}

/// An open file or block device.
pub(crate) struct FileBase {
    pub(crate) fd: OwnedFd,
    /// Where it was opened, for other programs that read it.
    pub(super) path: PathBuf,
    /// Whether direct I/O is used.
    pub(crate) direct: bool,
    /// The required alignment of memory.
    pub(crate) mem_align: u32,
    /// Whether the file is on a file system in memory, where blocking operations are the fastest.
    pub(crate) in_memory: bool,
    pub(super) is_block: bool,
    /// The modification time before the file was opened, as in `Identity`; the test for hole punching changes it.
    pub(crate) modified_ns: i128,
    /// [`Way`]s that turned out to be unsupported.
    missing: AtomicU8,
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "neither file nor block device",
    }
}

impl FileBase {
    /// Opens `path` and determines its geometry.
    pub(crate) fn open(
        path: &Path,
        access: Access,
        privacy: Privacy,
    ) -> Result<(Self, Geometry), OpenError> {
        let device = path.display().to_string();
        let fail = |action, errno: rustix::io::Errno| match errno {
            rustix::io::Errno::NOENT => OpenError::NotFound { device: device.clone() },
            rustix::io::Errno::BUSY | rustix::io::Errno::WOULDBLOCK => {
                OpenError::InUse { device: device.clone() }
            }
            errno => OpenError::System { device: device.clone(), action, errno: from_sys(errno) },
        };
        // Checked before opening, because opening a pipe waits for its other end.
        let stat = rustix::fs::stat(path).map_err(|e| fail("stat it", e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_block = kind == FileType::BlockDevice;
        if !is_block && kind != FileType::RegularFile {
            return Err(OpenError::NotADevice { device, what: kind_name(kind) });
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite if is_block => OFlags::RDWR | OFlags::EXCL,
            Access::ReadWrite => OFlags::RDWR,
        };
        let fd = match privacy {
            Privacy::Any => {
                rustix::fs::open(path, flags, Mode::empty()).map_err(|e| fail("open it", e))?
            }
            Privacy::Private => open_private(path, flags, is_block).map_err(|e| {
                match rustix::io::Errno::from_io_error(&e) {
                    Some(errno) => fail("open it", errno),
                    None => OpenError::NotPrivate { device: device.clone(), why: e.to_string() },
                }
            })?,
        };
        // Another file may have taken its place.
        let opened = rustix::fs::fstat(&fd).map_err(|e| fail("stat it", e))?;
        if FileType::from_raw_mode(opened.st_mode) != kind {
            return Err(OpenError::NotADevice { device, what: "another file than before" });
        }
        if access == Access::ReadWrite && !is_block {
            rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)
                .map_err(|e| fail("lock it", e))?;
        }
        let found = probe(fd, path, is_block, access);
        let (base, geometry, size) = found.map_err(|e| fail("determine its size", e))?;
        if geometry.bytes == 0 {
            return Err(OpenError::TooSmall { device, bytes: size, block: geometry.block_bytes });
        }
        Ok((base, geometry))
    }

    pub(crate) fn is_missing(&self, way: Way) -> bool {
        self.missing.load(Ordering::Relaxed) & way as u8 != 0
    }

    /// Records that a way is unsupported.
    pub(crate) fn set_missing(&self, way: Way) {
        tracing::debug!(?way, "not supported by this device");
        self.missing.fetch_or(way as u8, Ordering::Relaxed);
    }

    /// The ways to run a Trim or Zero, the best first. The last one is always supported.
    pub(crate) fn ways(&self, kind: IoKind) -> impl Iterator<Item = Way> + '_ {
        let ways: &[Way] = match kind {
            IoKind::Trim { .. } if self.is_block => &[Way::Discard, Way::Punch, Way::Nothing],
            IoKind::Trim { .. } => &[Way::Punch, Way::Nothing],
            IoKind::Zero { may_unmap: true, .. } => &[Way::Punch, Way::ZeroRange, Way::WriteZeroes],
            _ => &[Way::ZeroRange, Way::WriteZeroes],
        };
        ways.iter().copied().filter(|way| !self.is_missing(*way))
    }

    pub(crate) fn identity(&self) -> Result<Identity, Errno> {
        let stat = rustix::fs::fstat(&self.fd).map_err(from_sys)?;
        let bytes = if self.is_block {
            rustix::fs::seek(&self.fd, SeekFrom::End(0)).map_err(from_sys)?
        } else {
            stat.st_size as u64
        };
        Ok(Identity {
            dev: if self.is_block { stat.st_rdev } else { stat.st_dev },
            inode: if self.is_block { 0 } else { stat.st_ino },
            mtime_ns: modified_ns(self.is_block, &stat),
            bytes,
        })
    }

    pub(crate) fn read(&self, mut offset: u64, mut out: &mut [u8]) -> Result<(), Errno> {
        while !out.is_empty() {
            match rustix::io::pread(&self.fd, &mut *out, offset) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => {
                    out = &mut out[n..];
                    offset += n as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(from_sys(e)),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        while !data.is_empty() {
            match rustix::io::pwrite(&self.fd, data, offset) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(from_sys(e)),
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<(), Errno> {
        if self.in_memory {
            return Ok(());
        }
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.fd)).map_err(from_sys)
    }

    /// Runs a Trim or Zero, blocking.
    pub(crate) fn empty(&self, kind: IoKind, offset: u64, len: u64) -> Result<(), Errno> {
        for way in self.ways(kind) {
            let done = match way {
                Way::Discard => continue, // only useful on the ring
                Way::Nothing => Ok(()),
                Way::WriteZeroes => self.write_zeroes(offset, len),
                Way::Punch | Way::ZeroRange => {
                    let flags = way.fallocate_flags().unwrap_or(FallocateFlags::empty());
                    rustix::io::retry_on_intr(|| {
                        rustix::fs::fallocate(&self.fd, flags, offset, len)
                    })
                    .map_err(from_sys)
                }
            };
            match done {
                Err(e) if is_unsupported(e) => self.set_missing(way),
                done => return done,
            }
        }
        Err(Errno::EOPNOTSUPP)
    }

    /// Whether a power cut may undo acknowledged writes.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        let stat = rustix::fs::fstat(&self.fd).ok().filter(|_| self.is_block && self.direct);
        !stat.is_some_and(|stat| sysfs::is_write_through(stat.st_rdev))
    }

    /// Allocates its first `bytes` bytes; nothing on a block device.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<(), Errno> {
        let fallocate = || rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes);
        match rustix::io::retry_on_intr(fallocate).map_err(from_sys) {
            // Of a block device it is refused in several ways.
            Err(_) if self.modified_ns == 0 => Ok(()),
            Err(e) if is_unsupported(e) => Err(Errno::EOPNOTSUPP),
            done => done,
        }
    }

    pub(crate) fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&self.fd, bytes)).map_err(from_sys)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let zeroes = Buf::zeroed(len.min(ZERO_CHUNK) as usize);
        let mut at = 0;
        while at < len {
            let part = (len - at).min(ZERO_CHUNK);
            self.write(offset + at, &zeroes[..part as usize])?;
            at += part;
        }
        Ok(())
    }
}

/// Opens a file that gives no access to other users. The group of a block device may have access: members of this group
/// may use every disk.
fn open_private(path: &Path, flags: OFlags, is_block: bool) -> std::io::Result<OwnedFd> {
    let refuse = if is_block { Refuse::OTHERS } else { Refuse::ANY };
    larder_private::open(path, flags, 0, refuse)
}

/// Enables direct I/O where possible; returns the alignment of offsets and of memory.
fn direct_io(fd: &OwnedFd, stat: &Statx, disk: u64, block: Option<u32>) -> Option<(u32, u32)> {
    let reported = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let align = match (reported, block) {
        (true, _) if stat.stx_dio_offset_align == 0 => return None,
        (true, _) => (stat.stx_dio_offset_align, stat.stx_dio_mem_align),
        (false, Some(block)) => (block, block),
        (false, None) => {
            let block = sysfs::logical_block_bytes(disk).unwrap_or(UNKNOWN_ALIGN);
            (block, block)
        }
    };
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).ok()?;
    Some((align.0.max(512), align.1.clamp(1, PAGE as u32)))
}

fn probe(
    fd: OwnedFd,
    path: &Path,
    is_block: bool,
    access: Access,
) -> rustix::io::Result<(FileBase, Geometry, u64)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let statx = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, wanted)?;
    let stat = rustix::fs::fstat(&fd)?;
    let file_system = rustix::fs::fstatfs(&fd)?.f_type as u64;
    let in_memory = !is_block && MEMORY_FILE_SYSTEMS.contains(&file_system);
    let disk = if is_block { stat.st_rdev } else { stat.st_dev };
    let logical = is_block.then(|| rustix::fs::ioctl_blksszget(&fd)).transpose()?;
    let aligned = if in_memory { None } else { direct_io(&fd, &statx, disk, logical) };
    let (block_bytes, mem_align) = aligned.unwrap_or((logical.unwrap_or(512), 1));
    let (size, physical) = if is_block {
        (rustix::fs::seek(&fd, SeekFrom::End(0))?, rustix::fs::ioctl_blkpbszget(&fd)?)
    } else {
        (stat.st_size as u64, u32::try_from(stat.st_blksize).unwrap_or(PAGE as u32))
    };
    let base = FileBase {
        fd,
        path: path.to_owned(),
        direct: aligned.is_some(),
        mem_align,
        in_memory,
        is_block,
        modified_ns: modified_ns(is_block, &stat),
        missing: AtomicU8::new(0),
    };
    let bytes = size - size % u64::from(block_bytes);
    let can_trim = access == Access::ReadWrite
        && if is_block { sysfs::can_discard(disk) } else { can_punch(&base, size) };
    let geometry = Geometry {
        bytes,
        block_bytes,
        physical_block_bytes: physical.max(block_bytes),
        can_trim,
        rotational: if in_memory { Some(false) } else { sysfs::rotational(disk) },
    };
    Ok((base, geometry, size))
}

/// The modification time; 0 for a block device, which has none of its content.
fn modified_ns(is_block: bool, stat: &rustix::fs::Stat) -> i128 {
    if is_block {
        return 0;
    }
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Whether holes can be punched: tested beyond the end of the file, where it changes only the modification time. That
/// time is restored, because a change of the origin outside of Larder is detected by it.
fn can_punch(base: &FileBase, size: u64) -> bool {
    let Some(flags) = Way::Punch.fallocate_flags() else { return false };
    let beyond = size.next_multiple_of(PAGE as u64);
    match rustix::fs::fallocate(&base.fd, flags, beyond, PAGE as u64) {
        Err(e) if is_unsupported(from_sys(e)) => {
            base.set_missing(Way::Punch);
            false
        }
        result => {
            let second = 1_000_000_000;
            let last_modification = Timespec {
                tv_sec: base.modified_ns.div_euclid(second) as i64,
                tv_nsec: base.modified_ns.rem_euclid(second) as _,
            };
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            // Without permission the time stays changed: the cache then starts cold, or the start is refused.
            let _ = futimens(&base.fd, &Timestamps { last_access, last_modification });
            result.is_ok()
        }
    }
}
