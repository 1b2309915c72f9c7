// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats: one file each, with a reader and for some a writer.
//!
//! The user names the format, or the file's name or first bytes identify it. The bytes of `btr` and `oracleGeneral`
//! have no signature, so these two need a name.

pub(crate) mod blkparse;
pub(crate) mod btr;
pub(crate) mod csv;
pub(crate) mod fio;
pub(crate) mod msr;
pub(crate) mod oracle;
pub(crate) mod vscsi;

use std::path::Path;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Records of 24 bytes, Larder's own.
    Btr,
    /// fio's iolog, versions 2 and 3.
    Fio,
    /// The default output of blkparse.
    Blkparse,
    /// Separated fields with a header.
    Csv,
    /// Binary records of VMware's vscsi traces, versions 1 and 2.
    Vscsi,
    /// The MSR Cambridge traces: CSV without a header.
    Msr,
    /// Binary records of libCacheSim.
    OracleGeneral,
}

impl Format {
    /// The names that the command line accepts.
    pub const NAMED: &[(&str, Self)] = &[
        ("btr", Self::Btr),
        ("fio", Self::Fio),
        ("blkparse", Self::Blkparse),
        ("csv", Self::Csv),
        ("vscsi", Self::Vscsi),
        ("msr", Self::Msr),
        ("oracleGeneral", Self::OracleGeneral),
    ];

    /// The format with this name, in any case.
    ///
    /// # Errors
    /// The name is unknown; the error lists the accepted ones.
    pub fn by_name(name: &str) -> Result<Self, String> {
        let found = Self::NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found
            .map(|(_, format)| *format)
            .ok_or_else(|| format!("format '{name}' is unknown; accepted: {}", Self::names()))
    }

    /// The format's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// All names, separated by commas.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<&str> = Self::NAMED.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// The format by a file's extensions; extensions of compression are skipped.
    #[must_use]
    pub fn by_extension(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let parts: Vec<&str> = name.split('.').skip(1).collect();
        parts.iter().rev().find_map(|part| {
            Some(match *part {
                "btr" => Self::Btr,
                "fio" | "iolog" => Self::Fio,
                "blkparse" => Self::Blkparse,
                "csv" => Self::Csv,
                "vscsi" | "vscsitrace" => Self::Vscsi,
                "msr" => Self::Msr,
                "oraclegeneral" => Self::OracleGeneral,
                _ => return None,
            })
        })
    }

    /// The format by the first bytes of the decompressed stream.
    #[must_use]
    pub(crate) fn by_content(head: &[u8]) -> Option<Self> {
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = std::str::from_utf8(line).ok().map(|line| line.trim_end_matches('\r'));
        if line.is_some_and(|line| line.starts_with("fio version ")) {
            return Some(Self::Fio);
        }
        if line.is_some_and(msr::looks_like) {
            return Some(Self::Msr);
        }
        if line.is_some_and(blkparse::looks_like) {
            return Some(Self::Blkparse);
        }
        if line.is_some_and(csv::looks_like) {
            return Some(Self::Csv);
        }
        vscsi::version(head).map(|_| Self::Vscsi)
    }
}
