"""From queries to neighbours: candidates of each segment, re-ranked, put in order, and named.

Everything is ordered by (distance, id), candidates too, and the groups that a query visits are the
same in all segments: an answer does not depend on how rows are spread over segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.index.ids import keys_of
from densehash.index.kinds import Candidates, Kind, Question, scan
from densehash.index.kinds.kind import Allowed
from densehash.index.native import rerank, rerank_codes
from densehash.index.segment import Segment

__all__ = [
    "Found",
    "Request",
    "as_compared",
    "candidates_of",
    "looked_up",
    "merged",
    "n_allowed",
    "named",
    "nearest",
    "reranked",
]

_FAR = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Request:
    """What is asked for, checked.

    Attributes
    ----------
    k : how many neighbours
    n_candidates : how many Hamming neighbours are re-ranked, at least k
    rerank : "exact", "asymmetric" or None
    allowed : for each segment which rows may be found
    """

    k: int
    n_candidates: int
    rerank: str | None
    allowed: Sequence[Allowed]


class Found(NamedTuple):
    """Rows for each query, by (distance, id).

    Attributes
    ----------
    distances : int32 or float32 (q, k)
    segments : int32 (q, k), numbers of segments
    positions : int64 (q, k); -1, as in the others, where there is none
    """

    distances: NDArray[Any]
    segments: NDArray[np.int32]
    positions: NDArray[np.int64]

    @property
    def there(self) -> NDArray[np.bool_]:
        """Whether there is one, (q, k)."""
        return self.positions >= 0


def nearest(kind: Kind, segments: Sequence[Segment], asked: Question, request: Request) -> Found:
    """The k neighbours of each query.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> nearest(state.kind, state.segments, asked, request).positions
    array([[2, 1, 3]])
    """
    candidates = candidates_of(kind, segments, asked, request)
    if request.rerank is None:
        return _cut(candidates, request.k)
    return reranked(segments, asked, candidates, request)


def reranked(
    segments: Sequence[Segment], asked: Question, candidates: Found, request: Request
) -> Found:
    """The k candidates of each query that are nearest by what they are re-ranked by.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(1, 5, "exact", [None])
    >>> candidates = candidates_of(state.kind, state.segments, asked, request)
    >>> reranked(state.segments, asked, candidates, request).positions
    array([[2]])
    """
    parts = []
    for number, segment in enumerate(segments):
        positions = candidates.positions
        if len(segments) > 1:
            positions = np.where(candidates.segments == number, positions, -1)
        if request.rerank == "exact":
            distances, found = rerank(
                as_compared(asked, segment),
                segment.kept,
                positions,
                segment.ranks,
                request.k,
                metric=asked.metric,
                n_threads=asked.n_threads,
            )
        else:
            distances, found = rerank_codes(
                asked.margins,
                segment.codes,
                positions,
                segment.ranks,
                request.k,
                n_threads=asked.n_threads,
            )
        parts.append((distances, found))
    return merged(segments, parts, request.k)


def named(segments: Sequence[Segment], found: Found) -> NDArray[Any]:
    """Ids of what was found, in the form in which they are kept; anything where there is none.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> named(state.segments, nearest(state.kind, state.segments, asked, request))
    array([[2, 1, 3]])
    """
    if len(segments) == 1:
        alone: NDArray[Any] = segments[0].ids[segments[0].rank_at(np.maximum(found.positions, 0))]
        return alone
    ids = np.zeros(found.positions.shape, dtype=np.result_type(*(part.ids for part in segments)))
    for number, segment in enumerate(segments):
        here = found.there & (found.segments == number)
        ids[here] = segment.ids[segment.rank_at(found.positions[here])]
    return ids


def candidates_of(
    kind: Kind, segments: Sequence[Segment], asked: Question, request: Request
) -> Found:
    """The n candidates of each query; by (Hamming distance, id) where nothing is re-ranked.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> candidates_of(state.kind, state.segments, asked, request).there.sum()
    np.int64(5)
    """
    parts = looked_up(kind, segments, asked, request)
    # A kind that does not look everywhere may have found too few: these queries look everywhere.
    lacking = _lacking(parts, min(request.k, n_allowed(segments, request.allowed)))
    if len(lacking):
        again = looked_up(kind, segments, asked.some(lacking), request, everywhere=True)
        parts = [_with_rows(part, lacking, new) for part, new in zip(parts, again, strict=True)]
    return merged(segments, parts, request.n_candidates)


def looked_up(
    kind: Kind,
    segments: Sequence[Segment],
    asked: Question,
    request: Request,
    *,
    everywhere: bool = False,
    ordered: bool = False,
) -> list[Candidates]:
    """The n candidates of each query in each segment, as far as the kind looks.

    Parameters
    ----------
    kind, segments, asked, request : as in :func:`candidates_of`
    everywhere : whether all rows are looked at, whatever the kind
    ordered : whether they must come by (Hamming distance, id); they do where nothing is re-ranked

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(1, 1, None, [None])
    >>> looked_up(state.kind, state.segments, asked, request)[0].positions
    array([[2]])
    """
    look = scan if everywhere else kind.candidates
    ordered = ordered or request.rerank is None
    return [
        look(segment, asked, request.n_candidates, allowed, ordered=ordered)
        for segment, allowed in zip(segments, request.allowed, strict=True)
    ]


def n_allowed(segments: Sequence[Segment], allowed: Sequence[Allowed]) -> int:
    """How many rows may be found.

    Examples
    --------
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(8), n_bits=8)
    >>> n_allowed(index._state.segments, [None])
    8
    """
    return sum(
        segment.n_rows if which is None else int(np.count_nonzero(which))
        for segment, which in zip(segments, allowed, strict=True)
    )


def _lacking(parts: Sequence[Candidates], n: int) -> NDArray[np.intp]:
    """Queries for which fewer than n candidates were found."""
    queries = np.arange(len(parts[0].positions))
    for part in parts:  # one segment is enough for most
        if part.positions.shape[1] >= n:
            queries = queries[part.positions[queries, n - 1] < 0]
    counts = np.zeros(len(queries), np.intp)
    for part in parts:
        counts += np.count_nonzero(part.positions[queries] >= 0, axis=1)
    return queries[counts < n]


def _with_rows(part: Candidates, rows: NDArray[np.intp], others: Candidates) -> Candidates:
    """Some queries' candidates replaced by others."""
    width = max(part.positions.shape[1], others.positions.shape[1])

    def replaced(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        wide = np.full((len(old), width), -1, old.dtype)
        wide[:, : old.shape[1]] = old
        wide[rows] = -1
        wide[rows, : new.shape[1]] = new
        return wide

    return Candidates(
        replaced(part.distances, others.distances), replaced(part.positions, others.positions)
    )


def merged(
    segments: Sequence[Segment], parts: Sequence[tuple[NDArray[Any], NDArray[np.int64]]], n: int
) -> Found:
    """The first n by (distance, id) of what each segment has found.

    Examples
    --------
    >>> from densehash.index import Index
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> part = np.array([[0.5]], np.float32), np.array([[4]])
    >>> merged(state.segments, [part], 1).segments
    array([[0]], dtype=int32)
    """
    if len(parts) == 1:
        distances, positions = parts[0]
        return Found(distances, np.zeros(positions.shape, np.int32), positions)
    distances, positions = (np.concatenate(both, axis=1) for both in zip(*parts, strict=True))
    numbers = [np.full(part[1].shape, at, np.int32) for at, part in enumerate(parts)]
    found = Found(distances, np.concatenate(numbers, axis=1), positions)
    last = np.where(found.there, distances, _FAR if distances.dtype == np.int32 else np.inf)
    keys = keys_of(named(segments, found))
    # What is not there comes after a row at an infinite distance, too.
    order = np.lexsort((keys, ~found.there, last), axis=1)[:, :n]
    return Found(
        np.take_along_axis(found.distances, order, axis=1),
        np.take_along_axis(found.segments, order, axis=1),
        np.take_along_axis(found.positions, order, axis=1),
    )


def _cut(found: Found, k: int) -> Found:
    return Found(found.distances[:, :k], found.segments[:, :k], found.positions[:, :k])


def as_compared(asked: Question, segment: Segment) -> NDArray[Any]:
    """Queries in the type in which they are compared with kept vectors.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked = question_of(state, [[2.0]])
    >>> as_compared(asked, state.segments[0])
    array([[2.]], dtype=float32)
    """
    if asked.vectors.dtype == segment.kept.dtype and asked.vectors.itemsize == 1:  # exactly
        return asked.vectors
    return asked.vectors.astype(np.float32, copy=False)
