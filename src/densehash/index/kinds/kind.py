"""What the kinds of index share: one interface, and the plain scan behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import hamming
from densehash.bits import pack
from densehash.errors import FileError
from densehash.hashers import Hasher
from densehash.index.lengths import unit
from densehash.index.native import top_k_in_groups
from densehash.index.segment import Segment
from densehash.locks import cached_property
from densehash.rows import Floats

__all__ = ["Candidates", "Kind", "Question", "check_stored", "scan"]

Allowed = NDArray[np.bool_] | None
"""By rank, which rows of a segment may be found; None is all."""

# Where fewer rows than this share of a segment may be found, they alone are looked at.
_FEW = 1 / 16


class Candidates(NamedTuple):
    """Rows of a segment near each query.

    Attributes
    ----------
    distances : int32 (q, n), Hamming distances, -1 where there is none
    positions : int64 (q, n), -1 where there is none
    """

    distances: NDArray[np.int32]
    positions: NDArray[np.int64]


class Question:
    """Queries, and what kinds want to know of them.

    Parameters
    ----------
    vectors : uint8, int8, float32 or float64 (q, d); None, where there are only codes
    hasher : makes codes of them
    metric : "l2", "cosine" or "ip"
    unit_rows : whether rows are scaled to length one before they are hashed and grouped
    probes : how many groups, or buckets of each table, are visited; None is the kind's default
    n_threads : how many threads answer
    codes : uint8 (q, width), where they are known
    """

    def __init__(
        self,
        vectors: NDArray[Any] | None,
        hasher: Hasher,
        *,
        metric: str,
        unit_rows: bool,
        probes: int | None,
        n_threads: int,
        codes: NDArray[np.uint8] | None = None,
    ) -> None:
        self._vectors, self._hasher = vectors, hasher
        self.metric, self.unit_rows = metric, unit_rows
        self.probes, self.n_threads = probes, n_threads
        self.groups: NDArray[np.int32] | None = None  # (q, p), which a kind with groups visits
        if codes is not None:
            self.codes = codes

    def __len__(self) -> int:
        return len(self.codes if self._vectors is None else self._vectors)

    @property
    def has_vectors(self) -> bool:
        """Whether there are more than codes."""
        return self._vectors is not None

    @property
    def vectors(self) -> NDArray[Any]:
        """uint8, int8, float32 or float64 (q, d)."""
        if self._vectors is None:
            raise TypeError("these queries have codes only")
        return self._vectors

    @cached_property
    def hashed(self) -> NDArray[Any]:
        """The vectors as they are hashed and grouped."""
        return unit(self.vectors) if self.unit_rows else self.vectors

    @cached_property
    def margins(self) -> NDArray[np.float32]:
        """float32 (q, n_bits)."""
        return self._hasher.project(self.hashed)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """uint8 (q, width)."""
        if "margins" in self.__dict__:
            return pack(self.margins >= 0)
        return self._hasher.transform(self.hashed)

    def some(self, which: slice | NDArray[np.intp]) -> Question:
        """The question for some of the queries."""
        part = Question(
            None if self._vectors is None else self._vectors[which],
            self._hasher,
            metric=self.metric,
            unit_rows=self.unit_rows,
            probes=self.probes,
            n_threads=self.n_threads,
        )
        for name in ("hashed", "margins", "codes"):
            if name in self.__dict__:
                part.__dict__[name] = self.__dict__[name][which]
        return part

    def probing(self, probes: int | None) -> Question:
        """The same vectors, as if asked anew, with another number of probes."""
        return Question(
            self.vectors,
            self._hasher,
            metric=self.metric,
            unit_rows=self.unit_rows,
            probes=probes,
            n_threads=self.n_threads,
        )


class Kind(ABC):
    """How rows are laid out, and how those near a query are found.

    A kind holds what all segments of an index share; what belongs to one segment is in its arrays.
    """

    name: ClassVar[str]
    extra_names: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that a segment has because of its kind."""

    @property
    def numbers_a_query(self) -> int:
        """How many numbers, beside candidates, the kind makes of a query at a time."""
        return 0

    @property
    def numbers_a_row(self) -> int:
        """How many numbers the kind makes of a row at a time, to find its group."""
        return 1

    def labels(self, block: Floats) -> NDArray[np.integer] | None:  # noqa: ARG002
        """The group of each row of a block, (b,), where the kind has groups."""
        return None

    def arrange(self, labels: NDArray[np.integer] | None) -> NDArray[np.uint32] | None:  # noqa: ARG002
        """The rank of the row that goes to each position, (n,); None leaves rows where they are.

        Parameters
        ----------
        labels : the group of each row, by rank, where the kind has groups
        """
        return None

    def own_arrays(
        self,
        codes: NDArray[np.uint8],  # noqa: ARG002
        labels: NDArray[np.integer] | None,  # noqa: ARG002
        ranks: NDArray[np.uint32] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """The arrays that a segment has because of its kind.

        Parameters
        ----------
        codes : uint8 (n, width), by position
        labels : the group of each row, by rank, where the kind has groups
        ranks : what :meth:`arrange` returned
        """
        return {}

    def labels_of(self, segment: Segment) -> NDArray[np.integer] | None:  # noqa: ARG002
        """The group at each position of a segment, (n,), where the kind has groups."""
        return None

    @abstractmethod
    def candidates(
        self, segment: Segment, asked: Question, n: int, allowed: Allowed, *, ordered: bool
    ) -> Candidates:
        """The n rows of least (Hamming distance, rank), as far as the kind looks for them.

        Parameters
        ----------
        segment : whose rows
        asked : q queries
        n : at least 1
        allowed : which rows may be found
        ordered : whether they must come in that order
        """

    def within(
        self, segment: Segment, asked: Question, radius: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All rows at a Hamming distance of at most ``radius``, as :mod:`densehash.hamming` has it.

        Positions at one distance come in any order.
        """
        return hamming.within(asked.codes, segment.codes, radius, n_threads=asked.n_threads)

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:  # noqa: B027
        """Refuse arrays of a file that a segment of so many rows cannot have."""

    def settings(self) -> Mapping[str, Any]:
        """What an index file keeps of the kind itself: numbers and arrays by name."""
        return {}


def check_stored(
    array: Any, name: str, dtype: type[np.generic], shape: tuple[int | None, ...]
) -> None:
    """Refuse an array of a file that has another type or shape; None fits any length.

    Examples
    --------
    >>> check_stored(np.zeros((2, 3)), "centers", np.float64, (None, 3))
    >>> check_stored(np.zeros(2), "shift", np.float64, (3,))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: shift must be float64 of shape (3,), got float64 of shape (2,)
    """
    if (
        isinstance(array, np.ndarray)
        and array.dtype.type is dtype
        and array.ndim == len(shape)
        and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    ):
        return
    came = (
        f"{array.dtype} of shape {array.shape}"
        if isinstance(array, np.ndarray)
        else type(array).__name__
    )
    wanted = str(tuple("n" if size is None else size for size in shape)).replace("'", "")
    raise FileError(f"{name} must be {dtype.__name__} of shape {wanted}, got {came}")


def scan(
    segment: Segment, asked: Question, n: int, allowed: Allowed, *, ordered: bool
) -> Candidates:
    """The n rows of least (Hamming distance, rank), by looking at all that may be found.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> asked = question_of(index._state, [[2.0]])
    >>> scan(index._state.segments[0], asked, 1, None, ordered=True).positions
    array([[2]])
    """
    threads = asked.n_threads
    n = min(n, segment.n_rows)
    if allowed is None and segment.ranks is None:
        return Candidates(*hamming.top_k(asked.codes, segment.codes, n, n_threads=threads))
    if allowed is not None and np.count_nonzero(allowed) <= _FEW * segment.n_rows:
        return _scan_few(segment, asked, n, allowed)
    everything = np.zeros((len(asked), 1), np.int32)  # one group of all rows
    return Candidates(
        *top_k_in_groups(
            asked.codes,
            segment.codes,
            np.array([0, segment.n_rows]),
            everything,
            segment.ranks,
            allowed,
            n,
            ordered=ordered,
            n_threads=threads,
        )
    )


def _scan_few(segment: Segment, asked: Question, n: int, allowed: NDArray[np.bool_]) -> Candidates:
    if segment.ranks is None:
        positions = np.flatnonzero(allowed)
    else:
        positions = np.flatnonzero(allowed[segment.rank_at(np.arange(segment.n_rows))])
        positions = positions[np.argsort(segment.ranks[positions])]
    if len(positions) == 0:
        nothing = np.full((len(asked), 1), -1)
        return Candidates(nothing.astype(np.int32), nothing)
    distances, found = hamming.top_k(
        asked.codes,
        segment.codes[positions],
        min(n, len(positions)),
        n_threads=asked.n_threads,
    )
    return Candidates(distances, positions[found])
