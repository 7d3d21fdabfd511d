"""The neighbours of all rows of an index, in the index itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_choice, check_threads
from densehash.errors import InputError
from densehash.index.arguments import (
    USUAL_K,
    check_k,
    check_probes,
    check_radius,
    check_rerank,
    n_candidates,
    reach_of,
)
from densehash.index.filters import allowed_rows
from densehash.index.ids import find, no_ids, public_ids
from densehash.index.ordering import order_of
from densehash.index.queries import Question, Reach, Request
from densehash.index.search import neighbours, neighbours_within
from densehash.index.sketches import Codes, Products
from densehash.index.state import State
from densehash.progress import bar

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["Pairs", "near_duplicates", "neighbors_graph"]

_BATCH = 4096  # rows that are searched for at a time


class Pairs(NamedTuple):
    """Pairs of rows, nearest first.

    Attributes
    ----------
    ids : int64 (m, 2), or strings in an array of objects; the smaller id of a pair comes first
    distances : Hamming distances, int32 (m,), or distances of vectors, float32 (m,)

    Examples
    --------
    >>> Pairs(np.array([[1, 2]]), np.array([0.5])).ids.shape
    (1, 2)
    """

    ids: NDArray[Any]
    distances: NDArray[Any]


def neighbors_graph(
    state: State,
    k: int,
    *,
    mode: str,
    candidates: int | None,
    rerank: str | None,
    probes: int | None,
    n_threads: int | None,
    verbose: int,
) -> csr_matrix:
    """The nearest rows of each row: see :meth:`densehash.index.Index.neighbors_graph`."""
    check_choice(mode, "mode", ("connectivity", "distance"))
    n_wanted = check_k(k)
    if n_wanted >= state.n_live:
        raise InputError(f"k must be less than the number of rows, {state.n_live}, got {k}")
    how = check_rerank(rerank, state)
    if how == "asymmetric" and state.vector_type is None:
        if rerank != "auto":
            raise InputError("rerank must be None here: rows without vectors have no margins")
        how = None
    visited = check_probes(probes, state)
    if state.vector_type is None:
        if probes is not None and state.kind.probes_by_margins:
            raise InputError(
                f"probes is {probes}, but buckets are chosen by the margins of vectors, and "
                "this index keeps none: leave probes out, which searches codes exactly, or "
                "build the index with keep_vectors=True"
            )
        visited = None
    request = _request(state, n_wanted, candidates, how, reach_of(state, None, probes))
    return _graph(
        state,
        request,
        with_distances=mode == "distance",
        probes=visited,
        n_threads=check_threads(n_threads),
        verbose=verbose > 0,
    )


def near_duplicates(
    state: State,
    radius: float,
    *,
    rerank: str | None,
    candidates: int | None,
    n_threads: int | None,
    verbose: int,
) -> Pairs:
    """All pairs of near rows: see :meth:`densehash.index.Index.near_duplicates`."""
    how = check_rerank(rerank, state)
    if how == "asymmetric":
        raise InputError("rerank must be None or 'exact' here: pairs have no query")
    if how is None and isinstance(state.sketch, Products):
        state = replace(state, sketch=Codes(state.hasher))  # near codes, whatever the lengths
    if how is None and not state.sketch.counts:
        raise InputError(
            f"distances of {state.sketch.name} are estimates, in which pairs would be missed: "
            "pass rerank='exact', which takes kept vectors"
        )
    request = _request(state, USUAL_K, candidates, how, reach_of(state))
    limit = check_radius(radius, how, state)
    return _near_pairs(
        state, request, limit, n_threads=check_threads(n_threads), verbose=verbose > 0
    )


def _request(
    state: State, k: int, candidates: int | None, rerank: str | None, reach: Reach | None
) -> Request:
    return Request(
        k,
        n_candidates(candidates, k, rerank, state),
        rerank,
        allowed_rows(state, None),
        reach,
        not state.sketch.is_learnt,
    )


def _graph(
    state: State,
    request: Request,
    *,
    with_distances: bool,
    probes: int | None,
    n_threads: int,
    verbose: bool,
) -> csr_matrix:
    from scipy.sparse import csr_matrix  # noqa: PLC0415  in no other search

    all_ids = np.sort(np.concatenate([segment.live_ids for segment in state.segments]))
    n, k = len(all_ids), request.k
    columns = np.empty((n, k), np.int64)
    values = np.ones((n, k), np.float64)
    with bar("finding neighbours", n, shown=verbose) as advance:
        for own, asked in _questions(state, probes, n_threads):
            at, _ = find(all_ids, own)
            start = 0
            for ids, distances, _ in neighbours(state, asked, request, own=own):
                rows = at[start : start + len(ids)]
                start += len(ids)
                columns[rows] = find(all_ids, ids.reshape(-1))[0].reshape(ids.shape)
                if with_distances:
                    values[rows] = distances
            advance(len(own))
    limits = np.arange(0, n * k + 1, k)
    return csr_matrix((values.reshape(-1), columns.reshape(-1), limits), shape=(n, n))


def _near_pairs(
    state: State, request: Request, radius: float, *, n_threads: int, verbose: bool
) -> Pairs:
    firsts, seconds, distances = [], [], []
    with bar("finding near-duplicates", state.n_live, shown=verbose) as advance:
        for own, asked in _questions(state, None, n_threads):
            queries, ids, near = neighbours_within(state, asked, request, radius=radius)
            mine = own[queries]
            # Candidates may find a pair from one of its ends only; codes find it from both.
            swapped = mine > ids
            kept = mine < ids if request.rerank is None else mine != ids
            firsts.append(np.where(swapped, ids, mine)[kept])
            seconds.append(np.where(swapped, mine, ids)[kept])
            distances.append(near[kept])
            advance(len(own))
    if not firsts:
        nothing = no_ids(state.id_type)
        return Pairs(public_ids(np.stack([nothing, nothing], axis=1)), np.empty(0, np.float32))
    one, two, near = np.concatenate(firsts), np.concatenate(seconds), np.concatenate(distances)
    order = order_of(near, one, two)
    one, two, near = one[order], two[order], near[order]
    new = np.ones(len(one), np.bool_)
    new[1:] = (one[1:] != one[:-1]) | (two[1:] != two[:-1])
    return Pairs(public_ids(np.stack([one[new], two[new]], axis=1)), near[new])


def _questions(
    state: State, probes: int | None, n_threads: int
) -> Iterator[tuple[NDArray[Any], Question]]:
    """All rows as queries, some at a time, with their ids."""
    for segment in state.segments:
        for start in range(0, segment.n_rows, _BATCH):
            positions = np.arange(start, min(start + _BATCH, segment.n_rows))
            ranks = segment.rank_at(positions)
            if segment.live is not None:
                positions, ranks = positions[segment.live[ranks]], ranks[segment.live[ranks]]
            if len(positions) == 0:
                continue
            if segment.vectors is None:
                vectors = state.sketch.vectors_of(segment, positions)
            else:
                vectors = state.vectors_at(segment, positions)
                vectors = vectors if vectors.itemsize == 1 else vectors.astype(np.float32)
            # Buckets are chosen by margins, which only vectors have.
            with_margins = probes is not None and segment.vectors is not None
            yield (
                segment.ids[ranks],
                Question(
                    vectors,
                    state.sketch.prepare,
                    metric=state.metric,
                    unit_rows=state.metric == "cosine",
                    probes=probes,
                    n_threads=n_threads,
                    prepared=None
                    if with_margins
                    else state.sketch.prepared_rows(segment, positions),
                ),
            )
