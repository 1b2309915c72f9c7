# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cases that have names: each makes its own servers, and says what is not as it must be."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field

# Each enters its scenarios into the list.
import scenarios_changes  # noqa: F401
import scenarios_copies  # noqa: F401
import scenarios_direct  # noqa: F401
import scenarios_flash  # noqa: F401
import scenarios_full  # noqa: F401
import scenarios_hang  # noqa: F401
import scenarios_kept_back  # noqa: F401
import scenarios_limits  # noqa: F401
import scenarios_others  # noqa: F401
import scenarios_policy  # noqa: F401
import scenarios_starts  # noqa: F401
from cluster import Failed
from lab import ALL, Lab, Scenario
from options import Options, Skipped


@dataclass
class Outcome:
    """What came of one."""

    number: int
    title: str
    policy: str
    checksums: str
    result: str
    why: str = ""
    seconds: float = 0
    kept: list[str] = field(default_factory=list)

    def line(self) -> str:
        """In a line."""
        why = f": {self.why}" if self.why else ""
        return f"{self.number:3} {self.result:7} {self.title} ({self.policy}, {self.seconds:.0f} s){why}"


def every() -> list[Scenario]:
    """All of them, in order."""
    return sorted(ALL, key=lambda one: one.number)


def titles() -> list[str]:
    """For whoever chooses."""
    return [f"{one.number:3} {one.title}" for one in every()]


def run_one(options: Options, one: Scenario, policy: str, checksums: str) -> Outcome:
    """One of them."""
    lab = Lab(options, one.number, policy, checksums)
    outcome = Outcome(one.number, one.title, policy, checksums, "ok")
    began = time.monotonic()
    try:
        one.run(lab)
    except Skipped as reason:
        outcome.result, outcome.why = "skipped", str(reason)
    except Failed as error:
        outcome.result, outcome.why = "FAILED", str(error)
        outcome.kept = [str(cluster.home) for cluster in lab.clusters]
    finally:
        lab.end(outcome.result == "FAILED")
    outcome.seconds = time.monotonic() - began
    print(outcome.line(), file=sys.stderr, flush=True)
    if outcome.result == "FAILED":
        for cluster in lab.clusters:
            print(f"--- {cluster.log}\n{cluster.log_tail()}", file=sys.stderr, flush=True)
    return outcome


def run_scenarios(options: Options) -> tuple[list[dict[str, object]], list[str], bool]:
    """Those that were asked for, or all, with every policy."""
    chosen = [one for one in every() if not options.only or str(one.number) in options.only]
    if not chosen:
        raise Failed(f"--only: no scenario has the number {options.only[0]}; see run list")
    if shutil.disk_usage(options.base).free < 4 << 30:
        raise Failed(f"{options.base}: less than 4 GiB free")
    outcomes = [
        run_one(options, one, policy, checksums)
        for policy in options.policies for checksums in options.checksums for one in chosen if policy in one.policies
    ]
    bad = any(outcome.result == "FAILED" for outcome in outcomes)
    return [dict(vars(outcome)) for outcome in outcomes], [outcome.line() for outcome in outcomes], bad
