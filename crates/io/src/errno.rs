// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of the system's error numbers to the engine's.

use larder_core::request::Errno;

/// The device is read-only.
pub(crate) const EROFS: Errno = Errno(30);
/// The operation was cancelled.
pub(crate) const ECANCELED: Errno = Errno(125);

/// From a system call through rustix.
pub(crate) fn from_sys(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

/// From a call that reports through the standard library; without a number, `EIO`.
pub(crate) fn from_std(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}

/// From the result of a completion queue entry: a count, or a negated error number.
pub(crate) fn from_cqe(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno(result.saturating_neg()))
}

/// Whether the error means "unsupported by this object", as opposed to "failed".
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    // EOPNOTSUPP, ENOSYS, ENODEV (fallocate on what is neither file nor device), ENOTTY (ioctl).
    matches!(errno.0, 95 | 38 | 19 | 25)
}
