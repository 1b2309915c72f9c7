# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions that study a trace.

Each releases the interpreter's lock while it works, except under a policy written in Python, and ends soon after Ctrl-C.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from larder import _larder
from larder._extras import watching
from larder._larder import LarderError, Watch
from larder._results import Advice, Curve, Hits, Info, Simulation
from larder._trace import Trace, TraceLike, as_trace

#: A size: bytes, or text as "512MiB".
Size: TypeAlias = int | str
#: A replacement policy: a name, or what makes a policy for a number of slots, as a class derived from larder.Policy.
Replacement: TypeAlias = str | Callable[[int], Any]

PAGE_BYTES = 4096
#: Capacities of a curve, in percent of the units of the trace.
PERCENTS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)


def text(name: str, value: Size) -> str:
    """A size as text for the extension module."""
    if isinstance(value, bool) or not isinstance(value, (int, str, np.integer)):
        raise TypeError(f"{name}: got {value!r}, accepted bytes, or text as '512MiB'")
    return str(value)


def number(name: str, value: Any, least: int, most: int) -> int:
    """An integer in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: got {value!r}, accepted an integer")
    if not least <= value <= most:
        raise LarderError(f"{name}: got {value}, accepted {least} to {most}")
    return int(value)


def real(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name}: got {value!r}, accepted a number")
    if not math.isfinite(value):
        raise LarderError(f"{name}: got {value}, accepted a finite number")
    return float(value)


def words(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {value!r}, accepted text")
    return value


def optional(check: Callable[..., Any], name: str, value: Any, *bounds: int) -> Any:
    """A checked value, or None."""
    return None if value is None else check(name, value, *bounds)


def threads(jobs: int | None) -> int:
    """A number of threads; by default one for each processor."""
    return number("jobs", os.cpu_count() or 1 if jobs is None else jobs, 1, 1024)


def hits_watched(
    trace: Trace, watch: Watch, replacement: Replacement, unit: Size, capacity: Size
) -> Hits:
    """Hits and misses, with this watch."""
    sizes = text("unit", unit), text("capacity", capacity)
    if isinstance(replacement, str):
        found = _larder.hits(trace._trace, replacement, *sizes, watch)
    elif callable(replacement):
        found = _larder.hits_under(trace._trace, replacement, *sizes, watch)
    else:
        what = f"got {replacement!r}, accepted a name, or a class derived from larder.Policy"
        raise TypeError(f"replacement: {what}")
    accesses, unique, misses, seconds = found
    return Hits(
        {
            "accesses": accesses,
            "unique": unique,
            "misses": misses,
            "miss_ratio": misses / accesses,
            "accesses_per_second": accesses / max(seconds, 1e-9),
            "wall_seconds": seconds,
        }
    )


def hits(
    trace: TraceLike,
    replacement: Replacement = "lru",
    unit: Size = "4KiB",
    capacity: Size = "5%",
    *,
    progress: bool = False,
) -> Hits:
    """Counts hits and misses of a replacement policy, without devices or time (``larder sim --hits``).

    An access is a unit that a request touches. ``replacement`` is fifo, lru, clock, arc, 2q, lirs, s3fifo, sieve, wtinylfu,
    gclock, belady, or a class derived from :class:`larder.Policy`. ``unit`` is a power of two from 512 bytes to 1 GiB.
    ``capacity`` is in bytes or, as "5%", a share of the units of the trace.
    """
    trace = as_trace(trace)
    with watching(progress, f"hits {trace.name}") as watch:
        return hits_watched(trace, watch, replacement, unit, capacity)


def info(trace: TraceLike, *, exact: bool = False, progress: bool = False) -> Info:
    """Computes the statistics of a trace (``larder trace info``).

    Without ``exact``, reuse is estimated from a sample if exact reuse would take more than 1 GiB of memory.
    """
    trace = as_trace(trace)
    with watching(progress, f"info {trace.name}") as watch:
        return Info(json.loads(_larder.info(trace._trace, bool(exact), watch)))


def miss_ratio_curve(
    trace: TraceLike,
    replacement: Replacement = "lru",
    *,
    unit: Size = "4KiB",
    capacities: Iterable[Size] | None = None,
    jobs: int | None = None,
    progress: bool = False,
) -> Curve:
    """The miss ratios of a policy at rising capacities.

    LRU with units of 4 KiB and without ``capacities`` takes one pass, which has a hundred capacities; they are estimated from
    a sample as in :func:`info`. All else is a replay at each capacity, on ``jobs`` threads.
    """
    trace = as_trace(trace)
    unit_bytes = _larder.parse_size(text("unit", unit))
    if replacement == "lru" and capacities is None and unit_bytes == PAGE_BYTES:
        found = info(trace, progress=progress)
        field = "miss_ratio" if found.exact else "sampled_miss_ratio"
        points = [(point["capacity_bytes"], point[field]) for point in found.lru]
        points = [(size, ratio) for size, ratio in points if size]
        return _curve("lru", unit_bytes, points)
    from larder._sweep import sweep

    if capacities is None:
        unique = hits(trace, "fifo", unit, unit).unique
        units = {max(1, int(unique * percent / 100)) for percent in PERCENTS}
    else:
        units = {_units(trace, size, unit_bytes, unit) for size in capacities}
    grid = {"capacity": [size * unit_bytes for size in sorted(units)]}
    done = sweep(grid, trace, replacement=replacement, unit=unit, jobs=jobs, progress=progress)
    name = replacement if isinstance(replacement, str) else getattr(replacement, "__name__", "policy")
    return _curve(name, unit_bytes, [(row["at_capacity"], row["miss_ratio"]) for row in done.rows])


def _units(trace: Trace, size: Size, unit_bytes: int, unit: Size) -> int:
    """A capacity in units; a share is of the different units of the trace."""
    words = text("capacities", size)
    if not words.endswith("%"):
        units = _larder.parse_size(words) // unit_bytes
    else:
        try:
            share = float(words[:-1])
        except ValueError:
            share = math.nan
        if not 0 < share <= 100:
            raise LarderError(f"capacities: got {words!r}, accepted above 0% to 100%")
        units = int(hits(trace, "fifo", unit, unit).unique * share / 100)
    if units < 1:
        raise LarderError(f"capacities: got {size!r}, accepted at least one unit, {unit_bytes} bytes")
    return units


def _curve(name: str, unit_bytes: int, points: Iterable[tuple[Any, Any]]) -> Curve:
    """A curve of pairs of capacity and miss ratio."""
    sizes, ratios = zip(*points, strict=True)
    return Curve(name, unit_bytes, np.array(sizes, dtype=np.int64), np.array(ratios, dtype=np.float64))


def simulate_watched(
    trace: Trace,
    watch: Watch,
    preset: str,
    *,
    origin: str | None,
    flash: str | None,
    flash_size: Size | None,
    unit: Size | None,
    replacement: str | None,
    durability: str | None,
    speed: float | None,
    outstanding: int | None,
    warm_up: float | None,
    requests: int | None,
    seed: int | None,
) -> Simulation:
    """A trace under a preset, with this watch."""
    many = 2**32 - 1
    settings = {
        "preset": words("preset", preset),
        "origin": optional(words, "origin", origin),
        "flash": optional(words, "flash", flash),
        "flash_size": optional(text, "flash_size", flash_size),
        "unit": optional(text, "unit", unit),
        "replacement": optional(words, "replacement", replacement),
        "durability": optional(words, "durability", durability),
        "speed": optional(real, "speed", speed),
        "outstanding": optional(number, "outstanding", outstanding, 1, many),
        "warm_up": optional(real, "warm_up", warm_up),
        "requests": optional(number, "requests", requests, 1, many),
        "seed": optional(number, "seed", seed, 0, 2**63 - 1),
    }
    with trace._file() as file:
        return Simulation(json.loads(_larder.simulate(file, settings, watch)))


def simulate(
    trace: TraceLike,
    preset: str = "larder",
    *,
    origin: str | None = None,
    flash: str | None = None,
    flash_size: Size | None = None,
    unit: Size | None = None,
    replacement: str | None = None,
    durability: str | None = None,
    speed: float | None = None,
    outstanding: int | None = None,
    warm_up: float | None = None,
    requests: int | None = None,
    seed: int | None = None,
    progress: bool = False,
) -> Simulation:
    """Replays a trace through the engine over modelled devices, in virtual time (``larder sim --trace --preset``).

    ``preset`` is a preset of ``larder presets``, no-cache or all-flash. ``origin`` and ``flash`` are device profiles
    or paths of device files (docs/simulation.md). ``flash_size`` is in bytes or, as "10%", a share of the trace's footprint.
    The other settings are those of the command; equal settings and seeds give equal results on any machine.
    """
    trace = as_trace(trace)
    with watching(progress, f"simulate {trace.name}") as watch:
        return simulate_watched(
            trace,
            watch,
            preset,
            origin=origin,
            flash=flash,
            flash_size=flash_size,
            unit=unit,
            replacement=replacement,
            durability=durability,
            speed=speed,
            outstanding=outstanding,
            warm_up=warm_up,
            requests=requests,
            seed=seed,
        )


def advise_watched(
    trace: Trace,
    watch: Watch,
    origin: str,
    flash: str,
    *,
    endurance: str | None,
    requests: int | None,
    seed: int,
    jobs: int | None = 1,
) -> Advice:
    """Advice, with this watch."""
    settings = {
        "origin": words("origin", origin),
        "flash": words("flash", flash),
        "endurance": optional(words, "endurance", endurance),
        "requests": optional(number, "requests", requests, 1, 2**63 - 1),
        "seed": number("seed", seed, 0, 2**63 - 1),
        "jobs": threads(jobs),
    }
    with trace._file() as file:
        return Advice(json.loads(_larder.advise(file, settings, watch)))


def advise(
    trace: TraceLike,
    origin: str,
    flash: str,
    *,
    endurance: str | None = None,
    requests: int | None = None,
    seed: int = 1,
    jobs: int | None = None,
    progress: bool = False,
) -> Advice:
    """Advises whether a flash cache pays off for a trace, how large and with which preset (``larder advise``).

    ``origin`` and ``flash`` are device profiles, as san-1g, or paths of device files. ``endurance`` is the rating of the
    flash, as "600TB" or "0.3DWPD". ``requests`` limits the requests of each point. Equal arguments give equal advice on any
    machine.
    """
    trace = as_trace(trace)
    with watching(progress, f"advise {trace.name}") as watch:
        return advise_watched(
            trace, watch, origin, flash, endurance=endurance, requests=requests, seed=seed, jobs=jobs
        )
