// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptors of a request, from the guest's memory to a checked command.
//!
//! Invariants: each descriptor, and the header, is read once. A chain has at most as many descriptors as its queue has, or
//! [`MOST_INDIRECT`] in a table of its own. Its parts are those that the server reads, then those that it writes; the first
//! 16 bytes are the header, the last byte that is written is the status.
//!
//! Why not the chains of `virtio-queue`: they begin at the available ring only, and requests of an earlier server do not; and
//! they end in the same way at the end of a chain, in a loop, and at an address that does not exist.

use virtio_bindings::virtio_blk as abi;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

/// The most descriptors of an indirect table.
pub const MOST_INDIRECT: u32 = 1024;
const DESCRIPTOR_BYTES: u64 = 16;
const HEADER_BYTES: usize = 16;

/// Why a chain makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// An index is outside of its table.
    #[error("a descriptor has the number {0}, in a table of {1}")]
    Number(u32, u32),
    /// A descriptor cannot be read.
    #[error("its descriptors are not in the guest's memory")]
    Table,
    /// It does not end.
    #[error("a chain of descriptors has no end")]
    Endless,
    /// A table in a table, a table that is continued, or one of a wrong length.
    #[error("an indirect table of descriptors is malformed")]
    Indirect,
    /// What the server reads comes after what it writes.
    #[error("a readable descriptor follows a writable one")]
    Order,
    /// There is no whole header.
    #[error("a request has no header of 16 bytes in the guest's memory")]
    Header,
    /// There is no status byte, or its place is not in the guest's memory.
    #[error("a request has no place for its status in the guest's memory")]
    Status,
}

/// Bytes of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub at: GuestAddress,
    pub len: u32,
}

/// Parts of the guest's memory, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

/// A request as the guest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The number of its first descriptor.
    pub head: u16,
    /// What it asks: `VIRTIO_BLK_T_*`.
    pub kind: u32,
    /// Where.
    pub sector: u64,
    /// Data that the server reads.
    pub out: Spans,
    /// Places for data that the server writes.
    pub into: Spans,
    /// The place of the status.
    pub status: GuestAddress,
}

impl Spans {
    /// Bytes in total.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|span| u64::from(span.len)).sum()
    }

    /// Memory of this description.
    pub fn own_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Span>()) as u64
    }

    /// Whether all of them are in the guest's memory.
    pub fn are_in(&self, memory: &GuestMemoryMmap, access: Permissions) -> bool {
        self.0.iter().all(|span| memory.check_range(span.at, span.len as usize, access))
    }

    /// The parts of a range of their bytes: the length of each, and its address.
    fn within(&self, mut from: u64, len: usize) -> impl Iterator<Item = (GuestAddress, usize)> {
        let mut left = len;
        self.0.iter().filter_map(move |span| {
            let skipped = from.min(span.len.into());
            from -= skipped;
            let part = (u64::from(span.len) - skipped).min(left as u64) as usize;
            left -= part;
            // The sum was checked when the chain was read.
            (part > 0).then(|| (GuestAddress(span.at.0.wrapping_add(skipped)), part))
        })
    }

    /// Copies bytes out of the guest's memory, from a place on. They must be enough.
    pub fn read(&self, memory: &GuestMemoryMmap, from: u64, into: &mut [u8]) -> Option<()> {
        let mut done = 0;
        for (at, part) in self.within(from, into.len()) {
            memory.read_slice(&mut into[done..done + part], at).ok()?;
            done += part;
        }
        (done == into.len()).then_some(())
    }

    /// Copies bytes into the guest's memory, from a place on. There must be room.
    pub fn write(&self, memory: &GuestMemoryMmap, from: u64, data: &[u8]) -> Option<()> {
        let mut done = 0;
        for (at, part) in self.within(from, data.len()) {
            memory.write_slice(&data[done..done + part], at).ok()?;
            done += part;
        }
        (done == data.len()).then_some(())
    }

    fn push(&mut self, span: Span) -> Option<()> {
        span.at.checked_add(span.len.into())?;
        if span.len > 0 {
            self.0.push(span);
        }
        Some(())
    }

    /// Removes bytes at the beginning.
    fn cut_front(&mut self, mut bytes: u32) {
        self.0.retain_mut(|span| {
            let cut = bytes.min(span.len);
            bytes -= cut;
            span.at.0 += u64::from(cut);
            span.len -= cut;
            span.len > 0
        });
    }

    /// Removes the last byte.
    fn pop_back(&mut self) -> Option<GuestAddress> {
        let last = self.0.last_mut()?;
        last.len -= 1;
        let at = GuestAddress(last.at.0 + u64::from(last.len));
        if last.len == 0 {
            self.0.pop();
        }
        Some(at)
    }
}

/// Reads the request that begins at a descriptor of a table.
///
/// # Errors
/// The guest's memory makes no sense.
pub fn command(
    memory: &GuestMemoryMmap,
    table: GuestAddress,
    size: u16,
    head: u16,
) -> Result<Command, Broken> {
    let (mut out, mut into) = walk(memory, table, size.into(), head)?;
    let mut header = [0; HEADER_BYTES];
    out.read(memory, 0, &mut header).ok_or(Broken::Header)?;
    out.cut_front(HEADER_BYTES as u32);
    let status = into.pop_back().ok_or(Broken::Status)?;
    if !memory.check_range(status, 1, Permissions::Write) {
        return Err(Broken::Status);
    }
    let (kind, sector) = meaning(&header);
    Ok(Command { head, kind, sector, out, into, status })
}

/// What a header asks, and where.
pub fn meaning(header: &[u8; HEADER_BYTES]) -> (u32, u64) {
    let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = *header;
    (u32::from_le_bytes([k0, k1, k2, k3]), u64::from_le_bytes(sector))
}

/// The readable and the writable parts of a chain.
fn walk(
    memory: &GuestMemoryMmap,
    mut table: GuestAddress,
    mut size: u32,
    head: u16,
) -> Result<(Spans, Spans), Broken> {
    let (mut out, mut into) = (Spans::default(), Spans::default());
    let (mut next, mut indirect, mut left) = (u32::from(head), false, size);
    loop {
        if next >= size {
            return Err(Broken::Number(next, size));
        }
        left = left.checked_sub(1).ok_or(Broken::Endless)?;
        let at = table.checked_add(u64::from(next) * DESCRIPTOR_BYTES).ok_or(Broken::Table)?;
        let found: Descriptor = memory.read_obj(at).map_err(|_| Broken::Table)?;
        if found.refers_to_indirect_table() {
            let bytes = u64::from(found.len());
            let entries = u32::try_from(bytes / DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
            let whole = bytes.is_multiple_of(DESCRIPTOR_BYTES) && entries > 0;
            if indirect || found.has_next() || !whole || entries > MOST_INDIRECT {
                return Err(Broken::Indirect);
            }
            (table, size, next, left, indirect) = (found.addr(), entries, 0, entries, true);
            continue;
        }
        let span = Span { at: found.addr(), len: found.len() };
        let is_late = !found.is_write_only() && !into.0.is_empty();
        let spans = if found.is_write_only() { &mut into } else { &mut out };
        if is_late {
            return Err(Broken::Order);
        }
        spans.push(span).ok_or(Broken::Table)?;
        if !found.has_next() {
            return Ok((out, into));
        }
        next = found.next().into();
    }
}

/// A segment of a trim or a zeroing, as the guest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub sector: u64,
    pub sectors: u32,
    /// The range may become a hole.
    pub unmap: bool,
    /// It has flags that are not known.
    pub strange: bool,
}

impl Segment {
    /// Bytes of a segment.
    pub const BYTES: usize = 16;

    /// The segment of these bytes.
    pub fn of(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, s0, s1, s2, s3, f0, f1, f2, f3] = bytes;
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        Self {
            sector: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sectors: u32::from_le_bytes([s0, s1, s2, s3]),
            unmap: flags & UNMAP != 0,
            strange: flags & !UNMAP != 0,
        }
    }
}

/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`.
const UNMAP: u32 = abi::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
