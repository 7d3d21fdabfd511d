"""A search, from its arguments to its hits: all queries, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_threads
from densehash.columns import column_of
from densehash.errors import InputError
from densehash.index.arguments import (
    as_queries,
    check_k,
    check_own,
    check_radius,
    check_rerank,
    compares_all,
    n_candidates,
    question_of,
    reach_of,
)
from densehash.index.candidates import named, nearest
from densehash.index.filters import AnyFilter, allowed_rows
from densehash.index.hits import Hits, Ranges, no_hits, no_ranges, padded
from densehash.index.ids import public_ids
from densehash.index.ordering import Found, order_of
from densehash.index.queries import Question, Request
from densehash.index.scaling import scaled
from densehash.index.segment import Segment
from densehash.index.state import State

__all__ = [
    "equal_rows",
    "hits_of",
    "neighbours",
    "neighbours_within",
    "plain_hits",
    "ranges_of",
    "search",
]

_BATCH = 2**24  # numbers that all queries of a batch have together
_MANY = 2**12  # rows of each query at a time, if every row is compared
_FIRST = 100  # rows that a search by radius looks for at first
_WIDER = 4  # then so many times as many, if all of them were within the radius
_PLAIN = (np.ndarray, np.memmap)  # slices and copies of a map are a memmap, too


def search(
    state: State,
    Q: Any,
    k: int | None,
    *,
    radius: float | None = None,
    candidates: int | None = None,
    rerank: str | None = "auto",
    metric: str | None = None,
    filter: AnyFilter | None = None,  # noqa: A002
    exclude_self: Any = False,
    recall: float | None = None,
    probes: int | None = None,
    n_threads: int | None = None,
    column: str | None = None,
) -> Hits | Ranges:
    """The neighbours of queries; the parameters are those of :meth:`densehash.Index.search`."""
    wanted = check_k(k)
    is_plain = (
        exclude_self is False and rerank == "auto" and candidates is None and metric is None
    ) and (radius is None and probes is None and column is None)
    if is_plain and type(Q) in _PLAIN and Q.ndim == 2:
        plain = plain_hits(state, Q, wanted, filter, recall, n_threads)
        if plain is not None:
            return plain
    if column is not None:
        Q = column_of(Q, column)
    Q, is_one = as_queries(Q)
    if is_one and is_plain and type(Q) in _PLAIN:
        plain = plain_hits(state, Q, wanted, filter, recall, n_threads)
        if plain is not None:
            return plain.first
    found = _any_search(
        state,
        Q,
        wanted,
        radius=radius,
        candidates=candidates,
        rerank=rerank,
        metric=metric,
        chosen=filter,
        exclude_self=exclude_self,
        recall=recall,
        probes=probes,
        n_threads=n_threads,
        ranges=radius is not None and k is None,
    )
    return found.first if is_one and isinstance(found, Hits) else found


def _any_search(
    state: State,
    Q: Any,
    k: int,
    *,
    radius: float | None,
    candidates: int | None,
    rerank: str | None,
    metric: str | None,
    chosen: AnyFilter | None,
    exclude_self: Any,
    recall: float | None,
    probes: int | None,
    n_threads: int | None,
    ranges: bool,
) -> Hits | Ranges:
    """Any search that :func:`plain_hits` does not do."""
    asked = question_of(
        state, Q, metric=metric, probes=probes, n_threads=n_threads, any_metric=True
    )
    how = check_rerank(rerank, state)
    compare_all = compares_all(state, asked.metric, how, candidates, probes)
    if how == "asymmetric" and not asked.has_vectors:
        if rerank != "auto":
            raise InputError("rerank must be None here: queries that are codes have no margins")
        how = None
    limit = None if radius is None else check_radius(radius, how, state)
    own = check_own(exclude_self, len(asked), state)
    reach = reach_of(state, recall, probes)
    allowed = allowed_rows(state, chosen)
    if not state.segments:
        return no_ranges(state, len(asked), how) if ranges else no_hits(state, len(asked), k, how)
    n = n_candidates(candidates, k, how, state)
    request = Request(k, n, how, allowed, reach, compare_all)
    if limit is not None and ranges:
        return ranges_of(state, asked, request, own=own, radius=limit)
    return hits_of(state, asked, request, own=own, radius=limit)


def plain_hits(
    state: State,
    Q: NDArray[Any],
    k: int,
    chosen: AnyFilter | None,
    recall: float | None,
    n_threads: int | None,
) -> Hits | None:
    """Hits of a search with no other arguments, in one native call; None if that cannot be.

    ``chosen`` : a filter; a function needs the longer way
    """
    if not state.sketch.estimates or callable(chosen):
        return None
    reach, allowed = reach_of(state, recall), allowed_rows(state, chosen)
    found = state.sketch.plainly(state.segments, Q, k, reach, allowed, check_threads(n_threads))
    if found is None:
        return None
    ids, distances, efforts = found
    hits = Hits(ids, distances)
    hits.looked_at = efforts
    if state.payload is not None:
        hits.searched = state
    return hits


def hits_of(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float | None = None,
) -> Hits:
    """The k nearest rows of all queries; the parameters are those of :func:`neighbours`.

    ``radius`` : return no row that is farther away
    """
    parts = []
    efforts: list[NDArray[np.int32]] = []
    watched = replace(request, watch=efforts.append)
    for ids, distances, there in neighbours(state, asked, watched, own=own):
        near = there if radius is None else there & (distances <= radius)
        parts.append(padded(ids, distances, near, request.k))
    if len(parts) == 1:
        hits = Hits(*parts[0])
    else:
        hits = Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if efforts:
        hits.looked_at = efforts[0] if len(efforts) == 1 else np.concatenate(efforts)
    if state.payload is not None:
        hits.searched = state
    return hits


def ranges_of(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float,
) -> Ranges:
    """All rows of all queries within a radius, as :func:`neighbours_within` finds them."""
    queries, ids, distances = neighbours_within(state, asked, request, own=own, radius=radius)
    order = order_of(distances, ids, first=(queries,))
    counts = np.bincount(queries, minlength=len(asked))
    limits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Ranges(limits, public_ids(ids[order]), distances[order])


def neighbours(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]:
    """The k nearest rows, for one batch of queries after the other.

    Parameters
    ----------
    state : the index, with at least one segment
    asked : q queries
    request : what to find
    own : ids of the queries, (q,), so that no query is its own neighbour; True leaves out the first
        row that equals the query; False leaves out nothing

    Yields
    ------
    ids (b, m) as they are kept, distances (b, m), and which of them were found, bool (b, m); m is k
    or less
    """
    wide = request
    if own is not False:  # one more, for the query itself
        more = request.n_candidates + (request.n_candidates > 0)
        wide = replace(request, k=request.k + 1, n_candidates=more)
    for at, part in _batches(state, asked, wide):
        found = nearest(state, part, wide)
        ids = named(state.segments, found)
        if isinstance(own, bool):
            gone = _equal(state, part, found) if own else None
        else:
            gone = ids == own[at, np.newaxis]
        if gone is not None:
            ids, found = _without(ids, found, gone & found.there, request.k)
        yield ids, found.distances, found.there


def neighbours_within(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    """All rows within a radius, in any order.

    A Hamming radius is searched exactly. Any other, of estimates too, is searched among the
    candidates; if all candidates of a query are within the radius, it takes more of them.

    Parameters
    ----------
    state, asked, own : as in :func:`neighbours`
    request : what to find; ``k`` is ignored
    radius : at least 0

    Returns
    -------
    numbers of queries (m,), ids (m,) as they are kept, and distances (m,)
    """
    counted = request.rerank is None and state.sketch.counts
    search = _hamming_range if counted else _reranked_range
    return search(state, asked, request, radius=radius, own=own)


def _batches(state: State, asked: Question, request: Request) -> Iterator[tuple[slice, Question]]:
    """Queries in batches; large ones, because queries that are alike then share the cache."""
    n = max(request.n_candidates, request.k, _MANY if request.compare_all else 0)
    numbers = n * len(state.segments) + state.kind.numbers_a_query
    n_batches = -(-len(asked) // max(_BATCH // numbers, 64))
    step = -(-len(asked) // max(n_batches, 1))  # batches of equal size
    for start in range(0, len(asked), step):
        at = slice(start, start + step)
        yield at, asked if step >= len(asked) else asked.some(at)


def _hamming_range(
    state: State,
    asked: Question,
    request: Request,
    *,
    radius: float,
    own: NDArray[Any] | bool,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    parts = []
    for segment, allowed in zip(state.segments, request.allowed, strict=True):
        limits, distances, positions = state.sketch.within(
            segment,
            asked.prepared,
            state.kind.visits_for_all(segment),
            radius,
            n_threads=asked.n_threads,
        )
        queries = np.repeat(np.arange(len(asked)), np.diff(limits))
        ranks = segment.rank_at(positions)
        ids = segment.ids[ranks]
        if not isinstance(own, bool):
            equal = ids == own[queries]
        elif own:
            equal = equal_rows(state, segment, asked, positions, queries)
        else:
            equal = np.zeros(len(ids), np.bool_)
        part = queries, ids, distances, equal
        parts.append(part if allowed is None else tuple(one[allowed[ranks]] for one in part))
    queries, ids, distances, gone = (np.concatenate(column) for column in zip(*parts, strict=True))
    if isinstance(own, bool) and gone.any():  # only the first row that equals the query goes
        order = order_of(distances, ids, first=(queries, ~gone))
        first = np.r_[True, queries[order][1:] != queries[order][:-1]]
        gone[order[~first]] = False
    return queries[~gone], ids[~gone], distances[~gone]


def _reranked_range(
    state: State,
    asked: Question,
    request: Request,
    *,
    radius: float,
    own: NDArray[Any] | bool,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    parts = []
    most = sum(segment.n_rows for segment in state.segments)
    waiting, n = np.arange(len(asked)), min(request.n_candidates or _FIRST, most)
    while len(waiting):
        wide = replace(request, k=n, n_candidates=n if request.n_candidates else 0)
        full = []
        for at, part in _batches(state, asked.some(waiting), wide):
            found = nearest(state, part, wide)
            ids = named(state.segments, found)
            near = found.there & (found.distances <= radius)
            all_near = near.sum(axis=1) == n
            if not isinstance(own, bool):
                near &= ids != own[waiting[at], np.newaxis]
            elif own:
                near &= ~_first_only(_equal(state, part, found) & found.there)
            if n < most:
                full.append(waiting[at][all_near])
                near &= ~all_near[:, np.newaxis]
            rows, columns = np.nonzero(near)
            parts.append((waiting[at][rows], ids[rows, columns], found.distances[rows, columns]))
        waiting = np.concatenate(full) if full else np.empty(0, np.intp)
        n = min(_WIDER * n, most)
    queries, ids, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
    return queries, ids, distances


def _equal(state: State, asked: Question, found: Found) -> NDArray[np.bool_]:
    """Whether rows equal their query, by their vectors, or by their sketches if none are kept."""
    same = np.zeros(found.positions.shape, np.bool_)
    for number, segment in enumerate(state.segments):
        here = found.there & (found.segments == number)
        queries, columns = np.nonzero(here)
        positions = found.positions[here]
        same[queries, columns] = equal_rows(state, segment, asked, positions, queries)
    return same


def equal_rows(
    state: State,
    segment: Segment,
    asked: Question,
    positions: NDArray[np.int64],
    queries: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Whether the rows at some positions equal the queries of some numbers, (m,) each."""
    if segment.vectors is None or not asked.has_vectors:
        return state.sketch.equal(segment, positions, asked.prepared, queries)
    as_kept = asked.vectors
    if state.sketch.scaled:
        as_kept, scales = scaled(asked.vectors)
        alike: NDArray[np.bool_] = (segment.vectors[positions] == as_kept[queries]).all(axis=1)
        alike &= (segment.columns["scales"][positions] == scales[queries])[:, 0]
        return alike
    if segment.vectors.dtype.kind == "f":
        with np.errstate(over="ignore"):
            as_kept = as_kept.astype(segment.vectors.dtype)
    found: NDArray[np.bool_] = (segment.vectors[positions] == as_kept[queries]).all(axis=1)
    return found


def _first_only(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Only the first mark of each row."""
    first: NDArray[np.bool_] = marks & (np.cumsum(marks, axis=1) == 1)
    return first


def _without(
    ids: NDArray[Any], found: Found, gone: NDArray[np.bool_], k: int
) -> tuple[NDArray[Any], Found]:
    """Drop the first row that is marked as gone from each query; if none is, drop the last one."""
    if ids.shape[1] <= k:  # there is no row after k to drop: append a missing one
        ids, *parts = (_wider(part) for part in (ids, *found))
        found, gone = Found(*parts), _wider(gone, fill=False)
    gone = _first_only(gone)
    gone[~gone.any(axis=1), -1] = True
    shape = len(ids), ids.shape[1] - 1
    return ids[~gone].reshape(shape), Found(*(part[~gone].reshape(shape) for part in found))


def _wider(part: NDArray[Any], fill: Any = -1) -> NDArray[Any]:
    """An array with one more column; if ids are strings, the column may hold anything."""
    more = np.zeros((len(part), 1), part.dtype)
    if part.dtype.kind != "S":
        more[:] = fill
    return np.concatenate([part, more], axis=1)
