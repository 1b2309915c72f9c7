// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on the origin by the parts of one request, merged.
//!
//! A request that spans several units is served part by part (`runs.rs`). The parts that read, or change, the origin in the
//! same turn and adjoin become one operation, so that a request that misses costs the origin as much as in the systems that
//! the presets model:
//! - bcache reads all that it misses up to the next cached block in one operation, and writes a request whole.
//! - EnhanceIO reads a request whole if one of its blocks misses, and writes it whole. Here a part that hits is read from
//!   flash, so that the parts before and after it are two operations.
//! - flashcache gets each block of a request from the device mapper alone; the block layer merges those that the
//!   request's task submits under one plug. Here they always merge.
//!
//! Not merged: parts that reach the origin in different turns (the block layer has dispatched the first already), other
//! requests, flushes, and population, which chooses the sizes of its reads. Slots of adjoining units do not adjoin, so flash
//! operations are not merged.
//!
//! Invariants: a merged operation covers exactly the ranges of its parts, each of which holds its own claim. Its result is
//! the result of every part. A part gets its own buffer back.
//!
//! Why not cut requests after the lookup instead: claims, validity and slots are per unit, and each path would have to
//! handle several.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::buf::Buf;
use crate::exec::{Exec, Guard, IoKind, WaitList};
use crate::mutant;
use crate::population::pace::Use;
use crate::request::Errno;

/// An operation on the origin.
pub(crate) struct Op {
    pub kind: IoKind,
    pub offset: u64,
    pub len: u64,
    pub buf: Option<Buf>,
}

/// The result of an operation, and its buffer.
pub(crate) type Done = (Result<(), Errno>, Option<Buf>);

/// Whether operations of this purpose and kind merge: those of clients. A discard has no purpose that the pace knows.
pub(crate) fn merges(why: Use, kind: IoKind) -> bool {
    match kind {
        IoKind::Read | IoKind::Write { .. } => why == Use::Client,
        IoKind::Trim { .. } | IoKind::Zero { .. } => true,
        IoKind::Flush => false,
    }
}

/// The merged operations that other parts may join.
#[derive(Default)]
pub(crate) struct Merger(RefCell<Vec<Rc<Merged>>>);

/// A merged operation.
struct Merged {
    run: u32,
    why: Use,
    kind: IoKind,
    parts: RefCell<Vec<Op>>,
    result: Cell<Result<(), Errno>>,
    ended: WaitList,
}

impl Merger {
    /// Executes the operation of a part of a run, by `execute` and together with those of other parts.
    pub(crate) async fn run<G: Guard>(
        &self,
        (run, why): (u32, Use),
        op: Op,
        exec: &Exec<G>,
        execute: impl AsyncFnOnce(Op) -> Done,
    ) -> Done {
        let (merged, at) = self.join(run, why, op);
        if at > 0 {
            merged.ended.wait(exec).await;
            return merged.take(at);
        }
        // The other parts are ready now, if they go to the origin at all.
        exec.yield_now().await;
        self.0.borrow_mut().retain(|open| !Rc::ptr_eq(open, &merged));
        let (result, whole) = execute(merged.whole()).await;
        merged.end(result, whole);
        merged.ended.wake_all(exec);
        merged.take(at)
    }

    /// Appends an operation to the one that it continues, or begins another; returns its place there.
    fn join(&self, run: u32, why: Use, op: Op) -> (Rc<Merged>, usize) {
        let mut open = self.0.borrow_mut();
        let continues = |m: &&Rc<Merged>| {
            (m.run, m.why, m.kind, m.range().end) == (run, why, op.kind, op.offset)
        };
        if let Some(merged) = open.iter().find(continues) {
            let mut parts = merged.parts.borrow_mut();
            parts.push(op);
            return (Rc::clone(merged), parts.len() - 1);
        }
        let (kind, parts) = (op.kind, RefCell::new(vec![op]));
        let (result, ended) = (Cell::new(Ok(())), WaitList::default());
        let merged = Rc::new(Merged { run, why, kind, parts, result, ended });
        open.push(Rc::clone(&merged));
        (merged, 0)
    }
}

impl Merged {
    /// The bytes of the origin.
    fn range(&self) -> Range<u64> {
        let parts = self.parts.borrow();
        let start = parts.first().map_or(0, |first| first.offset);
        start..parts.last().map_or(0, |last| last.offset + last.len)
    }

    /// The operation that covers all parts. A part alone gives its own buffer.
    fn whole(&self) -> Op {
        let (kind, range) = (self.kind, self.range());
        let mut parts = self.parts.borrow_mut();
        let (offset, len) = (range.start, range.end - range.start);
        if let [alone] = &mut parts[..] {
            return Op { kind, offset, len, buf: alone.buf.take() };
        }
        let buf = match kind {
            IoKind::Read => Some(Buf::with_len(len as usize)),
            IoKind::Write { .. } => {
                let mut whole = Buf::with_len(len as usize);
                for part in parts.iter() {
                    let (at, len) = ((part.offset - offset) as usize, part.len as usize);
                    if let Some(buf) = &part.buf {
                        whole[at..at + len].copy_from_slice(&buf[..len]);
                    }
                }
                Some(whole)
            }
            _ => None,
        };
        Op { kind, offset, len, buf }
    }

    /// Takes the result; what was read goes to the buffers of the parts.
    fn end(&self, result: Result<(), Errno>, whole: Option<Buf>) {
        self.result.set(result);
        let first = self.range().start;
        let mut parts = self.parts.borrow_mut();
        if let [alone] = &mut parts[..] {
            alone.buf = whole;
            return;
        }
        if self.kind != IoKind::Read {
            return;
        }
        for part in parts.iter_mut() {
            let shifted = mutant::is_active("merged-read-shifted");
            let at = if shifted { 0 } else { (part.offset - first) as usize };
            match (&whole, &mut part.buf) {
                (Some(whole), Some(buf)) => {
                    let len = part.len as usize;
                    buf[..len].copy_from_slice(&whole[at..at + len]);
                }
                _ => part.buf = None,
            }
        }
    }

    /// The result for a part.
    fn take(&self, at: usize) -> Done {
        let unshared = at > 0 && mutant::is_active("merged-error-unshared");
        let result = if unshared { Ok(()) } else { self.result.get() };
        (result, self.parts.borrow_mut().get_mut(at).and_then(|part| part.buf.take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::DevId;

    /// The answers to parts of one run, and the operations that the device executed.
    #[derive(Default)]
    struct Seen {
        answers: RefCell<Vec<(u64, Done)>>,
        executed: RefCell<Vec<(u64, u64)>>,
    }

    /// Runs parts (run, offset, pages) with pages of 4096 bytes; the device reads the number of each page.
    fn run(kind: IoKind, parts: &[(u32, u64, usize)], result: Result<(), Errno>) -> Rc<Seen> {
        let (exec, merger): (Exec, _) = (Exec::default(), Rc::<Merger>::default());
        let seen = Rc::<Seen>::default();
        for &(run, page, pages) in parts {
            let (e, m, s) = (exec.clone(), Rc::clone(&merger), Rc::clone(&seen));
            exec.spawn(async move {
                let buf = Some(Buf::copy_of(&vec![page as u8; pages * 4096]));
                let op = Op { kind, offset: page * 4096, len: pages as u64 * 4096, buf };
                let execute = async |op: Op| {
                    s.executed.borrow_mut().push((op.offset / 4096, op.len / 4096));
                    let Op { kind, offset, len, buf } = op;
                    let io = e.io(DevId(0), kind, offset, len, buf, 0, None, None);
                    let crate::exec::Ended::Done(result, buf) = io.await else { panic!("late") };
                    (result, buf)
                };
                let done = m.run((run, Use::Client), op, &e, execute).await;
                s.answers.borrow_mut().push((page, done));
            });
        }
        exec.run(0);
        while let Some(io) = exec.next_io() {
            let mut buf = io.buf;
            for (n, page) in buf.iter_mut().flat_map(|buf| buf.chunks_mut(4096)).enumerate() {
                let number = (io.offset / 4096) as usize + n;
                match kind {
                    IoKind::Read => page.fill(number as u8),
                    _ => assert!(page.iter().all(|byte| usize::from(*byte) == number)),
                }
            }
            exec.complete(io.id, result, buf);
            exec.run(0);
        }
        assert!(merger.0.borrow().is_empty());
        seen
    }

    #[test]
    fn adjoining_parts_of_a_run_are_one_operation_and_each_gets_its_own_bytes() {
        let seen = run(IoKind::Read, &[(1, 4, 1), (1, 5, 1), (2, 6, 1), (1, 6, 2)], Ok(()));
        assert_eq!(*seen.executed.borrow(), [(4, 4), (6, 1)]);
        let answers = seen.answers.borrow();
        assert_eq!(answers.len(), 4);
        for (page, (result, buf)) in answers.iter() {
            assert!(result.is_ok());
            let buf = buf.as_ref().expect("the bytes");
            assert!(buf[..4096].iter().all(|byte| u64::from(*byte) == *page), "{page}");
        }
    }

    #[test]
    fn parts_with_a_hole_between_them_are_two_operations() {
        let seen = run(IoKind::Read, &[(1, 4, 1), (1, 6, 1), (1, 7, 1)], Ok(()));
        assert_eq!(*seen.executed.borrow(), [(4, 1), (6, 2)]);
    }

    #[test]
    fn every_part_gets_the_error_and_the_bytes_that_it_writes_back() {
        let kind = IoKind::Write { fua: true };
        let seen = run(kind, &[(1, 4, 1), (1, 5, 1), (1, 6, 1)], Err(Errno::EIO));
        assert_eq!(*seen.executed.borrow(), [(4, 3)]);
        for (page, (result, buf)) in seen.answers.borrow().iter() {
            assert_eq!(*result, Err(Errno::EIO));
            assert_eq!(buf.as_ref().map(|buf| u64::from(buf[0])), Some(*page));
        }
    }
}
