"""Memory maps that are read like files: what was read does not stay in memory."""

from __future__ import annotations

import mmap
import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.source import Source

if sys.platform != "win32":
    from densehash._native import Map

__all__ = ["MappedRows", "give_back", "unmapped"]

Pages: TypeAlias = "mmap.mmap | Map"
"""The map of a file of a user, or of a store."""

# Pages are released after this many bytes; a scattered row also loads its neighbours.
_MOST_HELD = 1 << 26
_AROUND = 1 << 20


def unmapped(array: NDArray[np.generic] | Source) -> NDArray[np.generic] | Source:
    """A memory map as a Source that releases what it has read; anything else unchanged.

    Examples
    --------
    >>> unmapped(np.zeros((2, 3))).shape
    (2, 3)
    """
    if isinstance(array, Source) or _pages_of(array) is None:
        return array
    return MappedRows(array)


def give_back(array: NDArray[Any] | Source) -> None:
    """Release the pages of a mapped array from the memory of this process.

    The system may keep them; they are read again when they are needed. Other arrays stay unchanged.

    Examples
    --------
    >>> give_back(np.zeros(3))
    """
    pages = _pages_of(array)
    if isinstance(pages, mmap.mmap):
        pages.madvise(mmap.MADV_DONTNEED)
    elif pages is not None:
        pages.give_back()


class MappedRows(Source):
    """Rows of a memory map. What is read is copied, and its pages are released from time to time.

    Otherwise a pass over a file would hold all of it, as far as memory allows. Other processes
    could still get this memory, but every tool counts it as ours.

    Parameters
    ----------
    array : (n, d), over a memory map
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape, self.dtype = (array.shape[0], array.shape[1]), array.dtype
        self._array, self._held = array, 0

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Read rows: a slice, or positions (m,)."""
        if isinstance(rows, slice):
            found = np.array(self._array[rows])
            self.count(max(_AROUND, found.nbytes))
            return found
        parts = []
        step = max(_MOST_HELD // _AROUND, 1)
        for start in range(0, max(len(rows), 1), step):
            part = self._array[rows[start : start + step]]
            parts.append(part)
            self.count(len(part) * max(_AROUND, self.dtype.itemsize * self.shape[1]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def count(self, n_bytes: int) -> None:
        """Count what was read or written, and release pages if it is much."""
        # Several threads may count slightly wrong; only memory depends on it.
        self._held += n_bytes
        if self._held >= _MOST_HELD:
            self._held = 0
            give_back(self._array)


def _pages_of(array: Any) -> Pages | None:
    """The map of an array if its file has all of its content, so that nothing can be lost."""
    in_file = False
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            in_file = array.mode in ("r", "r+", "w+")  # "c" has changes that are not in it
        array = array.base
    if sys.platform != "win32":  # Windows has no call to release pages
        if isinstance(array, Map) or (in_file and isinstance(array, mmap.mmap)):
            return array
    return None
