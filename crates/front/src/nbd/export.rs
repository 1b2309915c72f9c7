// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exports that a server offers, their limits and flags.
//!
//! Purpose: one description that the handshake advertises and the session enforces, so that the two cannot differ.
//!
//! Invariants (checked by [`Exports::new`]): names are unique and valid strings; block sizes and the maximum payload
//! are what the protocol allows; the size is a multiple of the minimum block.

use larder_nbd::codec::{MAX_PAYLOAD, MAX_STRING, can};
use larder_volume::Volume;

use crate::grant::Grant;

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name; the empty name is the default export.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// Size.
    pub bytes: u64,
    /// Requests must be aligned to this many bytes; a power of two of at most 64 KiB.
    pub min_block_bytes: u32,
    /// Requests should be aligned to this many bytes; a power of two, at least 512 and the minimum.
    pub preferred_block_bytes: u32,
    /// The longest read or write.
    pub max_payload_bytes: u32,
    /// Whether an answered write may be lost in a power cut until a flush.
    pub has_volatile_cache: bool,
    /// Whether writes are rejected.
    pub read_only: bool,
    /// Whether reads leave the cache as it is.
    pub passive: bool,
}

impl Export {
    /// A writable export of `bytes` with blocks of 512 bytes, 4 KiB preferred.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            bytes,
            min_block_bytes: 512,
            preferred_block_bytes: 4096,
            max_payload_bytes: MAX_PAYLOAD,
            has_volatile_cache: true,
            read_only: false,
            passive: false,
        }
    }

    /// The export of a volume.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        let geometry = volume.origin().geometry();
        Self {
            description: format!("Larder over {}", volume.origin().name()),
            min_block_bytes: geometry.block_bytes,
            preferred_block_bytes: geometry.block_bytes.max(4096),
            has_volatile_cache: volume.has_volatile_cache(),
            ..Self::new(volume.name(), geometry.bytes)
        }
    }

    /// The same for clients that may do no more than this.
    #[must_use]
    pub fn granting(self, grant: Grant) -> Self {
        let (read_only, passive) = (grant != Grant::Full, grant == Grant::Backup);
        Self { read_only, passive, ..self }
    }

    /// The transmission flags; the protocol allows "do not fragment" only with structured replies.
    #[must_use]
    pub fn flags(&self, structured: bool) -> u16 {
        let mut flags = can::HAS_FLAGS | can::MULTI_CONN;
        if self.has_volatile_cache {
            flags |= can::FLUSH | can::FUA;
        }
        flags |= if self.read_only { can::READ_ONLY } else { can::TRIM | can::WRITE_ZEROES };
        if structured {
            flags |= can::DF;
        }
        flags
    }

    fn check(&self) -> Result<(), ExportError> {
        let name = || self.name.chars().take(64).collect();
        let (min, preferred) = (self.min_block_bytes, self.preferred_block_bytes);
        let bad =
            |what, value, accepted| Err(ExportError::Value { name: name(), what, value, accepted });
        for text in [&self.name, &self.description] {
            if text.len() > MAX_STRING || text.contains('\0') {
                return Err(ExportError::Text { name: name() });
            }
        }
        if !min.is_power_of_two() || min > 1 << 16 {
            return bad("minimum block", u64::from(min), "a power of two up to 65536");
        }
        if !preferred.is_power_of_two() || preferred < min.max(512) {
            let accepted = "a power of two of at least 512 and the minimum block";
            return bad("preferred block", u64::from(preferred), accepted);
        }
        // At most 1 GiB: the reply's length must fit in 32 bits, and clients use far less.
        if self.max_payload_bytes < preferred || self.max_payload_bytes > 1 << 30 {
            let accepted = "at least the preferred block and at most 1 GiB";
            return bad("maximum payload", u64::from(self.max_payload_bytes), accepted);
        }
        if !self.bytes.is_multiple_of(u64::from(min)) || self.bytes > i64::MAX as u64 {
            let accepted = "a multiple of the minimum block below 8 EiB";
            return bad("size", self.bytes, accepted);
        }
        Ok(())
    }
}

/// An export that the protocol does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// A name or description is not a valid string.
    #[error(
        "export {name:?}: name and description must be at most 4096 bytes without a NUL character"
    )]
    Text {
        /// The export, shortened.
        name: String,
    },
    /// A number is out of range.
    #[error("export {name:?}: {what} of {value} bytes; accepted: {accepted}")]
    Value {
        /// The export, shortened.
        name: String,
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The accepted values.
        accepted: &'static str,
    },
    /// Two exports have the same name.
    #[error("export {0:?} is defined twice; accepted: different names")]
    Twice(String),
}

/// The exports of a server, in the order given; the index identifies an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports(Vec<Export>);

impl Exports {
    /// Validates the exports.
    ///
    /// # Errors
    /// The first export that breaks an invariant of this module.
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        for (i, export) in exports.iter().enumerate() {
            export.check()?;
            if exports[..i].iter().any(|e| e.name == export.name) {
                return Err(ExportError::Twice(export.name.clone()));
            }
        }
        Ok(Self(exports))
    }

    /// The index of the export with this name; the empty name also selects the only export.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        let exact = self.0.iter().position(|e| e.name == name);
        exact.or_else(|| (name.is_empty() && self.0.len() == 1).then_some(0))
    }

    /// The export with this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Export> {
        self.0.get(index)
    }

    /// All exports.
    pub fn iter(&self) -> std::slice::Iter<'_, Export> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_name_means_the_default_or_the_only_one() {
        let exports = |names: &[&str]| {
            Exports::new(names.iter().map(|n| Export::new(n, 1 << 20)).collect()).unwrap()
        };
        assert_eq!(exports(&["a"]).find(""), Some(0));
        assert_eq!(exports(&["a", "b"]).find(""), None);
        assert_eq!(exports(&["a", ""]).find(""), Some(1));
        assert_eq!(exports(&["a", "b"]).find("b"), Some(1));
        assert_eq!(exports(&["a"]).find("x"), None);
    }

    #[test]
    fn invalid_exports_are_rejected_with_the_accepted_values() {
        let bad = |change: fn(&mut Export)| {
            let mut export = Export::new("x", 1 << 20);
            change(&mut export);
            Exports::new(vec![export]).unwrap_err().to_string()
        };
        assert!(bad(|e| e.min_block_bytes = 1 << 17).contains("up to 65536"));
        assert!(bad(|e| e.min_block_bytes = 0).contains("minimum block of 0"));
        assert!(bad(|e| e.preferred_block_bytes = 256).contains("at least 512"));
        assert!(bad(|e| e.max_payload_bytes = 512).contains("maximum payload"));
        assert!(bad(|e| e.bytes += 1).contains("size of 1048577"));
        assert!(bad(|e| e.name = "a\0b".into()).contains("NUL"));
        let twice = Exports::new(vec![Export::new("x", 512), Export::new("x", 512)]);
        assert_eq!(twice, Err(ExportError::Twice("x".into())));
    }

    #[test]
    fn flags_follow_what_was_negotiated() {
        let mut export = Export::new("", 512);
        assert_eq!(export.flags(false) & can::DF, 0);
        assert_ne!(export.flags(true) & can::DF, 0);
        assert_eq!(export.flags(true) & can::READ_ONLY, 0);
        let durable = can::FLUSH | can::FUA;
        assert_eq!(export.flags(true) & durable, durable);
        let written_through = Export { has_volatile_cache: false, ..export.clone() };
        assert_eq!(written_through.flags(true) & durable, 0);
        export.read_only = true;
        let both = can::READ_ONLY | can::TRIM | can::WRITE_ZEROES;
        assert_eq!(export.flags(true) & both, can::READ_ONLY);
    }
}
