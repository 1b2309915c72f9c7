// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of an origin behind a log that processes share, and the locks of each operation.
//!
//! A hold prevents other members from changing or reading the page's bytes on the origin. No operation that may wait
//! for room runs under a hold (`pagelog/held.rs`):
//!
//! - Read: a page in the log needs no hold. Otherwise the page is read from the origin under the hold, if the log still
//!   does not hold it then.
//! - Write, if the log takes changed pages: a put, without a hold. Otherwise, under the hold: drop the page from the
//!   log, write the origin, and put the page if there is room.
//! - Bury: take the holds of all pages, bury at once, zero the origin. If there is no room, release the holds, make
//!   room and start again. A version that is put meanwhile survives: it goes to the origin under the hold, after the
//!   zeroes.
//! - Flush: changes of the origin without the log are counted (rule S5). If a crash loses the log, a flush waits for
//!   burials in progress.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use larder_core::buf::Buf;
use larder_core::pagelog::{
    Burial, Change, Found, Got, Host, LogStatus, New, OpenError, PageLog, ReleaseError, now,
};
use larder_core::request::Errno;

use crate::host::{Devices, Member};
use crate::memory::{Memory, Words};

/// Why a log could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The memory has no room for another member.
    #[error("the shared memory has no room for one more process")]
    Full,
    /// The log on flash cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Why a log could not stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// Writes cannot be made durable.
    #[error("writes cannot be made durable: {0}")]
    Flush(Errno),
    /// The log cannot be sealed.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

/// Pages behind a shared log.
pub struct Pages<M = Words> {
    log: PageLog<Member, M>,
}

impl Pages<Words> {
    /// Starts the log in a new memory, before another process joins it.
    ///
    /// # Errors
    /// The log on flash cannot be used.
    pub fn start(memory: &Arc<Memory>, devices: Devices) -> Result<(Self, Found), StartError> {
        let member = Member::join(memory, devices).map_err(|_| StartError::Full)?;
        let (words, shape) = (member.words(), memory.shape());
        let (log, found) = now(PageLog::open(member, words, shape.log, shape.settings))?;
        Ok((Self { log }, found))
    }

    /// Joins the members of a memory.
    ///
    /// # Errors
    /// There is no room for another member.
    pub fn join(memory: &Arc<Memory>, devices: Devices) -> Result<Self, Errno> {
        Self::join_over(memory, devices, |words| words)
    }
}

impl<M: Deref<Target = [AtomicU64]>> Pages<M> {
    /// As [`join`](Pages::join), with a wrapper between the log and its memory.
    ///
    /// # Errors
    /// As for [`join`](Pages::join).
    pub fn join_over(
        memory: &Arc<Memory>,
        devices: Devices,
        over: impl FnOnce(Words) -> M,
    ) -> Result<Self, Errno> {
        let member = Member::join(memory, devices)?;
        let (words, shape) = (over(member.words()), memory.shape());
        Ok(Self { log: PageLog::join(member, words, shape.log, shape.settings) })
    }

    /// The log itself.
    #[must_use]
    pub fn log(&self) -> &PageLog<Member, M> {
        &self.log
    }

    /// The current version of a page; with `keep`, a page read from the origin is put into the log if there is room.
    ///
    /// # Errors
    /// The page's only copy is lost, or cannot be read.
    pub fn read(&self, page: u64, keep: bool) -> Result<Buf, Errno> {
        let buf = loop {
            if let Got::Hit(buf, _) = now(self.log.get(page))? {
                return Ok(buf);
            }
            let _hold = now(self.log.host().hold(page));
            if self.log.has(page) {
                continue;
            }
            let buf = self.log.host().read_origin(page)?;
            if keep {
                now(self.log.put_new(page, &buf, false))?;
            }
            break buf;
        };
        now(self.log.work());
        Ok(buf)
    }

    /// Writes a page. It is durable after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// The log has failed, or the origin returns an error.
    pub fn write(&self, page: u64, bytes: &[u8]) -> Result<(), Errno> {
        if self.log.plan_change(false) != Change::PastLog {
            return now(self.log.put(page, bytes, true)).map(drop);
        }
        {
            let host = self.log.host();
            let _hold = now(host.hold(page));
            now(self.log.drop_pages(page..page + 1))?;
            host.change_past_log(|| now(host.write_origin(page, Buf::copy_of(bytes))))?;
            now(self.log.put_new(page, bytes, false))?;
        }
        now(self.log.work());
        Ok(())
    }

    /// Deletes pages: they read as zero.
    ///
    /// # Errors
    /// The log has failed, or the origin returns an error.
    pub fn bury(&self, pages: Range<u64>) -> Result<(), Errno> {
        let host = self.log.host();
        loop {
            {
                let _holds = host.hold_all(&pages);
                host.begin_burial(&pages);
                let buried = now(self.log.bury_at_once(pages.clone()));
                let zeroed = match buried {
                    Ok(Burial::Recorded | Burial::Unrecorded) => self.zero(pages.clone()),
                    Ok(Burial::NoRoom) => Ok(()),
                    // The log may have dropped them before it failed.
                    Err(_) => {
                        let mut absent = pages.clone().filter(|page| !self.log.has(*page));
                        absent.try_for_each(|page| self.zero(page..page + 1))
                    }
                };
                host.end_burial();
                zeroed?;
                if buried? != Burial::NoRoom {
                    return Ok(());
                }
            }
            now(self.log.room())?;
        }
    }

    /// Zeroes pages of the origin that the log has dropped; the caller holds them. If the origin refuses, puts zeroes into
    /// the log at once, unless another process has put a version meanwhile: no read may return the origin's older bytes.
    fn zero(&self, pages: Range<u64>) -> Result<(), Errno> {
        let host = self.log.host();
        let Err(refused) = now(host.zero_origin(pages.clone())) else { return Ok(()) };
        let zero = Buf::zeroed(host.page_bytes());
        for page in pages {
            let put = now(self.log.put_new(page, &zero, true));
            if put != Ok(New::Entered) && !self.log.has(page) {
                eprintln!(
                    "larder: the origin cannot be zeroed ({refused}), and the log has no room"
                );
                std::process::abort();
            }
        }
        host.count_refused();
        Err(refused)
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// A device cannot be flushed, or the log has failed.
    pub fn flush(&self) -> Result<(), Errno> {
        let direct = || async { self.log.host().flush_direct() };
        now(self.log.barrier(direct(), direct()))
    }

    /// The log's state.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// Stops the log; no other member may use it any more.
    ///
    /// # Errors
    /// The log cannot be flushed or sealed.
    pub fn stop(self) -> Result<(), StopError> {
        self.flush().map_err(StopError::Flush)?;
        now(self.log.release())?;
        Ok(())
    }
}
