// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the cache: while the server runs, when it starts, and of servers that it does not know.

use std::io;

use larder_core::request::Errno;
use larder_shared::{StartError, StopError};

/// A failure, with the errno that a call of the server returns for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The log, or the device below it.
    #[error("flash failed ({0})")]
    Flash(Errno),
    /// The log may still have what the server drops.
    #[error("pages cannot be dropped ({0})")]
    Drop(Errno),
    /// Dirty pages cannot be written to the disk.
    #[error("the disk cannot be written ({0})")]
    Disk(Errno),
    /// The journal of names.
    #[error("larder.names cannot be written ({0})")]
    Names(Errno),
    /// The process must stop.
    #[error("canceled during a wait for flash")]
    Canceled,
    /// No process serves flash.
    #[error("the process that serves flash has ended")]
    Unserved,
}

impl Failure {
    /// Whether flash took too long.
    #[must_use]
    pub fn is_overdue(self) -> bool {
        matches!(self, Self::Flash(Errno::ETIMEDOUT) | Self::Drop(Errno::ETIMEDOUT))
    }

    /// Whether this is no failure of a device: the wait was abandoned, because flash is overdue or the process must stop.
    #[must_use]
    pub fn is_abandoned(self) -> bool {
        let canceled =
            [Self::Flash(Errno::ECANCELED), Self::Drop(Errno::ECANCELED), Self::Canceled];
        self.is_overdue() || canceled.contains(&self)
    }

    /// The number.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::Flash(errno) | Self::Drop(errno) | Self::Disk(errno) | Self::Names(errno) => {
                errno
            }
            Self::Canceled => Errno::ECANCELED,
            Self::Unserved => Errno::EOWNERDEAD,
        }
    }
}

/// Why a server is refused, whatever flash has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownServer {
    /// No major version whose calls were examined.
    #[error("this server is PostgreSQL {major}; accepted: {first} to {last}")]
    Major {
        /// Its version.
        major: u64,
        /// The oldest accepted version.
        first: u64,
        /// The newest accepted version.
        last: u64,
    },
    /// It reaches files in another way than its major version.
    #[error(
        "the executable of PostgreSQL {major} does not import {names}, which larder must redirect"
    )]
    Missing {
        /// Its version.
        major: u64,
        /// The names of the function; one suffices.
        names: String,
    },
    /// It may reach relation files past the cache.
    #[error(
        "the executable of PostgreSQL {major} imports {name}, which can reach relation files; accepted: functions that \
         larder redirects or knows to be harmless there"
    )]
    Unknown {
        /// Its version.
        major: u64,
        /// The function.
        name: &'static str,
    },
}

/// Why flash cannot be used by a start.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No directory is named.
    #[error("larder.flash_directory is not set")]
    NotNamed,
    /// There is no such directory, and this user may not create it.
    #[error("it does not exist and cannot be created ({0})")]
    NoDirectory(io::Error),
    /// The file system has not enough space.
    #[error("{mib} MiB cannot be allocated ({error})")]
    NoRoom {
        /// The size of the flash file.
        mib: u64,
        /// Why.
        error: io::Error,
    },
    /// Its file is locked.
    #[error("another server uses it, or an earlier one has not ended yet")]
    InUse,
    /// It failed while the server ran.
    #[error("it failed")]
    Failed,
    /// Operations of an earlier process of the server have not ended.
    #[error("it does not answer")]
    Hangs,
    /// It failed while the server ran, which then died.
    #[error("it failed, and the server died; the next start tries it again")]
    FailedBefore,
    /// The guard exists and the log does not.
    #[error("it has no log {0:016x}, which the data directory needs")]
    NoLog(u64),
    /// The log has other numbers of pages.
    #[error(
        "an older version of larder wrote it; that version must bring its pages back (larder.policy = through)"
    )]
    OldLog,
    /// The guard is of another log.
    #[error("it has another log than the data directory needs")]
    OtherLog,
    /// The log exists and the guard does not.
    #[error("it has pages that a data directory needs, and this one has no guard that names it")]
    NoGuard,
    /// The guard cannot be read.
    #[error("the guard {0} in the data directory is damaged")]
    DamagedGuard(&'static str),
    /// The data directory changed after the log's server stopped.
    #[error(
        "pg_control is another than the server wrote last: the data directory was put back or changed"
    )]
    OtherControl,
    /// The data directory is not as the shared memory records it.
    #[error("the data directory was put back or changed since the server died")]
    PutBack,
    /// A file system is not mounted.
    #[error("the tablespace in {0}, whose pages it has, does not exist")]
    NotMounted(String),
    /// The kept file describes a log that the flash file cannot have, or one of other pages than the server's.
    #[error("larder.kept describes a log that does not fit larder.flash or the server's page size")]
    DamagedKept,
    /// Names of forks do not go together.
    #[error("larder.names contradicts itself")]
    WrongNames,
    /// This process cannot join the members of the memory.
    #[error("the shared memory has no room for one more process ({0})")]
    Join(Errno),
    /// The log on flash was not started.
    #[error(transparent)]
    Log(#[from] StartError),
    /// The log was not stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// An operation of the cache failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] io::Error),
}
