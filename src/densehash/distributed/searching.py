"""One batch of queries, asked of all shards: a graph of tasks that Dask runs on the workers.

Each shard looks for its best n candidates. These are merged to find the last candidate that counts,
by (Hamming distance, id), over all shards; then each shard re-ranks those of its own that come up
to it, and the k nearest of all are merged. So as many rows are re-ranked as one index would, and
they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import Delayed, delayed
from numpy.typing import NDArray

from densehash.distributed.shards import Home, Opened, open_shard
from densehash.errors import FileError
from densehash.index.filters import AnyFilter, allowed_rows, is_of_columns
from densehash.index.ids import no_ids
from densehash.index.ordering import Found, Ranked, first_of, up_to
from densehash.index.question import Question, Reach, Request
from densehash.index.searching import looked_up, n_allowed, named, reranked
from densehash.index.state import State
from densehash.rows.dask import compute, current_client

__all__ = [
    "Answer",
    "Asked",
    "Look",
    "Search",
    "answer_of",
    "at_worker",
    "n_workers",
    "shards_of_workers",
    "workers_for",
]

_FAN_IN = 8  # answers that are merged at a time


class Search(NamedTuple):
    """What is asked for.

    Attributes
    ----------
    home : of the shards
    k : how many neighbours
    n_candidates : how many of all candidates are re-ranked, at least k
    rerank : "exact", "asymmetric" or None
    filter : ids, a function, what columns must be, or None
    everywhere : whether all rows are looked at, whatever the kind
    distance_type : of the distances of candidates, which the sketch says
    reach : how far a sketch that estimates distances looks
    radius : nothing farther away is found; None, where there is no limit
    equal : whether rows are to be compared with the query
    """

    home: Home
    k: int
    n_candidates: int
    rerank: str | None
    filter: AnyFilter | None
    everywhere: bool = False
    distance_type: type[np.generic] = np.int32
    reach: Reach | None = None
    radius: float | None = None
    equal: bool = False

    @property
    def by_payload(self) -> bool:
        """Whether shards look into their payloads."""
        return is_of_columns(self.filter)


class Asked:
    """Queries on their way to the workers, prepared once, the same for all of them.

    Parameters
    ----------
    question : the queries
    margins : whether workers need the margins
    """

    def __init__(self, question: Question, *, margins: bool) -> None:
        self._prepared = question.prepared.to_send(margins=margins)
        self._vectors = question.vectors
        self._metric, self._probes = question.metric, question.probes
        self._question: Question | None = None

    def __len__(self) -> int:
        return len(self._prepared)

    def of(self, state: State, n_threads: int = 1) -> Question:
        """The question for a shard; one for all of a process, so that groups are found once."""
        if self._question is None:
            self._question = Question(
                self._vectors,
                state.sketch.prepare,
                metric=self._metric,
                unit_rows=state.metric == "cosine",
                probes=self._probes,
                n_threads=n_threads,  # one, where Dask gives other threads other shards
                prepared=self._prepared,
            )
        return self._question

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_question": None}


class Look(NamedTuple):
    """How a shard was when it was searched.

    Attributes
    ----------
    name : of the shard
    lost : why it cannot be read, or None
    mark : tells its states apart
    n_rows : that are there
    n_allowed : that may be found
    """

    name: str
    lost: str | None
    mark: str = ""
    n_rows: int = 0
    n_allowed: int = 0


class Answer(NamedTuple):
    """What a batch of queries comes to.

    Attributes
    ----------
    nearest : the k nearest
    n_found : (q,), how many candidates there were, up to n
    looks : how shards were when their candidates were found, and when these were re-ranked
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
    # One object each in the graph: they go to each worker once, not once with each shard.
    told, queries = (delayed(one, pure=False, traverse=False) for one in (search, asked))
    workers = workers_for(len(names))
    looked, parts = [], []
    for name, worker in zip(names, workers, strict=True):
        with at_worker(worker):
            looked.append(_task(_looked_up, told, queries, name))
            parts.append(_task(_part_of, looked[-1]))  # without what the shard alone must know
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
        if mark != look.mark:  # its rows lie elsewhere now
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
    """The n-th of each query, (q, 1); none where there are fewer, and all count."""
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


# --- where tasks run ------------------------------------------------------------------------


def _task(function: Callable[..., Any], *arguments: Any) -> Delayed:
    return delayed(function, pure=False)(*arguments)


def _merged(parts: list[Delayed], n: int) -> Delayed:
    """The first n of all parts, merged in a tree, neighbours first."""
    while True:
        parts = [
            _task(_joined, parts[at : at + _FAN_IN], n) for at in range(0, len(parts), _FAN_IN)
        ]
        if len(parts) == 1:
            return parts[0]


def n_workers() -> int:
    """How many processes answer.

    Examples
    --------
    >>> n_workers()
    1
    """
    client = current_client()
    return 1 if client is None else max(len(client.nthreads()), 1)


def workers_for(n_shards: int) -> list[str | None]:
    """For each shard the worker that has looked at it before, if there is a cluster.

    A worker has a run of shards, whose answers it merges by itself, and whose files stay in its
    memory. Others take over where it is gone.

    Examples
    --------
    >>> workers_for(2)
    [None, None]
    """
    client = current_client()
    threads = {} if client is None else client.nthreads()
    slots = [worker for worker, n in sorted(threads.items()) for _ in range(n)]
    return [slots[at * len(slots) // n_shards] if slots else None for at in range(n_shards)]


def shards_of_workers(names: Sequence[str]) -> dict[str | None, list[str]]:
    """For each worker the shards that it reads; None is this process, where there is no cluster.

    Examples
    --------
    >>> shards_of_workers(["shard-0", "shard-1"])
    {None: ['shard-0', 'shard-1']}
    """
    found: dict[str | None, list[str]] = {}
    for name, worker in zip(names, workers_for(len(names)), strict=True):
        found.setdefault(worker, []).append(name)
    return found


def at_worker(worker: str | None) -> AbstractContextManager[Any]:
    """Where tasks that are made in a ``with`` block run, unless it is gone.

    Examples
    --------
    >>> with at_worker(None):
    ...     delayed(len)([1, 2]).compute()
    2
    """
    if worker is None:
        return nullcontext()
    return dask.annotate(workers=[worker], allow_other_workers=True)  # type: ignore[no-any-return]
