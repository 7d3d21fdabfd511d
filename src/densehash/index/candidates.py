"""From queries to neighbours: finds candidates in each segment, re-ranks, orders and names them.

Everything is ordered by (distance, id), candidates too, and a query visits the same groups in all
segments. So an answer does not depend on how rows are spread over segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.index.native import rerank
from densehash.index.ordering import Found, Ranked, first_of, with_wider
from densehash.index.queries import Question, Request
from densehash.index.segment import Segment
from densehash.index.sketches import Candidates
from densehash.index.sketches.signs import check_size
from densehash.index.state import State
from densehash.index.visits import Allowed

_COMPARED = 2**22  # rows of all queries that are compared at a time

__all__ = [
    "as_compared",
    "candidates_of",
    "compared",
    "exactly",
    "looked_up",
    "merged",
    "n_allowed",
    "named",
    "nearest",
    "reranked",
]


def nearest(state: State, asked: Question, request: Request) -> Found:
    """The k neighbours of each query, in an index that has rows."""
    if request.compare_all:
        return compared(state, asked, request)
    if state.sketch.estimates and request.rerank == "exact" and request.n_candidates:
        estimated = replace(request, k=request.n_candidates, rerank=None)
        candidates = state.sketch.at_once(state.kind, state.segments, asked, estimated)
        if candidates is not None:
            return reranked(state, asked, candidates, request)
    whole = state.sketch.at_once(state.kind, state.segments, asked, request)
    if whole is not None:
        return whole
    candidates = candidates_of(state, asked, request)
    if request.rerank is None:
        distances, numbers, positions = candidates
        k = request.k
        return Found(distances[:, :k], numbers[:, :k], positions[:, :k])
    return reranked(state, asked, candidates, request)


def compared(state: State, asked: Question, request: Request) -> Found:
    """The k nearest of all rows that may be found, by their vectors."""
    check_size(asked.hashed if asked.metric == "cosine" else asked.vectors)
    parts = []
    for segment, allowed in zip(state.segments, request.allowed, strict=True):
        rows = np.arange(segment.n_rows)
        if allowed is not None:
            rows = np.flatnonzero(
                allowed if segment.ranks is None else allowed[segment.rank_at(rows)]
            )
        k = min(request.k, max(len(rows), 1))
        step = max(_COMPARED // len(asked), k)
        best = np.full((len(asked), 1), -1)
        for start in range(0, max(len(rows), 1), step):
            some = np.broadcast_to(
                rows[start : start + step], (len(asked), len(rows[start : start + step]))
            )
            part = exactly(segment, asked, np.concatenate([best, some], axis=1), k)
            best = part.positions
        parts.append(part)
    return merged(state.segments, parts, request.k)


def reranked(state: State, asked: Question, candidates: Found, request: Request) -> Found:
    """The k nearest candidates of each query, after they are re-ranked."""
    parts = []
    for number, segment in enumerate(state.segments):
        positions = candidates.positions
        if len(state.segments) > 1:
            positions = np.where(candidates.segments == number, positions, -1)
        if request.rerank == "exact":
            part = exactly(segment, asked, positions, request.k)
        else:
            part = state.sketch.reranked(
                segment, asked.prepared, positions, request.k, n_threads=asked.n_threads
            )
        parts.append(part)
    return merged(state.segments, parts, request.k)


def exactly(segment: Segment, asked: Question, positions: NDArray[np.int64], k: int) -> Candidates:
    """The k nearest candidates by their true distances, from the kept vectors."""
    distances, found = rerank(
        as_compared(asked, segment),
        segment.kept,
        positions,
        segment.ranks,
        k,
        metric=asked.metric,
        n_threads=asked.n_threads,
    )
    return Candidates(distances, found)


def named(segments: Sequence[Segment], found: Found) -> NDArray[Any]:
    """Ids of what was found, as they are kept; a missing row gets any id."""
    if len(segments) == 1:
        return _names(segments[0], found.positions)
    ids = np.zeros(found.positions.shape, dtype=np.result_type(*(part.ids for part in segments)))
    for number, segment in enumerate(segments):
        here = found.there & (found.segments == number)
        ids[here] = segment.ids[segment.rank_at(found.positions[here])]
    return ids


def candidates_of(state: State, asked: Question, request: Request) -> Found:
    """The n candidates of each query; ordered by (distance, id) if they are not re-ranked."""
    found = looked_up(state, asked, request)
    # A kind that visits only some rows may have found too few: these queries then look everywhere.
    wanted = min(request.k, n_allowed(state.segments, request.allowed))
    has = (found.positions[:, wanted - 1 : wanted] >= 0).any(axis=1) | (wanted == 0)

    def everywhere(queries: NDArray[np.intp]) -> Found:
        return looked_up(state, asked.some(queries), request, everywhere=True)

    return Found(*with_wider(found, np.flatnonzero(~has), everywhere))


def looked_up(
    state: State,
    asked: Question,
    request: Request,
    *,
    everywhere: bool = False,
    ordered: bool = False,
) -> Found:
    """The n candidates of each query, as far as the kind looks.

    Parameters
    ----------
    state, asked, request : as in :func:`candidates_of`
    everywhere : whether to look at all rows, whatever the kind
    ordered : whether candidates must be ordered by (distance, id); if they are not re-ranked, they
        always are
    """
    prepared = asked.prepared  # first: it refuses numbers that are too large to compute with
    parts = [
        state.sketch.nearest(
            segment,
            prepared,
            None if everywhere else state.kind.visits(segment, asked),
            allowed,
            request.n_candidates,
            ordered=ordered or request.rerank is None,
            n_threads=asked.n_threads,
        )
        for segment, allowed in zip(state.segments, request.allowed, strict=True)
    ]
    return merged(state.segments, parts, request.n_candidates)


def n_allowed(segments: Sequence[Segment], allowed: Sequence[Allowed]) -> int:
    """How many rows may be found."""
    return sum(
        segment.n_rows if which is None else int(np.count_nonzero(which))
        for segment, which in zip(segments, allowed, strict=True)
    )


def merged(segments: Sequence[Segment], parts: Sequence[Candidates], n: int) -> Found:
    """The first n by (distance, id) of all segments; if there is one segment, as it found them."""
    if len(parts) == 1:
        distances, positions = parts[0]
        return Found(distances, np.zeros(positions.shape, np.int32), positions)
    whole = first_of(
        [
            Ranked(
                distances,
                _names(segment, positions),
                positions >= 0,
                (np.full(positions.shape, number, np.int32), positions),
            )
            for number, (segment, (distances, positions)) in enumerate(
                zip(segments, parts, strict=True)
            )
        ],
        n,
    )
    return Found(whole.distances, *whole.places)


def _names(segment: Segment, positions: NDArray[np.int64]) -> NDArray[Any]:
    """Ids at positions; a missing row gets any id."""
    found: NDArray[Any] = segment.ids[segment.rank_at(np.maximum(positions, 0))]
    return found


def as_compared(asked: Question, segment: Segment) -> NDArray[Any]:
    """Queries in the type in which they are compared with kept vectors."""
    if asked.vectors.dtype == segment.kept.dtype and asked.vectors.itemsize == 1:  # exactly
        return asked.vectors
    return asked.vectors.astype(np.float32, copy=False)
