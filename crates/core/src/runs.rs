// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that span several units of a stripe: served unit by unit, answered once.
//!
//! Each part is served as a request of its own. The result is the first error in order of completion, if there is one; the
//! request is a hit only if every part is.

use std::cell::RefCell;

use slab::Slab;

use crate::buf::Buf;
use crate::request::{Errno, Kind, Reply, Request};

/// The request that a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A whole request, by the driver's tag.
    Whole(u64),
    /// A part of a run.
    Part {
        /// The run.
        run: u32,
        /// First byte of the part within the request.
        at: u32,
    },
}

struct Run {
    left: u32,
    /// With the buffer of the whole request, if it reads.
    reply: Reply,
}

/// Runs in flight.
#[derive(Default)]
pub(crate) struct Runs(RefCell<Slab<Run>>);

impl Runs {
    /// Opens a run of `parts` parts; `whole`: the buffer of the request, if it reads.
    pub(crate) fn open(&self, tag: u64, parts: u32, whole: Option<Buf>) -> u32 {
        let reply = Reply { tag, result: Ok(()), buf: whole, hit: true };
        self.0.borrow_mut().insert(Run { left: parts, reply }) as u32
    }

    /// Takes a reply; returns the reply for the driver if the request is complete.
    pub(crate) fn take(
        &self,
        tag: Tag,
        result: Result<(), Errno>,
        buf: Option<Buf>,
        hit: bool,
    ) -> Option<Reply> {
        let (run, at) = match tag {
            Tag::Whole(tag) => return Some(Reply { tag, result, buf, hit }),
            Tag::Part { run, at } => (run as usize, at as usize),
        };
        let mut runs = self.0.borrow_mut();
        let open = runs.get_mut(run)?;
        open.left -= 1;
        open.reply.hit &= hit;
        open.reply.result = open.reply.result.and(result);
        if let (Some(whole), Some(part)) = (&mut open.reply.buf, buf) {
            whole[at..at + part.len()].copy_from_slice(&part);
        }
        if open.left > 0 {
            return None;
        }
        let Run { mut reply, .. } = runs.remove(run);
        // After an error the buffer is filled in part only.
        reply.buf = reply.buf.filter(|_| reply.result.is_ok());
        Some(reply)
    }
}

/// Cuts a request at the borders of units. Returns also the buffer of the whole request, if it reads.
pub(crate) fn parts(request: Request, unit_bytes: u64) -> (Vec<Request>, Option<Buf>) {
    let Request { kind, offset, len, buf, passive } = request;
    let mut parts = Vec::new();
    let mut at = offset;
    while at < offset + len {
        let end = (offset + len).min((at / unit_bytes + 1) * unit_bytes);
        let bytes = (at - offset) as usize..(end - offset) as usize;
        // A part that reads allocates its own buffer.
        let written = buf.as_ref().filter(|_| kind != Kind::Read);
        let buf = written.map(|buf| Buf::copy_of(&buf[bytes]));
        parts.push(Request { kind, offset: at, len: end - at, buf, passive });
        at = end;
    }
    let reads = kind == Kind::Read;
    (parts, reads.then(|| buf.unwrap_or_else(|| Buf::with_len(len as usize))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_answered_once_with_all_bytes_and_the_first_error() {
        let runs = Runs::default();
        let buf = Some(Buf::copy_of(&[7; 12_288]));
        let (kind, passive) = (Kind::Read, true);
        let request = Request { kind, offset: 2048, len: 12_288, buf, passive };
        let (parts, _) = parts(request, 4096);
        assert_eq!(parts.iter().map(|p| p.len).collect::<Vec<_>>(), [2048, 4096, 4096, 2048]);
        assert!(parts.iter().all(|p| p.passive));
        let answer = |failing: Option<usize>| {
            let run = runs.open(9, 4, Some(Buf::with_len(12_288)));
            let replies = parts.iter().enumerate().filter_map(|(n, part)| {
                let at = (part.offset - 2048) as u32;
                let result = if failing == Some(n) { Err(Errno::EIO) } else { Ok(()) };
                let buf = Some(Buf::copy_of(&vec![n as u8; part.len as usize]));
                runs.take(Tag::Part { run, at }, result, buf, n != 2)
            });
            replies.collect::<Vec<Reply>>()
        };
        let whole = answer(None);
        let [Reply { tag: 9, result: Ok(()), buf: Some(buf), hit: false }] = &whole[..] else {
            panic!("{whole:?}")
        };
        assert_eq!((buf[2047], buf[2048], buf[12_287]), (0, 1, 3));
        let failed = answer(Some(1));
        assert!(matches!(&failed[..], [Reply { result: Err(Errno::EIO), buf: None, .. }]));
    }
}
