"""Where new segments go: to memory, or, piece by piece, to files that are published later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.source import Source
from densehash.store import Change

__all__ = ["MEMORY", "PIECE_BYTES", "Place", "in_memory", "on_disk", "piece_rows"]

PIECE_BYTES = 1 << 28
"""Bytes of vectors, codes and ids that are written at a time."""

_BLOCK_ROWS = 8192  # pieces consist of whole blocks, so that the result does not depend on pieces

Put = Callable[[NDArray[Any] | Source, str], NDArray[Any]]
"""Takes an array and its name, and returns the array that a segment holds."""


class Place(NamedTuple):
    """Where new segments go.

    Attributes
    ----------
    put : called with an array, or a Source, and its name in the segment; returns the array to hold
    check_room : called with a number of bytes; raises an error if there is no room for them
    piece_bytes : bytes of the rows that become one segment; None: all rows become one segment
    """

    put: Put
    check_room: Callable[[int], None]
    piece_bytes: int | None

    def pieces(self, n_rows: int, bytes_a_row: int) -> Iterator[tuple[int, int]]:
        """Start and stop of pieces of nearly equal size.

        Examples
        --------
        >>> list(MEMORY.pieces(1000, 8))
        [(0, 1000)]
        >>> list(MEMORY._replace(piece_bytes=3200).pieces(1000, 8))
        [(0, 334), (334, 668), (668, 1000)]
        """
        step = n_rows
        if self.piece_bytes is not None:
            most = piece_rows(bytes_a_row, self.piece_bytes)
            whole = _BLOCK_ROWS if most >= _BLOCK_ROWS else 1
            n_pieces = max(-(-n_rows // most), 1)
            step = -(-n_rows // (n_pieces * whole)) * whole
        for start in range(0, n_rows, max(step, 1)):
            yield start, min(start + step, n_rows)


def piece_rows(bytes_a_row: int, piece_bytes: int) -> int:
    """Rows of the largest piece; of several pieces, all but the last have at least half of them.

    Examples
    --------
    >>> piece_rows(520, PIECE_BYTES), piece_rows(8, 3200)
    (516096, 400)
    """
    most = max(piece_bytes // bytes_a_row, 1)
    return most // _BLOCK_ROWS * _BLOCK_ROWS if most >= _BLOCK_ROWS else most


def in_memory(array: NDArray[Any] | Source, name: str) -> NDArray[Any]:  # noqa: ARG001
    """An array in memory.

    Examples
    --------
    >>> import numpy as np
    >>> in_memory(np.arange(3), "ids")
    array([0, 1, 2])
    """
    return array[:] if isinstance(array, Source) else array


MEMORY = Place(in_memory, lambda _: None, None)
"""Memory: all rows at once."""


def on_disk(change: Change) -> Place:
    """The folder that is changed: arrays are staged there until the change is published."""

    def put(array: NDArray[Any] | Source, name: str) -> NDArray[Any]:
        return change.stage(array, f"segments.{name}")

    return Place(put, change.check_room, PIECE_BYTES)
