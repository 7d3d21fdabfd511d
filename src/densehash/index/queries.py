"""Queries on their way down: what was asked, and what a sketch has made of it."""

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
    """What a sketch makes of q queries, once for all segments."""

    @property
    def points(self) -> NDArray[Any] | None:
        """Real (q, n), what groups are chosen by; None, where it is the vectors."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """How many queries."""

    @abstractmethod
    def some(self, which: slice | NDArray[np.intp]) -> Prepared:
        """The same of some of the queries."""

    @abstractmethod
    def to_send(self, *, margins: bool) -> Prepared:
        """The same, complete in itself, for other processes.

        Parameters
        ----------
        margins : whether they need more than what ranks candidates: the margins of bits
        """


class Question:
    """Queries, and what kinds and sketches want to know of them.

    Parameters
    ----------
    vectors : uint8, int8, float32 or float64 (q, d); None, where there is only what is prepared
    prepare : a sketch's; called with the vectors as they are hashed and grouped
    metric : "l2", "cosine" or "ip"
    unit_rows : whether rows are scaled to length one before they are hashed and grouped
    probes : how many groups, or buckets of each table, are visited; None is the kind's default
    n_threads : how many threads answer
    prepared : what ``prepare`` would return, where it is known
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
        """Whether there is more than what is prepared."""
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
        """What the sketch makes of the queries; an error where their numbers are too large."""
        return self._prepare(self.hashed)

    @property
    def points(self) -> NDArray[Any] | None:
        """What groups are chosen by; None, where nobody knows."""
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
        """The same vectors, as if asked anew, with another number of probes."""
        return Question(
            self.vectors,
            self._prepare,
            metric=self.metric,
            unit_rows=self.unit_rows,
            probes=probes,
            n_threads=self.n_threads,
        )


class Reach(NamedTuple):
    """How far a search that estimates distances looks, and what to expect of it.

    Attributes
    ----------
    recall : what it was chosen for
    spread : rows are compared exactly while their estimate, less what it may be off, is below the
        k-th distance so far. It may be off by so many times 2 |q - c| |r| / |y|: see
        :mod:`densehash.index.sketches.decoder`
    stop : groups are visited while ``rank * exp(4 (D - D1) / T)`` is at most this. The rank counts
        from 1; D and D1 are squared distances to the centres of the group and of the first one, T
        to the k-th row so far
    probes : groups visited at most
    expected : the share of the nearest rows that it found when it was measured
    """

    recall: float
    spread: float
    stop: float
    probes: int
    expected: float


EVERYTHING = Reach(1.0, 1e30, 1e30, 2**31 - 1, 1.0)
"""Every row is compared."""


@dataclass(frozen=True)
class Request:
    """What is asked for, checked.

    Attributes
    ----------
    k : how many neighbours
    n_candidates : how many candidates are re-ranked, at least k
    rerank : "exact", a way of the sketch's own ("asymmetric"), or None
    allowed : for each segment which rows may be found
    reach : how far a sketch that estimates distances looks; None for others
    compare_all : whether every row is compared by its vector, whatever the sketch
    watch : is told of each batch what was looked at, int32 (q, 3): groups, entries, vectors
    """

    k: int
    n_candidates: int
    rerank: str | None
    allowed: Sequence[Allowed]
    reach: Reach | None = None
    compare_all: bool = False
    watch: Callable[[NDArray[np.int32]], None] | None = None
