"""Searches shards with queries in batches that fit into memory; shards may change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.distributed.by_shard import answer_of
from densehash.distributed.by_worker import nearest_together, within_together
from densehash.distributed.messages import Asked, Look, Search
from densehash.distributed.workers import n_workers
from densehash.index.hits import Hits, Ranges, padded
from densehash.index.ids import public_ids
from densehash.index.ordering import with_wider
from densehash.index.queries import Question
from densehash.index.state import State

__all__ = ["Stale", "found_together", "hits_in"]

# For a batch of queries: bytes that go to every worker, and bytes that a worker computes from it.
_MOST_SENT = 1 << 23
_MOST_HELD = 1 << 28
_CANDIDATE_BYTES = 24
_SCORE_BYTES = 4


class Stale(Exception):  # noqa: N818  not an error: the search begins again
    """Shards have changed since they were last seen.

    Attributes
    ----------
    looks : how they are now, by name
    """

    def __init__(self, looks: Mapping[str, Look]) -> None:
        super().__init__()
        self.looks = looks


def hits_in(
    search: Search,
    state: State,
    question: Question,
    rows: Mapping[str, int],
    marks: dict[str, str] | None = None,
) -> Hits:
    """The k nearest rows of all queries in some shards, at least one.

    Parameters
    ----------
    search : what to find
    state : what the shards have in common
    question : the queries
    rows : how many rows each shard had when it was last seen, by name
    marks : marks of the states of shards that were seen before

    Raises
    ------
    Stale : if a shard is lost, has another number of rows, or has changed between batches
    """
    marks = {} if marks is None else marks
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
    lacking: list[NDArray[np.intp]] = []
    for at in _batches(search, state, question, len(rows)):
        asked = _asked(search, state, question.some(at))
        nearest, n_found, looks = answer_of(search, asked, list(rows))
        _check_looks(looks, rows, marks)
        parts.append(padded(nearest.ids, nearest.distances, nearest.there, search.k))
        most = sum({look.name: look.n_allowed for look in looks}.values())
        lacking.append(at.start + np.flatnonzero(n_found < min(search.k, most)))
    hits = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if search.everywhere:
        return Hits(*hits)
    wider = search._replace(everywhere=True)

    def everywhere(queries: NDArray[np.intp]) -> Hits:
        return hits_in(wider, state, question.some(queries), rows, marks)

    return Hits(*with_wider(hits, np.concatenate(lacking), everywhere))


def found_together(
    search: Search,
    state: State,
    question: Question,
    rows: Mapping[str, int],
    *,
    own: NDArray[Any] | bool = False,
    ranges: bool = False,
) -> Hits | Ranges:
    """The neighbours of all queries in some shards, at least one, which are searched together.

    Parameters
    ----------
    search, state, question, rows : as in :func:`hits_in`
    own : as in :func:`densehash.distributed.by_worker.nearest_together`
    ranges : whether to find all rows within the radius, instead of the k nearest of them

    Raises
    ------
    Stale : as :func:`hits_in` does
    """
    marks: dict[str, str] = {}
    parts: list[tuple[NDArray[Any], ...]] = []
    for at in _batches(search, state, question, len(rows)):
        asked = _asked(search, state, question.some(at))
        of_batch = own if isinstance(own, bool) else own[at]
        if ranges:
            within, looks = within_together(search, asked, list(rows), of_batch)
            counts = np.bincount(within.queries, minlength=len(asked))
            parts.append((counts, public_ids(within.ids), within.distances))
        else:
            nearest, looks = nearest_together(search, asked, list(rows), of_batch)
            near = nearest.there
            if search.radius is not None:
                near = near & (nearest.distances <= search.radius)
            parts.append(padded(nearest.ids, nearest.distances, near, search.k))
        _check_looks(looks, rows, marks)
    first, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not ranges:
        return Hits(first, *others)
    limits = np.concatenate([[0], np.cumsum(first)]).astype(np.int64)
    return Ranges(limits, *others)


def _asked(search: Search, state: State, question: Question) -> Asked:
    by_margins = state.kind.probes_by_margins and question.probes is not None
    margins = search.rerank in state.sketch.reranks or (by_margins and not search.everywhere)
    return Asked(question, margins=margins)


def _check_looks(looks: list[Look], rows: Mapping[str, int], marks: dict[str, str]) -> None:
    stale = {
        look.name: look
        for look in looks
        if look.lost is not None
        or look.n_rows != rows[look.name]
        or marks.setdefault(look.name, look.mark) != look.mark
    }
    if stale:
        raise Stale(stale)


def _batches(search: Search, state: State, question: Question, n_shards: int) -> Iterator[slice]:
    n_queries, n_features = question.vectors.shape
    sent = question.vectors.itemsize * n_features + 4 * state.sketch.n_bits
    n_rows = max(search.n_candidates, search.k)
    held = _CANDIDATE_BYTES * n_rows * n_shards // n_workers()
    made = held + _SCORE_BYTES * state.kind.numbers_a_query
    step = max(min(_MOST_SENT // sent, _MOST_HELD // max(made, 1)), 1)
    for start in range(0, n_queries, step):
        yield slice(start, min(start + step, n_queries))
