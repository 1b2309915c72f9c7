# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions give what the command prints."""

import pickle
import threading
import time

import numpy as np
import pytest
from conftest import TRACE

import larder

POLICIES = ["fifo", "lru", "clock", "arc", "2q", "lirs", "s3fifo", "sieve", "wtinylfu", "gclock", "belady"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("unit", "capacity"), [("4KiB", "5%"), ("64KiB", "32MiB")])
def test_hits_are_those_of_the_command(trace, command, policy, unit, capacity):
    args = ["--trace", TRACE, "--replacement", policy, "--unit", unit, "--capacity", capacity]
    expected = command("sim", "--hits", *args)
    for source in (TRACE, str(TRACE), larder.Trace(TRACE), trace, trace.to_numpy()):
        found = larder.hits(source, policy, unit, capacity)
        assert set(found) == set(expected)
        for name in ("accesses", "unique", "misses", "miss_ratio"):
            assert found[name] == getattr(found, name) == expected[name]


def test_a_capacity_far_above_the_trace_takes_no_memory(trace):
    found = larder.hits(trace, "s3fifo", capacity="15EiB")
    assert found.misses == found.unique


def test_sizes_are_bytes_or_text(trace):
    texts = larder.hits(trace, "lru", "4KiB", "16MiB")
    assert larder.hits(trace, "lru", 4096, 16 << 20).misses == texts.misses
    assert larder.hits(trace, "lru", np.int64(4096), np.int64(16 << 20)).misses == texts.misses


def test_info_is_that_of_the_command(trace, command):
    expected = command("trace", "info", TRACE)
    assert larder.info(trace).to_dict() == larder.info(TRACE).to_dict() == expected


@pytest.mark.parametrize("preset", ["larder", "sce", "no-cache"])
def test_a_simulation_is_that_of_the_command(trace, command, preset):
    flags = ["--preset", preset, "--origin-profile", "array-16", "--requests", 30000, "--seed", 7]
    size = [] if preset == "no-cache" else ["--flash-size", "25%"]
    expected = command("sim", "--trace", TRACE, *flags, *size)
    settings = {"origin": "array-16", "requests": 30000, "seed": 7, "flash_size": "25%" if size else None}
    found = larder.simulate(TRACE, preset, **settings)
    assert found.to_dict() == expected
    assert larder.simulate(trace, preset, **settings).to_dict() == expected


def test_advice_is_that_of_the_command(trace, command):
    flags = ["--origin-profile", "array-16", "--flash-profile", "ssd-s3500", "--requests", 20000]
    expected = command("advise", "--trace", TRACE, *flags)
    found = larder.advise(TRACE, "array-16", "ssd-s3500", requests=20000)
    assert found.to_dict() == expected
    held = larder.advise(trace, "array-16", "ssd-s3500", requests=20000, jobs=1)
    assert {**held, "toml": None} == {**expected, "toml": None}


def test_a_curve_of_lru_is_that_of_replays(trace):
    curve = larder.miss_ratio_curve(trace)
    assert len(curve) == 100 and (np.diff(curve.miss_ratio) <= 0).all()
    at = [4, 49, 99]
    replayed = larder.miss_ratio_curve(trace, capacities=[int(curve.capacity_bytes[n]) for n in at])
    assert np.allclose(replayed.miss_ratio, curve.miss_ratio[at], rtol=0, atol=1e-12)


def test_a_curve_of_another_policy(trace):
    curve = larder.miss_ratio_curve(trace, "sieve", capacities=["1%", "5%", "100%"], jobs=2)
    assert curve.miss_ratio[1] == larder.hits(trace, "sieve", capacity="5%").miss_ratio
    assert curve.miss_ratio[2] == larder.hits(trace, "lru", capacity="100%").miss_ratio
    assert len(larder.miss_ratio_curve(trace, "sieve", unit="1MiB")) > 5


def test_results_are_mappings_that_cannot_be_changed(trace):
    found = larder.hits(trace)
    assert dict(found) == found.to_dict() and "misses" in dir(found) and "misses=" in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(AttributeError, match="cannot be changed"):
        found.misses = 0
    with pytest.raises(AttributeError, match="has no field 'hits'"):
        _ = found.hits


def test_the_interpreter_runs_while_a_replay_works():
    offsets = np.random.default_rng(1).integers(0, 1 << 24, 400_000) * 4096
    worker = threading.Thread(target=larder.hits, args=(larder.Trace.from_numpy(offsets, 65536), "sieve"))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0.01)
        turns += 1
    assert turns > 10


def test_progress_counts_the_requests(trace, capsys):
    larder.hits(trace, progress=True)
    shown = capsys.readouterr().err
    # Both passes: one counts the units, of which the capacity is a share.
    assert f"hits {TRACE}" in shown and "476k requests" in shown
