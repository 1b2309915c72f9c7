# SPDX-License-Identifier: MIT OR Apache-2.0
"""A search by Ray Tune, where a grid is too large: each trial is a point of a study.

Invariant: without an algorithm of the user, equal seeds give equal trials, and so an equal table, on any cluster.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from larder._extras import extra
from larder._larder import LarderError, __version__
from larder._point import Point
from larder._ray import RETRIES, by_value, connect, sources
from larder._runs import number, optional
from larder._sweep import Sweep, table
from larder._trace import TraceLike


def search(
    space: Mapping[str, Any],
    trace: TraceLike,
    *,
    metric: str,
    mode: str = "min",
    samples: int = 32,
    run: str = "hits",
    algorithm: Any = None,
    random_seed: int = 1,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Sweep:
    """Searches settings of ``hits``, ``simulate`` or ``advise`` for the least or largest value of a column, on Ray.

    ``space`` maps settings to lists of values, or to domains of Ray Tune, as ``ray.tune.loguniform(1e6, 1e9)``. ``metric`` is a
    number of the result, ``mode`` is min or max, and ``samples`` is the number of trials. ``algorithm`` is a search algorithm of
    Ray Tune; by default trials are drawn at random, by ``random_seed``. The rows are the trials, as those of a sweep, in the
    order in which they were drawn; :meth:`Sweep.best` returns the best.
    """
    if mode not in ("min", "max"):
        raise LarderError(f"mode: got {mode!r}, accepted min, max")
    if not space or "trace" in space:
        raise LarderError("space: accepted: at least one setting, without trace")
    samples = number("samples", samples, 1, 2**31 - 1)
    twice = [name for name in settings if name in space]
    if twice:
        raise LarderError(f"space: {twice[0]} is also a setting of all points; accepted: one of the two")
    fixed = Point.of(run, trace, dict.fromkeys(space), settings)
    ray, tune = connect(), extra("ray.tune", "ray")
    domains = {}
    for name, values in space.items():
        listed = isinstance(values, (list, tuple, range))
        if not listed and not isinstance(values, tune.search.sample.Domain):
            raise TypeError(f"space: {name}: got {values!r}, accepted a list of values or a domain of ray.tune")
        if listed and not values:
            raise LarderError(f"space: {name}: no values; accepted: at least one")
        domains[name] = tune.choice(list(values)) if listed else values
    most = optional(number, "jobs", jobs, 1, 2**20)
    if algorithm is None:
        algorithm = tune.search.BasicVariantGenerator(random_state=random_seed, max_concurrent=most or 0)
        most = None
    with tempfile.TemporaryDirectory(prefix="larder-search-") as storage:
        tuner = tune.Tuner(
            tune.with_resources(_trial(ray, fixed, metric), {"cpu": 1}),
            param_space=domains,
            tune_config=tune.TuneConfig(
                metric=metric,
                mode=mode,
                search_alg=algorithm,
                num_samples=samples,
                max_concurrent_trials=most,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=storage, verbose=0, failure_config=tune.FailureConfig(max_failures=RETRIES)
            ),
        )
        results = list(tuner.fit())
    for result in results:
        if result.error is not None:
            what = str(result.error).strip().splitlines()[-1]
            raise LarderError(f"trial of {result.config}: {what}; accepted: a point that a node can run")
        if result.metrics["failed"] is not None:
            raise LarderError(result.metrics["failed"])
    all_points = [Point(run, fixed.trace, result.config, fixed.settings) for result in results]
    return table(run, all_points, [json.loads(result.metrics["outcome"]) for result in results], out)


def _trial(ray: Any, fixed: Point, metric: str) -> Any:
    """The function of a trial; it runs where larder is missing, as that of a task."""
    points = by_value()
    version, run, settings = __version__, fixed.run, dict(fixed.settings)

    def trial(config: dict[str, Any], source: Any) -> None:
        import json

        from ray import tune

        outcomes, error = points(version, [(0, run, {**settings, **config}, source)])
        outcome = outcomes[0][1] if outcomes else {}
        numbers = [name for name, value in outcome.items() if isinstance(value, (int, float))]
        if error is None and metric not in numbers:
            error = f"metric: got {metric!r}, accepted {', '.join(numbers)}"
        # A trial that raises is run again; only one whose worker or node died may be.
        failed = None if error is None else str(error)
        tune.report({metric: outcome.get(metric, 0), "outcome": json.dumps(outcome), "failed": failed})

    tune = extra("ray.tune", "ray")
    return tune.with_parameters(trial, source=sources(ray, {0: fixed.trace})[0])
