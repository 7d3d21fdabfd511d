"""The arguments of a search of shards, checked before any worker begins."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

from numpy.typing import NDArray

from densehash.checks import as_array
from densehash.distributed.catalog import Catalog
from densehash.distributed.messages import Search
from densehash.distributed.workers import n_workers
from densehash.errors import InputError
from densehash.index.arguments import (
    as_queries,
    check_k,
    check_own,
    check_radius,
    check_rerank,
    n_candidates,
    question_of,
    reach_of,
)
from densehash.index.filters import AnyFilter, check_of_columns, is_of_columns
from densehash.index.hits import Hits, Ranges, no_hits, no_ranges
from densehash.index.ids import check_ids, public_ids, type_of
from densehash.index.queries import Question
from densehash.index.state import State

__all__ = ["Told", "check_search"]


class Told(NamedTuple):
    """The arguments of a search, checked.

    Attributes
    ----------
    search : what workers get; the number of candidates is still missing, because it depends on the
        rows of all shards
    question : the queries
    candidates : how many candidates are re-ranked; None: as many as suit the number of rows
    own : ids of the queries, so that no query is its own neighbour; True leaves out the first row
        that equals the query; False leaves out nothing
    ranges : whether to find all rows within the radius, instead of the k nearest
    one_by_one : whether each shard is searched by itself. This is so with codes, where the best
        candidates of all shards are chosen before they are re-ranked.
    is_one : whether the query was one vector
    none : what a search without rows returns
    """

    search: Search
    question: Question
    candidates: int | None
    own: NDArray[Any] | bool
    ranges: bool
    one_by_one: bool
    is_one: bool
    none: Hits | Ranges

    def search_of(self, whole: State) -> Search:
        """What workers get, with the number of candidates for all rows."""
        k, rerank = self.search.k, self.search.rerank
        return self.search._replace(n_candidates=n_candidates(self.candidates, k, rerank, whole))


def check_search(
    catalog: Catalog,
    Q: Any,
    k: int | None,
    *,
    radius: float | None,
    candidates: int | None,
    rerank: str | None,
    metric: str | None,
    filter: AnyFilter | None,  # noqa: A002
    exclude_self: Any,
    recall: float | None,
    probes: int | None,
) -> Told:
    """The parameters of :meth:`densehash.distributed.ShardedIndex.search`, checked."""
    state = catalog.state
    queries, is_one = as_queries(Q)
    question = question_of(state, queries, metric=metric, probes=probes)
    how, wanted = check_rerank(rerank, state), check_k(k)
    limit = None if radius is None else check_radius(radius, how, state)
    own = check_own(exclude_self, len(question), state)
    search = Search(
        catalog.home,
        wanted,
        0,
        how,
        _check_filter(state, filter),
        distance_type=state.sketch.distance_type,
        reach=reach_of(state, recall, probes),
        radius=limit,
    )
    one_by_one = not state.sketch.estimates and limit is None and own is False
    if not state.sketch.estimates and not one_by_one and n_workers() > 1:
        raise InputError(
            "with codes, radius and exclude_self do not work on the workers of a cluster: search "
            "without a Client, or build the index with sketch='signs'"
        )
    ranges = limit is not None and k is None
    none: Hits | Ranges = no_hits(state, len(question), wanted, how)
    if ranges:
        none = no_ranges(state, len(question), how)
    return Told(
        search,
        question,
        candidates,
        own,
        ranges=ranges,
        one_by_one=one_by_one,
        is_one=is_one,
        none=none,
    )


def _check_filter(state: State, chosen: AnyFilter | None) -> AnyFilter | None:
    if chosen is None or callable(chosen):
        return chosen
    if is_of_columns(chosen):
        check_of_columns(chosen, state.payload)  # before workers begin
        return chosen
    listed: Any = list(chosen) if isinstance(chosen, Set) else chosen
    array = as_array(listed, "filter")
    if array.dtype.kind == "b":
        raise InputError(
            "filter must be ids, a function of ids, or a filter by columns: rows in shards have no "
            "order that booleans could follow"
        )
    if array.size == 0:
        return array
    wanted = check_ids(listed, "filter")
    if type_of(wanted) != state.id_type:
        raise InputError(f"filter has ids of type {type_of(wanted)}, the index {state.id_type}")
    return public_ids(wanted)
