"""Queries in batches, asked of shards that may change meanwhile, or be gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.distributed.searching import Asked, Look, Search, answer_of, n_workers
from densehash.index.answers import Hits, padded
from densehash.index.ordering import with_wider
from densehash.index.question import Question
from densehash.index.state import State

__all__ = ["Stale", "hits_in"]

# Of a batch of queries: bytes that go to every worker, and bytes that a worker makes of it.
_MOST_SENT = 1 << 23
_MOST_HELD = 1 << 28
_CANDIDATE_BYTES = 24
_SCORE_BYTES = 4


class Stale(Exception):  # noqa: N818  no error: the search begins anew
    """Shards are not what they were taken for.

    Attributes
    ----------
    looks : how they are, by name
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
    search : what is asked for
    state : what the shards have in common
    question : the queries
    rows : how many rows each shard has, as far as we know, by name
    marks : of the states of shards that were seen before

    Raises
    ------
    Stale : if a shard is lost, has another number of rows, or has changed between batches

    Examples
    --------
    >>> from pathlib import Path
    >>> from densehash.distributed.shards import Home
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> state = Index.build(np.eye(8), n_bits=8)._state
    >>> search = Search(Home(Path("/no-such-folder"), {}), 1, 1, None, None)
    >>> try:
    ...     hits_in(search, state, question_of(state, np.eye(8)), {"shard-0": 8})
    ... except Stale as stale:
    ...     stale.looks["shard-0"].lost
    '/no-such-folder/shard-0 is not there'
    """
    marks = {} if marks is None else marks
    by_margins = state.kind.probes_by_margins and question.probes is not None
    margins = search.rerank in state.sketch.reranks or (by_margins and not search.everywhere)
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
    lacking: list[NDArray[np.intp]] = []
    for at in _batches(search, state, question, len(rows)):
        asked = Asked(question.some(at), margins=margins)
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
    held = _CANDIDATE_BYTES * search.n_candidates * n_shards // n_workers()
    made = held + _SCORE_BYTES * state.kind.numbers_a_query
    step = max(min(_MOST_SENT // sent, _MOST_HELD // max(made, 1)), 1)
    for start in range(0, n_queries, step):
        yield slice(start, min(start + step, n_queries))
