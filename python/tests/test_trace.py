# SPDX-License-Identifier: MIT OR Apache-2.0
"""Traces to and from arrays, tables and files."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from conftest import TRACE

import larder


def same(a, b):
    return np.array_equal(a.to_numpy(), b.to_numpy())


def test_a_file_and_its_arrays_have_the_same_requests(trace, command):
    records = larder.Trace(TRACE).to_numpy()
    assert records.dtype == larder.RECORD and not records.flags.writeable
    assert len(trace) == len(records) == command("trace", "info", TRACE)["requests"]
    assert same(larder.Trace.from_records(records), trace)
    columns = {name: records[name] for name in ("ts_us", "op", "dev")}
    assert same(larder.Trace.from_numpy(records["offset_bytes"], records["length_bytes"], **columns), trace)


def test_a_device_is_selected(trace):
    records = trace.to_numpy()
    logs = larder.Trace(TRACE, dev=1).to_numpy()
    assert 0 < len(logs) < len(records) and np.array_equal(logs, records[records["dev"] == 1])


def test_single_values_fit_all_requests_and_words_are_operations():
    offsets = np.arange(3) * 4096
    made = larder.Trace.from_numpy(offsets, op=["r", "WRITE", "unknown"], dev=7).to_numpy()
    assert made["length_bytes"].tolist() == [4096] * 3
    assert made["op"].tolist() == [0, 1, 2] and made["dev"].tolist() == [7] * 3
    assert larder.Trace.from_numpy(offsets, op="read").to_numpy()["op"].tolist() == [0] * 3
    assert larder.Trace.from_numpy(offsets).to_numpy()["op"].tolist() == [2] * 3


@pytest.mark.parametrize("dtype", ["u8", "i8", "u4", "i4", ">i8", ">u4", "u2"])
def test_all_integers_and_layouts_are_accepted(dtype):
    plain = np.array([512, 1024, 4096, 8192, 512, 0], dtype=dtype)
    spaced = np.zeros((6, 3), dtype=dtype)
    spaced[:, 1] = plain
    for offsets in (plain, spaced[:, 1], plain[::-1][::-1], plain.tolist()):
        records = larder.Trace.from_numpy(offsets, np.asarray(plain) + 1).to_numpy()
        assert records["offset_bytes"].tolist() == plain.tolist()
        assert records["length_bytes"].tolist() == (plain + 1).tolist()


def test_a_time_that_begins_like_a_compressed_file_is_a_time():
    magic = int.from_bytes(bytes([0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0]), "little")
    made = larder.Trace.from_numpy([0], ts_us=magic)
    assert made.to_numpy()["ts_us"].tolist() == [magic]
    assert larder.info(made).requests == 1


def test_arrow_and_parquet(trace, tmp_path):
    table = trace.to_arrow()
    assert table.schema.names == ["ts_us", "offset_bytes", "length_bytes", "op", "dev"]
    assert same(larder.Trace.from_arrow(table), trace)
    assert same(larder.Trace.from_arrow(table.to_batches()[0]), larder.Trace.from_arrow(table))
    path, again = tmp_path / "t.parquet", tmp_path / "again.parquet"
    trace.to_parquet(path)
    trace.to_parquet(again)
    assert path.read_bytes() == again.read_bytes()
    assert same(larder.Trace.from_parquet(path), trace)
    assert {file.name for file in tmp_path.iterdir()} == {"t.parquet", "again.parquet"}


def test_a_table_of_others_needs_only_offsets():
    table = pa.table(
        {
            "what": ["x", "y"],
            "offset_bytes": pa.array([0, 4096], pa.int32()),
            "op": pa.array(["Read", "W"]).dictionary_encode(),
            "ts_us": pa.array([1, 2], pa.timestamp("ms", "UTC")),
        }
    )
    records = larder.Trace.from_arrow(table).to_numpy()
    assert records["op"].tolist() == [0, 1] and records["ts_us"].tolist() == [1000, 2000]


@pytest.mark.parametrize("name", ["t.btr", "t.btr.zst", "t.csv", "t.fio"])
def test_written_files_are_read_again(trace, tmp_path, name):
    trace.write(tmp_path / name)
    again = larder.Trace(tmp_path / name).to_numpy()
    records = trace.to_numpy().copy()
    records["op"][records["op"] == 2] = 0 if name == "t.fio" else 2
    assert np.array_equal(again, records)
    larder.Trace(tmp_path / name).write(tmp_path / "second", format="btr")
    assert len(larder.Trace(tmp_path / "second", format="btr").to_numpy()) == len(trace)


def test_traces_are_pickled(trace):
    assert same(pickle.loads(pickle.dumps(trace)), trace)
    file = larder.Trace(TRACE, dev=1, format="btr")
    copy = pickle.loads(pickle.dumps(file))
    assert not copy.in_memory and same(copy, file) and repr(copy) == repr(file)
