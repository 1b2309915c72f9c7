// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of an origin behind a log that processes share: what is held when.
//!
//! A hold keeps everybody from changing, and from reading, the page's bytes on the origin. Nothing that may wait
//! for room happens under one (`pagelog/held.rs`):
//!
//! - read: what the log has needs no hold. What it has not is read from the origin under the hold, if the
//!   log still has not got it then.
//! - write, where the log takes changed pages: a put, no hold. Else: hold, drop, write the origin, put if there is room.
//! - bury: hold all pages, bury at once, make the origin zero; if there is no room, begin again when there is. A version
//!   that is put meanwhile is not undone: it goes to the origin under the hold, behind the zeroes.
//! - flush: what went past the log is counted (rule S5); burials in progress are waited for where a crash loses the log.

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

/// Why a log was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The memory has no room for one more member.
    #[error("the shared memory has no room for one more process")]
    Full,
    /// The log on flash cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Why a log was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// What was written cannot be made durable.
    #[error("what was written cannot be made durable: {0}")]
    Flush(Errno),
    /// The log cannot be sealed.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

/// See the module.
pub struct Pages<M = Words> {
    log: PageLog<Member, M>,
}

impl Pages<Words> {
    /// Starts the log in a new memory, before anybody else joins it.
    ///
    /// # Errors
    /// If the log on flash cannot be used.
    pub fn start(memory: &Arc<Memory>, devices: Devices) -> Result<(Self, Found), StartError> {
        let member = Member::join(memory, devices).map_err(|_| StartError::Full)?;
        let (words, shape) = (member.words(), memory.shape());
        let (log, found) = now(PageLog::open(member, words, shape.log, shape.settings))?;
        Ok((Self { log }, found))
    }

    /// Joins those who share it.
    ///
    /// # Errors
    /// If there is no room for one more.
    pub fn join(memory: &Arc<Memory>, devices: Devices) -> Result<Self, Errno> {
        Self::join_over(memory, devices, |words| words)
    }
}

impl<M: Deref<Target = [AtomicU64]>> Pages<M> {
    /// As [`join`](Pages::join), with something between the log and its memory.
    ///
    /// # Errors
    /// As there.
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

    /// The newest version of a page; `keep` enters what came from the origin into the log, if there is room.
    ///
    /// # Errors
    /// If its only copy is lost or cannot be read.
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
    /// If the log has failed, or the origin does.
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

    /// The pages are no more: they read as zero.
    ///
    /// # Errors
    /// If the log has failed, or the origin does.
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

    /// Makes the origin zero where the log has dropped pages, which are held. Where the origin refuses, the log has zeroes
    /// instead, at once, or a version that another process put meanwhile. No read may return the origin's older bytes.
    fn zero(&self, pages: Range<u64>) -> Result<(), Errno> {
        let host = self.log.host();
        let Err(refused) = now(host.zero_origin(pages.clone())) else { return Ok(()) };
        let zero = Buf::zeroed(host.page_bytes());
        for page in pages {
            let put = now(self.log.put_new(page, &zero, true));
            if put != Ok(New::Entered) && !self.log.has(page) {
                eprintln!(
                    "larder: the origin cannot be made zero ({refused}), and the log has no room"
                );
                std::process::abort();
            }
        }
        host.count_refused();
        Err(refused)
    }

    /// Makes durable all that was written before.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn flush(&self) -> Result<(), Errno> {
        let direct = || async { self.log.host().flush_direct() };
        now(self.log.barrier(direct(), direct()))
    }

    /// The log's state.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// Stops the log, when nobody else uses it any more.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn stop(self) -> Result<(), StopError> {
        self.flush().map_err(StopError::Flush)?;
        now(self.log.release())?;
        Ok(())
    }
}
