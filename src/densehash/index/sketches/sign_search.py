"""Searches segments of signs by native code: which rows may be found, and how far it looks.

If a filter leaves few rows, all of them are compared. If it leaves more, they are looked for in the
groups that have such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import _native
from densehash.index.ids import native_ids
from densehash.index.native import damage
from densehash.index.ordering import Found, order_of, with_wider
from densehash.index.queries import EVERYTHING, Reach
from densehash.index.segment import Segment, firsts_of
from densehash.index.visits import Allowed, Matches
from densehash.mapped import give_back
from densehash.store.maps import origin_of

__all__ = ["Frugal", "Marks", "SignSearch", "few_of", "marks_of", "masks_of"]

_AT_A_TIME = 25  # queries, if large files are mapped
_SMALL_MAPS = 1 << 30  # bytes of files that may be in memory together
_WIDER = 0.25  # a search that may find a share s of the rows stops (1 / s) ** _WIDER times later
# After so many queries with one filter, more is computed from it. This takes as long as so many
# queries gain by it.
_SOME, _MANY = 4, 50


class Frugal:
    """Searches for few queries at a time, then frees what it has read from large mapped files.

    Measuring recall reads most of an index, which may be larger than memory. This takes several
    times as long, so small indexes are searched in the usual way.

    Parameters
    ----------
    segments : at least one
    searcher : the searcher of these segments
    """

    def __init__(self, segments: Sequence[Segment], searcher: _native.Signs) -> None:
        self._searcher = searcher
        arrays = [array for segment in segments for array in segment.arrays]
        maps = [array for array in arrays if origin_of(array) is not None]
        self._maps = maps if sum(array.nbytes for array in maps) > _SMALL_MAPS else []

    def search(
        self, queries: NDArray[Any], *how: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]:
        """The same as ``search`` of the searcher."""
        step = _AT_A_TIME if self._maps else max(len(queries), 1)
        parts = []
        for start in range(0, max(len(queries), 1), step):
            parts.append(self._searcher.search(queries[start : start + step], *how))
            for array in self._maps:
                give_back(array)
        distances, positions, efforts = (np.concatenate(one) for one in zip(*parts, strict=True))
        return distances, positions, efforts


class _Few(NamedTuple):
    """Vectors, scales (if there are any) and ids of some rows, in the order of ids."""

    vectors: NDArray[Any]
    scales: NDArray[np.float32] | None
    ids: NDArray[Any]  # as native code reads them


class Marks:
    """Which rows may be found, in the form that native code needs.

    Parameters
    ----------
    segments : at least one
    searcher : the searcher of these segments
    allowed : for each segment, which rows may be found
    exact : whether vectors are compared

    Attributes
    ----------
    n_rows, n_allowed : how many rows there are, and how many may be found
    masks : for each segment, uint8 (n,); None if all rows may be found
    rows : for each segment, numbers of the rows that may be found, if they are so few that all are
        compared; otherwise None
    groups : uint8 (g,), which groups have such rows, if they are looked for in groups; otherwise
        None
    n_queries : how many queries have searched these rows by ``Signs.plainly``
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
        self._entries: list[NDArray[np.uint32]] | None = None
        self._few: _Few | None = None
        self._reaches: tuple[Reach, Reach] | None = None  # for all rows, and for these
        if self.masks is None:
            return
        self.n_allowed = sum(int(np.count_nonzero(one)) for one in self.masks)
        if self.n_allowed > few_of(self.n_rows):
            with damage():
                self.groups = searcher.groups_of(self.masks)
        elif exact:
            # As booleans: numpy is six times as slow with bytes.
            self.rows = [np.flatnonzero(one.view(np.bool_)).astype(np.uint32) for one in self.masks]

    def entries_of(self, searcher: _native.Signs) -> list[NDArray[np.uint32]] | None:
        """For each segment, which entries may be found, a bit for each; None before it pays."""
        # Without groups, all entries are looked at.
        pays = self.n_queries > (_SOME if self.groups is None else _MANY)
        if pays and self._entries is None and self.masks is not None and self.rows is None:
            with damage():
                self._entries = searcher.entries_of(self.masks)
        return self._entries

    def few_of(self, segments: Sequence[Segment], *, scaled: bool) -> _Few | None:
        """A copy of the rows that are all compared, by id; None before it pays.

        Reading their vectors from all over an index takes longer than comparing them.
        """
        if self._few is None and self.rows is not None and self.n_queries > _SOME:
            parts = list(zip(segments, self.rows, strict=True))
            ids = np.concatenate([one.ids[rows] for one, rows in parts])
            order = np.argsort(ids)
            vectors = np.concatenate([one.kept[rows] for one, rows in parts])[order]
            scales = None
            if scaled:
                scales = np.concatenate([one.columns["scales"][rows, 0] for one, rows in parts])
                scales = scales[order]
            self._few = _Few(vectors, scales, native_ids(ids[order]))
        return self._few

    def reach_from(self, reach: Reach) -> Reach:
        """How far to look for these rows, given how far to look for all rows."""
        if self.masks is None:
            return reach
        if self._reaches is None or self._reaches[0] is not reach:
            self._reaches = reach, self._wider(reach)
        return self._reaches[1]

    def _wider(self, reach: Reach) -> Reach:
        if self.groups is None:
            return reach._replace(stop=EVERYTHING.stop, probes=EVERYTHING.probes)
        # The fewer rows may be found, the farther apart they are.
        times = (self.n_rows / self.n_allowed) ** _WIDER
        return reach._replace(stop=times * reach.stop, probes=int(times * reach.probes))


def marks_of(
    segments: Sequence[Segment],
    searcher: _native.Signs,
    allowed: Sequence[Allowed],
    *,
    exact: bool,
) -> Marks:
    """Marks, which are made once for a filter and a state."""
    made = allowed.made if isinstance(allowed, Matches) else {}
    found: Marks | None = made.get(exact)
    if found is None:
        found = made[exact] = Marks(segments, searcher, allowed, exact=exact)
    return found


class SignSearch:
    """A search of all segments, by one native call or several.

    Parameters
    ----------
    segments : at least one
    searcher : the searcher of these segments
    reach : how far it would look if all rows might be found
    marks : which rows may be found
    n_threads : how many threads search
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

    def __call__(
        self,
        queries: NDArray[Any],
        k: int,
        numbers: NDArray[np.intp],
        efforts: NDArray[np.int32],
    ) -> Found:
        """The k nearest by (distance, id); adds the effort to ``efforts`` at these numbers."""
        if self._searcher.ids_rise:  # then rows of equal distance are ordered by id, too
            distances, positions, of_each = self._search(queries, k)
            efforts[numbers] += of_each
            return Found(distances, *self._places(positions))
        # Native code orders rows of equal distance by segment. One row more than k shows whether
        # the last rows have equal distances: then each segment is searched by itself.
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
        """Distances and positions by (distance, segment, rank), and efforts.

        Positions are counted over all segments. ``only`` is the number of a segment, if no other is
        searched.
        """
        if self._marks.rows is not None:
            rows = [
                some if only in (None, number) else some[:0]
                for number, some in enumerate(self._marks.rows)
            ]
            return self._searcher.compare(queries, k, rows, self._n_threads)
        masks, entries = self._marks.masks, self._marks.entries_of(self._searcher)
        if only is not None:
            entries = None
            masks = [np.zeros(segment.n_rows, np.uint8) for segment in self._segments]
            known = self._marks.masks
            masks[only] = masks[only] + 1 if known is None else known[only]
        _, spread, stop, probes, _ = self.reach
        with damage():
            return self._searcher.search(
                *(queries, k, probes, spread, stop, masks, self._n_threads, ""),
                self._marks.groups,
                entries,
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
        """The segment of each row, and its position there; -1 for a missing row."""
        if len(self._segments) == 1:
            return np.zeros(positions.shape, np.int32), positions
        firsts = firsts_of(self._segments)
        numbers = np.searchsorted(firsts, np.maximum(positions, 0), side="right") - 1
        own = np.where(positions >= 0, positions - firsts[numbers], -1)
        return numbers.astype(np.int32), own


def few_of(n_rows: int) -> float:
    """If at most this many rows may be found, all are compared; more are looked for in groups.

    Comparing all m rows takes 30 ns for each. Looking for them in groups takes 2 ns for every row
    of the visited groups. The fewer rows may be found, the more groups are visited: about
    45 n / m^½ ns together.
    """
    return float((1.5 * n_rows) ** (2 / 3))


def masks_of(
    allowed: Sequence[Allowed], segments: Sequence[Segment]
) -> list[NDArray[np.uint8]] | None:
    """Which rows may be found, as native code reads it; None if all may be found."""
    if all(one is None for one in allowed):
        return None
    return [
        np.ones(of.n_rows, np.uint8) if one is None else one.view(np.uint8)
        for one, of in zip(allowed, segments, strict=True)
    ]
