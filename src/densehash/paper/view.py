"""Rows of a set that is too large for memory, read when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.source import Source

__all__ = ["View"]

Positions = NDArray[np.integer]
Block = NDArray[Any]


class View(Source):
    """Some of the rows, or new rows that are computed from them.

    With two slices, as for an array, it gives a View of the first rows and features.

    Parameters
    ----------
    rows : array (n, d) or a Source
    chosen : ascending positions, integer (m,), of the only rows to show
    left_out : ascending positions, integer (m,), of rows to leave out
    made : computes new rows (b, n_features) from a block of rows (b, d)
    n_features, dtype : features and type of the new rows; default: those of the old ones

    Examples
    --------
    >>> rows = np.arange(10).reshape(5, 2)
    >>> View(rows, left_out=np.array([0, 3]))[1:3].tolist()
    [[4, 5], [8, 9]]
    >>> View(rows, chosen=np.array([0, 3]))[:, :1][:].tolist()
    [[0], [6]]
    """

    def __init__(
        self,
        rows: Block | Source,
        *,
        chosen: Positions | None = None,
        left_out: Positions | None = None,
        made: Callable[[Block], Block] | None = None,
        n_features: int | None = None,
        dtype: type[np.generic] | None = None,
    ) -> None:
        self._rows, self._made = rows, made
        self._chosen = chosen
        # How many shown rows come before each row that is left out.
        self._passed = None if left_out is None else left_out - np.arange(len(left_out))
        n = len(rows) - (0 if left_out is None else len(left_out))
        self.shape = n if chosen is None else len(chosen), n_features or rows.shape[1]
        self.dtype = rows.dtype if dtype is None else np.dtype(dtype)

    def __getitem__(self, rows: Any) -> Any:
        """Read rows by a slice of step 1, by ascending positions, or by two slices (see above)."""
        if isinstance(rows, tuple):
            return self._first(
                *(len(range(size)[some]) for size, some in zip(self.shape, rows, strict=True))
            )
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        block = self._read(self._places(rows))
        return block if self._made is None else self._made(block)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Block:
        """All rows in memory, for code that needs an array."""
        return np.asarray(self[:], dtype)

    def _places(self, positions: Positions) -> Positions:
        """Positions in the underlying rows."""
        if self._chosen is not None:
            return self._chosen[positions]
        if self._passed is not None:
            return positions + np.searchsorted(self._passed, positions, side="right")
        return positions

    def _read(self, places: Positions) -> Block:
        if len(places) == 0:
            return np.empty((0, self._rows.shape[1]), self._rows.dtype)
        first, last = int(places[0]), int(places[-1])
        if last - first < len(places):
            return self._rows[first : last + 1]
        if last - first < 2 * len(places):  # so close together that one slice is faster
            return self._rows[first : last + 1][places - first]
        return self._rows[places]

    def _first(self, n: int, d: int) -> View:
        chosen = None if n == len(self) else np.arange(n)
        cut = None if d == self.shape[1] else lambda block: block[:, :d]
        return View(self, chosen=chosen, made=cut, n_features=d)
