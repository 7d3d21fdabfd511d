"""Rows that never change, and which of them were removed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError, InputError
from densehash.index.gathering import Gathered
from densehash.index.payload import Payload, PayloadRows
from densehash.locks import cached_property
from densehash.source import Source
from densehash.store.maps import check_unchanged

__all__ = ["MOST_ROWS", "VECTOR_TYPES", "Rowset", "Segment", "firsts_of", "joined"]

MOST_ROWS = 2**32 - 1
"""The most rows of a segment: ranks are kept in 32 bits."""

VECTOR_TYPES = ("float32", "float16", "uint8", "int8")
"""Types in which vectors are kept."""


def _none_removed() -> NDArray[np.uint32]:
    return np.empty(0, np.uint32)


class Rowset(NamedTuple):
    """Rows that will become a segment, in any order.

    Attributes
    ----------
    ids : int64 or bytes array (n,)
    columns : what a sketch keeps of rows, by name: arrays or Sources of n rows
    vectors : array (n, d), a Source, or None
    labels : integers (n,), the group of each row, or None if the kind has no groups
    payload : PayloadRows of n rows, or None if the index has no payload
    """

    ids: NDArray[Any]
    columns: Mapping[str, NDArray[Any] | Source]
    vectors: NDArray[Any] | Source | None
    labels: NDArray[np.integer] | None
    payload: PayloadRows | None = None

    def take(self, which: NDArray[np.bool_]) -> Rowset:
        """Some of the rows; columns and vectors are read later."""
        numbers = np.flatnonzero(which).astype(np.uint32)  # MOST_ROWS fit
        return Rowset(
            self.ids[which],
            {name: Gathered([column], numbers) for name, column in self.columns.items()},
            None if self.vectors is None else Gathered([self.vectors], numbers),
            None if self.labels is None else self.labels[which],
            None if self.payload is None else self.payload.take(numbers),
        )


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows in the order of a kind.

    The *rank* of a row is its place among the ids, which rise. Its *position* is its place in
    columns and vectors. They differ only if a kind puts rows in an order of its own.

    Attributes
    ----------
    ids : int64 or bytes array (n,), rising: by rank
    columns : what a sketch keeps of rows, by name: by position
    vectors : float32, float16, uint8 or int8 (n, d): by position; or None
    extra : arrays of the kind, by name; ``ranks``, uint32 (n,), the rank at each position, is one
    removed : uint32 (m,), rising: ranks of rows that were removed
    payload : by rank; None if the index has no payload
    """

    ids: NDArray[Any]
    columns: Mapping[str, NDArray[Any]]
    vectors: NDArray[Any] | None
    extra: Mapping[str, NDArray[Any]]
    removed: NDArray[np.uint32] = field(default_factory=_none_removed)
    payload: Payload | None = None

    @property
    def n_rows(self) -> int:
        """How many rows, with those that were removed."""
        return len(self.ids)

    @property
    def n_live(self) -> int:
        """How many rows that were not removed."""
        return len(self.ids) - len(self.removed)

    @property
    def ranks(self) -> NDArray[np.uint32] | None:
        """The rank at each position, or None if ranks equal positions."""
        return self.extra.get("ranks")

    @property
    def kept(self) -> NDArray[Any]:
        """The vectors; an error if they are not kept."""
        if self.vectors is None:
            raise TypeError("this segment keeps no vectors")
        return self.vectors

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays, without the vectors and the payload."""
        return (
            sum(array.nbytes for array in self.arrays)
            - self.payload_bytes
            - (0 if self.vectors is None else self.vectors.nbytes)
        )

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payload."""
        return 0 if self.payload is None else self.payload.array.nbytes

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays of the segment."""
        others = [] if self.vectors is None else [self.vectors]
        if self.payload is not None:
            others.append(self.payload.array)
        return [self.ids, *self.columns.values(), *others, self.removed, *self.extra.values()]

    @cached_property
    def live(self) -> NDArray[np.bool_] | None:
        """By rank, whether the row was not removed; None if none was."""
        if len(self.removed) == 0:
            return None
        live = np.ones(self.n_rows, np.bool_)
        live[self.removed] = False
        return live

    @property
    def live_ids(self) -> NDArray[Any]:
        """Ids of the rows that were not removed, in rising order."""
        return self.ids if self.live is None else self.ids[self.live]

    def rank_at(self, positions: NDArray[np.integer]) -> NDArray[Any]:
        """Ranks of positions, of any shape."""
        if self.ranks is None:
            return positions
        found: NDArray[np.uint32] = self.ranks[positions]
        if found.size and int(found.max()) >= self.n_rows:
            raise FileError("a rank lies beyond the rows of its segment: the index is damaged")
        return found

    def positions_of(self, ranks: NDArray[np.integer]) -> NDArray[np.integer]:
        """Positions of ranks; reads all ranks if they differ from positions."""
        if self.ranks is None:
            return ranks
        order = np.argsort(ranks)
        positions = np.flatnonzero(np.isin(self.ranks, ranks))
        positions = positions[np.argsort(self.ranks[positions])]
        there = self.ranks[positions]
        at = np.searchsorted(there, ranks[order])  # a rank may be there twice
        if len(ranks) and (at[-1] >= len(there) or bool((there[at] != ranks[order]).any())):
            raise FileError("a row of a segment has no position: the index is damaged")
        found = np.empty(len(ranks), np.int64)
        found[order] = positions[at]
        return found

    def without(self, ranks: NDArray[np.integer]) -> Segment:
        """The segment with more rows removed; ``ranks`` differ, and none was removed before."""
        removed = np.sort(np.concatenate([self.removed, ranks.astype(np.uint32)]))
        return replace(self, removed=removed)

    def rows(
        self,
        labels: NDArray[np.integer] | None,
        by_row: Callable[[Segment], Mapping[str, NDArray[Any]]],
    ) -> Rowset:
        """The rows that were not removed, to be copied.

        Maps of files are compared with their checksums first: a copy of damaged bytes would get a
        new checksum, and the damage would never be found.

        Parameters
        ----------
        labels : integers (n,), the group of the row at each position; None if there are no groups
        by_row : returns what a sketch keeps of each row, one row after the other

        Raises
        ------
        FileError : if a file is damaged
        """
        for array in self.arrays:
            check_unchanged(array)
        ranks = self.rank_at(np.arange(self.n_rows))
        ids = self.ids if self.ranks is None else self.ids[ranks]
        payload = None
        if self.payload is not None:
            payload = self.payload.rows(None if self.ranks is None else ranks)
        rows = Rowset(ids, by_row(self), self.vectors, labels, payload)
        return rows if self.live is None else rows.take(self.live[ranks])


def joined(parts: list[Rowset]) -> Rowset:
    """Rows of several sets, one after the other; columns and vectors are read later.

    Examples
    --------
    >>> part = Rowset(np.array([1]), {"codes": np.zeros((1, 2), np.uint8)}, None, None)
    >>> joined([part, part]).columns["codes"].shape
    (2, 2)
    """
    if len(parts) == 1:
        return parts[0]
    if sum(len(part.ids) for part in parts) > MOST_ROWS:
        raise InputError(f"a segment has at most {MOST_ROWS:,} rows")
    ids, columns, vectors, labels, payloads = zip(*parts, strict=True)
    return Rowset(
        np.concatenate(ids),
        {name: Gathered([part[name] for part in columns]) for name in columns[0]},
        None if parts[0].vectors is None else Gathered(vectors),
        None if parts[0].labels is None else np.concatenate(labels),
        None if parts[0].payload is None else PayloadRows.joined(payloads),
    )


def firsts_of(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """The number of the first row of each segment, if rows are counted over all segments.

    Examples
    --------
    >>> segment = Segment(np.arange(4), {}, None, {})
    >>> firsts_of([segment, segment])
    array([0, 4])
    """
    return np.cumsum([0, *(segment.n_rows for segment in segments[:-1])])
