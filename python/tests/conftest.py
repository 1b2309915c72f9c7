# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests share: the trace of the repository, and the command, whose output is the reference."""

import json
import os
import subprocess
from pathlib import Path

import matplotlib
import pytest

import larder

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
