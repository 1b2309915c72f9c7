# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packages that only some functions need, and bars of progress."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from larder._larder import Watch


def extra(module: str, name: str) -> Any:
    """Imports a module of an extra of this package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = f"{module}: {error}; accepted: pip install 'larder[{name}]'"
        raise ImportError(what) from error


@contextmanager
def watching(progress: bool, what: str, total: int | None = None) -> Iterator[Watch]:
    """The watch of one call; with a bar that counts the requests that the call reads."""
    if not progress:
        yield Watch()
        return
    tqdm = extra("tqdm", "progress").tqdm
    with tqdm(desc=what, total=total, unit=" requests", unit_scale=True) as bar:
        yield Watch(lambda requests: bar.update(requests - bar.n))
