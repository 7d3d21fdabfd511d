"""Rows in chunks, each of which becomes a shard, with their ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.checks import check_vectors
from densehash.errors import InputError
from densehash.index.columns import NUMBERS, Columns
from densehash.index.encoding import as_hashed
from densehash.index.given import kinds_of, nulls_only, payload_rows
from densehash.index.ids import IdType, check_ids, type_of
from densehash.index.lengths import unit
from densehash.index.payload import PayloadRows
from densehash.mapped import unmapped
from densehash.rows import is_dask
from densehash.rows.dask import DaskRows, Part, compute
from densehash.source import Source

__all__ = ["Chunks", "IdChunks", "PayloadChunks", "as_ids", "as_payload"]


class Chunks:
    """Rows in the chunks of a Dask collection; or of an array or a Source, which may have chunks.

    Parameters
    ----------
    X : what :class:`densehash.rows.dask.DaskRows` takes, an array (n, d), or a Source

    Attributes
    ----------
    lengths : lengths of all chunks
    filled : the chunks that have rows, as delayed values, and what they must be
    is_dask : whether workers read the rows; if not, this process does

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
        """How many rows all chunks have."""
        return sum(self.lengths)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
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
        """Makes tasks that read chunks run where the rows are: on the workers, or here."""
        return nullcontext() if self.is_dask else dask.config.set(scheduler="threads")


class IdChunks:
    """Ids of rows, chunk by chunk.

    Parameters
    ----------
    ids : a dask array, or column, with the chunks of the rows; an array (n,); or None: rows are
        numbered
    chunks : chunks of the rows
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
                raise InputError("there is no number left for a new id: give ids")
            self.id_type = "int64"
            limits = itertools.pairwise(first + start for start in starts)
            self._parts = [range(*pair) for pair in limits]  # workers turn them into arrays
        elif is_dask(ids):
            if ids.ndim != 1:
                raise InputError(f"ids must have one dimension, got shape {ids.shape}")
            self._parts = _dask_parts(ids, chunks, "ids")
            self.id_type = compute(delayed(_type_of, pure=False)(self._parts[_first(chunks)]))
        else:
            names = check_ids(ids)
            if len(names) != chunks.n_rows:
                raise InputError(f"X has {chunks.n_rows} rows but there are {len(names)} ids")
            self.id_type = type_of(names)
            self._parts = [names[start:stop] for start, stop in itertools.pairwise(starts)]

    def of(self, number: int) -> Any:
        """The ids of a chunk, by its number: what :func:`as_ids` takes, or a delayed chunk."""
        return self._parts[number]


def as_ids(values: Any) -> NDArray[Any]:
    """A chunk of ids as they are kept.

    Parameters
    ----------
    values : a range, an array, a column, or ids as they are kept

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


class PayloadChunks:
    """The payload of rows, chunk by chunk.

    Parameters
    ----------
    payload : a data frame of Dask with the chunks of the rows; or the payload of all rows, as
        :func:`densehash.index.given.payload_rows` takes it; or None
    chunks : chunks of the rows
    columns : the columns of the index to which the rows belong; None: those of the payload

    Attributes
    ----------
    columns : names and types; None if there is no payload

    Examples
    --------
    >>> chunks = Chunks(da.ones((5, 2), chunks=((3, 2), 2)))
    >>> rows = PayloadChunks([{"year": 2000 + i} for i in range(5)], chunks)
    >>> rows.columns, as_payload(rows.of(1), 2, rows.columns).table().to_pydict()
    ((('year', 'int64'),), {'year': [2003, 2004]})
    """

    def __init__(self, payload: Any, chunks: Chunks, columns: Columns | None = None) -> None:
        self.columns = columns
        self._parts: list[Any] = [None] * len(chunks.lengths)
        if payload is None:
            return
        if not is_dask(payload):
            rows = payload_rows(payload, chunks.n_rows, columns)
            self.columns = rows.columns
            starts = [0, *itertools.accumulate(chunks.lengths)]
            self._parts = [rows.part(*pair) for pair in itertools.pairwise(starts)]
            return
        if payload.ndim != 2 or isinstance(payload, da.Array):
            raise InputError(
                f"payload must be a data frame of Dask, got a {type(payload).__name__}"
            )
        self._parts = _dask_parts(payload, chunks, "payload")
        if columns is None:
            kinds = delayed(kinds_of, pure=False)
            self.columns = _common(compute([kinds(part) for part in self._parts]))

    def of(self, number: int) -> Any:
        """The payload of a chunk, by its number: what :func:`as_payload` takes, or delayed."""
        return self._parts[number]


def as_payload(values: Any, n_rows: int, columns: Columns | None) -> PayloadRows | None:
    """A chunk of a payload as it is kept.

    Parameters
    ----------
    values : a data frame, rows as they are kept, or None
    n_rows : how many rows it must have
    columns : names and types that it must have

    Examples
    --------
    >>> as_payload(None, 2, None) is None
    True
    """
    if values is None or isinstance(values, PayloadRows):
        return values
    return payload_rows(values, n_rows, columns)


def _common(found: Sequence[Sequence[tuple[str, str | None]]]) -> Columns:
    """Columns that can hold the values of all chunks; in some chunks there may be only nulls."""
    names = [name for name, _ in found[0]]
    kinds: dict[str, str | None] = dict.fromkeys(names)
    for number, chunk in enumerate(found):
        if [name for name, _ in chunk] != names:
            raise InputError(
                f"chunks of the payload must have the same columns: chunk 0 has "
                f"{', '.join(names)}, chunk {number} has {', '.join(name for name, _ in chunk)}"
            )
        for name, kind in chunk:
            known = kinds[name]
            if known is None or kind is None:
                kinds[name] = known or kind
            elif known in NUMBERS and kind in NUMBERS:  # pandas makes floats if there are nulls
                kinds[name] = str(np.result_type(known, kind))
            elif known != kind:
                raise InputError(
                    f"column {name!r} of the payload must be of one type: it is {known} in chunks "
                    f"before number {number}, which has {kind}"
                )
    columns = []
    for name, kind in kinds.items():
        if kind is None:
            raise nulls_only(name)
        columns.append((name, kind))
    return tuple(columns)


class _Reader:
    """Reads rows of this process; Dask calls it."""

    def __init__(self, vectors: NDArray[Any] | Source) -> None:
        self._rows = unmapped(vectors)

    def __call__(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self._rows[start:stop])


def _dask_parts(values: Any, chunks: Chunks, name: str) -> list[Any]:
    """Chunks of ids, or of a payload, which must be as long as those of the rows."""
    parts = list(np.ravel(values.to_delayed()))
    lengths = values.chunks[0] if isinstance(values, da.Array) else [np.nan] * len(parts)
    if len(parts) != len(chunks.lengths):
        raise InputError(
            f"{name} must have the chunks of X, got {len(parts)} chunks, X has "
            f"{len(chunks.lengths)}"
        )
    count = delayed(len, pure=False)
    unknown = [at for at, length in enumerate(lengths) if np.isnan(length)]
    counted = dict(zip(unknown, compute([count(parts[at]) for at in unknown]), strict=True))
    for at, wanted in enumerate(chunks.lengths):
        found = counted.get(at, lengths[at])
        if found != wanted:
            raise InputError(
                f"{name} must have the chunks of X, got {found} "
                f"{'ids' if name == 'ids' else 'rows'} in chunk {at}, X has {wanted} rows"
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
