// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in memory: a trace that was decoded once and is replayed many times, and its bytes as `btr`.

use std::sync::Arc;

use crate::format::btr;
use crate::record::Record;
use crate::source::{BATCH, Decode, Failure};

pub use crate::format::btr::RECORD_BYTES;

/// The records of a plain `btr`.
///
/// # Errors
/// The number of an invalid record, counted from 0, and what is accepted.
pub fn from_btr(bytes: &[u8]) -> Result<Vec<Record>, (usize, String)> {
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    let decoded: Result<Vec<Record>, _> = records
        .iter()
        .enumerate()
        .map(|(number, bytes)| btr::decode(bytes).map_err(|what| (number, what)))
        .collect();
    match decoded {
        Ok(_) if !rest.is_empty() => {
            let what =
                format!("the record ends after {} bytes; accepted: {RECORD_BYTES}", rest.len());
            Err((records.len(), what))
        }
        decoded => decoded,
    }
}

/// Writes records as `btr`; `bytes` has room for all of them.
pub fn to_btr(records: &[Record], bytes: &mut [u8]) {
    let (places, _) = bytes.as_chunks_mut::<RECORD_BYTES>();
    records.iter().zip(places).for_each(|(record, place)| *place = btr::encode(record));
}

/// Returns the records, in batches as a decoder of a file does.
pub(crate) struct Held {
    records: Arc<[Record]>,
    next: usize,
}

impl Held {
    pub(crate) fn new(records: Arc<[Record]>) -> Self {
        Self { records, next: 0 }
    }
}

impl Decode for Held {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let record = self.records.get(self.next).copied();
        self.next += usize::from(record.is_some());
        Ok(record)
    }

    fn batch(&mut self, batch: &mut Vec<Record>) -> Result<(), Failure> {
        let end = self.records.len().min(self.next + BATCH);
        batch.extend_from_slice(&self.records[self.next..end]);
        self.next = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Records, Trace};

    #[test]
    fn a_held_trace_has_the_records_of_its_file_and_devices_are_selected() {
        let all: Vec<Record> = Records::shipped().unwrap().map(Result::unwrap).collect();
        let mut bytes = vec![0; all.len() * RECORD_BYTES];
        to_btr(&all, &mut bytes);
        assert!(from_btr(&bytes).unwrap() == all);
        let held = |dev| {
            let options = Options { dev, ..Options::default() };
            let trace = Trace::held("held", all.clone().into(), options);
            trace.records().unwrap().map(Result::unwrap).collect::<Vec<Record>>()
        };
        assert!(held(None) == all);
        let logs: Vec<Record> = all.iter().filter(|record| record.dev == 1).copied().collect();
        assert!(!logs.is_empty() && held(Some(1)) == logs);
    }

    #[test]
    fn invalid_bytes_are_refused_with_the_number_of_the_record() {
        let mut bytes = [0_u8; 2 * RECORD_BYTES];
        bytes[16] = 1;
        let (number, what) = from_btr(&bytes).unwrap_err();
        assert!(number == 1 && what.starts_with("0 bytes at offset 0; accepted"), "{what}");
        let (number, what) = from_btr(&bytes[..30]).unwrap_err();
        assert_eq!((number, &*what), (1, "the record ends after 6 bytes; accepted: 24"));
    }
}
