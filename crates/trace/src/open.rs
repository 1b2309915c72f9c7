// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace that can be read several times, in a file or in memory, and its records.
//!
//! Records are decoded in batches, so that the decoder is one virtual call a batch instead of one a record.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::TraceError;
use crate::format::csv::Columns;
use crate::format::{Format, blkparse, btr, csv, fio, msr, oracle, vscsi};
use crate::held::Held;
use crate::record::Record;
use crate::source::{BATCH, Decode, Failure, Stream, cannot_read, decompress};
use crate::watch::{self, Watch};

/// The trace shipped with Larder, as `btr.zst`: PostgreSQL 15 under pgbench with Zipf-distributed updates, recorded
/// below the file system.
static PG15_ZIPF_UPDATE: &[u8] = include_bytes!("../data/pg15_zipf_update.btr.zst");

/// How to read a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format; by default its name or first bytes identify it.
    pub format: Option<Format>,
    /// Columns of a CSV; by default recognised by name.
    pub columns: Columns,
    /// The blkparse event that counts as a request.
    pub event: char,
    /// Return only requests of this device.
    pub dev: Option<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self { format: None, columns: Columns::default(), event: 'Q', dev: None }
    }
}

/// A trace in a file or in memory.
#[derive(Clone, Debug)]
pub struct Trace {
    path: PathBuf,
    options: Options,
    held: Option<Arc<[Record]>>,
}

impl Trace {
    /// The trace at `path`; nothing is opened yet.
    #[must_use]
    pub fn new(path: &Path, options: Options) -> Self {
        Self { path: path.to_owned(), options, held: None }
    }

    /// A trace in memory; `name` is used in messages, and of the options only the device counts.
    #[must_use]
    pub fn held(name: &str, records: Arc<[Record]>, options: Options) -> Self {
        Self { path: PathBuf::from(name), options, held: Some(records) }
    }

    /// Opens the trace and returns its records from the first.
    ///
    /// # Errors
    /// The file cannot be opened, or its format is unknown.
    pub fn records(&self) -> Result<Records, TraceError> {
        let name = self.path.display().to_string();
        if let Some(records) = &self.held {
            let decoder = Box::new(Held::new(records.clone()));
            return Ok(Records::new(name, decoder, self.options.dev));
        }
        let cannot = |error| TraceError::file(&name, format!("cannot be opened: {error}"));
        let file = File::open(&self.path).map_err(cannot)?;
        let mut options = self.options.clone();
        options.format = options.format.or_else(|| Format::by_extension(&self.path));
        Records::from_reader(file, &name, &options)
    }

    /// How it is read.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The file, or the name of a trace in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The records of a trace, in order. An error is the last item.
pub struct Records {
    name: String,
    decoder: Box<dyn Decode>,
    batch: Vec<Record>,
    next: usize,
    failure: Option<Failure>,
    ended: bool,
    dev: Option<u8>,
    watch: Option<Arc<Watch>>,
}

impl Records {
    /// The records of the trace shipped with Larder.
    ///
    /// # Errors
    /// The decompressor cannot be created.
    pub fn shipped() -> Result<Self, TraceError> {
        let options = Options { format: Some(Format::Btr), ..Options::default() };
        Self::from_reader(PG15_ZIPF_UPDATE, "pg15_zipf_update.btr.zst", &options)
    }

    /// Records of a stream, plain or compressed; `name` is used in messages.
    ///
    /// # Errors
    /// The stream cannot be read, or its format is unknown.
    pub fn from_reader(
        raw: impl Read + Send + 'static,
        name: &str,
        options: &Options,
    ) -> Result<Self, TraceError> {
        let cannot = |error| TraceError::file(name, cannot_read(&error));
        let mut stream = decompress(raw).map_err(cannot)?;
        let head = stream.fill_buf().map_err(cannot)?;
        let Some(format) = options.format.or_else(|| Format::by_content(head)) else {
            let what = format!(
                "neither its name nor its first bytes identify its format; accepted: --format {}",
                Format::names()
            );
            return Err(TraceError::file(name, what));
        };
        let version = vscsi::version(head);
        if format == Format::Vscsi && version.is_none() && !head.is_empty() {
            let what = "its first records have no known version; accepted: vscsi versions 1 and 2";
            return Err(TraceError::file(name, what));
        }
        let decoder = decoder(format, version, stream, options);
        Ok(Self::new(name.to_owned(), decoder, options.dev))
    }

    fn new(name: String, decoder: Box<dyn Decode>, dev: Option<u8>) -> Self {
        let (batch, watch) = (Vec::with_capacity(BATCH), watch::current());
        Self { name, decoder, batch, next: 0, failure: None, ended: false, dev, watch }
    }

    /// The next decoded records; `None` at the end. For loops where the iterator's cost per record matters.
    ///
    /// # Errors
    /// The trace is malformed here; no further records follow.
    pub fn next_batch(&mut self) -> Result<Option<&[Record]>, TraceError> {
        if self.next == self.batch.len() && !self.refill()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.next, self.batch.len());
        Ok(Some(&self.batch[from..]))
    }

    /// Fills the batch with at least one record; false at the end.
    fn refill(&mut self) -> Result<bool, TraceError> {
        self.batch.clear();
        self.next = 0;
        while self.batch.is_empty() {
            if let Some((place, what)) = self.failure.take() {
                let file = self.name.clone();
                return Err(TraceError { file, place, what });
            }
            if self.ended {
                return Ok(false);
            }
            match self.decoder.batch(&mut self.batch) {
                Ok(()) => self.ended = self.batch.is_empty(),
                Err(failure) => (self.ended, self.failure) = (true, Some(failure)),
            }
            if let Some(watch) = &self.watch {
                watch.add(self.batch.len());
                if watch.is_stopped() {
                    (self.ended, self.failure) = (true, None);
                    self.batch.clear();
                    return Err(watch::stopped(&self.name));
                }
            }
            if let Some(dev) = self.dev {
                self.batch.retain(|record| record.dev == dev);
            }
        }
        Ok(true)
    }
}

impl Iterator for Records {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.batch.len() {
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let record = self.batch[self.next];
        self.next += 1;
        Some(Ok(record))
    }
}

fn decoder(
    format: Format,
    version: Option<u8>,
    stream: Stream,
    options: &Options,
) -> Box<dyn Decode> {
    match format {
        Format::Btr => Box::new(btr::Reader::new(stream)),
        Format::Fio => Box::new(fio::Reader::new(stream)),
        Format::Blkparse => Box::new(blkparse::Reader::new(stream, options.event)),
        Format::Csv => Box::new(csv::Reader::new(stream, options.columns.clone())),
        Format::Vscsi if version == Some(1) => Box::new(vscsi::V1::new(stream)),
        Format::Vscsi => Box::new(vscsi::V2::new(stream)),
        Format::Msr => Box::new(msr::Reader::new(stream)),
        Format::OracleGeneral => Box::new(oracle::Reader::new(stream)),
    }
}
