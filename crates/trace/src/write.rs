// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a trace as `btr`, CSV, fio's iolog or `oracleGeneral`, plain or compressed with zstd.
//!
//! Invariant: the file gets its name only when it is complete. Before that, and after an error, an existing file of
//! that name is unchanged.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::format::{Format, btr, csv, fio, oracle};
use crate::record::Record;

const LEVEL: i32 = 3;

enum Out {
    Plain(BufWriter<File>),
    Zstd(Box<zstd::Encoder<'static, BufWriter<File>>>),
}

impl Out {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Zstd(out) => out,
        }
    }

    fn finish(self) -> io::Result<()> {
        let buffered = match self {
            Self::Plain(out) => out,
            Self::Zstd(out) => out.finish()?,
        };
        buffered.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    }
}

/// A trace being written.
pub struct Writer {
    /// `None` after `finish`.
    out: Option<Out>,
    format: Format,
    fio: fio::State,
    path: PathBuf,
    part: PathBuf,
}

impl Writer {
    /// Creates a trace at `path`. The name states the format if `format` does not, and `.zst` that the trace is
    /// compressed.
    ///
    /// # Errors
    /// The file cannot be created, or the format has no writer.
    pub fn create(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let writable = "btr, csv, fio, oracleGeneral";
        let Some(format) = format.or_else(|| Format::by_extension(path)) else {
            let what = format!(
                "its name states no format; accepted: a name that ends in .FORMAT, or FORMAT by its flag: {writable}"
            );
            return Err(TraceError::file(&name, what));
        };
        let has_writer = |format| {
            matches!(format, Format::Btr | Format::Csv | Format::Fio | Format::OracleGeneral)
        };
        if !has_writer(format) {
            let what = format!("this format is only read; accepted for writing: {writable}");
            return Err(TraceError::file(&name, what));
        }
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if extension == "gz" {
            let what = "gzip is only read; accepted for writing: plain, .zst";
            return Err(TraceError::file(&name, what));
        }
        // The trace is written to another file and renamed, which would replace a device or a pipe.
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            let what = "exists and is not a regular file; accepted: a new file, or one to replace";
            return Err(TraceError::file(&name, what));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let make = || -> io::Result<Self> {
            // A link that another user put there must not be followed.
            match std::fs::remove_file(&part) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = BufWriter::with_capacity(1 << 20, File::create_new(&part)?);
            let out = if extension == "zst" {
                Out::Zstd(Box::new(zstd::Encoder::new(file, LEVEL)?))
            } else {
                Out::Plain(file)
            };
            let fio = fio::State::default();
            let (path, part) = (path.to_owned(), part.clone());
            let mut writer = Self { out: Some(out), format, fio, path, part };
            match (format, &mut writer.out) {
                (Format::Csv, Some(out)) => csv::begin(out.writer())?,
                (Format::Fio, Some(out)) => fio::begin(&mut writer.fio, out.writer())?,
                _ => {}
            }
            Ok(writer)
        };
        make().map_err(|error| TraceError::file(&name, format!("cannot be written: {error}")))
    }

    /// The file that is written until the trace is complete; an existing one is replaced.
    #[must_use]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The record cannot be written, or the format cannot express it.
    pub fn write(&mut self, record: &Record) -> Result<(), TraceError> {
        let Some(out) = self.out.as_mut().map(Out::writer) else { return Ok(()) };
        let written = match self.format {
            Format::Csv => csv::write(record, out),
            Format::Fio => fio::write(record, &mut self.fio, out),
            Format::OracleGeneral => oracle::write(record, out),
            // `create` rejected the formats without a writer.
            _ => btr::write(record, out),
        };
        written.map_err(|error| cannot(&self.path, &error))
    }

    /// Completes the trace and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(mut self) -> Result<(), TraceError> {
        let Some(out) = self.out.take() else { return Ok(()) };
        let finished = out.finish().and_then(|()| std::fs::rename(&self.part, &self.path));
        finished.map_err(|error| cannot(&self.path, &error))
    }
}

impl Drop for Writer {
    /// Removes an unfinished file; after `finish` it no longer exists.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

fn cannot(path: &Path, error: &io::Error) -> TraceError {
    TraceError::file(&path.display().to_string(), format!("cannot be written: {error}"))
}
