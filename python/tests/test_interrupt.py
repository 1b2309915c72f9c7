# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ctrl-C ends long work within a second."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import TRACE

MOST_SECONDS = 1.0
# Before the signal: all of the work below takes longer.
WAIT_SECONDS = 0.7

PROGRAM = """
import sys, time
import numpy as np
import larder

random = np.random.default_rng(1)
made = larder.Trace.from_numpy(random.integers(0, 1 << 24, 4_000_000) * 4096, 65536)

class Fifo(larder.Policy):
    def __init__(self, slots): self.next = -1; self.slots = slots
    def inserted(self, slot, unit): pass
    def accessed(self, slot): pass
    def removed(self, slot): pass
    def victim(self, incoming): self.next = (self.next + 1) % self.slots; return self.next

print("begin", flush=True)
try:
    {work}
    print("ended")
except KeyboardInterrupt:
    print(time.monotonic())
"""

WORK = {
    "hits": "larder.hits(made, 'lirs')",
    "hits with a bar": "larder.hits(made, 'lirs', progress=True)",
    "belady": "larder.hits(made, 'belady', unit='64KiB')",
    "info": "larder.info(made, exact=True)",
    "policy": "larder.hits(made, Fifo)",
    "sweep": "larder.sweep({'replacement': ['lirs', 'arc', 's3fifo', '2q']}, made, jobs=2)",
    "simulate": "larder.simulate(made)",
    "advise": f"larder.advise({str(TRACE)!r}, 'array-16', 'ssd-s3500')",
}


@pytest.mark.parametrize("what", WORK)
def test_an_interrupt_ends_the_work(what):
    program = textwrap.dedent(PROGRAM).replace("{work}", WORK[what])
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "begin\n"
        time.sleep(WAIT_SECONDS)
        sent = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 0 and out.strip() != "ended", out
    assert float(out) - sent < MOST_SECONDS
