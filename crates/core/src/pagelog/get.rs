// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of a log's pages, from the buffer of their batch or from flash.
//!
//! Readers hold nothing: the slot of a version may be overwritten while it is read. Then the checksum does not match, or the
//! version is no longer valid, and the lookup is repeated. A page that is clean is on the origin too, so a read of it may be
//! abandoned when flash is slow ([`Host::hurry`]); it stays in the log then. A dirty one is waited for.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::host::Host;
use super::paths::PageLog;
use super::words::{DIRTY, Kind, REFERENCED, kind_of};
use crate::bad_reads::BadReads;
use crate::buf::Buf;
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

/// The result of a get.
#[derive(Debug)]
pub enum Got {
    /// The page, and whether it is dirty.
    Hit(Buf, bool),
    /// The log does not have the page.
    Miss,
}

/// The newest version of a page, as a lookup found it.
struct Version {
    slot: u32,
    position: u64,
    word: u64,
    crc: u32,
}

impl Version {
    fn is_dirty(&self) -> bool {
        self.word & DIRTY != 0
    }

    /// What was read from its place, if that is the version.
    fn accept(&self, read: Option<Result<Buf, Errno>>) -> Option<Got> {
        let buf = read?.ok()?;
        let sound = crc32c(&buf) == self.crc || mutant::is_active("page-log-unchecked");
        sound.then(|| Got::Hit(buf, self.is_dirty()))
    }
}

/// Where a lookup found a page.
enum Look {
    /// In memory, or nowhere.
    Memory(Got),
    Flash(Version),
}

/// Where the newest version of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest {
    /// On the origin: the log does not have the page.
    Origin,
    /// On the origin and in the log.
    Both,
    /// In the log, or lost.
    Log,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Whether it has the page.
    pub fn has(&self, page: u64) -> bool {
        let _guard = self.lock();
        self.words.find(page).is_some() || self.is_buried(page)
    }

    /// Whether it probably has the page, without the lock: the answer may be wrong while another task changes the log. For callers
    /// that only save work by it. With `access` a version counts as accessed.
    pub fn glance(&self, page: u64, access: bool) -> bool {
        self.words.glance(page, if access { REFERENCED } else { 0 })
    }

    /// Where the newest version of a page is. One that is clean in the log counts as accessed with `access`.
    pub fn latest(&self, page: u64, access: bool) -> Latest {
        let _guard = self.lock();
        let Some(slot) = self.words.find(page) else { return Latest::Origin };
        let word = self.words.slot(slot);
        if word & DIRTY != 0 || kind_of(word) != Kind::Page {
            return Latest::Log;
        }
        if access {
            self.words.set_slot(slot, word | REFERENCED);
        }
        Latest::Both
    }

    /// The newest version of a page.
    ///
    /// # Errors
    /// If the only copy is lost or cannot be read.
    pub async fn get(&self, page: u64) -> Result<Got, Errno> {
        self.fetch(page, REFERENCED).await
    }

    /// As [`get`](Self::get), but counts as no access.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn peek(&self, page: u64) -> Result<Got, Errno> {
        self.fetch(page, 0).await
    }

    /// As [`get`](Self::get), of several pages, which are read at the same time if the host can. A page counts as
    /// accessed if its flag is set.
    pub async fn get_each(&self, pages: &[(u64, bool)]) -> Vec<Result<Got, Errno>> {
        let flags = |access: bool| if access { REFERENCED } else { 0 };
        let look = |(page, access): &(u64, bool)| self.look(*page, flags(*access));
        let looks: Vec<_> = pages.iter().map(look).collect();
        let on_flash = looks.iter().filter_map(|look| match look {
            Ok(Look::Flash(version)) => Some(version),
            _ => None,
        });
        let dirty = on_flash.clone().any(Version::is_dirty);
        let wanted = on_flash.map(|version| (self.log.block(version.position), self.page_buf()));
        let mut read = self.read_versions(wanted.collect(), dirty).await.into_iter();
        let mut all = Vec::with_capacity(pages.len());
        for ((page, access), look) in pages.iter().zip(looks) {
            all.push(match look {
                Ok(Look::Flash(version)) => match version.accept(read.next()) {
                    Some(hit) => Ok(hit),
                    // With what follows a failed read.
                    None => self.fetch(*page, flags(*access)).await,
                },
                Ok(Look::Memory(got)) => Ok(got),
                Err(errno) => Err(errno),
            });
        }
        all
    }

    fn page_buf(&self) -> Buf {
        Buf::with_len(self.log.page() as usize)
    }

    /// Reads versions from flash. Those that the origin has too are not worth a long wait.
    async fn read_versions(&self, wanted: Vec<(u64, Buf)>, dirty: bool) -> Vec<Result<Buf, Errno>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let hurried = !dirty || mutant::is_active("shared-hurries-dirty");
        let before = self.host.hurry(hurried);
        let read = self.host.read_flash_each(wanted).await;
        self.host.hurry(before);
        read
    }

    /// Looks for the newest version of a page; sets these flags of it.
    fn look(&self, page: u64, flags: u64) -> Result<Look, Errno> {
        let _guard = self.lock();
        let Some(slot) = self.words.find(page) else {
            let buried = self.is_buried(page);
            let zero = || Got::Hit(Buf::zeroed(self.log.page() as usize), true);
            return Ok(Look::Memory(if buried { zero() } else { Got::Miss }));
        };
        let (word, crc) = (self.words.slot(slot), self.words.crc(slot));
        if kind_of(word) == Kind::Lost {
            return Err(Errno::EIO);
        }
        self.words.set_slot(slot, word | flags);
        let position = self.position(slot);
        let version = Version { slot, position, word, crc };
        let Some((buffer, place)) = self.words.in_memory(position) else {
            return Ok(Look::Flash(version));
        };
        let mut buf = self.page_buf();
        self.host.staged(buffer, place, &mut buf);
        Ok(Look::Memory(Got::Hit(buf, version.is_dirty())))
    }

    /// As [`get`](Self::get); also sets these flags of the version.
    pub(super) async fn fetch(&self, page: u64, flags: u64) -> Result<Got, Errno> {
        let mut bad = BadReads::default();
        loop {
            let version = match self.look(page, flags)? {
                Look::Memory(got) => return Ok(got),
                Look::Flash(version) => version,
            };
            let wanted = vec![(self.log.block(version.position), self.page_buf())];
            let read = self.read_versions(wanted, version.is_dirty()).await.pop();
            let errno = read.as_ref().and_then(|read| read.as_ref().err()).copied();
            if let Some(hit) = version.accept(read) {
                return Ok(hit);
            }
            if let Some(errno) = errno.filter(|errno| self.host.is_abandoned(*errno)) {
                return Err(errno);
            }
            {
                let _guard = self.lock();
                let Version { slot, position, .. } = version;
                if self.words.find(page) != Some(slot) || self.position(slot) != position {
                    continue;
                }
                let dirty = self.words.slot(slot) & DIRTY != 0;
                if errno.is_none() {
                    self.host.damaged(page, dirty);
                }
                if !dirty {
                    self.drop_unreadable(slot);
                    return Ok(Got::Miss);
                }
            }
            let Some(errno) = errno else { return Err(Errno::EIO) };
            if !self.reads_again(errno, &mut bad).await? {
                return Err(errno);
            }
        }
    }
}
