"""Shared by all writers: blocks of rows, and types that hold all values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Vectors
from densehash.errors import InputError

__all__ = ["blocks", "check_key", "stored_type"]

_BLOCK_NUMBERS = 1 << 20

# The suffixes that keep a type; all other types are kept by .npy.
_KEEPING = {
    "float32": ".fvecs or .fbin",
    "uint8": ".bvecs or .u8bin",
    "int8": ".i8bin",
    "int32": ".ivecs or .ibin",
}


def blocks(X: Vectors, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """All rows in order, about a million numbers at a time.

    Parameters
    ----------
    X : real array (n, d), or a Source
    dtype : type to which the numbers are converted

    Yields
    ------
    array (b, d) of this type, C-contiguous

    Examples
    --------
    >>> [block.shape for block in blocks(np.zeros((3000, 512)), np.dtype("<f4"))]
    [(2048, 512), (952, 512)]
    """
    n, d = X.shape
    step = max(1, _BLOCK_NUMBERS // d)
    for start in range(0, n, step):
        part = X[start : start + step]
        if part.shape != (min(step, n - start), d):  # otherwise the header would be wrong
            raise InputError(
                f"X has shape {X.shape}, but its rows from {start} on came as {part.shape}"
            )
        yield np.ascontiguousarray(part, dtype=dtype)


def stored_type(
    dtype: np.dtype[Any], suffix: str, into: np.dtype[Any] | None = None
) -> np.dtype[Any]:
    """The type in a file, little-endian, which holds every value of the type in memory.

    Parameters
    ----------
    dtype : type of the vectors
    suffix : suffix of the file
    into : the only type that the file can hold; None keeps the type

    Examples
    --------
    >>> stored_type(np.dtype(np.uint8), ".fvecs", np.dtype("<f4"))
    dtype('float32')
    >>> stored_type(np.dtype(np.float64), ".fvecs", np.dtype("<f4"))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: X is float64, which .fvecs would not keep: it holds float32. \
Write .npy, or convert X
    """
    if into is not None:
        if np.can_cast(dtype, into, "safe"):
            return into
        fitting = _KEEPING.get(dtype.name, ".npy")
        raise InputError(
            f"X is {dtype.name}, which {suffix} would not keep: it holds {into.name}. "
            f"Write {fitting}, or convert X"
        )
    if dtype.itemsize > 8:
        raise InputError(
            f"X is {dtype.name}, which other machines cannot read: convert it to float64"
        )
    return dtype.newbyteorder("<")


def check_key(key: str | None, usual: str) -> str:
    """The name for an array in a new file; an error if it is empty or not printable.

    Examples
    --------
    >>> check_key(None, "train")
    'train'
    >>> check_key("", "train")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: key must be a printable name, got ''
    """
    if key is None:
        return usual
    if not key or not key.isprintable():
        raise InputError(f"key must be a printable name, got {key!r}")
    return key
