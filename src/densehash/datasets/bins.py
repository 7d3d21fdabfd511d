"""The formats fbin, u8bin, i8bin and ibin, which sets of a billion vectors use.

A file is a header of two uint32, n and d, then n rows of d numbers: float32, uint8, int8 or
int32; all little-endian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Reader, Vectors, check_shape, n_bytes
from densehash.datasets.writing import blocks, stored_type
from densehash.disk import replacing
from densehash.errors import InputError

__all__ = ["TYPES", "open_bins", "write_bins"]

TYPES: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
    ".ibin": np.dtype("<i4"),
}
"""The type of the numbers, by suffix."""

_HEADER = 8
_LONGEST = 2**32 - 1


def open_bins(path: Path) -> NDArray[Any]:
    """Map a file.

    Parameters
    ----------
    path : a file with one of the suffixes ``TYPES``

    Returns
    -------
    float32, uint8, int8 or int32 (n, d), read-only
    """
    dtype = TYPES[path.suffix.lower()]
    with Reader(path) as file:
        header = np.frombuffer(file.read(0, _HEADER, "the header n, d"), "<u4")
        shape = check_shape(path, 0, header.tolist())
        mapped = file.map(dtype, shape, _HEADER)
        file.need_end(_HEADER + n_bytes(dtype, shape), f"{shape[0]} rows of {shape[1]} numbers")
    return mapped


def write_bins(path: Path, X: Vectors) -> None:
    """Write rows, one block at a time.

    Parameters
    ----------
    path : a file with one of the suffixes ``TYPES``
    X : real array (n, d) or a Source, of a type that the file's type holds without loss
    """
    suffix = path.suffix.lower()
    dtype = stored_type(X.dtype, suffix, TYPES[suffix])
    if max(X.shape) > _LONGEST:
        raise InputError(f"X has shape {X.shape}, but {suffix} counts up to {_LONGEST}")
    with replacing(path) as part, part.open("wb") as file:
        file.write(np.array(X.shape, "<u4").tobytes())
        for block in blocks(X, dtype):
            file.write(block.data)
