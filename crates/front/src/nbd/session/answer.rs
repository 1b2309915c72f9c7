// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes results as replies.
//!
//! The data of a read is one chunk, so "do not fragment" always holds. Success without data is a simple reply in either
//! mode: it is shorter, and the protocol allows it for all commands but read.

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::Errno;
use larder_nbd::codec::{ChunkHeader, SimpleReply, chunk, wire_error};
use larder_nbd::status;

use super::outbox::{COPY_BYTES, Held, Outbox};
use super::slots::Slot;

/// What a request holds until its reply is sent: a read holds its data.
fn held_by(slot: &Slot) -> Held {
    let (bytes, cost) = if slot.is_read() { (slot.payload, slot.cost) } else { (0, 0) };
    Held { requests: 1, bytes, cost }
}

/// Encodes success, with the data of a read; `bufs` is empty afterwards.
pub(super) fn ok(out: &mut Outbox, slot: &Slot, structured: bool, bufs: &mut Vec<Buf>) {
    let Slot { cookie, offset, len, .. } = *slot;
    // By the request, not by a buffer: its first piece may be short.
    let alone = slot.is_read() && slot.payload > COPY_BYTES as u64;
    if structured && slot.is_read() {
        let flags = chunk::FLAG_DONE;
        if len == 0 {
            // A chunk of data must not be empty.
            let head = ChunkHeader { flags, kind: chunk::NONE, cookie, len: 0 };
            out.copy(&head.encode(), false);
        } else {
            let head = ChunkHeader { flags, kind: chunk::OFFSET_DATA, cookie, len: len + 8 };
            out.copy(&head.encode(), alone);
            out.copy(&offset.to_be_bytes(), alone);
        }
    } else {
        out.copy(&SimpleReply { error: 0, cookie }.encode(), alone);
    }
    for buf in bufs.drain(..) {
        out.payload(buf, alone);
    }
    out.end(held_by(slot));
}

/// Encodes a block status.
pub(super) fn status(out: &mut Outbox, slot: &Slot, extents: &[Extent]) {
    let payload = status::encode(status::CONTEXT, extents);
    let (flags, len) = (chunk::FLAG_DONE, payload.len() as u32);
    let head = ChunkHeader { flags, kind: status::CHUNK, cookie: slot.cookie, len };
    out.copy(&head.encode(), false);
    out.copy(&payload, false);
    out.end(held_by(slot));
}

/// Encodes an error, with a message if the client uses structured replies.
pub(super) fn error(out: &mut Outbox, slot: &Slot, structured: bool, errno: Errno, why: &str) {
    let (error, cookie) = (wire_error(errno), slot.cookie);
    if structured {
        let text = why.len() as u16;
        let (flags, kind, len) = (chunk::FLAG_DONE, chunk::ERROR, 6 + u32::from(text));
        out.copy(&ChunkHeader { flags, kind, cookie, len }.encode(), false);
        out.copy(&error.to_be_bytes(), false);
        out.copy(&text.to_be_bytes(), false);
        out.copy(why.as_bytes(), false);
    } else {
        out.copy(&SimpleReply { error, cookie }.encode(), false);
    }
    out.end(held_by(slot));
}
