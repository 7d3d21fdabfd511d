"""Files of vectors as dask arrays: a worker reads each chunk that it computes with."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.checks import check_integer
from densehash.datasets import open_vectors
from densehash.mapped import unmapped
from densehash.source import Source

__all__ = ["open_dask"]

_FEWEST_ROWS = 8192


def open_dask(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    ids: str | None = None,
    chunk_rows: int | None = None,
    chunk_bytes: int = 2**24,
) -> da.Array:
    """Open a file of vectors that every worker can reach.

    Parameters
    ----------
    path : a file or folder that :func:`densehash.datasets.open_vectors` opens
    key : which array, column or dataset of the file
    ids : the name of a column of ids, which is not part of the vectors
    chunk_rows : rows of a chunk; default: a power of two, 8,192 or more, so that a fit learns
        exactly the same bytes as on one machine
    chunk_bytes : about how many bytes a chunk has if you do not give ``chunk_rows``, default 16 MB.
        This is large enough that a task is not mostly overhead, and small enough that several
        chunks, as floats, fit into the memory of a small worker.

    Returns
    -------
    dask array of shape (n, d), of the type in the file

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "a.npy"), np.ones((20_000, 8), np.float32))
    ...     X = open_dask(Path(folder, "a.npy"), chunk_rows=8192)
    ...     X.chunks[0], float(X.sum().compute())
    ((8192, 8192, 3616), 160000.0)
    """
    whole = Path(path).absolute()  # workers may have another working directory
    opened = open_vectors(whole, key=key, ids=ids)
    n, d = opened.shape
    step = _rows_for(d * opened.dtype.itemsize, check_integer(chunk_bytes, "chunk_bytes", 1))
    if chunk_rows is not None:
        step = check_integer(chunk_rows, "chunk_rows", 1)
    read = delayed(_read, pure=True)
    chunks = [
        da.from_delayed(
            read(whole, key, ids, start, min(start + step, n)),
            (min(step, n - start), d),
            opened.dtype,
        )
        for start in range(0, n, step)
    ]
    return da.concatenate(chunks)


def _rows_for(bytes_a_row: int, n_bytes: int) -> int:
    """Rows of a chunk: a power of two, and at least the rows of the largest block."""
    fitting = max(n_bytes // bytes_a_row, _FEWEST_ROWS)
    return int(1 << (fitting.bit_length() - 1))


def _read(path: Path, key: str | None, ids: str | None, start: int, stop: int) -> NDArray[Any]:
    about = path.stat()
    return np.array(_opened(path, key, ids, about.st_mtime_ns, about.st_size)[start:stop])


@lru_cache(maxsize=4)
def _opened(
    path: Path, key: str | None, ids: str | None, _changed: int, _size: int
) -> NDArray[Any] | Source:
    """A file that stays open between chunks: some formats are read through when they are opened."""
    return unmapped(open_vectors(path, key=key, ids=ids))
