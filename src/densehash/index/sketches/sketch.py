"""What sketches share: one interface.

A sketch decides what is kept of a row, its *columns*, and how rows are ranked by it. A kind decides
where rows lie and which of them a query visits: see :mod:`densehash.index.kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.index.kinds import Kind
from densehash.index.ordering import Found
from densehash.index.placing import Put
from densehash.index.queries import Prepared, Question, Reach, Request
from densehash.index.segment import Segment
from densehash.index.stored import check_stored
from densehash.index.visits import Allowed, Matches, Visits
from densehash.rows import Floats, Rows
from densehash.source import Source

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Candidates", "Column", "Sketch"]


class Column(NamedTuple):
    """One of the arrays that hold what is kept of rows.

    Attributes
    ----------
    name : its name in the segment, and in the name of its file
    dtype : type of the array
    shape : shape of the part that belongs to one row
    """

    name: str
    dtype: type[np.generic]
    shape: tuple[int, ...]


class Candidates(NamedTuple):
    """Rows of a segment near each query, each row once.

    Attributes
    ----------
    distances : (q, n) of the sketch's ``distance_type``; anything for a missing row
    positions : int64 (q, n), -1 at the end if there are fewer rows
    """

    distances: NDArray[Any]
    positions: NDArray[np.int64]


class Sketch(ABC):
    """What is kept of a row, and how rows are ranked by it.

    A sketch holds what it has learnt, for all segments of an index; what it keeps of rows is in
    their columns. A new sketch is a class in a file of its own and a word in
    :mod:`densehash.choices`.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ()
    """The kinds that a sketch without a hasher works with: the first is the default for few rows,
    the last for many. Codes of a hasher work with all kinds."""
    most_groups_a_row: ClassVar[int] = 1
    """In how many groups a row may lie."""
    takes_scales: ClassVar[bool] = False
    """Whether floats can be kept as int8, with a scale for each row."""
    distance_type: ClassVar[type[np.generic]]
    """Type of the distances of candidates: int32 if they are counted, float32 if estimated."""
    reranks: tuple[str, ...] = ()
    """Ways to re-rank without vectors, the best first."""
    estimates: ClassVar[bool] = False
    """Whether distances are estimated, so that a :class:`~densehash.index.queries.Reach` says how
    many rows are compared."""
    scaled: bool = False
    """Whether vectors are kept as whole numbers, with a scale for each row in a column."""
    is_learnt: ClassVar[bool] = True
    """Whether rows are ranked by what was learnt; if not, all of them are compared."""
    places_rows: ClassVar[bool] = False
    """Whether its columns say where the rows of a group are. Then rows lie in the order of their
    ids, and segments have no arrays of the kind."""
    format_version: ClassVar[int] = 1
    """The first version of the format on disk that has this sketch."""

    @property
    def counts(self) -> bool:
        """Whether distances are whole numbers, so that a search by radius is exact."""
        return np.dtype(self.distance_type).kind == "i"

    # --- made; codes are made from a hasher instead ---------------------------------------------

    @classmethod
    def n_bits_for(cls, n_features: int, n_bits: int | None) -> int:
        """How many bits are kept of a row: ``n_bits``, checked, or if it is None what suits."""
        raise NotImplementedError

    @classmethod
    def learn(
        cls,
        rows: Rows,
        kind: Kind,
        *,
        n_bits: int,
        metric: str,
        random_state: RandomState,
        n_copies: int = 1,
        second: bool = False,
        scaled: bool = False,
    ) -> Self:
        """The sketch that suits rows.

        Parameters
        ----------
        rows : the rows of the index, of length one if the metric is "cosine"
        kind : one of ``kinds``, which has learnt
        n_bits : bits that are kept of a row
        metric : "l2", "cosine" or "ip"
        random_state : draws what is random
        n_copies : in how many groups a row lies, at most ``most_groups_a_row``
        second : whether no vectors are kept, so that rows are ranked by the sketch in the end
        scaled : whether vectors are kept as whole numbers with a scale for each row
        """
        raise NotImplementedError

    # --- what it is ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Features of a row."""

    @property
    def row_width(self) -> int:
        """How many numbers a row has when it is added."""
        return self.n_features

    @property
    @abstractmethod
    def n_bits(self) -> int:
        """Bits that are kept of a row."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """What is kept of a row."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """The sketch in a few words."""

    @property
    @abstractmethod
    def about(self) -> Mapping[str, Any]:
        """The sketch as plain values, for users."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What a file keeps of the sketch itself, by name."""

    @classmethod
    @abstractmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Sketch:
        """The sketch from a file; an error if its parts do not fit together."""

    # --- rows ---------------------------------------------------------------------------------

    @property
    def bytes_a_row(self) -> int:
        """Bytes of all columns of a row."""
        return sum(np.dtype(c.dtype).itemsize * int(np.prod(c.shape)) for c in self.columns)

    @abstractmethod
    def encode(self, rows: Floats, groups: NDArray[np.integer] | None) -> dict[str, NDArray[Any]]:
        """What is kept of rows: an array for each column, in the order of the rows.

        Parameters
        ----------
        rows : (b, d), checked, of length one if the metric is "cosine"
        groups : the group of each row; None if the kind has no groups
        """

    def placed(
        self, columns: Mapping[str, NDArray[Any] | Source], put: Put
    ) -> dict[str, NDArray[Any]]:
        """Columns as a segment holds them; what is kept of a row is moved, never computed again.

        Parameters
        ----------
        columns : columns in the order of positions; some may come from old segments
        put : takes an array and its name, and returns the array that a segment holds
        """
        return {name: put(column, name) for name, column in columns.items()}

    def by_row(self, segment: Segment) -> Mapping[str, NDArray[Any]]:
        """The columns of a segment, by position, as :meth:`encode` made them."""
        return segment.columns

    def checked(self, part: Mapping[str, Any], n_rows: int) -> dict[str, NDArray[Any]]:
        """The columns of a segment from a file; an error if they do not fit so many rows."""
        for column in self.columns:
            check_stored(part[column.name], column.name, column.dtype, (n_rows, *column.shape))
        return {column.name: part[column.name] for column in self.columns}

    def forget(self) -> None:  # noqa: B027
        """Free what only new rows need; it is made again for the next ones."""

    def vectors_of(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.integer],  # noqa: ARG002
    ) -> NDArray[np.float32] | None:
        """The rows, approximately, (m, d), from their columns; None if that is not possible."""
        return None

    # --- queries ------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, queries: NDArray[Any]) -> Prepared:
        """What the sketch computes from queries, once for all segments.

        Parameters
        ----------
        queries : uint8, int8, float32 or float64 (q, d), finite, of length one if the metric is
            "cosine"
        """

    def prepared_rows(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.integer],  # noqa: ARG002
    ) -> Prepared | None:
        """Rows as queries, from their columns; None if they are prepared from vectors."""
        return None

    def plainly(
        self,
        segments: Sequence[Segment],  # noqa: ARG002
        queries: NDArray[Any],  # noqa: ARG002
        k: int,  # noqa: ARG002
        reach: Reach | None,  # noqa: ARG002
        allowed: Matches,  # noqa: ARG002
        n_threads: int,  # noqa: ARG002
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.int32]] | None:
        """The k neighbours of unchecked queries, with next to nothing around one native call.

        Parameters
        ----------
        segments : segments of the index
        queries : any array, not checked
        k : how many neighbours
        reach : how far to look
        allowed : for each segment, which rows may be found
        n_threads : how many threads search

        Returns
        -------
        ids as users see them and distances, (q, k), and efforts (q, 3); None if the search must go
        the longer way, which finds the same or says what is wrong
        """
        return None

    def at_once(
        self,
        kind: Kind,  # noqa: ARG002
        segments: Sequence[Segment],  # noqa: ARG002
        asked: Question,  # noqa: ARG002
        request: Request,  # noqa: ARG002
    ) -> Found | None:
        """The k neighbours of each query in one call; None if the search must go step by step.

        The steps are: prepare, visit, find the nearest, look everywhere if these are too few,
        re-rank. A sketch may do all of them at once, if it finds the same rows.
        """
        return None

    def reaches(
        self,
        segments: Sequence[Segment],  # noqa: ARG002
        queries: NDArray[Any],  # noqa: ARG002
        truth: NDArray[Any],  # noqa: ARG002
        recalls: Sequence[float],  # noqa: ARG002
        *,
        k: int,  # noqa: ARG002
        exact: bool,  # noqa: ARG002
        own: NDArray[np.int64] | None = None,  # noqa: ARG002
    ) -> tuple[Reach, ...]:
        """How far a search must look to find some shares of the nearest rows.

        Parameters
        ----------
        segments : at least one
        queries : uint8, int8 or float32 (q, d)
        truth : the nearest rows: int (q, k), their numbers, counted over all segments, -1 if there
            are fewer; or float (q, k), their distances, infinite if there are fewer
        recalls : above 0 and at most 1, rising
        k : how many neighbours
        exact : whether rows are compared by kept vectors
        own : int64 (q,), the numbers of the queries, if they are rows of the index; they do not
            count as their own neighbours

        Returns
        -------
        a Reach for each recall; none if the sketch has no use for them
        """
        return ()

    @abstractmethod
    def equal(
        self,
        segment: Segment,
        positions: NDArray[np.int64],
        prepared: Prepared,
        queries: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Whether rows and queries, (m,) each, have equal sketches."""

    # --- the steps, of a sketch that does not do all at once --------------------------------------

    def nearest(
        self,
        segment: Segment,
        prepared: Prepared,
        visits: Visits,
        allowed: Allowed,
        n: int,
        *,
        ordered: bool,
        n_threads: int,
    ) -> Candidates:
        """The first n rows by (distance, rank) among those visited.

        Parameters
        ----------
        segment : the segment to search
        prepared : q queries
        visits : which rows each of them looks at
        allowed : which rows may be found
        n : at least 1
        ordered : whether they must be in that order
        n_threads : how many threads search
        """
        raise NotImplementedError

    def within(
        self, segment: Segment, prepared: Prepared, visits: Visits, radius: float, *, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
        """All visited rows within a radius: limits (q + 1,), distances, positions.

        Positions at equal distances may be in any order.
        """
        raise NotImplementedError

    def reranked(
        self,
        segment: Segment,
        prepared: Prepared,
        positions: NDArray[np.int64],
        k: int,
        *,
        n_threads: int,
    ) -> Candidates:
        """The first k candidates of each query, of (q, c), by the best way without vectors.

        Distances are float32, and infinite if there are fewer candidates.
        """
        raise NotImplementedError
