# SPDX-License-Identifier: MIT OR Apache-2.0
"""What scripts in this folder do in each step: run a command, and wait for a condition."""

import subprocess
import time


def run(command, **more):
    """What the command prints; RuntimeError with its last output if it fails."""
    ended = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)
    if ended.returncode:
        raise RuntimeError(f"{ended.stdout[-3000:]}\n{' '.join(map(str, command))}: exit code {ended.returncode}")
    return ended.stdout


def eventually(condition, seconds=60):
    """Whether the condition holds within this time."""
    until = time.time() + seconds
    while time.time() < until:
        if condition():
            return True
        time.sleep(0.2)
    return False
