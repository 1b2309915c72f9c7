// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the clients of a listener may do: a prefix of its address, `ro:` or `backup:`.
//!
//! Purpose: a client that only reads, such as a backup, gets a socket or a file of its own. Who may use it is decided as
//! for other listeners: by permissions, addresses and certificates.
//!
//! Why not exports with another name on the same socket: the protocol does not authorise clients by export, so that a
//! client of one could choose the other.

/// What clients may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// Read and change the volume.
    #[default]
    Full,
    /// Read.
    ReadOnly,
    /// Read, and leave the cache as it is: reads admit nothing and count as no access.
    Backup,
}

impl Grant {
    /// The prefix of an address.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::ReadOnly => "ro:",
            Self::Backup => "backup:",
        }
    }

    /// Splits an address into what its prefix grants, and the rest.
    #[must_use]
    pub fn split(text: &str) -> (Self, &str) {
        let of = |grant: Self| Some((grant, text.strip_prefix(grant.prefix())?));
        [Self::ReadOnly, Self::Backup].into_iter().find_map(of).unwrap_or((Self::Full, text))
    }
}
