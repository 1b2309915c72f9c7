// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process asked to have ready (`posix_fadvise` with `POSIX_FADV_WILLNEED`): a database's recovery does, and no
//! real system lets it wait for the disk a second time.
//!
//! The kernel reads that for its page cache, without an owner, which distinguishes such a read from one of a process.
//! Later reads do not use the page cache, as every open is a direct one; so the disk's operation is kept here for them.
//!
//! Invariants: it is for one read, and none after a write there, so this is no cache (of a file that was cut one read may
//! still be free). Bytes come from the file below when they are asked for. The kernel forgets what is not kept here any more
//! ([`Kernel`]), and its attributes with it: it does not ask twice for what it has.
//!
//! Page faults and `sendfile` have no owner either: they pay for their reads, and what is kept of them is soon displaced.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{INodeNo, Notifier};

use super::ahead::Fetch;

/// Parts of a file that are kept for their reads.
const MOST: usize = 256;

struct Part {
    start: u64,
    end: u64,
    fetch: Arc<Fetch>,
}

/// Parts of a file that were announced, the oldest first.
#[derive(Default)]
pub(super) struct Wanted(Mutex<VecDeque<Part>>);

impl Wanted {
    fn parts(&self) -> MutexGuard<'_, VecDeque<Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk is about to read so many bytes from there; what is not kept any more instead.
    pub fn begin(&self, start: u64, bytes: u64) -> (Arc<Fetch>, Option<Range<u64>>) {
        let fetch = Arc::new(Fetch::default());
        let mut parts = self.parts();
        let old = if parts.len() == MOST { parts.pop_front() } else { None };
        let end = start.saturating_add(bytes);
        parts.push_back(Part { start, end, fetch: Arc::clone(&fetch) });
        (fetch, old.map(|part| part.start..part.end))
    }

    /// The operation that reads all of these bytes, if there is one that no read has used, and all that it reads.
    pub fn take(&self, start: u64, bytes: u64) -> Option<(Arc<Fetch>, Range<u64>)> {
        let mut parts = self.parts();
        let end = start.saturating_add(bytes);
        let at = parts.iter().position(|part| part.start <= start && end <= part.end)?;
        parts.remove(at).map(|part| (part.fetch, part.start..part.end))
    }

    /// These bytes are others now.
    pub fn written(&self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        self.parts().retain(|part| end <= part.start || part.end <= start);
    }
}

/// A part of a file.
type Used = (INodeNo, Range<u64>);

/// Sends invalidations to the kernel, from a thread of its own: the kernel may wait for a read in flight.
#[derive(Clone, Debug)]
pub(super) struct Kernel(Sender<Used>);

impl Kernel {
    /// And what hears it, for [`forget`].
    pub fn new() -> (Self, Receiver<Used>) {
        let (tell, told) = channel();
        (Self(tell), told)
    }

    /// It need not keep this any more.
    pub fn used(&self, file: INodeNo, part: Range<u64>) {
        let _ = self.0.send((file, part)); // without a listener it keeps it
    }
}

/// Invalidates pages of the kernel, until all senders are gone.
pub(super) fn forget(told: Receiver<Used>, notifier: Notifier) {
    let tell = move || {
        for (file, part) in told {
            let (start, bytes) = (part.start.cast_signed(), (part.end - part.start).cast_signed());
            // It may have forgotten the file.
            let _ = notifier.inval_inode(file, start, bytes);
        }
    };
    // Without a thread the kernel keeps it, and a second advice on the same bytes does nothing.
    let _ = std::thread::Builder::new().name("larder-forget".to_owned()).spawn(tell);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_there_for_one_read_that_lies_in_it() {
        let wanted = Wanted::default();
        let (fetch, old) = wanted.begin(8192, 16384);
        assert!(old.is_none());
        assert!(wanted.take(0, 8192).is_none() && wanted.take(16384, 16384).is_none());
        let (taken, part) = wanted.take(16384, 8192).unwrap();
        assert!(Arc::ptr_eq(&taken, &fetch) && part == (8192..24576), "all of it is used");
        assert!(wanted.take(16384, 8192).is_none(), "not a second time");
    }

    #[test]
    fn what_was_written_since_is_read_again() {
        let wanted = Wanted::default();
        for start in [0, 8192, 16384] {
            wanted.begin(start, 8192);
        }
        wanted.written(8000, 1000);
        assert!(wanted.take(0, 8192).is_none() && wanted.take(8192, 8192).is_none());
        assert!(wanted.take(16384, 8192).is_some());
    }

    #[test]
    fn only_so_many_are_kept() {
        let wanted = Wanted::default();
        for part in 0..MOST as u64 {
            assert!(wanted.begin(part << 13, 8192).1.is_none());
        }
        assert_eq!(wanted.begin((MOST as u64) << 13, 8192).1, Some(0..8192));
        assert!(wanted.take(0, 8192).is_none());
        assert!(wanted.take(8192, 8192).is_some());
    }
}
