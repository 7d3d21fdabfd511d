"""Searches all shards of a worker together with a batch of queries: this is how signs are searched.

In a process, all its shards are segments of one index. One call searches them, so that the nearest
rows of one shard limit how far the search looks in the others. A search is one task for each
worker; without a cluster, this process does it. This process then orders all answers by
(distance, id).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.checks import check_threads
from densehash.distributed.messages import Asked, Look, Search
from densehash.distributed.shards import open_shard, together
from densehash.distributed.workers import at_worker, shards_of_workers
from densehash.errors import FileError
from densehash.index.candidates import n_allowed, named, nearest
from densehash.index.changes import locate
from densehash.index.filters import allowed_rows
from densehash.index.ids import no_ids
from densehash.index.ordering import Ranked, first_of, order_of
from densehash.index.queries import Question, Request
from densehash.index.search import equal_rows, neighbours_within
from densehash.index.state import State
from densehash.rows.dask import compute, current_client

__all__ = ["Flat", "nearest_together", "within_together"]


_Finds = Callable[[State, Question, Request, Search], Any]


class Flat(NamedTuple):
    """Rows that queries have found, any number for each query.

    Attributes
    ----------
    queries : intp (m,), numbers of the queries
    ids : int64 or bytes (m,), as they are kept
    distances : (m,)
    equal : bool (m,), whether the row equals the query, if ``search.equal`` says so
    """

    queries: NDArray[np.intp]
    ids: NDArray[Any]
    distances: NDArray[Any]
    equal: NDArray[np.bool_]


def nearest_together(
    search: Search, asked: Asked, names: Sequence[str], own: NDArray[Any] | bool
) -> tuple[Ranked, list[Look]]:
    """The k nearest rows of a batch of queries in some shards, at least one.

    Parameters
    ----------
    search : what to find
    asked : the queries
    names : names of the shards
    own : ids of the queries, so that no query is its own neighbour; True leaves out the first row
        that equals the query; False leaves out nothing
    """
    wide = search
    if own is not False:  # one more, for the query itself
        more = search.n_candidates + (search.n_candidates > 0)
        wide = search._replace(k=search.k + 1, n_candidates=more)
    parts, looks = _asked_of_all(_nearest_here, wide._replace(equal=own is True), asked, names)
    whole = first_of(parts, wide.k)
    gone = whole.places[0] if isinstance(own, bool) else whole.ids == own[:, np.newaxis]
    gone = gone & whole.there
    if bool(gone.any()):
        there = whole.there & ~(gone & (np.cumsum(gone, axis=1) == 1))
        last = np.argsort(~there, axis=1, kind="stable")
        whole = whole._replace(there=there).map(lambda one: np.take_along_axis(one, last, axis=1))
    return whole.map(lambda one: one[:, : search.k]), looks


def within_together(
    search: Search, asked: Asked, names: Sequence[str], own: NDArray[Any] | bool
) -> tuple[Flat, list[Look]]:
    """All rows within the radius of a batch of queries, ordered by query, distance and id.

    The parameters are those of :func:`nearest_together`.
    """
    parts, looks = _asked_of_all(_within_here, search._replace(equal=own is True), asked, names)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    queries, ids, distances, _ = columns
    order = order_of(distances, ids, first=(queries,))
    queries, ids, _, equal = columns = [column[order] for column in columns]
    if isinstance(own, bool):  # the first one of each query
        every = np.flatnonzero(equal)
        gone = every[np.unique(queries[every], return_index=True)[1]]
    else:
        gone = np.flatnonzero(ids == own[queries])
    return Flat(*(np.delete(column, gone) for column in columns)), looks


def _asked_of_all(
    find: _Finds, search: Search, asked: Asked, names: Sequence[str]
) -> tuple[list[Any], list[Look]]:
    """What each process finds in its shards, and the state of these shards."""
    client = current_client()
    if client is None:
        answers = [_answer(find, search, asked, names, check_threads(None))]
    else:
        threads, tasks = client.nthreads(), []
        # Each is one object in the graph, so that it goes to each worker once.
        told, queries = (delayed(one, pure=False, traverse=False) for one in (search, asked))
        for worker, some in shards_of_workers(names).items():
            with at_worker(worker):
                task = delayed(_answer, pure=False)
                tasks.append(task(find, told, queries, some, threads.get(worker, 1)))
        answers = compute(tasks)
    return [part for part, _ in answers], [look for _, looks in answers for look in looks]


# --- in each process ------------------------------------------------------------------------


def _answer(
    find: _Finds, search: Search, asked: Asked, names: Sequence[str], n_threads: int
) -> tuple[Any, list[Look]]:
    shards, looks = {}, []
    for name in names:
        try:
            shards[name] = open_shard(search.home, name, payload=search.by_payload)
        except FileError as error:
            looks.append(Look(name, str(error)))
    looks += [Look(name, None, one.mark, one.state.n_live) for name, one in shards.items()]
    state = together(search.home, shards) if shards else None
    if state is None or not state.segments:
        return _nothing(find, search, asked), looks
    question = asked.of(state, n_threads)
    allowed = allowed_rows(state, search.filter)
    if n_allowed(state.segments, allowed) == 0:
        return _nothing(find, search, asked), looks
    request = Request(search.k, search.n_candidates, search.rerank, allowed, search.reach)
    return find(state, question, request, search), looks


def _nothing(find: _Finds, search: Search, asked: Asked) -> Ranked | Flat:
    """What a search without rows finds."""
    dtype = search.distance_type if search.rerank is None else np.float32
    ids, no, none = no_ids(search.home.marks.get("type of ids", "int64")), np.empty, np.bool_
    if find is _within_here:
        return Flat(no(0, np.intp), ids, no(0, dtype), no(0, none))
    shape = (len(asked), 0)
    return Ranked(no(shape, dtype), no(shape, ids.dtype), no(shape, none), (no(shape, none),))


def _nearest_here(state: State, question: Question, request: Request, search: Search) -> Ranked:
    found = nearest(state, question, request)
    distances, ids, there = found.distances, named(state.segments, found), found.there
    equal = np.zeros(there.shape, np.bool_)
    if search.equal:
        queries = np.nonzero(there)[0]
        equal[there] = _equal_to(state, question, ids[there], queries)
    return Ranked(distances, ids, there, (equal,))


def _within_here(state: State, question: Question, request: Request, search: Search) -> Flat:
    radius = np.inf if search.radius is None else search.radius
    queries, ids, distances = neighbours_within(state, question, request, radius=radius)
    equal = np.zeros(len(ids), np.bool_)
    if search.equal:
        equal = _equal_to(state, question, ids, queries)
    return Flat(queries, ids, distances, equal)


def _equal_to(
    state: State, question: Question, ids: NDArray[Any], queries: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Whether rows equal queries, (m,) each; all ids must be in the index."""
    equal = np.zeros(len(ids), np.bool_)
    where, ranks = locate(state, ids)
    for number, segment in enumerate(state.segments):
        here = where == number
        positions = segment.positions_of(ranks[here]).astype(np.int64)
        equal[here] = equal_rows(state, segment, question, positions, queries[here])
    return equal
