// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a trace: decompression, and division into records of one size or into lines.
//!
//! Invariants: the length of a line is bounded, so a file without line ends does not exhaust memory; positions count in
//! the decompressed stream.

use std::io::{self, BufRead, BufReader, Read};

use crate::error::Place;
use crate::record::Record;

/// Records decoded at a time.
pub(crate) const BATCH: usize = 1024;

/// The longest line.
const LINE_BYTES: usize = 16 << 10;
const BUFFER_BYTES: usize = 256 << 10;

/// What is wrong, and where; the caller adds the file's name.
pub(crate) type Failure = (Place, String);

/// A format's decoder.
pub(crate) trait Decode: Send {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<Record>, Failure>;

    /// Decodes up to [`BATCH`] records; keeps those before a failure.
    fn batch(&mut self, batch: &mut Vec<Record>) -> Result<(), Failure> {
        while batch.len() < BATCH
            && let Some(record) = self.next()?
        {
            batch.push(record);
        }
        Ok(())
    }
}

/// The decompressed stream.
pub(crate) type Stream = BufReader<Box<dyn Read + Send>>;

/// Decompresses zstd and gzip, recognised by their magic numbers; other streams are plain.
pub(crate) fn decompress(raw: impl Read + Send + 'static) -> io::Result<Stream> {
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
    let head = raw.fill_buf()?;
    let plain: Box<dyn Read + Send> = if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(zstd::Decoder::with_buffer(raw)?)
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(raw))
    } else {
        Box::new(raw)
    };
    Ok(BufReader::with_capacity(BUFFER_BYTES, plain))
}

pub(crate) fn cannot_read(error: &io::Error) -> String {
    format!("cannot be read: {error}; accepted: a whole file, plain, zstd or gzip")
}

/// Records of `N` bytes.
pub(crate) struct Chunks<const N: usize> {
    stream: Stream,
    at_bytes: u64,
}

impl<const N: usize> Chunks<N> {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, at_bytes: 0 }
    }

    /// The next record and its position; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, [u8; N])>, Failure> {
        let at_bytes = self.at_bytes;
        let mut bytes = [0; N];
        if let Some(whole) = self.stream.buffer().first_chunk::<N>() {
            bytes = *whole;
            self.stream.consume(N);
        } else if !self.across_buffers(&mut bytes)? {
            return Ok(None);
        }
        self.at_bytes += N as u64;
        Ok(Some((at_bytes, bytes)))
    }

    /// Reads a record that crosses the end of the buffer; false at the end.
    fn across_buffers(&mut self, bytes: &mut [u8; N]) -> Result<bool, Failure> {
        let place = Place::Byte(self.at_bytes);
        let mut found = 0;
        while found < N {
            match self.stream.read(&mut bytes[found..]) {
                Ok(0) if found == 0 => return Ok(false),
                Ok(0) => {
                    let what = format!("the record ends after {found} bytes; accepted: {N}");
                    return Err((place, what));
                }
                Ok(n) => found += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((place, cannot_read(&error))),
            }
        }
        Ok(true)
    }
}

/// Lines of text.
pub(crate) struct Lines {
    stream: Stream,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, line: Vec::new(), number: 0 }
    }

    /// The number of the line that was read last.
    pub(crate) fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// The next record; skips lines that hold none.
    pub(crate) fn record(
        &mut self,
        mut decode: impl FnMut(&str) -> Result<Option<Record>, String>,
    ) -> Result<Option<Record>, Failure> {
        while let Some(line) = self.next()? {
            match decode(line) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(what) => return Err((self.place(), what)),
            }
        }
        Ok(None)
    }

    /// The next line without its line end; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, Failure> {
        self.number += 1;
        self.line.clear();
        loop {
            let place = Place::Line(self.number);
            let buffer = match self.stream.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err((place, cannot_read(&error))),
            };
            if buffer.is_empty() && self.line.is_empty() {
                return Ok(None);
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            if self.line.len() + part.len() > LINE_BYTES {
                let what = format!("is longer than {LINE_BYTES} bytes; accepted: lines of text");
                return Err((place, what));
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            let last = end.is_some() || used == 0;
            self.stream.consume(used);
            if last {
                break;
            }
        }
        let place = Place::Line(self.number);
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some(text.trim_end_matches('\r'))),
            Err(_) => Err((place, "is not text; accepted: ASCII or UTF-8".to_owned())),
        }
    }
}
