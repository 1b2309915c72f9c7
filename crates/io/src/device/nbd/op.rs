// SPDX-License-Identifier: MIT OR Apache-2.0
//! An operation of an NBD device, from its driver to the server and back.
//!
//! Invariant: the buffer of a read is held by the operation or by the thread that fills it.

use std::ops::Range;
use std::sync::Arc;

use larder_core::buf::Buf;
use larder_core::exec::{IoKind, Nanos};
use larder_core::extent::Extent;
use larder_core::request::Errno;

use super::step::{ExportInfo, Step};

/// An operation that has not ended.
pub(super) struct Op {
    pub(super) member: u32,
    pub(super) key: u32,
    pub(super) kind: IoKind,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Shared with the thread that sends it; the buffer of a read is not shared.
    pub(super) buf: Option<Arc<Buf>>,
    pub(super) at: usize,
    pub(super) progress: u64,
    pub(super) since: Nanos,
    /// A status request, which is otherwise handled as a read without a buffer.
    pub(super) asks_status: bool,
    /// The reply to a status request.
    pub(super) extents: Vec<Extent>,
}

impl Op {
    /// The next request, if there is one.
    pub(super) fn step(&self, export: &ExportInfo) -> Option<Step> {
        let Self { kind, offset, len, progress, .. } = *self;
        if self.asks_status {
            return (progress == 0).then_some(Step { kind, offset, len });
        }
        export.step(kind, offset, len, progress)
    }

    /// Whether a thread holds its buffer to fill it.
    pub(super) fn is_being_taken(&self) -> bool {
        self.kind == IoKind::Read && self.buf.is_none() && !self.asks_status
    }

    pub(super) fn writes(&self) -> Option<Range<u64>> {
        let writes = !matches!(self.kind, IoKind::Read | IoKind::Flush);
        writes.then(|| self.offset..self.offset + self.len)
    }
}

/// A request to send.
pub(super) struct Sending {
    pub(super) step: Step,
    /// The data of a write.
    pub(super) data: Option<(Arc<Buf>, Range<usize>)>,
    /// Whether it is a status request.
    pub(super) asks_status: bool,
}

/// A reply that was matched; the receiving thread fills the buffer without the lock.
pub(super) struct Answered {
    pub(super) op: usize,
    pub(super) step: Step,
    pub(super) memory: Option<(Buf, Range<usize>)>,
    pub(super) result: Result<(), Errno>,
}

impl Answered {
    /// Whether there is data to copy.
    pub(super) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Copies the data of a read; the read fails unless it is complete.
    pub(super) fn fill(&mut self, data: &[u8]) {
        let memory = self.memory.as_mut().and_then(|(buf, range)| buf.get_mut(range.clone()));
        match memory {
            Some(memory) if memory.len() == data.len() => memory.copy_from_slice(data),
            _ => self.result = Err(Errno::EIO),
        }
    }
}
