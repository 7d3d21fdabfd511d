"""Rows of several arrays in one order, which are read when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.mapped import give_back
from densehash.source import Source

__all__ = ["Gathered"]


class Gathered(Source):
    """Rows of several arrays, one after the other, or in any order.

    Rows that are read are copies, and pages of maps leave memory at once. So rows can be copied
    from old files to new ones without being in memory together.

    Parameters
    ----------
    parts : arrays (n, d) of one type, or Sources; at least one
    order : integers (m,), all different: numbers of rows, counted over all parts; None: all rows,
        in their order

    Examples
    --------
    >>> parts = [np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]])]
    >>> Gathered(parts, np.array([3, 0, 2]))[1:3]
    array([[0.],
           [2.]])
    """

    def __init__(
        self, parts: Sequence[NDArray[Any] | Source], order: NDArray[np.integer] | None = None
    ) -> None:
        self._parts, self._order = parts, order
        self._limits = np.cumsum([0, *map(len, parts)])
        n = int(self._limits[-1]) if order is None else len(order)
        self.shape, self.dtype = (n, parts[0].shape[1]), parts[0].dtype

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows: a slice of step 1, or positions (m,)."""
        if self._order is None and isinstance(rows, slice):
            return self._run(*rows.indices(len(self))[:2])
        return self._some(rows if self._order is None else self._order[rows])  # type: ignore[arg-type]

    def _run(self, start: int, stop: int) -> NDArray[Any]:
        """Rows that follow each other."""
        found = np.empty((max(stop - start, 0), self.shape[1]), self.dtype)
        for part, first, last in zip(self._parts, self._limits, self._limits[1:], strict=False):
            low, high = max(start, int(first)), min(stop, int(last))
            if low < high:
                found[low - start : high - start] = part[low - int(first) : high - int(first)]
                give_back(part)
        return found

    def _some(self, numbers: NDArray[np.integer]) -> NDArray[Any]:
        """Rows of any numbers; each part is read once, in rising order."""
        if len(self._parts) == 1 and isinstance(self._parts[0], np.ndarray):
            found: NDArray[Any] = self._parts[0][numbers]
            give_back(self._parts[0])
            return found
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        order = np.argsort(numbers, kind="stable")
        rising = numbers[order]
        ends = np.searchsorted(rising, self._limits)
        for at in np.flatnonzero(np.diff(ends)).tolist():
            inside = slice(ends[at], ends[at + 1])
            part = self._parts[at]
            found[order[inside]] = part[rising[inside] - self._limits[at]]
            give_back(part)
        return found
