# SPDX-License-Identifier: MIT OR Apache-2.0
"""Named bugs in the library: each must be caught, and what catches it must be content without it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from cluster import Failed
from options import Options
from rounds import Rounds
from scenarios import every, run_one

VARIABLE = b"LARDER_PG_MUTANT"


@dataclass
class Mutant:
    """A bug, with which policy it is one, and the scenarios that are tried first."""

    name: str
    policy: str
    scenarios: list[int]


MUTANTS = [
    Mutant("no-hash", "through", [26, 29]),
    Mutant("no-epoch", "through", [27]),
    Mutant("trusts-directory", "through", [1, 2, 4]),
    Mutant("absorbs-end", "bounded", [11]),
    Mutant("no-drain", "bounded", [33]),
]


@dataclass
class Outcome:
    """Who caught a mutant, with what words; whether the same is content without it."""

    mutant: str
    caught_by: list[str] = field(default_factory=list)
    not_by: list[str] = field(default_factory=list)
    words: str = ""
    control: str = ""

    def line(self) -> str:
        """In a line."""
        if not self.caught_by:
            return f"{self.mutant}: NOT CAUGHT by {', '.join(self.not_by)}"
        missed = f"; not by {', '.join(self.not_by)}" if self.not_by else ""
        return f"{self.mutant}: caught by {', '.join(self.caught_by)}{missed}; without it: {self.control}" \
            f"\n    {self.words}"


def attempt(options: Options, mutant: Mutant, number: int) -> str:
    """A scenario, or the rounds (number -1): why it failed, or nothing."""
    before = len(options.clusters)
    if number < 0:
        why = Rounds(options, mutant.policy, "on").run().violation
    else:
        one = next(one for one in every() if one.number == number)
        outcome = run_one(options, one, mutant.policy, "on")
        why = outcome.why if outcome.result == "FAILED" else ""
    for cluster in options.clusters[before:]:
        cluster.destroy()
    return why


def one(options: Options, mutant: Mutant) -> Outcome:
    """Tries all that may catch it."""
    outcome = Outcome(mutant.name)
    catchers = [(f"scenario {number}", number) for number in mutant.scenarios]
    catchers.append((f"{options.rounds} rounds", -1))
    bad = []
    for name, number in catchers:
        print(f"mutant {mutant.name}: {name}", file=sys.stderr, flush=True)
        why = attempt(replace(options, mutant=mutant.name), mutant, number)
        if not why:
            outcome.not_by.append(name)
            continue
        outcome.caught_by.append(name)
        outcome.words = outcome.words or why.splitlines()[0]
        # Who always fails has caught nothing.
        if number >= 0 and (control := attempt(replace(options, mutant=""), mutant, number)):
            bad.append(f"{name} FAILS: {control.splitlines()[0]}")
    outcome.control = "; ".join(bad) or "content"
    return outcome


def run_mutants(options: Options) -> tuple[list[dict[str, object]], list[str], bool]:
    """Those of the policies that were asked for."""
    if VARIABLE not in options.library.read_bytes():
        raise Failed("--library: it was built without the feature mutants")
    chosen = [m for m in MUTANTS if m.policy in options.policies and (not options.only or m.name in options.only)]
    if not chosen:
        raise Failed(f"no such mutant; there are {', '.join(m.name for m in MUTANTS)}")
    outcomes = [one(options, mutant) for mutant in chosen]
    bad = any(not outcome.caught_by or outcome.control != "content" for outcome in outcomes)
    return [dict(vars(outcome)) for outcome in outcomes], [outcome.line() for outcome in outcomes], bad
