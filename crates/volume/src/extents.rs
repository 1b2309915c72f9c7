// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data and holes of a volume, for the front-ends.
//!
//! Purpose: the only code that answers this question. In a clean cache the origin has all acknowledged data, so the answer
//! of the origin is that of the volume; cached pages are equal to those of the origin. In a write-back cache a hole of the
//! origin may be data on flash and the reverse, so everything counts as data.
//!
//! Invariants: a write that was acknowledged before the question is not a hole in its answer. A worker never waits for the
//! answer: a thread of the volume, started by the first question, asks the origin one question at a time. Each question
//! costs bounded work, and their number is limited by the requests that connections may have open. Only questions hold the
//! device, not the thread, so the device may be closed once all questions are answered.

use std::ops::Range;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use larder_core::extent::Extent;
use larder_io::Device;

/// The most extents of one answer.
const MOST_EXTENTS: usize = 256;
/// The most questions to the origin for one seek.
const MOST_STEPS: usize = 64;

type Question = Box<dyn FnOnce() + Send>;

/// The kind of place to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that may not read as zeroes.
    Data,
    /// Zeroes, or the end.
    Hole,
}

/// Asks the origin on its own thread, see the module.
pub(crate) struct Map {
    /// None if everything counts as data.
    origin: Option<Device>,
    thread: Mutex<Option<Sender<Question>>>,
}

impl Map {
    pub fn new(origin: Option<Device>) -> Self {
        Self { origin, thread: Mutex::default() }
    }

    /// The extents of a range from its beginning, or with `one` only the first; the map's thread calls `done` with the
    /// result.
    pub fn ask(
        &self,
        range: Range<u64>,
        one: bool,
        done: impl FnOnce(Vec<Extent>) + Send + 'static,
    ) {
        let most = if one { 1 } else { MOST_EXTENTS };
        let origin = self.origin.clone();
        self.put(Box::new(move || {
            let list = extents(origin.as_ref(), range, most);
            drop(origin);
            done(list);
        }));
    }

    /// The first place of a kind in a range of whole blocks; the end of the range for a hole, and
    /// nothing for data, if there is none.
    pub fn seek(
        &self,
        range: Range<u64>,
        what: Seek,
        done: impl FnOnce(Option<u64>) + Send + 'static,
    ) {
        let origin = self.origin.clone();
        self.put(Box::new(move || {
            let found = seek(origin.as_ref(), range, what);
            drop(origin);
            done(found);
        }));
    }

    /// Hands a question to the thread. A question that is dropped ends the wait of its caller.
    fn put(&self, question: Question) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = thread.get_or_insert_with(|| {
            let (sender, questions) = channel();
            let body = move || questions.into_iter().for_each(|question: Question| question());
            let spawned = std::thread::Builder::new().name("larder-map".to_owned()).spawn(body);
            if let Err(e) = spawned {
                tracing::error!("cannot start a thread: {e}");
            }
            sender
        });
        if let Err(unasked) = sender.send(question) {
            *thread = None;
            drop(thread);
            // No thread can be started. The caller waits for the answer here; otherwise it would wait without end.
            (unasked.0)();
        }
    }
}

/// The extents of a range of the volume.
fn extents(origin: Option<&Device>, range: Range<u64>, most: usize) -> Vec<Extent> {
    let len = range.end - range.start;
    origin.map_or_else(|| vec![Extent::data(len)], |origin| origin.extents(range.start, len, most))
}

/// A search that takes too many steps ends with an answer that is true of every file: there is data
/// here, or there is no hole before the end.
fn seek(origin: Option<&Device>, range: Range<u64>, what: Seek) -> Option<u64> {
    let mut at = range.start;
    for _ in 0..MOST_STEPS {
        if at >= range.end {
            return (what == Seek::Hole).then_some(range.end);
        }
        for extent in extents(origin, at..range.end, MOST_EXTENTS) {
            if extent.zero == (what == Seek::Hole) {
                return Some(at);
            }
            at += extent.len;
        }
    }
    Some(if what == Seek::Hole { range.end } else { at })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use larder_io::{Access, DevSpec};

    use super::*;

    #[test]
    fn the_next_data_and_the_next_hole_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes) = (dir.path().join("file"), 4u64 << 20);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        // There are more extents than one answer may have.
        for at in (1 << 20..3 << 20).step_by(8192) {
            file.write_all_at(&[1; 4096], at).unwrap();
        }
        let device = Device::open(&DevSpec::Path(path), Access::ReadWrite).unwrap();
        let find = |from, what| seek(Some(&device), from..bytes, what);
        if find(0, Seek::Hole) != Some(0) {
            return println!("skipped: the file system tells no holes");
        }
        assert_eq!(find(0, Seek::Data), Some(1 << 20));
        assert_eq!(find(1 << 20, Seek::Hole), Some((1 << 20) + 4096));
        assert_eq!(find((1 << 20) + 4096, Seek::Data), Some((1 << 20) + 8192));
        assert_eq!(find((3 << 20) - 4096, Seek::Data), None);
        let whole = Device::mem(1 << 20);
        assert_eq!(seek(Some(&whole), 0..1 << 20, Seek::Data), Some(0));
        assert_eq!(seek(Some(&whole), 4096..1 << 20, Seek::Hole), Some(1 << 20));
        assert_eq!(seek(Some(&whole), 1 << 20..1 << 20, Seek::Data), None);
        assert_eq!(seek(None, 0..1 << 20, Seek::Hole), Some(1 << 20), "flash owns what it holds");
    }
}
