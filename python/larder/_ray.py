# SPDX-License-Identifier: MIT OR Apache-2.0
"""Points as tasks of Ray.

A task runs one point on one processor, or a batch of points that take milliseconds. It returns outcomes to the process that
began the study, the driver, which alone keeps them and writes files.

Invariants: outcomes that the driver has are not run again, so a node or worker that dies costs the points that it was running;
Ray runs these elsewhere. Each task runs with the driver's version of larder. No task remains after the call, also after Ctrl-C.

Why outcomes do not stay on the nodes: they are small, and a node that dies would take them along. Why a trace in memory is an
object of Ray, and not an argument of each task: a worker copies it once, and not for each point.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from larder._extras import extra
from larder._larder import LarderError, Watch, __version__
from larder._point import Outcome, Point
from larder._trace import Trace

#: How often a task is run again after its worker or node died.
RETRIES = 3
#: A batch has points for this time, by the mean of the points before.
BATCH_SECONDS = 0.1
#: A worker returns the rest of a batch after this time.
BATCH_MOST_SECONDS = 1.0
#: A batch has at most this many points, so that its outcomes stay small enough to be sent to the driver itself.
BATCH_MOST = 64
#: Tasks for each processor: one that runs, and one for when it ends.
QUEUED = 2
#: Traces in memory that a worker keeps.
HELD = 4
#: The interval between two looks at the number of processors.
LOOK_SECONDS = 2.0
#: The time in which tasks end by themselves when they are cancelled.
CANCEL_SECONDS = 5.0

#: A trace for a task: a path with how it is read, or an object of Ray with a name.
Source: TypeAlias = tuple[str, Any]
#: A point for a task: its number, function, settings and trace.
Sent: TypeAlias = tuple[int, str, dict[str, Any], Source]
#: What a task returns: number, outcome and seconds of points, and what ended it early: an exception of a point, or a line.
Returned: TypeAlias = tuple[list[tuple[int, Outcome, float]], BaseException | str | None]


def connect() -> Any:
    """Ray, connected: to the cluster of RAY_ADDRESS or of this machine; without one, to a new one on this machine."""
    ray = extra("ray", "ray")
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise LarderError(f"ray: {line}; accepted: a cluster that runs, by RAY_ADDRESS") from error
    return ray


def sources(ray: Any, traces: dict[int, Trace]) -> dict[int, Source]:
    """The traces for tasks."""
    found: dict[int, Source] = {}
    for key, trace in traces.items():
        if not trace.in_memory:
            found[key] = (os.path.abspath(trace.name), trace._read)
            continue
        records = np.frombuffer(trace._trace.records(), dtype=np.uint8)
        # In a list: Ray would replace the reference by the object.
        found[key] = (trace.name, [ray.put(records)])
    return found


def by_value() -> Callable[[str, list[Sent]], Returned]:
    """The function of a task. Ray sends a nested function as code, so that it also runs where larder is missing."""

    def larder_points(version: str, sent: list[Sent]) -> Returned:
        import ray

        node = ray.util.get_node_ip_address()
        accepted = f"accepted: larder {version} on each node"
        try:
            import larder
        except ImportError as error:
            return [], f"node {node}: larder cannot be imported: {error}; {accepted}"
        if larder.__version__ != version:
            return [], f"node {node}: has larder {larder.__version__}, the driver {version}; {accepted}"
        from larder._ray import run_batch

        return run_batch(node, sent)

    return larder_points


_held: dict[str, Trace] = {}


def _opened(node: str, source: Source) -> Trace:
    """The trace, in a worker."""
    name, how = source
    if isinstance(how, dict):
        if not os.path.exists(name):
            accepted = "a file at this path on each node, or a trace in memory (load())"
            raise LarderError(f"node {node}: {name}: does not exist; accepted: {accepted}")
        return Trace(name, **how)
    key = how[0].hex()
    trace = _held.pop(key, None)
    if trace is None:
        import ray

        trace = Trace._of_bytes(name, ray.get(how[0]))
    _held[key] = trace
    while len(_held) > HELD:
        del _held[next(iter(_held))]
    return trace


def run_batch(node: str, sent: list[Sent]) -> Returned:
    """Runs points in a worker, at least one."""
    from ray import cloudpickle

    ran: list[tuple[int, Outcome, float]] = []
    first = time.monotonic()
    for number, run, settings, source in sent:
        begin = time.monotonic()
        if ran and begin - first > BATCH_MOST_SECONDS:
            break
        try:
            outcome = Point(run, _opened(node, source), {}, settings).outcome(Watch())
        except Exception as error:
            try:
                cloudpickle.loads(cloudpickle.dumps(error))
            except Exception:
                return ran, RuntimeError(f"node {node}: {type(error).__name__}: {error}")
            return ran, error
        ran.append((number, outcome, time.monotonic() - begin))
    return ran, None


class _Pace:
    """How many tasks there are at the same time, and how many points a task has."""

    def __init__(self, ray: Any, jobs: int | None) -> None:
        self.ray, self.jobs = ray, jobs
        self.looked = -LOOK_SECONDS
        self.processors = 1
        self.mean: float | None = None

    def tasks(self) -> int:
        """Tasks at the same time. Nodes may join and leave."""
        if self.jobs is not None:
            return self.jobs
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self.processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.looked = time.monotonic()
        return QUEUED * self.processors

    def took(self, seconds: float) -> None:
        """A point took this time."""
        self.mean = seconds if self.mean is None else 0.8 * self.mean + 0.2 * seconds

    def batch(self, waiting: int) -> int:
        """Points of the next task; fewer towards the end, so that all processors end at about the same time."""
        if self.mean is None:
            return 1
        fit = int(BATCH_SECONDS / max(self.mean, 1e-6))
        return max(1, min(fit, BATCH_MOST, waiting // (2 * self.tasks())))


def run_tasks(
    points: list[Point], left: list[int], ran: Callable[[int, Outcome], None], jobs: int | None
) -> None:
    """Runs the points with these numbers as tasks. The first exception stops the others."""
    pace = _Pace(connect(), jobs)
    ray = pace.ray
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(by_value())
    traces = sources(ray, {id(points[number].trace): points[number].trace for number in left})
    waiting = deque(left)
    tasks: dict[Any, list[int]] = {}

    def sent(number: int) -> Sent:
        point = points[number]
        return number, point.run, dict(point.settings), traces[id(point.trace)]

    try:
        while waiting or tasks:
            while waiting and len(tasks) < pace.tasks():
                batch = [waiting.popleft() for _ in range(pace.batch(len(waiting)))]
                tasks[task.remote(__version__, [sent(number) for number in batch])] = batch
            for ref in ray.wait(list(tasks), num_returns=1, timeout=LOOK_SECONDS)[0]:
                batch = tasks.pop(ref)
                for number, outcome, seconds in _returned(ray, ref, [points[n] for n in batch], batch):
                    pace.took(seconds)
                    batch.remove(number)
                    ran(number, outcome)
                waiting.extendleft(reversed(batch))
    finally:
        _cancel(ray, list(tasks))


def _returned(
    ray: Any, ref: Any, points: list[Point], numbers: list[int]
) -> Iterator[tuple[int, Outcome, float]]:
    """The outcomes of a task; then its exception."""
    try:
        outcomes, error = ray.get(ref)
    except ray.exceptions.RayError as died:
        one = f"point {numbers[0]} ({points[0]})"
        which = one if len(numbers) == 1 else f"points {numbers[0]} to {numbers[-1]}"
        if isinstance(died, ray.exceptions.RayTaskError):
            line = str(died).strip().splitlines()[-1]
            raise LarderError(f"{which}: {line}; accepted: settings that a worker can load") from died
        raise LarderError(
            f"{which}: ended its worker or node {RETRIES + 1} times: {type(died).__name__}; accepted: a point that a "
            "node can run, for example one with less memory"
        ) from died
    yield from outcomes
    if isinstance(error, str):
        raise LarderError(error)
    if error is not None:
        raise error


def _cancel(ray: Any, tasks: list[Any]) -> None:
    """Ends tasks: those that wait are removed, those that run are interrupted, and their workers killed if they do not end."""
    if not tasks:
        return
    for ref in tasks:
        ray.cancel(ref)
    for ref in ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_SECONDS)[1]:
        ray.cancel(ref, force=True)
