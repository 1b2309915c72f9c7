# SPDX-License-Identifier: MIT OR Apache-2.0
"""Each result is drawn by one call."""

import matplotlib.pyplot as plt
import pytest
from conftest import TRACE

import larder


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_curves_and_statistics(trace):
    lru = larder.miss_ratio_curve(trace)
    sieve = larder.miss_ratio_curve(trace, "sieve", capacities=["1%", "10%"])
    axes = larder.plot(lru, sieve)
    assert [line.get_label() for line in axes.lines] == ["lru", "sieve"]
    assert axes.get_xlabel() == "capacity, MiB" and axes.get_ylabel() == "miss ratio"
    assert len(larder.info(trace).plot().lines) == 1
    assert lru.plot(ax=axes) is axes and len(axes.lines) == 3
    assert len(larder.plot(larder.hits(trace), larder.hits(trace, "fifo")).patches) == 2


def test_simulations_advice_and_sweeps(tmp_path):
    run = larder.simulate(TRACE, requests=5000)
    assert run.plot().get_ylabel() == "hit ratio of reads"
    advice = larder.advise(TRACE, "array-16", "ssd-s3500", requests=5000)
    labels = [line.get_label() for line in advice.plot().lines]
    assert labels[:3] == ["larder", "prwc", "no cache"]
    done = larder.sweep({"replacement": ["lru", "fifo"], "capacity": ["1%", "5%"]}, TRACE)
    axes = done.plot()
    assert [line.get_label() for line in axes.lines] == ["lru", "fifo"] and axes.get_xlabel() == "capacity"
    axes.figure.savefig(tmp_path / "sweep.png")
    with pytest.raises(larder.LarderError, match="plot: no column 'x'; accepted: point, at_replacement"):
        done.plot(x="x")


def test_mixed_kinds_are_refused(trace):
    for results in ([], [larder.hits(trace), larder.info(trace)], [5]):
        with pytest.raises(TypeError, match="accepted"):
            larder.plot(*results)
