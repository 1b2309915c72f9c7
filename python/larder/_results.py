# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results: the fields of the commands' JSON output, as attributes and as keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A longer list is shown by its length.
SHOWN_ITEMS = 8


class Result(Mapping[str, Any]):
    """The fields of a result. ``result.name`` and ``result["name"]`` are the same."""

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, fields: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_fields", dict(fields))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._fields:
            return self._fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a result cannot be changed; accepted: to_dict()")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __repr__(self) -> str:
        def shown(value: Any) -> str:
            long = isinstance(value, (list, dict)) and len(value) > SHOWN_ITEMS
            return f"<{len(value)} items>" if long else repr(value)

        fields = ", ".join(f"{name}={shown(value)}" for name, value in self.items())
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._fields,)

    def to_dict(self) -> dict[str, Any]:
        """The fields, as the commands print them with ``--json``."""
        return dict(self._fields)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the result with matplotlib; returns the axes."""
        from larder._plot import plot

        return plot(self, ax=ax)


class Hits(Result):
    """What a replay counted (``larder sim --hits --json``)."""

    __slots__ = ()
    accesses: int
    unique: int
    misses: int
    miss_ratio: float
    accesses_per_second: float
    wall_seconds: float


class Info(Result):
    """The statistics of a trace (``larder trace info --json``); docs/traces.md explains the fields."""

    __slots__ = ()
    requests: int
    reads: int
    writes: int
    write_ratio: float
    request_bytes: int
    write_bytes: int
    accesses: int
    sequential_ratio: float
    near_sequential_ratio: float
    exact: bool
    unique: int
    footprint_bytes: int
    reuse_ratio: float
    duration_seconds: float | None
    request_size_bytes: dict[str, int]
    reuse_distance_pages: dict[str, int | None]
    sample: dict[str, float | None]
    lru: list[dict[str, float | None]]
    working_set: list[dict[str, float]]
    devices: list[dict[str, float]]


class Simulation(Result):
    """A trace under a preset (``larder sim --trace --preset --json``); docs/scenarios.md explains the fields."""

    __slots__ = ()
    requests: int
    reads: int
    writes: int
    hit_ratio: float | None
    read_us_mean: float | None
    read_us_p50: float | None
    read_us_p99: float | None
    write_us_mean: float | None
    requests_per_second: float
    flash_bytes: int | None
    flash_write_bytes: int
    memory_bytes: int | None
    samples: dict[str, list[float | None]]


class Advice(Result):
    """Whether a cache pays off, and which (``larder advise --json``); docs/advise.md explains the fields."""

    __slots__ = ()
    pays: bool
    verdict: str
    advised: dict[str, Any] | None
    others: list[dict[str, Any]]
    toml: str | None
    alone: dict[str, Any]
    points: list[dict[str, Any]]
    miss_ratio_curve: list[dict[str, float]]
    assumptions: list[str]


@dataclass(frozen=True)
class Curve:
    """The miss ratios of a policy at rising capacities."""

    replacement: str
    unit_bytes: int
    capacity_bytes: npt.NDArray[np.int64] = field(repr=False)
    miss_ratio: npt.NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.capacity_bytes)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the curve with matplotlib; returns the axes."""
        from larder._plot import plot

        return plot(self, ax=ax)
