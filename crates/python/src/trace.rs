// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as Python holds it: a file, or records in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_trace::{Format, Options, RECORD_BYTES, Record, Writer, from_btr, to_btr};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::refused;
use crate::watch::Watch;

/// A trace.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Trace {
    trace: larder_trace::Trace,
    held: Option<Arc<[Record]>>,
}

impl Trace {
    pub(crate) fn inner(&self) -> larder_trace::Trace {
        self.trace.clone()
    }

    pub(crate) fn name(&self) -> String {
        self.trace.path().display().to_string()
    }

    fn in_memory(name: &str, records: Vec<Record>) -> Self {
        let records: Arc<[Record]> = records.into();
        let trace = larder_trace::Trace::held(name, records.clone(), Options::default());
        Self { trace, held: Some(records) }
    }
}

#[pymethods]
impl Trace {
    /// A trace in a file; the file is opened when it is read.
    #[new]
    #[pyo3(signature = (path, format=None, dev=None, columns=None, event=None))]
    fn new(
        path: PathBuf,
        format: Option<&str>,
        dev: Option<u8>,
        columns: Option<&str>,
        event: Option<char>,
    ) -> PyResult<Self> {
        let options = Options {
            format: format.map(Format::by_name).transpose().map_err(refused)?,
            columns: columns.map(str::parse).transpose().map_err(refused)?.unwrap_or_default(),
            event: event.unwrap_or(Options::default().event),
            dev,
        };
        Ok(Self { trace: larder_trace::Trace::new(&path, options), held: None })
    }

    /// A trace of records in a buffer, as in a plain btr.
    #[staticmethod]
    fn of_records(py: Python<'_>, name: &str, records: PyBuffer<u8>) -> PyResult<Self> {
        let bytes = records.to_vec(py)?;
        let decoded = py.detach(|| from_btr(&bytes));
        let records =
            decoded.map_err(|(at, what)| refused(format!("{name}: request {at}: {what}")))?;
        Ok(Self::in_memory(name, records))
    }

    /// The requests of a trace in memory.
    #[getter]
    fn requests(&self) -> Option<usize> {
        self.held.as_ref().map(|records| records.len())
    }

    /// The same trace in memory.
    fn load(&self, py: Python<'_>, watch: &Watch) -> PyResult<Self> {
        let records = watch.run(py, || {
            let (mut all, mut records) = (Vec::new(), self.trace.records().map_err(refused)?);
            while let Some(batch) = records.next_batch().map_err(refused)? {
                let room = all.try_reserve(batch.len());
                room.map_err(|e| PyMemoryError::new_err(format!("{}: {e}", self.name())))?;
                all.extend_from_slice(batch);
            }
            Ok(all)
        })?;
        Ok(Self::in_memory(&self.name(), records))
    }

    /// The records of a trace in memory, as in a plain btr.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Some(records) = &self.held else {
            return Err(refused(format!(
                "{}: is not in memory; accepted: load() first",
                self.name()
            )));
        };
        PyBytes::new_with(py, records.len() * RECORD_BYTES, |bytes| {
            to_btr(records, bytes);
            Ok(())
        })
    }

    /// Writes the trace to a file.
    #[pyo3(signature = (path, format, watch))]
    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        format: Option<&str>,
        watch: &Watch,
    ) -> PyResult<()> {
        let format = format.map(Format::by_name).transpose().map_err(refused)?;
        if self.held.is_none() && same(self.trace.path(), &path) {
            let what = format!("{}: is also the input; accepted: another file", path.display());
            return Err(refused(what));
        }
        watch.run(py, || {
            let mut records = self.trace.records().map_err(refused)?;
            let mut writer = Writer::create(&path, format).map_err(refused)?;
            while let Some(batch) = records.next_batch().map_err(refused)? {
                batch.iter().try_for_each(|record| writer.write(record)).map_err(refused)?;
            }
            writer.finish().map_err(refused)
        })
    }
}

/// Whether two paths are of one file.
fn same(a: &Path, b: &Path) -> bool {
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
