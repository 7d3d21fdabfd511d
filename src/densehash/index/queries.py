"""Queries during a search, what a sketch computes from them, and what is to be found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.index.lengths import unit
from densehash.index.visits import Allowed
from densehash.locks import cached_property

__all__ = ["EVERYTHING", "Prepared", "Question", "Reach", "Request"]


class Prepared(ABC):
    """What a sketch computes from q queries, once for all segments."""

    @property
    def points(self) -> NDArray[Any] | None:
        """Real (q, n), by which groups are chosen; None: groups are chosen by the vectors."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """How many queries."""

    @abstractmethod
    def some(self, which: slice | NDArray[np.intp]) -> Prepared:
        """The same for some of the queries."""

    @abstractmethod
    def to_send(self, *, margins: bool) -> Prepared:
        """The same, without references to the index, to send to other processes.

        Parameters
        ----------
        margins : whether they need the margins of bits, too, not only what finds candidates
        """


class Question:
    """Queries, and what kinds and sketches need to know of them.

    Parameters
    ----------
    vectors : uint8, int8, float32 or float64 (q, d); None if only ``prepared`` is known
    prepare : the method of the sketch; called with the vectors as they are hashed and grouped
    metric : "l2", "cosine" or "ip"
    unit_rows : whether rows are scaled to length one before they are hashed and grouped
    probes : how many groups, or buckets of each table, are visited; None: the default of the kind
    n_threads : how many threads search
    prepared : what ``prepare`` would return, if it is known already
    """

    def __init__(
        self,
        vectors: NDArray[Any] | None,
        prepare: Callable[[NDArray[Any]], Prepared],
        *,
        metric: str,
        unit_rows: bool,
        probes: int | None,
        n_threads: int,
        prepared: Prepared | None = None,
    ) -> None:
        self._vectors, self._prepare = vectors, prepare
        self.metric, self.unit_rows = metric, unit_rows
        self.probes, self.n_threads = probes, n_threads
        self.groups: NDArray[np.int32] | None = None  # (q, p), which a kind with groups visits
        if prepared is not None:
            self.prepared = prepared

    def __len__(self) -> int:
        return len(self.prepared if self._vectors is None else self._vectors)

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors, and not only ``prepared``."""
        return self._vectors is not None

    @property
    def vectors(self) -> NDArray[Any]:
        """uint8, int8, float32 or float64 (q, d)."""
        if self._vectors is None:
            raise TypeError("these queries have no vectors")
        return self._vectors

    @cached_property
    def hashed(self) -> NDArray[Any]:
        """The vectors as they are hashed and grouped."""
        return unit(self.vectors) if self.unit_rows else self.vectors

    @cached_property
    def prepared(self) -> Prepared:
        """What the sketch computes from the queries; an error if their numbers are too large."""
        return self._prepare(self.hashed)

    @property
    def points(self) -> NDArray[Any] | None:
        """Real (q, n), by which groups are chosen; None if it is not known."""
        own = self.prepared.points
        return self.hashed if own is None and self.has_vectors else own

    def some(self, which: slice | NDArray[np.intp]) -> Question:
        """The question for some of the queries."""
        part = Question(
            None if self._vectors is None else self._vectors[which],
            self._prepare,
            metric=self.metric,
            unit_rows=self.unit_rows,
            probes=self.probes,
            n_threads=self.n_threads,
            prepared=self.prepared.some(which) if "prepared" in self.__dict__ else None,
        )
        if "hashed" in self.__dict__:
            part.__dict__["hashed"] = self.hashed[which]
        return part

    def probing(self, probes: int | None) -> Question:
        """A new question with the same vectors and another number of probes."""
        return Question(
            self.vectors,
            self._prepare,
            metric=self.metric,
            unit_rows=self.unit_rows,
            probes=probes,
            n_threads=self.n_threads,
        )


class Reach(NamedTuple):
    """How far a search that estimates distances looks, and the recall to expect.

    Attributes
    ----------
    recall : the recall for which it was chosen
    spread : how large the error of an estimate may be, as a multiple of 2 |q - c| |r| / |y|: see
        :mod:`densehash.index.sketches.decoder`. A row is compared exactly if its estimate minus
        this error is below the k-th distance so far.
    stop : groups are visited while ``rank * exp(4 (D - D1) / T)`` is at most this. The rank of a
        group counts from 1. D, D1 and T are squared distances of the query: to the centre of the
        group, to the centre of the first group, and to the k-th row so far.
    probes : the most groups to visit
    expected : the share of the nearest rows that were found when it was measured
    """

    recall: float
    spread: float
    stop: float
    probes: int
    expected: float


EVERYTHING = Reach(1.0, 1e30, 1e30, 2**31 - 1, 1.0)
"""The reach of a search that compares every row."""


@dataclass(frozen=True)
class Request:
    """What a search has to find, checked.

    Attributes
    ----------
    k : how many neighbours
    n_candidates : how many candidates are re-ranked, at least k
    rerank : "exact", a way of the sketch itself ("asymmetric"), or None
    allowed : for each segment, which rows may be found
    reach : how far a sketch that estimates distances looks; None for other sketches
    compare_all : whether every row is compared by its vector, whatever the sketch
    watch : called after each batch with what the search looked at, int32 (q, 3): groups, entries,
        vectors
    """

    k: int
    n_candidates: int
    rerank: str | None
    allowed: Sequence[Allowed]
    reach: Reach | None = None
    compare_all: bool = False
    watch: Callable[[NDArray[np.int32]], None] | None = None
