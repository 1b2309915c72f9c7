# SPDX-License-Identifier: MIT OR Apache-2.0
"""Studies: many independent points, each with one outcome, on threads or on a cluster.

A place runs the points without an outcome and hands each outcome to the study. The extension module keeps the lines of the
study (crates/lab/src/scenario/lines.rs): in memory, or in a file from which an interrupted study continues. They are those of
``larder sim --out``.

Invariants: only the process that began the study writes its file; outcomes come in the order of the points, whatever ran
them; each passes through the lines, so a row is the same whether its point ran here, elsewhere, or in an earlier run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

from larder._extras import extra
from larder._larder import LarderError, Study, Watch
from larder._point import Outcome, Point, cell
from larder._runs import threads

#: Accepts the outcome of the point with this number, on any thread.
Ran: TypeAlias = Callable[[int, Outcome], None]
#: Runs the points with these numbers, with this number of jobs.
Place: TypeAlias = Callable[[list[Point], list[int], Ran, int | None], None]


def _on_threads(points: list[Point], left: list[int], ran: Ran, jobs: int | None) -> None:
    """Runs points on threads. The first exception stops the others."""
    watch = Watch()

    def run(number: int) -> None:
        ran(number, points[number].outcome(watch))

    with ThreadPoolExecutor(max_workers=min(threads(jobs), len(left))) as pool:
        futures = [pool.submit(run, number) for number in left]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            # The first point, in their order, that failed by itself.
            for future in futures:
                error = future.exception() if future in done else None
                if error is not None and not isinstance(error, KeyboardInterrupt):
                    raise error
            for future in futures:
                future.result()
        finally:
            watch.stop()
            pool.shutdown(wait=False, cancel_futures=True)


def _on_ray(points: list[Point], left: list[int], ran: Ran, jobs: int | None) -> None:
    """Runs points as tasks of Ray."""
    from larder._ray import run_tasks

    run_tasks(points, left, ran, jobs)


#: Where points run.
PLACES: dict[str, Place] = {"local": _on_threads, "ray": _on_ray}


def _keys(points: list[Point], identify: bool) -> list[tuple[str, str]]:
    """What the grid set, and all settings, of each point. To identify it, a trace in memory has a digest of its requests."""
    digests: dict[int, str] = {}

    def settings(point: Point) -> dict[str, Any]:
        trace = point.trace
        if identify and trace.in_memory and id(trace) not in digests:
            digests[id(trace)] = hashlib.sha256(trace._trace.records()).hexdigest()
        named = {"name": trace.name, **trace._read, "sha256": digests.get(id(trace))}
        own = {name: cell(value) for name, value in point.settings.items()}
        return {**own, "run": point.run, "trace": {k: v for k, v in named.items() if v is not None}}

    at = [{name: cell(value) for name, value in point.at.items()} for point in points]
    return [(json.dumps(one), json.dumps(settings(point))) for one, point in zip(at, points, strict=True)]


def run_study(
    points: list[Point],
    *,
    on: str,
    jobs: int | None,
    file: str | os.PathLike[str] | None,
    bar: str | None,
) -> list[Outcome]:
    """Runs the points that the file does not have; the outcomes of all, in order. ``bar`` names a bar of progress."""
    if on not in PLACES:
        raise LarderError(f"on: got {on!r}, accepted {', '.join(PLACES)}")
    threads(jobs)
    tqdm = extra("tqdm", "progress").tqdm if bar is not None else None
    study = Study(_keys(points, file is not None), file)
    left = study.left()
    there = len(points) - len(left)
    shown = tqdm(desc=bar, total=len(points), initial=there, unit=" points") if tqdm is not None else None

    def ran(number: int, outcome: Outcome) -> None:
        study.add(number, json.dumps(outcome))
        if shown is not None:
            shown.update()

    try:
        if left:
            PLACES[on](points, left, ran, jobs)
    finally:
        if shown is not None:
            shown.close()
    return [json.loads(outcome) for outcome in study.results()]
