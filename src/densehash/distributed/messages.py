"""What goes to workers, and what they report about the shards that they have searched."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from densehash.distributed.shards import Home
from densehash.index.filters import AnyFilter, is_of_columns
from densehash.index.queries import Question, Reach
from densehash.index.state import State

__all__ = ["Asked", "Look", "Search"]


class Search(NamedTuple):
    """What workers have to find.

    Attributes
    ----------
    home : where the shards are
    k : how many neighbours
    n_candidates : how many candidates of all shards are re-ranked, at least k
    rerank : "exact", "asymmetric" or None
    filter : ids, a function, a filter by columns, or None
    everywhere : whether to look at all rows, whatever the kind
    distance_type : type of the distances of candidates, from the sketch
    reach : how far a sketch that estimates distances looks
    radius : find no row that is farther away; None: no limit
    equal : whether to compare rows with the query
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
        """Whether the filter reads payloads."""
        return is_of_columns(self.filter)


class Asked:
    """Queries that are sent to workers, prepared once for all of them.

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
        """The question for a shard; a process has one for all shards, so groups are found once."""
        if self._question is None:
            self._question = Question(
                self._vectors,
                state.sketch.prepare,
                metric=self._metric,
                unit_rows=state.metric == "cosine",
                probes=self._probes,
                n_threads=n_threads,  # 1 if Dask searches other shards in other threads
                prepared=self._prepared,
            )
        return self._question

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_question": None}


class Look(NamedTuple):
    """The state of a shard when it was searched.

    Attributes
    ----------
    name : name of the shard
    lost : why it cannot be read, or None
    mark : the mark of its state
    n_rows : how many rows it has
    n_allowed : how many rows may be found
    """

    name: str
    lost: str | None
    mark: str = ""
    n_rows: int = 0
    n_allowed: int = 0
