# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests share: the trace of the repository, and the command, whose output is the reference."""

import json
import os
import subprocess
from pathlib import Path

import matplotlib
import pytest

import larder
from nodes import Cluster

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "crates/trace/data/pg15_zipf_update.btr.zst"


@pytest.fixture(scope="session")
def trace():
    """The trace of the repository, in memory."""
    return larder.Trace(TRACE).load()


@pytest.fixture(scope="session")
def command():
    """Runs `larder` and returns its JSON output. The program is $LARDER."""
    program = os.environ.get("LARDER")
    assert program, "LARDER is not set; accepted: the path of the program larder"

    def run(*args):
        done = subprocess.run([program, *map(str, args), "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def two_nodes():
    """A cluster of Ray, see nodes.py. It runs until the last test."""
    cluster = Cluster()
    try:
        cluster.start("head")
        cluster.connect()
        cluster.start("second")
        cluster.wait(2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(two_nodes):
    """The cluster with both nodes."""
    yield two_nodes
    if sum(name == "raylet" for name in two_nodes.processes("second").values()) != 1:
        two_nodes.end("second")
        two_nodes.wait(1)
        two_nodes.start("second")
        two_nodes.wait(2)
