"""Searches each shard by itself with a batch of queries: this is how codes are searched.

Each shard finds its best n candidates. They are merged to find the n-th candidate of all shards, by
(Hamming distance, id). Then each shard re-ranks its candidates up to this one, and the k nearest of
all shards are merged. So the same rows are re-ranked as in one index, and no more. All this is one
graph of tasks, which Dask runs on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from densehash.distributed.messages import Asked, Look, Search
from densehash.distributed.shards import Opened, open_shard
from densehash.distributed.workers import at_worker, workers_for
from densehash.errors import FileError
from densehash.index.candidates import looked_up, n_allowed, named, reranked
from densehash.index.filters import allowed_rows
from densehash.index.ids import no_ids
from densehash.index.ordering import Found, Ranked, first_of, up_to
from densehash.index.queries import Request
from densehash.index.state import State
from densehash.rows.dask import compute

__all__ = ["Answer", "answer_of"]

_FAN_IN = 8  # answers that are merged at a time


class Answer(NamedTuple):
    """The answer to a batch of queries.

    Attributes
    ----------
    nearest : the k nearest
    n_found : (q,), how many candidates there were, at most n
    looks : the state of shards when their candidates were found, and when these were re-ranked
    """

    nearest: Ranked
    n_found: NDArray[np.int64]
    looks: list[Look]


class _Looked(NamedTuple):
    """Candidates of one shard, by (Hamming distance, id)."""

    nearest: Ranked
    found: Found | None
    look: Look


class _Part(NamedTuple):
    """What some shards have found."""

    nearest: Ranked
    looks: list[Look]


def answer_of(search: Search, asked: Asked, names: Sequence[str]) -> Answer:
    """The neighbours of a batch of queries in some shards, at least one."""
    # Each is one object in the graph, so that it goes to each worker once, not with each shard.
    told, queries = (delayed(one, pure=False, traverse=False) for one in (search, asked))
    workers = workers_for(len(names))
    looked, parts = [], []
    for name, worker in zip(names, workers, strict=True):
        with at_worker(worker):
            looked.append(_task(_looked_up, told, queries, name))
            parts.append(_task(_part_of, looked[-1]))  # without what only the shard needs
    candidates = _merged(parts, search.n_candidates)
    if search.rerank is None:
        whole = compute(candidates)
        return Answer(whole.nearest, whole.nearest.counts, whole.looks)
    last = _task(_last_of, candidates, search.n_candidates)
    parts = []
    for one, worker in zip(looked, workers, strict=True):
        with at_worker(worker):
            parts.append(_task(_reranked, told, queries, one, last))
    whole, (n_found, looks) = compute([_merged(parts, search.k), _task(_about, candidates)])
    return Answer(whole.nearest, n_found, looks + whole.looks)


# --- on a worker ----------------------------------------------------------------------------


def _looked_up(search: Search, asked: Asked, name: str) -> _Looked:
    try:
        shard = open_shard(search.home, name, payload=search.by_payload)
        return _candidates(search, asked, name, shard)
    except FileError as error:
        return _Looked(_nothing(search, asked, search.distance_type), None, Look(name, str(error)))


def _candidates(search: Search, asked: Asked, name: str, shard: Opened) -> _Looked:
    state, question = shard.state, asked.of(shard.state)
    allowed = allowed_rows(state, search.filter)
    n_rows = n_allowed(state.segments, allowed)
    look = Look(name, None, shard.mark, state.n_live, n_rows)
    if n_rows == 0:
        return _Looked(_nothing(search, asked, search.distance_type), None, look)
    request = Request(search.k, search.n_candidates, search.rerank, allowed)
    found = looked_up(state, question, request, everywhere=search.everywhere, ordered=True)
    return _Looked(_nearest(state, found), found, look)


def _reranked(search: Search, asked: Asked, looked: _Looked, last: Ranked) -> _Part:
    nothing, look = _nothing(search, asked, np.float32), looked.look
    if looked.found is None:
        return _Part(nothing, [look])
    try:
        mark, state, *_ = open_shard(search.home, look.name)
        if mark != look.mark:  # the shard has changed: positions are no longer valid
            return _Part(nothing, [look._replace(mark=mark)])
        positions = np.where(up_to(looked.nearest, last), looked.found.positions, -1)
        candidates = looked.found._replace(positions=positions)
        request = Request(search.k, search.n_candidates, search.rerank, ())
        found = reranked(state, asked.of(state), candidates, request)
        return _Part(_nearest(state, found), [look])
    except FileError as error:
        return _Part(nothing, [Look(look.name, str(error))])


def _nearest(state: State, found: Found) -> Ranked:
    return Ranked(found.distances, named(state.segments, found), found.there)


def _nothing(search: Search, asked: Asked, dtype: type[np.generic]) -> Ranked:
    shape = (len(asked), 0)
    ids = no_ids(search.home.marks.get("type of ids", "int64"))
    return Ranked(np.empty(shape, dtype), np.empty(shape, ids.dtype), np.empty(shape, np.bool_))


def _part_of(looked: _Looked) -> _Part:
    return _Part(looked.nearest, [looked.look])


def _joined(parts: list[_Part], n: int) -> _Part:
    looks = [look for part in parts for look in part.looks]
    return _Part(first_of([part.nearest for part in parts], n), looks)


def _last_of(candidates: _Part, n: int) -> Ranked:
    """The n-th candidate of each query, (q, 1); missing if there are fewer, and all count."""
    whole = candidates.nearest
    if whole.ids.shape[1] >= n:
        return Ranked(whole.distances[:, n - 1 :], whole.ids[:, n - 1 :], whole.there[:, n - 1 :])
    shape = (len(whole.ids), 1)
    return Ranked(
        np.zeros(shape, whole.distances.dtype),
        np.zeros(shape, whole.ids.dtype),
        np.zeros(shape, np.bool_),
    )


def _about(candidates: _Part) -> tuple[NDArray[np.int64], list[Look]]:
    return candidates.nearest.counts, candidates.looks


# --- the graph of tasks ---------------------------------------------------------------------


def _task(function: Callable[..., Any], *arguments: Any) -> Delayed:
    return delayed(function, pure=False)(*arguments)


def _merged(parts: list[Delayed], n: int) -> Delayed:
    """The first n of all parts, merged in a tree that begins with neighbouring parts."""
    while True:
        parts = [
            _task(_joined, parts[at : at + _FAN_IN], n) for at in range(0, len(parts), _FAN_IN)
        ]
        if len(parts) == 1:
            return parts[0]
