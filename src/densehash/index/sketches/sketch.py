"""What sketches share: one interface.

A sketch says what is kept of a row, its *columns*, and how rows are ranked by it. Where rows lie
and which of them a query visits is a kind's affair: see :mod:`densehash.index.kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash.index.kinds import Kind
from densehash.index.ordering import Found
from densehash.index.placing import Put
from densehash.index.queries import Prepared, Question, Reach, Request
from densehash.index.segment import Segment
from densehash.index.stored import check_stored
from densehash.index.visits import Allowed, Matches, Visits
from densehash.rows import Floats
from densehash.source import Source

__all__ = ["Candidates", "Column", "Sketch"]


class Column(NamedTuple):
    """One of the arrays that hold what is kept of rows.

    Attributes
    ----------
    name : in the segment, and of its file
    dtype : of the array
    shape : of what a row has of it
    """

    name: str
    dtype: type[np.generic]
    shape: tuple[int, ...]


class Candidates(NamedTuple):
    """Rows of a segment near each query, each row once.

    Attributes
    ----------
    distances : (q, n) of the sketch's ``distance_type``; anything where there is none
    positions : int64 (q, n), -1 at the end where there are fewer
    """

    distances: NDArray[Any]
    positions: NDArray[np.int64]


class Sketch(ABC):
    """What is kept of a row, and how rows are ranked by it.

    A sketch holds what it has learnt, for all segments of an index; what it keeps of rows is in
    their columns. A new sketch is a class of its own file and an entry in the registry.
    """

    name: ClassVar[str]
    distance_type: ClassVar[type[np.generic]]
    """Of the distances of candidates: int32 where they are counted, float32 where estimated."""
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
    """Of the format on disk, from which on there is this sketch."""

    @property
    def counts(self) -> bool:
        """Whether distances are whole numbers, of which ranges are exact."""
        return np.dtype(self.distance_type).kind == "i"

    # --- what it is ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Of a row."""

    @property
    def row_width(self) -> int:
        """Numbers of a row as it comes to the index."""
        return self.n_features

    @property
    @abstractmethod
    def n_bits(self) -> int:
        """Of what is kept of a row."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """What is kept of a row."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What it is, in a few words."""

    @property
    @abstractmethod
    def about(self) -> Mapping[str, Any]:
        """What it is, as plain values for a user."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What an index file keeps of the sketch itself, by name."""

    @classmethod
    @abstractmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Sketch:
        """The sketch of an index file; what does not fit together is an error."""

    # --- rows ---------------------------------------------------------------------------------

    @property
    def bytes_a_row(self) -> int:
        """Of all columns."""
        return sum(np.dtype(c.dtype).itemsize * int(np.prod(c.shape)) for c in self.columns)

    @abstractmethod
    def encode(self, rows: Floats, groups: NDArray[np.integer] | None) -> dict[str, NDArray[Any]]:
        """What is kept of rows: an array for each column, one row below the other.

        Parameters
        ----------
        rows : (b, d), checked, of length one where cosines are compared
        groups : of the rows, where the kind has groups
        """

    def placed(
        self, columns: Mapping[str, NDArray[Any] | Source], put: Put
    ) -> dict[str, NDArray[Any]]:
        """Columns as a segment holds them: moved to where it lies, and never made anew.

        Parameters
        ----------
        columns : in the order of positions; those of old segments among them
        put : makes an array what a segment holds
        """
        return {name: put(column, name) for name, column in columns.items()}

    def by_row(self, segment: Segment) -> Mapping[str, NDArray[Any]]:
        """The columns of a segment, by position, as :meth:`encode` made them."""
        return segment.columns

    def checked(self, part: Mapping[str, Any], n_rows: int) -> dict[str, NDArray[Any]]:
        """The columns of a segment in a file; an error where so many rows cannot have them."""
        for column in self.columns:
            check_stored(part[column.name], column.name, column.dtype, (n_rows, *column.shape))
        return {column.name: part[column.name] for column in self.columns}

    def forget(self) -> None:  # noqa: B027
        """Let go of what only new rows need; the next ones make it anew."""

    def vectors_of(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.integer],  # noqa: ARG002
    ) -> NDArray[np.float32] | None:
        """What the rows were, about, (m, d), from their columns; None where nobody can say."""
        return None

    # --- queries ------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, queries: NDArray[Any]) -> Prepared:
        """What all segments are asked with.

        Parameters
        ----------
        queries : uint8, int8, float32 or float64 (q, d), finite, of length one where cosines are
            compared
        """

    def prepared_rows(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.integer],  # noqa: ARG002
    ) -> Prepared | None:
        """Rows as queries, from their columns; None where they are prepared from vectors."""
        return None

    def plainly(
        self,
        segments: Sequence[Segment],  # noqa: ARG002
        queries: NDArray[Any],  # noqa: ARG002
        k: int,  # noqa: ARG002
        reach: Reach | None,  # noqa: ARG002
        allowed: Matches,  # noqa: ARG002
        n_threads: int,  # noqa: ARG002
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]] | None:
        """The k neighbours of queries just as they came, with next to nothing around native code.

        Parameters
        ----------
        segments : of the index
        queries : any array; nothing was checked
        k : how many neighbours
        reach : how far to look
        allowed : for each segment which rows may be found
        n_threads : how many threads look

        Returns
        -------
        ids and distances, (q, k), and efforts (q, 3); None where it takes the long way, which gives
        the same or says what is wrong
        """
        return None

    def at_once(
        self,
        kind: Kind,  # noqa: ARG002
        segments: Sequence[Segment],  # noqa: ARG002
        asked: Question,  # noqa: ARG002
        request: Request,  # noqa: ARG002
    ) -> Found | None:
        """The k neighbours of each query in one call; None where steps are to be taken.

        The steps are: prepare, visit, look for the nearest, look everywhere where these are too
        few, re-rank. A sketch may do all of them at once for what it can, and gives the same rows.
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
        truth : int (q, k), the nearest rows: their numbers, counted over all segments, -1 where
            there are fewer; or float (q, k), their distances, infinite where there are fewer
        recalls : above 0, at most 1, rising
        k : how many neighbours
        exact : whether rows are compared by kept vectors
        own : int64 (q,), where the queries are rows of the index: their numbers. They are not their
            own neighbours

        Returns
        -------
        one for each recall; none, where a sketch has other settings
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
        """Whether rows look the same as the queries of some numbers, (m,) each."""

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
        """The n rows of least (distance, rank) among those visited.

        Parameters
        ----------
        segment : whose rows
        prepared : q queries
        visits : which rows each of them looks at
        allowed : which rows may be found
        n : at least 1
        ordered : whether they must come in that order
        n_threads : how many threads look
        """
        raise NotImplementedError

    def within(
        self, segment: Segment, prepared: Prepared, visits: Visits, radius: float, *, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
        """All rows among those visited up to a distance: limits (q + 1,), distances, positions.

        Positions at one distance come in any order.
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
        """The first k of a query's candidates (q, c) by its best way without vectors.

        Distances are float32, and infinite where there are fewer.
        """
        raise NotImplementedError
