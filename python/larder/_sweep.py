# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps: a function at every point of a grid.

A grid maps settings to lists of values. Its *points* are all combinations, in the order of the grid, the last setting varying
fastest. A row follows from its point alone (:func:`run_point`), so a point can be run anywhere.

Invariants: rows come in the order of the points, whatever ran them; they have no times of the machine; equal grids, traces
and seeds give equal rows, and with one version of pyarrow a Parquet file with equal bytes.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from larder._extras import extra
from larder._larder import LarderError, Watch
from larder._results import Result
from larder._runs import hits, hits_watched, simulate, simulate_watched, threads
from larder._trace import Trace, TraceLike, as_trace

if TYPE_CHECKING:
    import pyarrow
    from matplotlib.axes import Axes

#: A row: the number of the point, the settings as at_NAME, and the numbers of the result.
Row: TypeAlias = dict[str, Any]
#: What runs a point: the public function, whose arguments are the settings, and the same with a watch.
RUNS: dict[str, tuple[Callable[..., Result], Callable[..., Result]]] = {
    "hits": (hits, hits_watched),
    "simulate": (simulate, simulate_watched),
}
#: Fields of a result that depend on the machine.
TIMES = {"accesses_per_second", "wall_seconds"}
#: Where points run.
PLACES = ("local",)


def _defaults(run: str) -> dict[str, Any]:
    """The settings of a function with their defaults, except the trace and the bar."""
    if run not in RUNS:
        raise LarderError(f"run: got {run!r}, accepted {', '.join(RUNS)}")
    given = inspect.signature(RUNS[run][0]).parameters.values()
    return {p.name: p.default for p in given if p.name not in ("trace", "progress")}


def points(grid: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """All points of a grid, in their order."""
    values = {}
    for name, value in grid.items():
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise TypeError(f"grid: {name}: got {value!r}, accepted a list of values")
        values[name] = list(value)
        if not values[name]:
            raise LarderError(f"grid: {name}: no values; accepted: at least one")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def run_point(
    run: str, trace: TraceLike | None, settings: Mapping[str, Any], watch: Watch | None = None
) -> dict[str, Any]:
    """Runs one point: the numbers of its result, without times of the machine. Depends on nothing but its arguments."""
    defaults = _defaults(run)
    for name in settings:
        if name != "trace" and name not in defaults:
            accepted = ", ".join(["trace", *defaults])
            raise LarderError(f"{run}: has no setting {name!r}; accepted: {accepted}")
    source = settings.get("trace", trace)
    if source is None:
        raise LarderError("trace: none is given; accepted: the argument trace, or trace in the grid")
    own = {name: value for name, value in settings.items() if name != "trace"}
    result = RUNS[run][1](as_trace(source), watch or Watch(), **{**defaults, **own})
    plain = (bool, int, float, str, type(None))
    return {k: v for k, v in result.items() if isinstance(v, plain) and k not in TIMES}


def _cell(value: Any) -> Any:
    """A setting in a row: a value, the name of a class or a trace."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, Trace):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return getattr(value, "__qualname__", None) or repr(value)


class Sweep:
    """The rows of a sweep, in the order of its points."""

    __slots__ = ("rows", "run")

    def __init__(self, run: str, rows: list[Row]) -> None:
        self.run = run
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """A column as an array."""
        if not any(name in row for row in self.rows):
            raise KeyError(f"{name}; accepted: {', '.join(self.rows[0])}")
        return np.array([row.get(name) for row in self.rows])

    def __repr__(self) -> str:
        return f"<Sweep of {self.run}, {len(self.rows)} points>"

    def to_arrow(self) -> pyarrow.Table:
        """The rows as a table of Arrow; a column is null where a row does not have it."""
        arrow = extra("pyarrow", "arrow")
        names = dict.fromkeys(name for row in self.rows for name in row)
        columns = {name: [row.get(name) for row in self.rows] for name in names}
        mixed = {name for name, values in columns.items() if len({type(v) for v in values} & {int, str}) > 1}
        for name in mixed:
            columns[name] = [None if value is None else str(value) for value in columns[name]]
        return arrow.table(columns)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows to a Parquet file."""
        from larder._arrow import write_parquet

        write_parquet(self.to_arrow(), path)

    def plot(
        self, x: str | None = None, y: str | None = None, by: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draws the column y over x, a line for each value of by; returns the axes."""
        from larder._plot import plot_sweep

        return plot_sweep(self, x, y, by, ax)


def sweep(
    grid: Mapping[str, Iterable[Any]],
    trace: TraceLike | None = None,
    *,
    run: str = "hits",
    on: str = "local",
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **settings: Any,
) -> Sweep:
    """Runs ``hits`` or ``simulate`` at every point of a grid.

    ``grid`` maps settings of the function to lists of values; ``trace`` may be one of them. ``settings`` are those of all
    points. ``jobs`` is the number of threads, by default one for each processor. ``out`` is a Parquet file for the rows.
    """
    if on not in PLACES:
        raise LarderError(f"on: got {on!r}, accepted {', '.join(PLACES)}")
    twice = [name for name in settings if name in grid]
    if twice:
        raise LarderError(f"grid: {twice[0]} is also a setting of all points; accepted: one of the two")
    jobs = threads(jobs)
    source = None if trace is None else as_trace(trace)
    all_points = points(grid)
    found = _run_local(run, source, [{**settings, **point} for point in all_points], jobs, progress)
    rows: list[Row] = []
    for count, (point, result) in enumerate(zip(all_points, found, strict=True)):
        at = {f"at_{name}": _cell(value) for name, value in point.items()}
        rows.append({"point": count, **at, **result})
    done = Sweep(run, rows)
    if out is not None:
        done.to_parquet(out)
    return done


def _run_local(
    run: str, trace: Trace | None, all_points: list[dict[str, Any]], jobs: int, progress: bool
) -> list[dict[str, Any]]:
    """The results of all points, on threads. The first exception stops the others."""
    watch = Watch()
    bar = extra("tqdm", "progress").tqdm(desc=run, total=len(all_points), unit=" points") if progress else None
    with ThreadPoolExecutor(max_workers=min(jobs, len(all_points))) as pool:
        futures = [pool.submit(run_point, run, trace, settings, watch) for settings in all_points]
        try:
            for future in futures:
                if bar is not None:
                    future.add_done_callback(lambda _: bar.update())
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            # The first point, in their order, that failed by itself.
            for settings, future in zip(all_points, futures, strict=True):
                error = future.exception() if future in done else None
                if error is not None and not isinstance(error, KeyboardInterrupt):
                    raise error
            return [future.result() for future in futures]
        finally:
            watch.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            if bar is not None:
                bar.close()
