// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of reading and writing a trace; their text is one line.

use std::fmt;

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// This line, counted from 1.
    Line(u64),
    /// This byte of the decompressed stream, counted from 0.
    Byte(u64),
}

/// What is wrong, where, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub file: String,
    /// The position in the file.
    pub place: Place,
    /// What is wrong and what is accepted.
    pub what: String,
}

impl TraceError {
    /// An error of the file as a whole.
    pub(crate) fn file(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), place: Place::File, what: what.into() }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content of the file may be quoted, so control characters are replaced to keep one line.
        let what: String =
            self.what.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        match self.place {
            Place::File => write!(f, "{}: {what}", self.file),
            Place::Line(line) => write!(f, "{}: line {line}: {what}", self.file),
            Place::Byte(byte) => write!(f, "{}: byte {byte}: {what}", self.file),
        }
    }
}

impl std::error::Error for TraceError {}
