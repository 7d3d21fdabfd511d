"""Rows that are neither an array nor a file: blocks that a callable yields, datasets of h5py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.errors import FileError, InputError
from densehash.source import LockedRows

__all__ = ["Blocks", "DatasetRows", "is_dataset", "is_stream"]


class Blocks(LockedRows):
    """Rows that a callable yields in blocks, for instance a generator function.

    Each pass over the rows calls it again, and it must yield the same rows each time. One block
    is held at a time. Reading goes forward; reading an earlier row begins a new pass.

    Parameters
    ----------
    make : callable without arguments that returns a fresh iterator of real arrays (b, d), all of
        one width and type; empty blocks are skipped
    n_rows : how many rows there are in all, if you know it. By default, a pass is made at once to
        count the rows and to check all blocks.

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : the type of the blocks
    chunks : lengths of the blocks, which a fit then processes as separate parts; None if ``n_rows``
        was given: then the blocks are read as one long array, and a fit gives the same bytes as
        with the array in memory

    Raises
    ------
    InputError : a block has another width or type than the first; ``make`` is an iterator, which
        can be read only once; or a later pass has more or fewer rows than before

    Examples
    --------
    >>> def make():
    ...     for start in range(0, 9, 3):
    ...         yield np.arange(start, start + 3).reshape(3, 1)
    >>> rows = Blocks(make)
    >>> rows.shape, rows.chunks, rows[2:5].ravel().tolist()
    ((9, 1), (3, 3, 3), [2, 3, 4])
    """

    def __init__(
        self, make: Callable[[], Iterable[ArrayLike]], *, n_rows: int | None = None
    ) -> None:
        super().__init__()
        if isinstance(make, Iterator):
            raise InputError(
                f"a {type(make).__name__} can be read only once: pass the function that makes it, "
                "not yet called, as in Blocks(make_blocks), not Blocks(make_blocks())"
            )
        if not callable(make):
            raise InputError(
                "make must be a callable that returns an iterator of arrays (b, d), "
                f"got a {type(make).__name__}"
            )
        whole = isinstance(n_rows, (int, np.integer)) and not isinstance(n_rows, bool)
        if n_rows is not None and not (whole and n_rows > 0):
            raise InputError(f"n_rows must be an integer of at least 1, got {n_rows!r}")
        self._make, self._was_counted = make, n_rows is None
        self._blocks: Iterator[ArrayLike] | None = None
        self._width = 0  # set by the first block
        self._rewind()
        if n_rows is None:
            self.chunks = self._count()
            self._n_rows = sum(self.chunks)
        else:
            self._n_rows = int(n_rows)
            self._advance(0)
        if self._width == 0:
            raise InputError("the blocks have no rows, at least 1 is needed")
        self.shape = self._n_rows, self._width

    def __repr__(self) -> str:
        return f"<Blocks: {self.dtype.name} {self.shape}>"

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        parts = []
        try:
            if start < self._first:
                self._rewind()
            while start < stop:
                self._advance(start)
                end = min(stop, self._end)
                # A copy: the callable may use the same array for its next block.
                parts.append(self._block[start - self._first : end - self._first].copy())
                start = end
            if parts and stop == self._n_rows and self._next() is not None:
                self._refuse_count(f"more than {stop}")
        except BaseException:
            self._rewind()  # a pass that failed in the middle cannot continue
            raise
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def _count(self) -> tuple[int, ...]:
        """The lengths of all blocks, from one pass."""
        lengths = []
        while (block := self._next()) is not None:
            lengths.append(len(block))
            self._end += len(block)
            del block  # before the next one is made
        self._rewind()
        return tuple(lengths)

    def _rewind(self) -> None:
        self._blocks = None
        self._number = -1  # number of the last block
        self._first = self._end = 0  # its first row, and the one after its last
        self._block: NDArray[Any] = np.empty((0, 0))

    def _advance(self, row: int) -> None:
        """Advance to the block that holds a row."""
        while row >= self._end:
            self._first = self._end
            self._block = np.empty((0, 0))  # freed before the next block is made
            block = self._next()
            if block is None:
                self._refuse_count(str(self._end))
            self._block = block
            self._end += len(block)
            del block
            if self._end > self._n_rows:
                self._refuse_count(f"more than {self._n_rows}")

    def _next(self) -> NDArray[Any] | None:
        """The next block that has rows; None after the last."""
        if self._blocks is None:
            made = self._make()
            if not isinstance(made, Iterable):
                raise InputError(
                    "make must return an iterator of arrays (b, d), "
                    f"it returned a {type(made).__name__}"
                )
            self._blocks = iter(made)
        for block in self._blocks:
            self._number += 1
            array = self._checked(block)
            if len(array) > 0:
                return array
        return None

    def _checked(self, block: ArrayLike) -> NDArray[Any]:
        where = f"block {self._number}, which begins at row {self._end},"
        try:
            array = np.asarray(block)
        except (TypeError, ValueError) as error:  # ragged lists, for instance
            raise InputError(f"{where} cannot be read as an array: {error}") from None
        if array.ndim > 0 and len(array) == 0:
            return array
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InputError(
                f"{where} must hold real numbers (b, d), got {array.dtype} of shape {array.shape}"
            )
        if self._width == 0:
            if array.shape[1] == 0:
                raise InputError(f"{where} must have at least 1 feature, got shape {array.shape}")
            self._width, self.dtype = array.shape[1], array.dtype
        if array.shape[1] != self._width:
            raise InputError(
                f"{where} must have {self._width} features, as those before have, "
                f"got {array.shape[1]}"
            )
        if array.dtype != self.dtype:
            raise InputError(
                f"{where} must be {self.dtype}, as those before are, got {array.dtype}"
            )
        return array

    def _refuse_count(self, came: str) -> NoReturn:
        """Refuse a pass that has more or fewer rows than it should."""
        if self._was_counted:
            raise InputError(
                f"the blocks had {self._n_rows} rows at first and have {came} now: each call of "
                "make must return a fresh iterator, over the same rows"
            )
        raise InputError(f"n_rows is {self._n_rows}, but the blocks have {came} rows")


class DatasetRows(LockedRows):
    """Rows of a dataset in an open HDF5 file.

    Parameters
    ----------
    dataset : h5py.Dataset (n, d) of real numbers; its file must stay open

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : type of the dataset
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        n, d = dataset.shape
        self.shape, self.dtype = (int(n), int(d)), dataset.dtype
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"<DatasetRows of {self._dataset!r}>"

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        try:
            found: NDArray[Any] = self._dataset[start:stop]
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise FileError(
                f"rows {start} to {stop - 1} of an HDF5 dataset cannot be read: {error}"
            ) from None
        return found


def is_dataset(X: object) -> bool:
    """Whether this is a dataset of h5py.

    Examples
    --------
    >>> is_dataset([[1.0]])
    False
    """
    h5py = sys.modules.get("h5py")  # not imported here: whoever has a dataset has imported it
    return h5py is not None and isinstance(X, h5py.Dataset)


def is_stream(X: object) -> bool:
    """Whether this is a callable that may yield blocks, or an iterator from one.

    Examples
    --------
    >>> is_stream(lambda: iter([[[1.0]]])), is_stream(iter([])), is_stream([[1.0]])
    (True, True, False)
    """
    if isinstance(X, Iterator):
        return True
    return callable(X) and not hasattr(X, "__array__") and not hasattr(X, "__len__")
