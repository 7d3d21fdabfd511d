"""Where new segments go: into memory, or, piece by piece, to files that are published later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.source import Source
from densehash.store import Change

__all__ = ["MEMORY", "PIECE_BYTES", "Place", "in_memory", "on_disk", "piece_rows"]

PIECE_BYTES = 1 << 28
"""Of vectors, codes and ids that go to a file at a time."""

_BLOCK_ROWS = 8192  # pieces consist of whole blocks, as if all rows were one piece

Put = Callable[[NDArray[Any] | Source, str], NDArray[Any]]
"""Makes the array of a name what a segment holds."""


class Place(NamedTuple):
    """Where new segments go.

    Attributes
    ----------
    put : called with an array, or a Source, and its name in the segment; returns the array to hold
    check_room : called with a number of bytes; raises an error where there is no room for them
    piece_bytes : of rows that become a segment at a time; None makes one of all
    """

    put: Put
    check_room: Callable[[int], None]
    piece_bytes: int | None

    def pieces(self, n_rows: int, bytes_a_row: int) -> Iterator[tuple[int, int]]:
        """First and last row, plus one, of pieces, which are nearly of one size.

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
    """Rows of the largest piece; where rows come in several, all but the last have half of them.

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
"""All rows at once, in memory."""


def on_disk(change: Change) -> Place:
    """The folder that is changed: what is put there counts when it is published."""

    def put(array: NDArray[Any] | Source, name: str) -> NDArray[Any]:
        return change.stage(array, f"segments.{name}")

    return Place(put, change.check_room, PIECE_BYTES)
