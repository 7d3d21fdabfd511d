"""Vectors that are not in memory: what a reader of a file gives, and what everything accepts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.locks import new_lock

__all__ = ["LockedRows", "Source"]

# Rows at positions are read in runs of at most this many numbers; rows are in one run if fewer
# numbers are between them than a disk reads at once anyway.
_MOST_NUMBERS = 1 << 20
_NEAR_NUMBERS = 1 << 14


class Source(ABC):
    """Rows that are read when they are used.

    Wherever an array of vectors is accepted, a Source is, too: hashers learn from it and
    :func:`densehash.truth.nearest` searches it in blocks. Reading is safe from several threads.

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : the type of the arrays that are read; a real type
    chunks : lengths of the parts in which rows come, if no block may cross from one part to the
        next; None if there are no parts
    """

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows.

        Parameters
        ----------
        rows : a slice of step 1, or rising positions, integer (m,)

        Returns
        -------
        array (m, n_features) of the type ``dtype``
        """


class LockedRows(Source):
    """Rows that are read by one thread at a time.

    A class derives from this one, sets ``shape`` and ``dtype``, and writes ``_read``.
    """

    def __init__(self) -> None:
        self._lock = new_lock()

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows.

        Parameters
        ----------
        rows : a slice of step 1, or positions, integer (m,); fast if they rise

        Returns
        -------
        array (m, n_features) of the type ``dtype``; it may be read-only
        """
        n = self.shape[0]
        if isinstance(rows, slice):
            start, stop, step = rows.indices(n)
            if step != 1:
                raise InputError(f"rows must be a slice of step 1 or positions, got step {step}")
            with self._lock:
                return self._read(start, max(start, stop))
        positions = np.asarray(rows)
        if positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise InputError(f"rows must be a slice or integers of shape (m,), got {rows!r}")
        if positions.size == 0:
            return np.empty((0, self.shape[1]), self.dtype)
        if positions.min() < 0 or positions.max() >= n:
            wrong = positions[(positions < 0) | (positions >= n)][0]
            raise InputError(f"rows must lie in 0..{n - 1}, got {wrong}")
        rising, inverse = np.unique(positions.astype(np.int64), return_inverse=True)
        with self._lock:
            found = self._pick(rising)
        return found if np.array_equal(rising, positions) else found[inverse]

    @abstractmethod
    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start .. stop - 1; both are inside the array."""

    def _pick(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at ascending positions, each once; at least one."""
        step = max(1, _MOST_NUMBERS // self.shape[1])
        near = max(1, _NEAR_NUMBERS // self.shape[1])
        apart = (np.diff(positions) > near) | (np.diff(positions // step) > 0)
        found = np.empty((len(positions), self.shape[1]), self.dtype)
        limits = [0, *(np.flatnonzero(apart) + 1).tolist(), len(positions)]
        for begin, end in pairwise(limits):
            first, last = int(positions[begin]), int(positions[end - 1])
            found[begin:end] = self._read(first, last + 1)[positions[begin:end] - first]
        return found
