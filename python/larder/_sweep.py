# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps: a function at every point of a grid.

A grid maps settings to lists of values. Its *points* are all combinations, in the order of the grid, the last setting varying
fastest. A row follows from its point alone (:func:`run_point`), so a point can run anywhere (_study.py).

Invariants: rows come in the order of the points, whatever ran them; they have no times of the machine; equal grids, traces
and seeds give equal rows, and with one version of pyarrow a Parquet file with equal bytes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from larder._extras import extra
from larder._larder import LarderError
from larder._point import Outcome, Point, cell
from larder._study import run_study
from larder._trace import TraceLike, as_trace

if TYPE_CHECKING:
    import pyarrow
    from matplotlib.axes import Axes

#: A row: the number of the point, the settings as at_NAME, and the outcome.
Row: TypeAlias = dict[str, Any]


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

    def best(self, column: str, mode: str = "min") -> Row:
        """The first row with the least or, by ``mode`` max, the largest value of a column. Rows without one do not count."""
        if mode not in ("min", "max"):
            raise LarderError(f"mode: got {mode!r}, accepted min, max")
        rows = [row for row in self.rows if isinstance(row.get(column), (int, float))]
        if not rows:
            raise LarderError(f"column: got {column!r}, accepted a column with numbers")
        return (min if mode == "min" else max)(rows, key=lambda row: row[column])

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
    study: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **settings: Any,
) -> Sweep:
    """Runs ``hits``, ``simulate`` or ``advise`` at every point of a grid.

    ``grid`` maps settings of the function to lists of values; ``trace`` may be one of them. ``settings`` are those of all
    points. ``on`` is local (threads) or ray (tasks of a cluster). ``jobs`` is the number of points that run at the same time,
    by default one for each processor. ``study`` is a file for outcomes, from which an interrupted sweep continues. ``out`` is a
    Parquet file for the rows; its bytes do not depend on ``on``, ``jobs`` and interruptions.
    """
    twice = [name for name in settings if name in grid]
    if twice:
        raise LarderError(f"grid: {twice[0]} is also a setting of all points; accepted: one of the two")
    source = None if trace is None else as_trace(trace)
    all_points = [Point.of(run, source, at, settings) for at in _traces(points(grid))]
    outcomes = run_study(all_points, on=on, jobs=jobs, file=study, bar=run if progress else None)
    return table(run, all_points, outcomes, out)


def advise_fleet(
    traces: Iterable[TraceLike],
    origin: str,
    flash: str,
    *,
    endurance: str | None = None,
    requests: int | None = None,
    seed: int = 1,
    on: str = "local",
    jobs: int | None = None,
    study: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Sweep:
    """Advises on each trace (``advise``), and returns one table with a row for each.

    The columns are the numbers and texts of the advice, those of ``advised`` and ``alone`` as advised_device_bytes. A trace runs
    on one processor. ``on``, ``jobs``, ``study`` and ``out`` are those of :func:`sweep`.
    """
    if isinstance(traces, (str, bytes, os.PathLike, np.ndarray)):
        raise TypeError(f"traces: got {type(traces).__name__}, accepted a list of traces")
    settings: dict[str, Any] = {"origin": origin, "flash": flash, "endurance": endurance, "requests": requests, "seed": seed}
    same: dict[str, Any] = {"on": on, "jobs": jobs, "study": study, "out": out, "progress": progress}
    return sweep({"trace": traces}, run="advise", **same, **settings)


def _traces(at: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points; a trace of the grid is opened or copied once, whichever points have it."""
    opened: dict[int, Any] = {}
    for point in at:
        if "trace" in point:
            given = point["trace"]
            if id(given) not in opened:
                opened[id(given)] = as_trace(given)
            point["trace"] = opened[id(given)]
    return at


def table(
    run: str, all_points: list[Point], outcomes: list[Outcome], out: str | os.PathLike[str] | None
) -> Sweep:
    """The rows, also as a file."""
    rows: list[Row] = []
    for count, (point, outcome) in enumerate(zip(all_points, outcomes, strict=True)):
        at = {f"at_{name}": cell(value) for name, value in point.at.items()}
        rows.append({"point": count, **at, **outcome})
    done = Sweep(run, rows)
    if out is not None:
        done.to_parquet(out)
    return done
