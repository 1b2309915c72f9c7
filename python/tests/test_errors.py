# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bad input gives one exception: what, where, what is accepted."""

import math

import numpy as np
import pyarrow as pa
import pytest
from conftest import TRACE

import larder


def refused(match, call, *args, kind=larder.LarderError, **settings):
    """The call raises an exception of one line with this text."""
    with pytest.raises(kind, match=match) as caught:
        call(*args, **settings)
    assert "\n" not in str(caught.value) and "accepted" in str(caught.value)


CALLS = [larder.hits, larder.info, larder.simulate, larder.miss_ratio_curve]


@pytest.mark.parametrize("call", CALLS)
def test_files_that_are_no_traces(call, tmp_path):
    with pytest.raises(larder.LarderError, match=r"none.btr: cannot be opened: No such file"):
        call(tmp_path / "none.btr")
    for name, content, match in [
        ("empty.btr", b"", "has no requests"),
        ("short.btr", b"x" * 30, "byte 0|ends after"),
        ("zeroes.btr", bytes(48), "byte 0: 0 bytes at offset 0"),
        ("unknown", b"hello", "neither its name nor its first bytes"),
        ("x.csv", b"offset\n12\nx\n", "line 3"),
        ("x.btr.zst", TRACE.read_bytes()[:5000] + b"damage" * 100, "byte|cannot be read"),
        ("cut.btr.zst", TRACE.read_bytes()[:5000], "cannot be read: incomplete frame"),
    ]:
        (tmp_path / name).write_bytes(content)
        refused(f"{name}: .*{match}", call, tmp_path / name)
    refused("cannot be (opened|read)", lambda p: read(call, p), tmp_path)


def read(call, path):
    """The error of a directory states no accepted input."""
    try:
        return call(path)
    except larder.LarderError as error:
        raise larder.LarderError(f"{error}; accepted") from None


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("other", [None, 5, 1.5, ["a"], b"x", {}])
def test_objects_that_are_no_traces(call, other):
    refused("trace: got .*, accepted a path", call, other, kind=TypeError)


def test_traces_of_nothing():
    empty = larder.Trace.from_numpy([])
    assert len(empty) == 0 and empty
    for call in CALLS:
        refused("has no requests; accepted: at least one", call, empty)
    with pytest.raises(TypeError, match=r"accepted: load\(\) first"):
        len(larder.Trace(TRACE))


@pytest.mark.parametrize(
    ("values", "kind", "match"),
    [
        ([0.5, math.nan], TypeError, "dtype float64; accepted: integers, without NaN"),
        (np.array([math.inf], dtype="f4"), TypeError, "dtype float32"),
        (np.array([True]), TypeError, "dtype bool"),
        (["4096"], TypeError, "dtype <U4"),
        (np.array([None, 1], dtype=object), TypeError, "dtype object"),
        (np.array(["2020"], dtype="M8[us]"), TypeError, "dtype datetime64"),
        ([1j], TypeError, "dtype complex128"),
        ([0, 4096, -1], larder.LarderError, "request 2: got -1, accepted 0 to"),
        (np.array([[0, 1]]), larder.LarderError, "2 dimensions; accepted: one"),
        (4096, larder.LarderError, "a single value; accepted: an array"),
        ([1 << 44], larder.LarderError, "request 0: 4096 bytes at offset 17592186044416; accepted"),
    ],
)
def test_offsets_that_are_none(values, kind, match):
    refused(match, larder.Trace.from_numpy, values, kind=kind)


def test_other_columns():
    offsets = np.arange(3) * 4096
    make = larder.Trace.from_numpy
    refused("length_bytes: got 0|0 bytes at offset", make, offsets, 0)
    refused("length_bytes: request 1: got -5, accepted 0 to 4294967295", make, offsets, [1, -5, 1])
    refused("length_bytes: request 2: got 4294967296", make, offsets, [1, 1, 1 << 32])
    refused("request 1: 0 bytes at offset 4096; accepted", make, offsets, [1, 0, 1])
    refused("dev: got 256, accepted 0 to 255", make, offsets, dev=256)
    refused("op: request 0: got 3, accepted 0 to 2", make, offsets, op=[3, 0, 0])
    refused("op: got 'trim', accepted r, read", make, offsets, op=["r", "w", "trim"])
    refused("different lengths: .*offset_bytes 3.*dev 2", make, offsets, dev=[1, 2])
    refused("ts_us: dtype float64", make, offsets, ts_us=[0.0, 1.0, math.nan], kind=TypeError)
    refused("structured array", larder.Trace.from_records, offsets, kind=TypeError)
    refused("fields a; accepted", larder.Trace.from_records, np.zeros(2, dtype=[("a", "u8")]), kind=TypeError)
    refused("dev: got 300, accepted 0 to 255", larder.Trace, TRACE, dev=300)
    refused("format 'x' is unknown; accepted", larder.Trace, TRACE, format="x")
    refused("column .* cannot be parsed; accepted", larder.Trace, TRACE, columns="x")


def test_tables(tmp_path):
    make = larder.Trace.from_arrow
    refused("columns a; accepted", make, pa.table({"a": [1]}))
    refused("offset_bytes: 1 values are null", make, pa.table({"offset_bytes": [1, None]}))
    refused("dtype float64", make, pa.table({"offset_bytes": [1.0]}), kind=TypeError)
    refused("got list, accepted pyarrow.Table", make, [1], kind=TypeError)
    refused("none.parquet: .*accepted: a file of Parquet", larder.Trace.from_parquet, tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + bytes(100))
    refused("bad.parquet: .*accepted: a file of Parquet", larder.Trace.from_parquet, tmp_path / "bad.parquet")
    with pytest.raises(larder.LarderError, match=r"t.parquet: cannot be written"):
        larder.Trace.from_numpy([0]).to_parquet(tmp_path / "none/t.parquet")


@pytest.mark.parametrize("capacity", [0, "0", "0%", "101%", "x", "", "nan%", "4095", "16EiB", 1 << 70])
def test_capacities(trace, capacity):
    refused("capacity", larder.hits, trace, capacity=capacity)


def test_sizes(trace):
    for unit in (0, -4096, 100, "3KiB", "2GiB", "x"):
        refused("unit: ", larder.hits, trace, unit=unit)
    for value in (1.5, math.nan, None, True, [1]):
        refused("capacity: got .*, accepted bytes", larder.hits, trace, capacity=value, kind=TypeError)
    refused("capacity: '-1' is not a size", larder.hits, trace, capacity=-1)
    refused("replacement: got 'mru', accepted .*belady", larder.hits, trace, "mru")
    refused("capacities: got '0%'", larder.miss_ratio_curve, trace, capacities=["0%"])
    refused("capacities: got 1, accepted at least one unit", larder.miss_ratio_curve, trace, capacities=[1])


def test_simulations_and_advice(trace):
    run = larder.simulate
    refused("system = 'x'", run, trace, "x")
    refused("preset: got None", run, trace, None, kind=TypeError)
    for settings, match in [
        ({"origin": "floppy"}, 'unknown device profile "floppy"; accepted: .* path of a device file'),
        ({"flash": "./none.toml"}, "./none.toml: cannot be read"),
        ({"replacement": "mru"}, "replacement = 'mru'"),
        ({"durability": "never"}, "durability = 'never'"),
        ({"flash_size": 1}, "flash_mib"),
        ({"flash_size": "0%"}, "flash_size: "),
        ({"unit": 0}, "unit: "),
        ({"speed": 0}, "speed"),
        ({"speed": math.nan}, "speed: got nan, accepted a finite number"),
        ({"warm_up": 1.5}, "warm_up"),
        ({"requests": 0}, "requests: got 0, accepted 1 to"),
        ({"outstanding": -1}, "outstanding: got -1, accepted 1 to"),
        ({"seed": -1}, "seed: got -1, accepted 0 to"),
        ({"speed": 1.0, "outstanding": 4}, "outstanding"),
    ]:
        refused(match, run, trace, **settings)
    refused("speed: got '1'", run, trace, speed="1", kind=TypeError)
    refused("requests: got 1.5, accepted an integer", run, trace, requests=1.5, kind=TypeError)
    advise = larder.advise
    refused('unknown device profile "floppy"', advise, trace, "floppy", "ssd-s3500", requests=1000)
    refused("endurance: got 'x'", advise, trace, "san-1g", "ssd-s3500", endurance="x")
    refused("jobs: got 0, accepted 1 to 1024", advise, trace, "san-1g", "ssd-s3500", jobs=0)


def test_sweeps(trace):
    sweep = larder.sweep
    refused("hits: has no setting 'policy'; accepted: trace, replacement", sweep, {"policy": ["lru"]}, trace)
    refused("run: got 'x', accepted hits, simulate, advise", sweep, {"unit": [4096]}, trace, run="x")
    refused("on: got 'moon', accepted local, ray", sweep, {"unit": [4096]}, trace, on="moon")
    refused("grid: unit: no values", sweep, {"unit": []}, trace)
    refused("grid: unit: got '4KiB', accepted a list", sweep, {"unit": "4KiB"}, trace, kind=TypeError)
    refused("grid: unit is also a setting", sweep, {"unit": [4096]}, trace, unit=4096)
    refused("trace: none is given", sweep, {"unit": [4096]})
    refused("replacement: got 'mru'", sweep, {"replacement": ["lru", "mru", "x"]}, trace)


def test_writing(trace, tmp_path):
    refused("its name states no format; accepted", trace.write, tmp_path / "t")
    refused("this format is only read; accepted", trace.write, tmp_path / "t.vscsi")
    file = larder.Trace(TRACE)
    refused("is also the input; accepted: another file", file.write, TRACE)
    with pytest.raises(larder.LarderError, match="cannot be written"):
        trace.write(tmp_path / "none" / "t.btr")
    assert list(tmp_path.iterdir()) == []


def test_an_extra_that_is_not_installed(trace, monkeypatch):
    import sys

    for module in ("tqdm", "matplotlib.pyplot", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    for call, extra in [
        (lambda: larder.hits(trace, progress=True), "progress"),
        (lambda: larder.miss_ratio_curve(trace).plot(), "plot"),
        (trace.to_arrow, "arrow"),
    ]:
        refused(rf"accepted: pip install 'larder\[{extra}\]'", call, kind=ImportError)
