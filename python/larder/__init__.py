# SPDX-License-Identifier: MIT OR Apache-2.0
"""Study block traces and flash caches.

The functions run the code of the commands ``larder trace info``, ``larder sim`` and ``larder advise``. A trace is a path, a
:class:`Trace`, or an array of requests. Each result has its fields as attributes and as keys, and the method ``plot``.

>>> import larder
>>> larder.hits("db.btr.zst", "lru", capacity="5%").miss_ratio      # doctest: +SKIP
0.41
"""

from larder._larder import LarderError, __version__
from larder._plot import plot
from larder._point import run_point
from larder._policy import Policy
from larder._results import Advice, Curve, Hits, Info, Result, Simulation
from larder._runs import advise, hits, info, miss_ratio_curve, simulate
from larder._search import search
from larder._sweep import Sweep, advise_fleet, points, sweep
from larder._trace import RECORD, Trace

__all__ = [
    "RECORD",
    "Advice",
    "Curve",
    "Hits",
    "Info",
    "LarderError",
    "Policy",
    "Result",
    "Simulation",
    "Sweep",
    "Trace",
    "__version__",
    "advise",
    "advise_fleet",
    "hits",
    "info",
    "miss_ratio_curve",
    "plot",
    "points",
    "run_point",
    "search",
    "simulate",
    "sweep",
]
