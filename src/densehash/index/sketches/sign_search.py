"""How segments of signs are searched by native code: which rows may be found, and how far it looks.

A filter that leaves few rows is searched by comparing all of these; others are looked for in the
groups that have any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import _native
from densehash.index.native import damage
from densehash.index.ordering import Found, order_of, with_wider
from densehash.index.queries import EVERYTHING, Reach
from densehash.index.segment import Segment, firsts_of
from densehash.index.visits import Allowed, Matches
from densehash.mapped import give_back
from densehash.store.maps import origin_of

__all__ = ["Frugal", "Marks", "SignSearch", "few_of", "marks_of", "masks_of"]

_AT_A_TIME = 25  # queries, where what is read for them is mapped
_SMALL_MAPS = 1 << 30  # bytes of files that may all be in memory
_WIDER = 0.25  # the power of the share of rows that may be found by which searches stop later
# Queries with one filter after which more is made of it, which takes as long as so many gain.
_SOME, _MANY = 4, 50


class Frugal:
    """Searches for few queries at a time, and then lets go of what it read of large mapped files.

    To measure recall goes through most of an index, which may be larger than memory. It takes
    several times as long, so small indexes are searched as they are.

    Parameters
    ----------
    segments : at least one
    searcher : of them
    """

    def __init__(self, segments: Sequence[Segment], searcher: _native.Signs) -> None:
        self._searcher = searcher
        arrays = [array for segment in segments for array in segment.arrays]
        maps = [array for array in arrays if origin_of(array) is not None]
        self._maps = maps if sum(array.nbytes for array in maps) > _SMALL_MAPS else []

    def search(
        self, queries: NDArray[Any], *how: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]:
        """As the searcher does."""
        step = _AT_A_TIME if self._maps else max(len(queries), 1)
        parts = []
        for start in range(0, max(len(queries), 1), step):
            parts.append(self._searcher.search(queries[start : start + step], *how))
            for array in self._maps:
                give_back(array)
        distances, positions, efforts = (np.concatenate(one) for one in zip(*parts, strict=True))
        return distances, positions, efforts


class _Few(NamedTuple):
    """Vectors, scales where there are such, and ids of some rows, one below the other."""

    vectors: NDArray[Any]
    scales: NDArray[np.float32] | None
    ids: NDArray[np.int64]


class Marks:
    """Which rows may be found, as native code is told.

    Parameters
    ----------
    segments : at least one
    searcher : of them
    allowed : by segment, which rows may be found
    exact : whether vectors are compared

    Attributes
    ----------
    n_rows, n_allowed : all, and those that may be found
    masks : by segment, uint8 (n,); None where all may
    rows : by segment, numbers of those that may, where they are so few that all are compared
    groups : uint8 (g,), which groups have any, where they are looked for in groups
    n_queries : that asked for these rows plainly
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        searcher: _native.Signs,
        allowed: Sequence[Allowed],
        *,
        exact: bool,
    ) -> None:
        self.n_rows = self.n_allowed = sum(segment.n_rows for segment in segments)
        self.masks = masks_of(allowed, segments)
        self.rows: list[NDArray[np.uint32]] | None = None
        self.groups: NDArray[np.uint8] | None = None
        self.n_queries = 0
        self._entries: NDArray[np.uint32] | None = None
        self._few: _Few | None = None
        if self.masks is None:
            return
        self.n_allowed = sum(int(np.count_nonzero(one)) for one in self.masks)
        if self.n_allowed > few_of(self.n_rows):
            with damage():
                self.groups = searcher.groups_of(self.masks)
        elif exact:
            # Of booleans, since numpy is six times as slow with bytes.
            self.rows = [np.flatnonzero(one.view(np.bool_)).astype(np.uint32) for one in self.masks]

    def entries_of(self, searcher: _native.Signs) -> NDArray[np.uint32] | None:
        """Which entries of the only segment may be found, a bit each; None before it pays."""
        worth = self.groups is not None and self.n_queries > _MANY
        if worth and self._entries is None and self.masks is not None:
            with damage():
                self._entries = searcher.entries_of(self.masks[0])
        return self._entries

    def few_of(self, segment: Segment, *, scaled: bool) -> _Few | None:
        """The rows of the only segment that are all compared; None before it pays.

        To read their vectors from all over an index takes longer than to compare them.
        """
        if self._few is None and self.rows is not None and self.n_queries > _SOME:
            rows = self.rows[0]
            scales = segment.columns["scales"].reshape(-1)[rows] if scaled else None
            self._few = _Few(segment.kept[rows], scales, segment.ids[rows])
        return self._few

    def reach_from(self, reach: Reach) -> Reach:
        """How far to look for these, where it is known for all rows."""
        if self.masks is None:
            return reach
        if self.groups is None:
            return reach._replace(stop=EVERYTHING.stop, probes=EVERYTHING.probes)
        # The fewer may be found, the farther apart these are.
        times = (self.n_rows / self.n_allowed) ** _WIDER
        return reach._replace(stop=times * reach.stop, probes=int(times * reach.probes))


def marks_of(
    segments: Sequence[Segment],
    searcher: _native.Signs,
    allowed: Sequence[Allowed],
    *,
    exact: bool,
) -> Marks:
    """Made once for a filter and a state."""
    made = allowed.made if isinstance(allowed, Matches) else {}
    found: Marks | None = made.get(exact)
    if found is None:
        found = made[exact] = Marks(segments, searcher, allowed, exact=exact)
    return found


class SignSearch:
    """One search of all segments, as often as it takes.

    Parameters
    ----------
    segments : at least one
    searcher : of them
    reach : how far it looks for rows all of which may be found
    marks : which may be
    n_threads : how many threads look
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        searcher: _native.Signs,
        reach: Reach,
        marks: Marks,
        n_threads: int,
    ) -> None:
        self._segments, self._searcher, self._marks = segments, searcher, marks
        self.reach = marks.reach_from(reach)
        self._n_threads = n_threads
        self._is_by_id = _rise(segments)  # and so are rows of equal distance

    def __call__(
        self,
        queries: NDArray[Any],
        k: int,
        numbers: NDArray[np.intp],
        efforts: NDArray[np.int32],
    ) -> Found:
        """The k nearest, by (distance, id); what it took is added to efforts of these numbers."""
        if self._is_by_id:
            distances, positions, of_each = self._search(queries, k)
            efforts[numbers] += of_each
            return Found(distances, *self._places(positions))
        # Native code orders rows of equal distance by segment. One more than k tells whether the
        # last one is among them: then each segment is asked for its own first.
        distances, positions, of_each = self._search(queries, k + 1)
        efforts[numbers] += of_each
        tied = (distances[:, k] == distances[:, k - 1]) & (positions[:, k] >= 0)
        found = self._in_order([(distances, positions)], k)
        return Found(
            *with_wider(
                found,
                np.flatnonzero(tied),
                lambda some: self._in_order(list(self._one_by_one(queries[some], k)), k),
            )
        )

    def _search(
        self, queries: NDArray[Any], k: int, only: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]:
        """By (distance, segment, rank), and efforts; positions count rows of all segments.

        ``only`` is the number of a segment, where no other is searched.
        """
        if self._marks.rows is not None:
            rows = [
                some if only in (None, number) else some[:0]
                for number, some in enumerate(self._marks.rows)
            ]
            return self._searcher.compare(queries, k, rows, self._n_threads)
        masks = self._marks.masks
        if only is not None:
            masks = [np.zeros(segment.n_rows, np.uint8) for segment in self._segments]
            known = self._marks.masks
            masks[only] = masks[only] + 1 if known is None else known[only]
        _, spread, stop, probes, _ = self.reach
        with damage():
            return self._searcher.search(
                queries, k, probes, spread, stop, masks, self._n_threads, "", self._marks.groups
            )

    def _one_by_one(
        self, queries: NDArray[Any], k: int
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """The first k of each segment alone."""
        for number in range(len(self._segments)):
            yield self._search(queries, k, number)[:2]

    def _in_order(
        self, answers: Sequence[tuple[NDArray[np.float32], NDArray[np.int64]]], k: int
    ) -> Found:
        """The first k by (distance, id) of answers whose rows differ."""
        distances, positions = (np.concatenate(one, axis=1) for one in zip(*answers, strict=True))
        numbers, own = self._places(positions)
        ids = np.zeros(own.shape, np.result_type(*(segment.ids for segment in self._segments)))
        for number, segment in enumerate(self._segments):
            here = (numbers == number) & (own >= 0)
            ids[here] = segment.ids[own[here]]
        order = order_of(distances, ids, first=(own < 0,))[:, :k]
        found = (np.take_along_axis(one, order, axis=1) for one in (distances, numbers, own))
        return Found(*found)

    def _places(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Segments of rows, and where they lie in them; -1 where there is none."""
        if len(self._segments) == 1:
            return np.zeros(positions.shape, np.int32), positions
        firsts = firsts_of(self._segments)
        numbers = np.searchsorted(firsts, np.maximum(positions, 0), side="right") - 1
        own = np.where(positions >= 0, positions - firsts[numbers], -1)
        return numbers.astype(np.int32), own


def _rise(segments: Sequence[Segment]) -> bool:
    """Whether all ids of a segment come before those of the next."""
    return all(one.ids[-1] < two.ids[0] for one, two in pairwise(segments))


def few_of(n_rows: int) -> float:
    """Of rows that may be found, up to so many are all compared; more are looked for by group.

    To compare all of m takes 30 ns each. To look for them in groups takes 2 ns for every row of the
    groups visited, and the fewer there are, the more groups: some 45 n / m^½ ns for all.
    """
    return float((1.5 * n_rows) ** (2 / 3))


def masks_of(
    allowed: Sequence[Allowed], segments: Sequence[Segment]
) -> list[NDArray[np.uint8]] | None:
    """Which rows may be found, as native code reads it; None where all may."""
    if all(one is None for one in allowed):
        return None
    return [
        np.ones(of.n_rows, np.uint8) if one is None else one.view(np.uint8)
        for one, of in zip(allowed, segments, strict=True)
    ]
