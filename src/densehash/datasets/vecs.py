"""The formats fvecs, bvecs and ivecs, which the sets SIFT and GIST use.

A file is a sequence of rows, little-endian: the dimension as an int32, then that many numbers,
float32, uint8 or int32. Every row repeats the dimension, and all must agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Reader, Vectors, broken
from densehash.datasets.writing import blocks, stored_type
from densehash.disk import replacing
from densehash.errors import InputError

__all__ = ["TYPES", "open_vecs", "write_vecs"]

TYPES: dict[str, np.dtype[Any]] = {
    ".fvecs": np.dtype("<f4"),
    ".bvecs": np.dtype("u1"),
    ".ivecs": np.dtype("<i4"),
}
"""The type of the numbers, by suffix."""

_DIMENSION = np.dtype("<i4")
_LONGEST = 2**31 - 1
_CHECKED_AT_ONCE = 1 << 25  # in bytes


def open_vecs(path: Path) -> NDArray[Any]:
    """Map a file; the dimensions of all its rows are read and compared.

    Parameters
    ----------
    path : a file with one of the suffixes ``TYPES``

    Returns
    -------
    float32, uint8 or int32 (n, d), read-only: a view of the mapped file without the dimensions
    """
    dtype = TYPES[path.suffix.lower()]
    with Reader(path) as file:
        d = int.from_bytes(file.read(0, 4, "the dimension of row 0"), "little", signed=True)
        if d < 1:
            raise broken(path, 0, "a dimension of at least 1 for row 0", d)
        width = 4 + d * dtype.itemsize
        file.need(0, width, f"row 0 of dimension {d}")
        n, rest = divmod(file.size, width)
        # In parts, because otherwise all pages of the file would be in memory at once.
        step = max(1, _CHECKED_AT_ONCE // width)
        for row in range(0, n, step):
            part = file.map(np.dtype(np.uint8), (min(step, n - row), width), row * width)
            _check_dimensions(path, part, d, row, row * width)
        mapped = file.map(np.dtype(np.uint8), (n, width))
        if rest:  # the last row is cut, or a row has another dimension
            start = n * width
            last = file.read(start, 4, f"the dimension of row {n}")
            _check_dimensions(path, np.frombuffer(last, np.uint8).reshape(1, 4), d, n, start)
            file.need(start, width, f"row {n} of dimension {d}")
    rows: NDArray[Any] = mapped[:, 4:].view(dtype)
    return rows


def write_vecs(path: Path, X: Vectors) -> None:
    """Write rows, one block at a time.

    Parameters
    ----------
    path : a file with one of the suffixes ``TYPES``
    X : real array (n, d) or a Source, of a type that the file's type holds without loss
    """
    suffix = path.suffix.lower()
    dtype = stored_type(X.dtype, suffix, TYPES[suffix])
    d = X.shape[1]
    if d > _LONGEST:
        raise InputError(f"X has {d} features, but {suffix} counts them up to {_LONGEST}")
    with replacing(path) as part, part.open("wb") as file:
        for block in blocks(X, dtype):
            rows = np.empty((len(block), 4 + d * dtype.itemsize), np.uint8)
            rows[:, :4] = np.array([d], _DIMENSION).view(np.uint8)
            rows[:, 4:] = block.view(np.uint8)
            file.write(rows.data)


def _check_dimensions(
    path: Path, rows: NDArray[np.uint8], d: int, first: int = 0, offset: int = 0
) -> None:
    """Compare the dimensions in the bytes of rows, (n, at least 4), with that of the file."""
    found = np.ascontiguousarray(rows[:, :4]).view(_DIMENSION)[:, 0]
    wrong = np.flatnonzero(found != d)
    if wrong.size:
        row = int(wrong[0])
        raise broken(
            path,
            offset + row * rows.shape[1],
            f"dimension {d} for row {first + row}, as for row 0",
            found[row],
        )
