"""Rows in parts."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from densehash.source import Source


class InChunks(Source):
    """An array in parts."""

    def __init__(self, array: NDArray[Any], chunks: tuple[int, ...]) -> None:
        self.shape, self.dtype = (array.shape[0], array.shape[1]), array.dtype
        self.chunks, self._rows = chunks, array

    def __getitem__(self, at: Any) -> NDArray[Any]:
        found: NDArray[Any] = self._rows[at]
        return found
