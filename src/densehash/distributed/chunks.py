"""Rows in chunks, each of which becomes a shard, with their ids."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.checks import check_vectors
from densehash.errors import InputError
from densehash.index.building import as_hashed
from densehash.index.ids import IdType, check_ids, type_of
from densehash.index.lengths import unit
from densehash.rows import is_dask
from densehash.rows.dask import DaskRows, Part, compute
from densehash.rows.mapped import unmapped
from densehash.source import Source

__all__ = ["Chunks", "IdChunks", "as_ids"]


class Chunks:
    """Rows of a Dask collection by its chunks; of an array, or a Source, by its own.

    Parameters
    ----------
    X : what :class:`densehash.rows.dask.DaskRows` takes, an array (n, d), or a Source

    Attributes
    ----------
    lengths : of all chunks
    filled : the chunks that have rows, as delayed values, and what they should be
    is_dask : whether workers read them; others are read here

    Examples
    --------
    >>> chunks = Chunks(da.ones((5, 2), chunks=((3, 0, 2), 2)))
    >>> chunks.lengths, [part.start for _, part in chunks.filled]
    ([3, 0, 2], [0, 3])
    """

    lengths: list[int]
    filled: list[tuple[Any, Part]]

    def __init__(self, X: Any) -> None:
        self.is_dask = is_dask(X)
        if self.is_dask:
            rows = DaskRows(X)
            self.lengths, self.filled = rows.lengths, rows.filled
            if not self.filled:
                rows.check_not_empty()
            checked = delayed(Part.check, pure=False)
            self._whole = _stacked([(checked(part, values), part) for values, part in self.filled])
            return
        self._whole = vectors = check_vectors(X, "X")
        self.lengths = list(getattr(vectors, "chunks", None) or (len(vectors),))
        starts = itertools.accumulate(self.lengths, initial=0)
        read = delayed(_Reader(vectors), pure=False, traverse=False)
        self.filled = [
            (
                read(start, start + length),
                Part(number, start, length, vectors.shape[1], vectors.dtype, "X"),
            )
            for number, (start, length) in enumerate(zip(starts, self.lengths, strict=False))
            if length
        ]

    @property
    def n_rows(self) -> int:
        """Rows of all chunks."""
        return sum(self.lengths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        found: np.dtype[Any] = self._whole.dtype
        return found

    def hashed(self, metric: str) -> Any:
        """All rows as they are hashed and grouped: a dask array, an array, or a Source."""
        if not self.is_dask:
            return as_hashed(self._whole, metric)
        if metric != "cosine":
            return self._whole
        scaled = delayed(_unit, pure=False)
        return _stacked(
            [
                (scaled(part, values), part._replace(dtype=_unit_type(part)))
                for values, part in self.filled
            ]
        )

    def at_home(self) -> AbstractContextManager[Any]:
        """Where tasks run that read chunks: on the workers, or here, where the rows are."""
        return nullcontext() if self.is_dask else dask.config.set(scheduler="threads")


class IdChunks:
    """Ids of rows, chunk by chunk.

    Parameters
    ----------
    ids : a dask array, or column, with the chunks of the rows; an array (n,); or None, which
        numbers the rows
    chunks : of the rows
    first : the first number

    Attributes
    ----------
    id_type : "int64" or "string"

    Examples
    --------
    >>> chunks = Chunks(da.ones((5, 2), chunks=((3, 2), 2)))
    >>> IdChunks(None, chunks, first=7).of(1)
    range(10, 12)
    """

    def __init__(self, ids: Any, chunks: Chunks, *, first: int = 0) -> None:
        starts = [0, *itertools.accumulate(chunks.lengths)]
        self._parts: list[Any]
        self.id_type: IdType
        if ids is None:
            if first > np.iinfo(np.int64).max - chunks.n_rows:
                raise InputError("there is no number left for a new id: bring ids")
            self.id_type = "int64"
            limits = itertools.pairwise(first + start for start in starts)
            self._parts = [range(*pair) for pair in limits]  # made into arrays by the workers
        elif is_dask(ids):
            self._parts = _dask_ids(ids, chunks)
            self.id_type = compute(delayed(_type_of, pure=False)(self._parts[_first(chunks)]))
        else:
            names = check_ids(ids)
            if len(names) != chunks.n_rows:
                raise InputError(f"X has {chunks.n_rows} rows but there are {len(names)} ids")
            self.id_type = type_of(names)
            self._parts = [names[start:stop] for start, stop in itertools.pairwise(starts)]

    def of(self, number: int) -> Any:
        """The ids of the chunk of a number: what :func:`as_ids` takes, or a delayed chunk."""
        return self._parts[number]


def as_ids(values: Any) -> NDArray[Any]:
    """A chunk of ids as they are kept.

    Parameters
    ----------
    values : a range, an array, a column, or ids that are kept so already

    Examples
    --------
    >>> as_ids(np.array(["b", "a"]))
    array([b'b', b'a'], dtype='|S1')
    """
    if isinstance(values, range):
        return np.arange(values.start, values.stop)
    if isinstance(values, np.ndarray) and values.dtype.kind == "S":
        return values
    return check_ids(values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values))


class _Reader:
    """Reads rows that are here; what Dask calls."""

    def __init__(self, vectors: NDArray[Any] | Source) -> None:
        self._rows = unmapped(vectors)

    def __call__(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self._rows[start:stop])


def _dask_ids(ids: Any, chunks: Chunks) -> list[Any]:
    if ids.ndim != 1:
        raise InputError(f"ids must have one dimension, got shape {ids.shape}")
    parts = list(np.ravel(ids.to_delayed()))
    lengths = ids.chunks[0] if isinstance(ids, da.Array) else [np.nan] * len(parts)
    if len(parts) != len(chunks.lengths):
        raise InputError(
            f"ids must have the chunks of X, got {len(parts)} chunks, X has {len(chunks.lengths)}"
        )
    count = delayed(len, pure=False)
    unknown = [at for at, length in enumerate(lengths) if np.isnan(length)]
    counted = dict(zip(unknown, compute([count(parts[at]) for at in unknown]), strict=True))
    for at, wanted in enumerate(chunks.lengths):
        found = counted.get(at, lengths[at])
        if found != wanted:
            raise InputError(
                f"ids must have the chunks of X, got {found} ids in chunk {at}, X has {wanted} rows"
            )
    return parts


def _first(chunks: Chunks) -> int:
    return chunks.filled[0][1].number


def _type_of(values: Any) -> IdType:
    return type_of(as_ids(values))


def _stacked(parts: list[tuple[Any, Part]]) -> da.Array:
    return da.concatenate(
        [
            da.from_delayed(values, (part.n_rows, part.n_features), part.dtype)
            for values, part in parts
        ]
    )


def _unit(part: Part, values: Any) -> NDArray[np.floating]:
    return unit(part.check(values))


def _unit_type(part: Part) -> np.dtype[Any]:
    return unit(np.zeros((1, part.n_features), part.dtype)).dtype
