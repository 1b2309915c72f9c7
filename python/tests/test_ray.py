# SPDX-License-Identifier: MIT OR Apache-2.0
"""Studies on a real cluster of two nodes: the bytes of a local run, whatever dies."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import TRACE
from test_errors import refused

import larder

GRID = {"replacement": ["lru", "s3fifo", "sieve"], "capacity": ["1%", "5%", "20%"]}
PATIENCE_SECONDS = 60


def policy(log, seconds=0.0, fatal=None):
    """A class of policies, sent to workers as code. Each point appends a line to the log when it begins.

    The point of the capacity ``fatal`` kills its worker, once if ``fatal`` has a file that does not exist.
    """
    import larder

    log = str(log)

    class Logged(larder.Policy):
        def __init__(self, slots):
            super().__init__(slots)
            with open(log, "a") as lines:
                lines.write(f"{slots}\n")
            time.sleep(seconds)
            if fatal is not None and slots == fatal[0]:
                if fatal[1] is None or not os.path.exists(fatal[1]):
                    if fatal[1] is not None:
                        open(fatal[1], "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
            self.next = -1

        def inserted(self, slot, unit):
            pass

        def accessed(self, slot):
            pass

        def removed(self, slot):
            pass

        def victim(self, incoming):
            self.next = (self.next + 1) % self.slots
            return self.next

    return Logged


def capacities(count):
    return {"capacity": [4096 * (10 + at) for at in range(count)]}


@pytest.fixture(scope="module")
def small():
    """A trace in memory whose points take milliseconds."""
    return larder.Trace.from_numpy(np.arange(3000) * 7919 % 500 * 4096, 4096, op=0)


def both(tmp_path, grid, trace, **settings):
    """The Parquet files of a local run and of one on Ray."""
    files = [tmp_path / "local.parquet", tmp_path / "ray.parquet"]
    larder.sweep(grid, trace, out=files[0], **settings)
    larder.sweep(grid, trace, out=files[1], on="ray", **settings)
    return [file.read_bytes() for file in files]


@pytest.mark.parametrize("how", ["file", "memory"])
def test_tasks_give_the_bytes_of_threads(cluster, tmp_path, trace, how):
    local, ray = both(tmp_path, GRID, TRACE if how == "file" else trace)
    assert local == ray


def test_simulations_and_relative_paths(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(TRACE.parent)
    grid = {"trace": [TRACE.name, TRACE], "preset": ["no-cache", "larder"], "seed": [1, 2]}
    local, ray = both(tmp_path, grid, None, run="simulate", requests=3000, jobs=2)
    assert local == ray


def test_points_of_milliseconds_are_batches(cluster, tmp_path, small):
    local, ray = both(tmp_path, {**GRID, **capacities(150)}, small, progress=True)
    assert local == ray


def lines(file):
    return file.read_text().count("\n") if file.exists() else 0


def when(ready, act):
    """Acts on a thread, as soon as it is ready."""

    def wait():
        end = time.monotonic() + PATIENCE_SECONDS
        while not ready() and time.monotonic() < end:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_killed_node_costs_its_running_points_alone(cluster, tmp_path, small):
    import ray

    own = ray.get_runtime_context().get_node_id()
    assert {node["NodeID"]: node["NodeName"] for node in ray.nodes()}[own] != "127.0.0.2"
    grid, log, study = capacities(40), tmp_path / "log", tmp_path / "study.jsonl"
    rule = policy(log, 0.2)
    larder.sweep(grid, small, replacement=rule, out=tmp_path / "local.parquet", jobs=40)
    log.unlink()
    begin = time.monotonic()
    killer = when(lambda: lines(log) >= 12, lambda: cluster.kill("second"))
    done = larder.sweep(grid, small, replacement=rule, on="ray", study=study, out=tmp_path / "ray.parquet")
    seconds = time.monotonic() - begin
    killer.join()
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()
    assert len(done) == 40 and lines(study) == 40
    # The node had one processor; the task behind the running one had not begun.
    assert 40 <= lines(log) <= 41, (lines(log), seconds)
    cluster.wait(1)


def test_a_killed_worker_costs_its_running_point(cluster, tmp_path, small):
    grid, log = capacities(12), tmp_path / "log"
    once = policy(log, 0.15, (14, str(tmp_path / "killed")))
    done = larder.sweep(grid, small, replacement=once, on="ray", out=tmp_path / "ray.parquet")
    assert 13 <= lines(log) <= 14
    larder.sweep(grid, small, replacement=once, out=tmp_path / "local.parquet")
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()
    assert done["misses"].min() > 0


def test_a_point_that_always_kills_its_worker_is_named(cluster, tmp_path, small):
    always = policy(tmp_path / "log", 0.0, (12, None))
    match = r"point 2 \(capacity 49152\): ended its worker or node 4 times: WorkerCrashedError"
    refused(match, larder.sweep, capacities(3), small, replacement=always, on="ray")
    log = (tmp_path / "log").read_text().split()
    assert log.count("12") == 4 and log.count("10") == 1


def test_a_study_continues_anywhere(cluster, tmp_path, small):
    grid, log = capacities(20), tmp_path / "log"
    rule = policy(log)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    larder.sweep(grid, small, replacement=rule, study=whole, out=tmp_path / "whole.parquet")
    text = whole.read_text()
    for on, at in (("ray", 7), ("local", 13), ("ray", 20)):
        kept = text.splitlines(keepends=True)
        cut.write_text("".join(kept[:at]) + text.splitlines()[at % 20][:30])
        log.write_text("")
        out = tmp_path / f"{on}{at}.parquet"
        larder.sweep(grid, small, replacement=rule, study=cut, on=on, out=out)
        assert lines(log) == 20 - at
        assert cut.read_text() == text
        assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_lines_of_another_study_are_refused_and_unchanged(cluster, tmp_path, small):
    study, grid = tmp_path / "study.jsonl", capacities(3)
    larder.sweep(grid, small, study=study)
    text = study.read_text()
    other = larder.Trace.from_numpy(np.arange(3000) * 4096)
    for on in ("local", "ray"):
        for trace, settings in ((small, {"unit": "8KiB"}), (other, {})):
            match = "study.jsonl: line 1: is a point that this sweep does not have"
            refused(match, larder.sweep, grid, trace, study=study, on=on, **settings)
        assert study.read_text() == text


def test_errors_are_those_of_a_local_run(cluster, tmp_path, monkeypatch, small):
    def sweep(*args, **settings):
        return larder.sweep(*args, on="ray", **settings)

    refused("replacement: got 'mru'", sweep, {"replacement": ["lru", "mru"]}, small)
    refused("node [0-9.]+: /none/t.btr: does not exist; accepted: a file at", sweep, GRID, "/none/t.btr")
    refused("jobs: got 0, accepted 1", sweep, GRID, small, jobs=0)
    monkeypatch.setattr("larder._ray.__version__", "0.0.9")
    match = "node [0-9.]+: has larder .*, the driver 0.0.9; accepted: larder 0.0.9 on each node"
    refused(match, sweep, GRID, small)


def test_workers_and_drivers_without_a_package(monkeypatch, small):
    from larder._ray import by_value

    task = by_value()
    for module in ("ray", "ray.tune"):
        monkeypatch.setitem(sys.modules, module, None)
    match = r"ray: .*accepted: pip install 'larder\[ray\]'"
    refused(match, larder.sweep, GRID, small, on="ray", kind=ImportError)
    refused(match, larder.search, GRID, small, metric="misses", kind=ImportError)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "larder", None)
    outcomes, error = task("1", [])
    assert outcomes == [] and "larder cannot be imported" in error and "accepted: larder 1 on" in error


PROGRAM = """
import larder, numpy as np
made = larder.Trace.from_numpy(np.random.default_rng(1).integers(0, 1 << 24, 4_000_000) * 4096, 65536)
print("begin", flush=True)
try:
    larder.sweep({"replacement": ["lirs", "arc", "s3fifo", "2q"], "capacity": ["1%", "5%"]}, made, on="ray")
    print("ended")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    input()
"""


def test_an_interrupt_leaves_no_tasks(cluster):
    import ray

    def busy():
        return ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)

    words = [sys.executable, "-c", PROGRAM]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "begin\n"
        end = time.monotonic() + PATIENCE_SECONDS
        while busy() < 2 and time.monotonic() < end:
            time.sleep(0.1)
        # The workers read the trace.
        time.sleep(3)
        os.kill(child.pid, signal.SIGINT)
        sent = time.monotonic()
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - sent < 8
        # Its processors are free while the driver still lives.
        while busy() and time.monotonic() - sent < 15:
            time.sleep(0.1)
        assert busy() == 0 and child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_advice_on_a_fleet(cluster, tmp_path, small):
    traces = [TRACE, larder.Trace.from_records(larder.Trace(TRACE).to_numpy()[:40_000], name="first")]
    asked = {"origin": "array-16", "flash": "ssd-s3500", "requests": 2000}
    tables = [
        larder.advise_fleet(traces, **asked, on=on, out=tmp_path / f"{on}.parquet") for on in ("local", "ray")
    ]
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()
    assert tables[0]["at_trace"].tolist() == [str(TRACE), "first"]
    for row, trace in zip(tables[1].rows, traces, strict=True):
        own = larder.advise(trace, **asked)
        assert (row["pays"], row["verdict"], row["toml"]) == (own.pays, own.verdict, own.toml)
        assert row["alone_read_us_mean"] == own.alone["read_us_mean"]
        if own.advised is not None:
            assert row["advised_point_flash_bytes"] == own.advised["point"]["flash_bytes"]
    refused("traces: got str, accepted a list", larder.advise_fleet, str(TRACE), **asked, kind=TypeError)
    refused("advise: flash: none is given", larder.sweep, {"origin": ["san-1g"]}, small, run="advise")


def test_a_search_is_the_same_on_any_cluster(cluster, tmp_path, small):
    from ray import tune

    space = {"replacement": ["lru", "fifo", "sieve"], "capacity": tune.randint(40_960, 2_000_000)}
    found = [
        larder.search(space, small, metric="miss_ratio", samples=5, jobs=jobs, out=tmp_path / f"{jobs}.parquet")
        for jobs in (1, 2)
    ]
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
    best = found[0].best("miss_ratio")
    assert best["miss_ratio"] == found[0]["miss_ratio"].min()
    own = larder.hits(small, best["at_replacement"], capacity=best["at_capacity"])
    assert own.misses == best["misses"]
    search = larder.search
    refused("metric: got 'speed', accepted accesses", search, space, small, metric="speed", samples=1)
    refused("mode: got 'least', accepted min, max", search, space, small, metric="misses", mode="least")
    refused("space: unit: got '4KiB', accepted a list", search, {"unit": "4KiB"}, small, metric="misses", kind=TypeError)
    refused("hits: has no setting 'size'", search, {"size": [1]}, small, metric="misses")
    refused("samples: got 0, accepted 1 to", search, space, small, metric="misses", samples=0)
