# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables of Arrow, and files of Parquet.

Invariant: equal tables give equal bytes with one version of pyarrow. A file gets its name when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from larder._extras import extra
from larder._larder import LarderError

#: Rows that Parquet stores together; fixed, because it determines the bytes of a file.
ROW_GROUP = 1 << 20


def arrays(table: Any, names: Iterable[str]) -> dict[str, Any]:
    """The columns with these names as arrays."""
    arrow = extra("pyarrow", "arrow")
    if not isinstance(table, (arrow.Table, arrow.RecordBatch)):
        raise TypeError(f"table: got {type(table).__name__}, accepted pyarrow.Table or RecordBatch")
    found = {}
    for name in names:
        if name not in table.schema.names:
            continue
        column = table.column(name)
        if column.null_count:
            raise LarderError(f"{name}: {column.null_count} values are null; accepted: none")
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if arrow.types.is_timestamp(column.type):
            column = column.cast(arrow.timestamp("us", column.type.tz)).cast(arrow.int64())
        found[name] = column.to_numpy() if isinstance(column, arrow.ChunkedArray) else (
            column.to_numpy(zero_copy_only=False)
        )
    if "offset_bytes" not in found:
        names = ", ".join(table.schema.names)
        raise LarderError(f"table: columns {names}; accepted: a table with the column offset_bytes")
    return found


def read_parquet(path: str | os.PathLike[str], names: Iterable[str]) -> Any:
    """The columns of a file that have these names."""
    parquet, arrow = extra("pyarrow.parquet", "arrow"), extra("pyarrow", "arrow")
    try:
        there = parquet.read_schema(path).names
        wanted = [name for name in names if name in there] or there
        return parquet.read_table(path, columns=wanted)
    except (OSError, arrow.ArrowInvalid) as error:
        line = " ".join(str(error).split())
        raise LarderError(f"{os.fspath(path)}: {line}; accepted: a file of Parquet") from error


def write_parquet(table: Any, path: str | os.PathLike[str]) -> None:
    """Writes a table."""
    parquet = extra("pyarrow.parquet", "arrow")
    part = f"{os.fspath(path)}.part"
    try:
        parquet.write_table(table, part, compression="zstd", version="2.6", row_group_size=ROW_GROUP)
        os.replace(part, path)
    except OSError as error:
        raise LarderError(f"{os.fspath(path)}: cannot be written: {error}") from error
    finally:
        if os.path.exists(part):
            os.remove(part)
