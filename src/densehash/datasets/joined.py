"""Rows of several files, one below the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Vectors, in_words
from densehash.errors import FileError, InputError
from densehash.mapped import unmapped
from densehash.source import LockedRows

__all__ = ["JoinedRows"]


class JoinedRows(LockedRows):
    """Rows of several files, in the order of the files; only one file is open at a time.

    Parameters
    ----------
    paths : paths of the files, at least one
    open_file : returns the vectors of a file; all files must agree in width and type

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : type of all files, in the byte order of this machine

    Examples
    --------
    >>> arrays = {Path("a.npy"): np.array([[1], [2]]), Path("b.npy"): np.array([[3]])}
    >>> rows = JoinedRows(list(arrays), arrays.__getitem__)
    >>> rows.shape, rows[1:3].ravel().tolist()
    ((3, 1), [2, 3])
    """

    def __init__(self, paths: Sequence[Path], open_file: Callable[[Path], Vectors]) -> None:
        super().__init__()
        self._paths, self._open_file = tuple(paths), open_file
        self._open: tuple[int, Vectors] | None = None
        self._shapes: list[tuple[int, int]] = []
        for number, path in enumerate(self._paths):
            found = open_file(path)
            if number == 0:
                self.dtype = found.dtype.newbyteorder("=")
            self._check_agrees(path, found)
            self._shapes.append((found.shape[0], found.shape[1]))
        self._limits = np.cumsum([0, *(n for n, _ in self._shapes)], dtype=np.int64)
        self.shape = int(self._limits[-1]), self._shapes[0][1]

    def __repr__(self) -> str:
        first, last = str(self._paths[0]), str(self._paths[-1])
        text = in_words(self.dtype, self.shape)
        return f"<JoinedRows of {len(self._paths)} files, {first!r} to {last!r}: {text}>"

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        part, at = int(np.searchsorted(self._limits, start, side="right")) - 1, start
        while at < stop:
            first, end = int(self._limits[part]), min(int(self._limits[part + 1]), stop)
            found[at - start : end - start] = self._part(part)[at - first : end - first]
            at, part = end, part + 1
        return found

    def _pick(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        found = np.empty((len(positions), self.shape[1]), self.dtype)
        cuts = np.searchsorted(positions, self._limits)
        for part in np.flatnonzero(np.diff(cuts)).tolist():
            some = slice(cuts[part], cuts[part + 1])
            found[some] = self._part(part)[positions[some] - self._limits[part]]
        return found

    def _part(self, part: int) -> Vectors:
        """The vectors of a file; it is opened again unless it was the last one read.

        A file that is closed frees its pages, what it unpacked, and one of the open files that a
        process may have.
        """
        if self._open is None or self._open[0] != part:
            self._open = None
            opened = self._open_file(self._paths[part])
            before = in_words(self.dtype, self._shapes[part])
            now = in_words(opened.dtype.newbyteorder("="), opened.shape)
            if now != before:
                raise FileError(
                    f"{self._paths[part]} was changed while in use: it had {before}, now {now}"
                )
            self._open = part, unmapped(opened)
        return self._open[1]

    def _check_agrees(self, path: Path, found: Vectors) -> None:
        first = self._paths[0]
        if self._shapes and found.shape[1] != self._shapes[0][1]:
            raise InputError(
                "files that are read as one must have rows of one width: "
                f"{first} has {self._shapes[0][1]} features, {path} has {found.shape[1]}"
            )
        if found.dtype.newbyteorder("=") != self.dtype:
            raise InputError(
                "files that are read as one must have numbers of one type: "
                f"{first} has {self.dtype.name}, {path} has {found.dtype.name}"
            )
