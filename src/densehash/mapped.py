"""Memory maps, read as files are: what was read does not stay in the memory of the process."""

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
"""Of a file of a user, or of a store."""

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
    if isinstance(array, Source) or _pages_of(array) is None:
        return array
    return MappedRows(array)


def give_back(array: NDArray[Any] | Source) -> None:
    """Drop what was read of a mapped array from the memory of this process.

    The system may keep it; it is read again when it is needed. All else stays as it is.

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
    """Rows of a memory map. What is read is copied, and its pages are given back from time to time.

    Without that, a pass over a file would hold all of it, as far as the memory reaches: others can
    have it, but every tool counts it as ours.

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
        """Count what was read or written, and give pages back where it is much."""
        # Several threads may count a little wrong: nothing depends on it but memory.
        self._held += n_bytes
        if self._held >= _MOST_HELD:
            self._held = 0
            give_back(self._array)


def _pages_of(array: Any) -> Pages | None:
    """The map under an array, if all that is in it is in its file: then nothing gets lost."""
    in_file = False
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            in_file = array.mode in ("r", "r+", "w+")  # "c" has changes that no file holds
        array = array.base
    if sys.platform != "win32":  # which has nothing to give pages back by
        if isinstance(array, Map) or (in_file and isinstance(array, mmap.mmap)):
            return array
    return None
