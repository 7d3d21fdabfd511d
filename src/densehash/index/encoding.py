"""From vectors to rows of an index that has learnt: the group of each, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.columns import is_tensor
from densehash.errors import InputError
from densehash.index.gathering import Gathered
from densehash.index.lengths import UnitRows, rows_of_length, unit
from densehash.index.payload import PayloadRows
from densehash.index.scaling import scaled as in_whole_numbers
from densehash.index.segment import Rowset
from densehash.index.sketches import Bits, Products
from densehash.index.sketches.bits import Unpacked
from densehash.index.state import State
from densehash.mapped import unmapped
from densehash.rows import Floats, Rows, rows_of
from densehash.rows.devices import StreamedRows, current_device
from densehash.rows.numerics import to_host
from densehash.source import Source

__all__ = ["as_hashed", "as_kept", "for_hasher", "rowset_of"]

_READ_ROWS = 8192  # at a time


def as_hashed(X: NDArray[Any] | Source, metric: str) -> NDArray[Any] | Source:
    """Rows as they are hashed and grouped: scaled to length one if the metric is "cosine".

    A tensor stays a tensor, on its device.

    Examples
    --------
    >>> as_hashed(np.array([[0.0, 5.0]]), "cosine")[0:1]
    array([[0., 1.]])
    """
    if metric != "cosine":
        return X
    return unit(X) if is_tensor(X) else UnitRows(X)


def for_hasher(X: NDArray[Any] | Source, state: State) -> NDArray[Any] | Source:
    """Rows as the hasher of an index takes them: with codes, its metric may scale them.

    Examples
    --------
    >>> from densehash.index.building import learnt
    >>> told = {"hasher": "lsh", "n_bits": 8, "id_type": "int64", "vector_type": None}
    >>> for_hasher(np.eye(2), learnt(3 * np.eye(2), np.dtype(float), metric="ip", **told))[0:1]
    array([[3., 0.]])
    """
    if isinstance(state.sketch, Products):
        found: Source = rows_of_length(X, state.sketch.length)
        return found
    return as_hashed(X, state.metric)


def rowset_of(
    X: NDArray[Any] | Source,
    ids: NDArray[Any],
    state: State,
    *,
    first: int = 0,
    payload: PayloadRows | None = None,
    advance: Callable[[int], None] = lambda _: None,
    hashed: Any = None,
) -> Rowset:
    """Some rows of X with their groups and what is kept of them; each row is read once.

    Parameters
    ----------
    X : many rows
    ids : ids of some of them, (n,)
    state : the index to which they are added
    first : the number of the first of these rows in X
    payload : payload of these rows
    advance : called with the number of rows that were hashed
    hashed : all rows of X as they are hashed and grouped, if they are a tensor on a device
    """
    sketch, kind = state.sketch, state.kind
    if isinstance(sketch, Bits):  # they are codes already
        codes = np.array(X[first : first + len(ids)])
        labels_of_codes = None
        if kind.has_groups:
            unpacked = Rows(Unpacked(codes, sketch.n_bits))
            found = unpacked.map(lambda block, _: kind.labels(block))
            labels_of_codes = np.concatenate([some for some in found if some is not None])
        advance(len(ids))
        return Rowset(ids, {"codes": codes}, None, labels_of_codes)
    part = _Part(X, first, len(ids), state.vector_type, with_scales=sketch.scaled)

    def kept(
        block: Floats, _: int
    ) -> tuple[int, dict[str, NDArray[Any]], NDArray[np.integer] | None]:
        groups = kind.labels(block)
        return len(block), sketch.encode(block, groups), groups

    columns = {one.name: np.empty((len(ids), *one.shape), one.dtype) for one in sketch.columns}
    labels: list[NDArray[np.integer]] = []
    start, width = 0, sketch.n_bits
    device = current_device()
    if hashed is not None:
        rows = rows_of(hashed[first : first + len(ids)])
        part.read()
    elif device is not None:
        rows = StreamedRows(as_hashed(part, state.metric), device, first=first)
    else:
        rows = Rows(as_hashed(part, state.metric), first=first)
    with closing(rows.map(kept, width=width)) as blocks:
        for n_rows, of_block, groups in blocks:
            stop = start + n_rows
            for name, some in of_block.items():
                columns[name][start:stop] = to_host(some)
            if groups is not None:
                labels.append(groups)
            advance(stop - start)
            start = stop
    if part.scales is not None:
        columns["scales"] = part.scales
    return Rowset(ids, columns, part.kept(), np.concatenate(labels) if labels else None, payload)


class _Part(Source):
    """Some of many rows; when they are read, they are also copied in the type that is kept."""

    def __init__(
        self,
        X: NDArray[Any] | Source,
        first: int,
        n_rows: int,
        vector_type: str | None,
        *,
        with_scales: bool,
    ) -> None:
        self.shape, self.dtype = (n_rows, X.shape[1]), X.dtype
        self._rows, self._first, self._type = unmapped(X), first, vector_type
        self._is_there = isinstance(self._rows, np.ndarray) and X.dtype.name == vector_type
        self._is_there &= not with_scales
        self.scales = np.ones((n_rows, 1), np.float32) if with_scales else None
        self._aside: NDArray[Any] | None = None
        self._trouble: InputError | None = None
        if vector_type is not None and not self._is_there:
            self._aside = np.empty(self.shape, vector_type)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        if not isinstance(rows, slice):
            return self._rows[rows + self._first]
        start, stop, _ = rows.indices(len(self))
        first = self._first + start
        read = self._rows[first : self._first + stop]
        if self._aside is not None and self.scales is not None:
            self._aside[start:stop], self.scales[start:stop] = in_whole_numbers(read)
        elif self._aside is not None and self._type is not None and self._trouble is None:
            try:
                self._aside[start:stop] = as_kept(read, self._type, first=first)
            except InputError as error:  # raised later: hashing may find another mistake first
                self._trouble = error
        return read

    def read(self) -> None:
        """Copy the rows in the type that is kept, if nothing else reads them."""
        if self._aside is not None:
            for start in range(0, len(self), _READ_ROWS):
                self[start : start + _READ_ROWS]

    def kept(self) -> NDArray[Any] | Source | None:
        """The vectors in the type that is kept, after all rows were read."""
        if self._trouble is not None:
            raise self._trouble
        if self._is_there:
            return Gathered([self._rows[self._first : self._first + len(self)]])
        return self._aside


def as_kept(X: NDArray[Any], vector_type: str, *, first: int = 0) -> NDArray[Any]:
    """Vectors in the type in which they are kept; an error if this type cannot hold them.

    Parameters
    ----------
    X : real array (n, d)
    vector_type : one of VECTOR_TYPES
    first : the number of the first row among all rows, for errors

    Examples
    --------
    >>> as_kept(np.array([[1.0, 2.0]]), "uint8")
    array([[1, 2]], dtype=uint8)
    """
    dtype = np.dtype(vector_type)
    if X.dtype == dtype:
        return X
    with np.errstate(over="ignore", invalid="ignore"):
        kept = X.astype(dtype)
    good = np.isfinite(kept) if dtype.kind == "f" else kept == X
    if not bool(good.all()):
        row, column = np.argwhere(~good)[0]
        raise InputError(
            f"X has {X[row, column]} in row {first + row}, column {column}, which {vector_type} "
            "does not hold: build the index with keep_vectors='float32'"
        )
    return kept
