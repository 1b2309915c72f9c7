# SPDX-License-Identifier: MIT OR Apache-2.0
"""Traces: files, arrays, and tables of Arrow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from larder import _larder
from larder._columns import column, operations, request_count
from larder._extras import extra, watching
from larder._larder import LarderError

if TYPE_CHECKING:
    import pyarrow

#: A request: the record of the format btr. ``op`` is 0 for a read, 1 for a write and 2 for unknown; ``reserved`` is 0.
RECORD = np.dtype(
    [
        ("ts_us", "<u8"),
        ("offset_bytes", "<u8"),
        ("length_bytes", "<u4"),
        ("op", "u1"),
        ("dev", "u1"),
        ("reserved", "<u2"),
    ]
)
#: The columns of a table. Only offset_bytes is required.
COLUMNS = ("ts_us", "offset_bytes", "length_bytes", "op", "dev")

#: An array of requests.
Records: TypeAlias = npt.NDArray[np.void]
#: What the functions of this package accept as a trace.
TraceLike: TypeAlias = "Trace | str | os.PathLike[str] | Records"


class Trace:
    """A trace: requests with time, offset, length, operation and device.

    ``Trace(path)`` is a file that each use streams, in any format that ``larder trace info`` reads. :meth:`load`,
    :meth:`from_numpy`, :meth:`from_records`, :meth:`from_arrow` and :meth:`from_parquet` make a trace in memory, with 24 bytes
    a request. Use a trace in memory if several calls read it.
    """

    __slots__ = ("_read", "_trace", "name")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        dev: int | None = None,
        columns: str | None = None,
        event: str | None = None,
    ) -> None:
        """A trace in a file.

        ``format`` is by default detected; ``dev`` selects the requests of one device; ``columns`` names the columns of a CSV
        and ``event`` the event of a blkparse text, as the flags of the command do (docs/traces.md).
        """
        if dev is not None and (isinstance(dev, bool) or not 0 <= dev <= 255):
            raise LarderError(f"dev: got {dev!r}, accepted 0 to 255")
        self.name = os.fspath(path)
        self._read = {"format": format, "dev": dev, "columns": columns, "event": event}
        self._trace = _larder.Trace(path, format, dev, columns, event)

    @classmethod
    def _of(cls, name: str, trace: _larder.Trace) -> Trace:
        """Around one of the extension module."""
        made = cls.__new__(cls)
        made.name, made._read, made._trace = name, {}, trace
        return made

    @classmethod
    def _of_bytes(cls, name: str, records: Any) -> Trace:
        """From records as in a plain btr; for pickle, too."""
        return cls._of(name, _larder.Trace.of_records(name, records))

    @classmethod
    def from_numpy(
        cls,
        offset_bytes: npt.ArrayLike,
        length_bytes: npt.ArrayLike = 4096,
        *,
        ts_us: npt.ArrayLike = 0,
        op: npt.ArrayLike = 2,
        dev: npt.ArrayLike = 0,
        name: str = "array",
    ) -> Trace:
        """A trace in memory from arrays of integers, one element a request, or single values for all requests.

        ``op`` is 0 (read), 1 (write), 2 (unknown), or one of these words.
        """
        values = {"ts_us": ts_us, "offset_bytes": offset_bytes, "length_bytes": length_bytes, "dev": dev}
        requests = request_count({**values, "op": op})
        records = np.zeros(requests, dtype=RECORD)
        for field, value in values.items():
            records[field] = column(field, value, requests, RECORD[field])
        records["op"] = column("op", operations(op), requests, RECORD["op"], most=2)
        return cls._of_bytes(name, records.view(np.uint8))

    @classmethod
    def from_records(cls, records: Records, *, name: str = "array") -> Trace:
        """A trace in memory from a structured array with the fields of :data:`RECORD`; only offset_bytes is required."""
        array = np.asarray(records)
        names = array.dtype.names
        if names is None or "offset_bytes" not in names:
            what = f"fields {', '.join(names)}" if names else f"dtype {array.dtype}"
            raise TypeError(f"records: {what}; accepted: a structured array with the field offset_bytes")
        return cls.from_numpy(**{field: array[field] for field in COLUMNS if field in names}, name=name)

    @classmethod
    def from_arrow(cls, table: pyarrow.Table, *, name: str = "table") -> Trace:
        """A trace in memory from a table of Arrow with columns as :data:`RECORD`; only offset_bytes is required."""
        from larder._arrow import arrays

        return cls.from_numpy(**arrays(table, COLUMNS), name=name)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Trace:
        """A trace in memory from a Parquet file, as :meth:`from_arrow`."""
        from larder._arrow import read_parquet

        return cls.from_arrow(read_parquet(path, COLUMNS), name=os.fspath(path))

    def load(self, *, progress: bool = False) -> Trace:
        """The same trace in memory."""
        if self.in_memory:
            return self
        with watching(progress, f"read {self.name}") as watch:
            return Trace._of(self.name, self._trace.load(watch))

    @property
    def in_memory(self) -> bool:
        """Whether the requests are in memory."""
        return self._trace.requests is not None

    def __len__(self) -> int:
        requests = self._trace.requests
        if requests is None:
            raise TypeError(f"{self.name}: is not in memory; accepted: load() first")
        return requests

    def __bool__(self) -> bool:
        return True

    def to_numpy(self) -> Records:
        """The requests as a read-only array of :data:`RECORD`; a file is loaded."""
        return np.frombuffer(self.load()._trace.records(), dtype=RECORD)

    def to_arrow(self) -> pyarrow.Table:
        """The requests as a table of Arrow."""
        arrow = extra("pyarrow", "arrow")
        records = self.to_numpy()
        return arrow.table({field: np.ascontiguousarray(records[field]) for field in COLUMNS})

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes the requests to a Parquet file."""
        from larder._arrow import write_parquet

        write_parquet(self.to_arrow(), path)

    def write(
        self, path: str | os.PathLike[str], *, format: str | None = None, progress: bool = False
    ) -> None:
        """Writes the trace as btr, csv, fio or oracleGeneral, by the name of the file or by ``format``.

        A name that also ends in .zst is compressed. The file gets its name when it is complete.
        """
        with watching(progress, f"write {os.fspath(path)}", self._trace.requests) as watch:
            self._trace.write(path, format, watch)

    @contextmanager
    def _file(self) -> Iterator[_larder.Trace]:
        """The trace as a file, which the engine reads; one in memory is written to a temporary one."""
        if not self.in_memory:
            yield self._trace
            return
        with tempfile.TemporaryDirectory(prefix="larder-") as directory:
            path = Path(directory, "trace.btr")
            self.write(path)
            yield _larder.Trace(path)

    def __repr__(self) -> str:
        requests = self._trace.requests
        return f"<Trace {self.name!r}{'' if requests is None else f', {requests} requests'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.in_memory:
            return Trace._of_bytes, (self.name, self._trace.records())
        return _opened, (self.name, self._read)


def _opened(path: str, read: dict[str, Any]) -> Trace:
    """For pickle: a trace in a file."""
    return Trace(path, **read)


def as_trace(trace: TraceLike) -> Trace:
    """A trace from whatever a function of this package accepts."""
    if isinstance(trace, Trace):
        return trace
    if isinstance(trace, np.ndarray):
        return Trace.from_records(trace)
    if isinstance(trace, (str, os.PathLike)):
        return Trace(trace)
    kind = type(trace).__name__
    raise TypeError(f"trace: got {kind}, accepted a path, a larder.Trace or a structured array of requests")
