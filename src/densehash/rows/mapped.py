"""Memory maps, read as files are: what was read does not stay in the memory of the process."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.source import Source

__all__ = ["MappedRows", "unmapped"]

# Pages are given back after so many bytes; a scattered row brings its neighbours in, too.
_MOST_HELD = 1 << 26
_AROUND = 1 << 20


def unmapped(array: NDArray[np.generic] | Source) -> NDArray[np.generic] | Source:
    """A memory map as a Source that gives back what it has read; all else as it is.

    Examples
    --------
    >>> unmapped(np.zeros((2, 3))).shape
    (2, 3)
    """
    if isinstance(array, Source) or not hasattr(mmap, "MADV_DONTNEED"):
        return array
    pages = _pages_of(array)
    return array if pages is None else MappedRows(array, pages)


class MappedRows(Source):
    """Rows of a memory map. What is read is copied, and its pages are given back from time to time.

    Without that, a pass over a file would hold all of it, as far as the memory reaches: others can
    have it, but every tool counts it as ours.

    Parameters
    ----------
    array : (n, d), over a memory map
    pages : the map
    """

    def __init__(self, array: NDArray[Any], pages: mmap.mmap) -> None:
        self.shape, self.dtype = (array.shape[0], array.shape[1]), array.dtype
        self._array, self._pages = array, pages
        self._held = 0

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows: a slice, or positions (m,)."""
        if isinstance(rows, slice):
            found = np.array(self._array[rows])
            self.give_back(max(_AROUND, found.nbytes))
            return found
        parts = []
        step = max(_MOST_HELD // _AROUND, 1)
        for start in range(0, max(len(rows), 1), step):
            part = self._array[rows[start : start + step]]
            parts.append(part)
            self.give_back(len(part) * max(_AROUND, self.dtype.itemsize * self.shape[1]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def give_back(self, n_bytes: int) -> None:
        """Count what was read or written, and give pages back where it is much."""
        # Several threads may count a little wrong: nothing depends on it but memory.
        self._held += n_bytes
        if self._held >= _MOST_HELD:
            self._held = 0
            self._pages.madvise(mmap.MADV_DONTNEED)


def _pages_of(array: Any) -> mmap.mmap | None:
    """The map under an array, if all that is in it is in its file: then nothing gets lost."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    if array is None or array.mode not in ("r", "r+", "w+"):  # "c" has changes that no file holds
        return None
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None
