# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plots: one call for each result, with matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from larder._extras import extra
from larder._larder import LarderError
from larder._results import Advice, Curve, Hits, Info, Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from larder._sweep import Sweep

MIB = 1 << 20


def _axes(ax: Axes | None) -> Any:
    """The given axes, or new ones."""
    pyplot = extra("matplotlib.pyplot", "plot")
    return ax if ax is not None else pyplot.subplots()[1]


def plot(*results: Any, ax: Axes | None = None) -> Axes:
    """Draws results of one kind into one picture; returns the axes.

    Accepted: a Curve, Info, Hits, Simulation, Advice or Sweep, or several of a kind except Advice and Sweep.
    """
    from larder._sweep import Sweep

    if not results:
        raise TypeError("plot: nothing is given; accepted: results of larder's functions")
    if isinstance(results[0], Sweep):
        return plot_sweep(results[0], None, None, None, ax)
    for kind, draw in KINDS.items():
        if all(isinstance(result, kind) for result in results):
            axes: Axes = _axes(ax)
            draw(axes, results)
            return axes
    kinds = ", ".join(type(result).__name__ for result in results)
    accepted = ", ".join(kind.__name__ for kind in KINDS)
    raise TypeError(f"plot: got {kinds}; accepted: {accepted} or Sweep, of one kind")


def _ratio(axes: Any, x: str, y: str) -> None:
    """Finishes axes whose y is a ratio."""
    axes.set(xlabel=x, ylabel=y, ylim=(0, 1))
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _curves(axes: Any, curves: tuple[Curve, ...]) -> None:
    """Miss ratios over capacities."""
    for curve in curves:
        axes.plot(curve.capacity_bytes / MIB, curve.miss_ratio, marker=".", label=curve.replacement)
    _ratio(axes, "capacity, MiB", "miss ratio")


def _infos(axes: Any, infos: tuple[Info, ...]) -> None:
    """The curve of LRU of traces."""
    for info in infos:
        field = "miss_ratio" if info.exact else "sampled_miss_ratio"
        x = [point["capacity_bytes"] / MIB for point in info.lru]  # type: ignore[operator]
        axes.plot(x, [point[field] for point in info.lru], label="LRU")
    _ratio(axes, "capacity, MiB", "miss ratio")


def _hits(axes: Any, hits: tuple[Hits, ...]) -> None:
    """A bar for each replay."""
    axes.bar([str(at) for at in range(len(hits))], [one.miss_ratio for one in hits])
    _ratio(axes, "replay", "miss ratio")


def _simulations(axes: Any, runs: tuple[Simulation, ...]) -> None:
    """Hit ratios over virtual time."""
    for at, run in enumerate(runs):
        ratios = np.array(run.samples["hit_ratio"], dtype=float)
        axes.plot(run.samples["at_seconds"], ratios, label=str(at) if len(runs) > 1 else None)
    _ratio(axes, "virtual time, s", "hit ratio of reads")


def _advice(axes: Any, advices: tuple[Advice, ...]) -> None:
    """Latencies over sizes of flash, a line for each preset."""
    if len(advices) > 1:
        raise TypeError("plot: several Advice; accepted: one")
    advice = advices[0]
    field = "read_us_mean" if advice.alone["read_us_mean"] is not None else "write_us_mean"
    for system in dict.fromkeys(point["system"] for point in advice.points):
        own = [point for point in advice.points if point["system"] == system]
        x = [point["flash_bytes"] / MIB for point in own]
        axes.plot(x, [point[field] for point in own], marker="o", label=system)
    axes.axhline(advice.alone[field], color="gray", linestyle="--", label="no cache")
    if advice.advised is not None:
        axes.axvline(advice.advised["point"]["flash_bytes"] / MIB, color="gray", linestyle=":")
    axes.set(xlabel="flash, MiB", ylabel=f"mean latency of a {field.split('_')[0]}, us", xscale="log")
    axes.grid(alpha=0.3)
    axes.legend()


KINDS: dict[type, Callable[[Any, Any], None]] = {
    Curve: _curves,
    Info: _infos,
    Hits: _hits,
    Simulation: _simulations,
    Advice: _advice,
}


def plot_sweep(
    sweep: Sweep, x: str | None, y: str | None, by: str | None, ax: Axes | None
) -> Axes:
    """Draws the column y over x; by default the last setting of the grid, and another one as lines."""
    settings = [name for name in sweep.rows[0] if name.startswith("at_")]
    if not settings:
        raise LarderError("plot: the grid has no settings; accepted: at least one")
    x = x or settings[-1]
    y = y or ("miss_ratio" if sweep.run == "hits" else "hit_ratio")
    by = by or next((name for name in settings if name != x), None)
    for name in (x, y, *([by] if by else [])):
        if name not in sweep.rows[0]:
            raise LarderError(f"plot: no column {name!r}; accepted: {', '.join(sweep.rows[0])}")
    axes: Axes = _axes(ax)
    for value in dict.fromkeys(row[by] if by else None for row in sweep.rows):
        rows = [row for row in sweep.rows if by is None or row[by] == value]
        label = None if by is None else str(value)
        heights = np.array([row[y] for row in rows], dtype=float)
        axes.plot([row[x] for row in rows], heights, marker="o", label=label)
    axes.set(xlabel=x.removeprefix("at_"), ylabel=y)
    axes.grid(alpha=0.3)
    if by is not None:
        axes.legend(title=by.removeprefix("at_"))
    return axes
