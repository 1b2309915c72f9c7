# SPDX-License-Identifier: MIT OR Apache-2.0
"""A point of a study: a function, a trace and settings, and what a run of them comes to.

Invariant: the outcome depends on the function, the trace and the settings alone, so a point can run on any machine. It has no
times of the machine.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from larder._larder import LarderError, Watch
from larder._results import Result
from larder._runs import advise, advise_watched, hits, hits_watched, simulate, simulate_watched
from larder._trace import Trace, TraceLike, as_trace

#: The numbers and texts of a result, by name.
Outcome: TypeAlias = dict[str, Any]
#: What runs a point: the public function, whose arguments are the settings, and the same with a watch.
RUNS: dict[str, tuple[Callable[..., Result], Callable[..., Result]]] = {
    "hits": (hits, hits_watched),
    "simulate": (simulate, simulate_watched),
    "advise": (advise, advise_watched),
}
#: Arguments of the functions that are no settings of a point.
NO_SETTINGS = ("trace", "progress", "jobs")
#: Fields of a result that depend on the machine.
TIMES = {"accesses_per_second", "wall_seconds"}
#: Fields of advice whose own fields are part of the outcome, as advised_device_bytes.
PARTS = ("advised", "alone")


@dataclass(frozen=True)
class Point:
    """A point. ``at`` is what the grid set, ``settings`` are all."""

    run: str
    trace: Trace
    at: Mapping[str, Any]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, run: str, trace: TraceLike | None, at: Mapping[str, Any], fixed: Mapping[str, Any]) -> Point:
        """A point with the settings of the grid and the fixed ones; the others have their defaults."""
        if run not in RUNS:
            raise LarderError(f"run: got {run!r}, accepted {', '.join(RUNS)}")
        known = inspect.signature(RUNS[run][0]).parameters
        defaults = {name: one.default for name, one in known.items() if name not in NO_SETTINGS}
        settings = {**fixed, **at}
        source = settings.pop("trace", trace)
        for name in settings:
            if name not in defaults:
                accepted = ", ".join(["trace", *defaults])
                raise LarderError(f"{run}: has no setting {name!r}; accepted: {accepted}")
        for name, value in defaults.items():
            if value is inspect.Parameter.empty and name not in settings:
                raise LarderError(f"{run}: {name}: none is given; accepted: a setting, or {name} in the grid")
        if source is None:
            raise LarderError("trace: none is given; accepted: the argument trace, or trace in the grid")
        return cls(run, as_trace(source), dict(at), {**defaults, **settings})

    def outcome(self, watch: Watch) -> Outcome:
        """Runs the point."""
        result = RUNS[self.run][1](self.trace, watch, **self.settings)
        plain = (bool, int, float, str, type(None))
        found = {}
        for name, value in result.items():
            if name in PARTS:
                found.update(_leaves(name, value))
            elif isinstance(value, plain) and name not in TIMES:
                found[name] = value
        return found

    def __str__(self) -> str:
        return ", ".join(f"{name} {cell(value)}" for name, value in self.at.items())


def _leaves(name: str, value: Any) -> Outcome:
    """The numbers and texts of nested fields, by names with an underscore between two levels."""
    if isinstance(value, Mapping):
        return {k: v for inner, of in value.items() for k, v in _leaves(f"{name}_{inner}", of).items()}
    return {} if value is None or isinstance(value, list) else {name: value}


def cell(value: Any) -> Any:
    """A setting in a row: a value, the name of a class or a trace."""
    if isinstance(value, np.generic):
        return cell(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, Trace):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return getattr(value, "__qualname__", None) or repr(value)


def run_point(
    run: str, trace: TraceLike | None, settings: Mapping[str, Any], watch: Watch | None = None
) -> Outcome:
    """Runs one point: the numbers of its result, without times of the machine. Depends on nothing but its arguments."""
    return Point.of(run, trace, settings, {}).outcome(watch or Watch())
