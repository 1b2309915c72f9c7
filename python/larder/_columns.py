# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arrays of users, checked before they become requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from larder._larder import LarderError

#: Words for operations.
WORDS = {"r": 0, "read": 0, "w": 1, "write": 1, "u": 2, "unknown": 2}


def request_count(values: Mapping[str, npt.ArrayLike]) -> int:
    """The length that all arrays have; single values fit any length."""
    lengths: dict[str, int] = {}
    for name, value in values.items():
        shape = np.shape(value)
        if len(shape) > 1:
            raise LarderError(f"{name}: {len(shape)} dimensions; accepted: one")
        if shape:
            lengths[name] = shape[0]
    if not lengths:
        raise LarderError("offset_bytes: a single value; accepted: an array of one dimension")
    if len(set(lengths.values())) > 1:
        different = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise LarderError(f"arrays of different lengths: {different}; accepted: equal lengths")
    return next(iter(lengths.values()))


def column(
    name: str, value: npt.ArrayLike, requests: int, dtype: np.dtype[Any], most: int | None = None
) -> npt.NDArray[Any]:
    """A column of requests: integers from 0 to what the field can hold."""
    array = np.asarray(value)
    if array.size == 0 and requests == 0:
        return np.zeros(0, dtype=dtype)
    if array.dtype.kind not in "iu":
        what = f"{name}: dtype {array.dtype}; accepted: integers"
        raise TypeError(f"{what}, without NaN or fractions" if array.dtype.kind == "f" else what)
    most = int(np.iinfo(dtype).max) if most is None else most
    low = array < 0 if array.dtype.kind == "i" else np.zeros(array.shape, dtype=bool)
    bad = low | (array > most) if most < np.iinfo(array.dtype).max else low
    if bad.any():
        at = int(np.argmax(bad))
        where = f"{name}: request {at}" if array.ndim else name
        raise LarderError(f"{where}: got {array.flat[at]}, accepted 0 to {most}")
    return array.astype(dtype)


def operations(value: npt.ArrayLike) -> npt.ArrayLike:
    """Operations as numbers; words are looked up."""
    array = np.asarray(value)
    if array.dtype.kind not in "USO":
        return array
    words, where = np.unique(array.astype(str), return_inverse=True)
    for word in words:
        if word.lower() not in WORDS:
            raise LarderError(f"op: got {str(word)!r}, accepted {', '.join(WORDS)}, or 0 to 2")
    numbers = np.array([WORDS[word.lower()] for word in words], dtype=np.uint8)
    return numbers[where].reshape(array.shape)
