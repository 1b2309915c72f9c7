# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps: the order of points, and equal bytes however they ran."""

import pyarrow.parquet as pq
from conftest import TRACE

import larder

GRID = {"replacement": ["lru", "s3fifo", "sieve"], "capacity": ["1%", "5%"]}


def test_points_come_in_the_order_of_the_grid():
    assert larder.points({"b": [2, 1], "a": "xy".split("y")}) == [
        {"b": 2, "a": "x"},
        {"b": 2, "a": ""},
        {"b": 1, "a": "x"},
        {"b": 1, "a": ""},
    ]
    assert larder.points({}) == [{}]


def test_rows_are_those_of_hits(trace):
    done = larder.sweep(GRID, trace, unit="8KiB")
    assert len(done) == 6 and done["point"].tolist() == list(range(6))
    for row in done.rows:
        hits = larder.hits(trace, row["at_replacement"], "8KiB", row["at_capacity"])
        assert row["misses"] == hits.misses and row["miss_ratio"] == hits.miss_ratio
        assert "wall_seconds" not in row


def test_parquet_does_not_depend_on_the_threads(tmp_path):
    files = []
    for jobs in (1, 2, 5):
        files.append(tmp_path / f"{jobs}.parquet")
        larder.sweep(GRID, TRACE, jobs=jobs, out=files[-1], progress=jobs == 2)
    assert len({file.read_bytes() for file in files}) == 1
    table = pq.read_table(files[0])
    assert table.num_rows == 6 and table["at_capacity"].to_pylist() == ["1%", "5%"] * 3


def test_simulations_over_presets_and_seeds(tmp_path):
    grid = {"preset": ["no-cache", "larder"], "flash_size": ["10%"], "seed": [1, 2]}
    runs = [larder.sweep(grid, TRACE, run="simulate", requests=5000, jobs=jobs) for jobs in (1, 3)]
    assert runs[0].rows == runs[1].rows
    own = larder.simulate(TRACE, "larder", flash_size="10%", seed=2, requests=5000)
    assert runs[0].rows[3]["read_us_mean"] == own.read_us_mean
    assert runs[0].rows[2]["read_us_mean"] != own.read_us_mean
    runs[0].to_parquet(tmp_path / "a.parquet")
    runs[1].to_parquet(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert pq.read_table(tmp_path / "a.parquet")["flash_bytes"].null_count == 2


def test_traces_and_mixed_values_in_a_grid(trace):
    done = larder.sweep({"trace": [TRACE, trace], "capacity": [1 << 24, "5%"]})
    assert done.rows[0]["misses"] == done.rows[2]["misses"]
    assert done.to_arrow()["at_capacity"].to_pylist() == [str(1 << 24), "5%"] * 2


def test_a_point_runs_alone(trace):
    alone = larder.run_point("hits", trace, {"replacement": "sieve", "capacity": "5%"})
    rows = larder.sweep(GRID, trace).rows
    assert rows[5] == {"point": 5, "at_replacement": "sieve", "at_capacity": "5%", **alone}
