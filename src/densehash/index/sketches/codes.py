"""The sketch of codes: a row is kept as the code of a hasher, and ranked by Hamming distance.

Any hasher can make them. Distances are whole numbers. It works with all kinds: a search scans all
rows, or some groups, or the rows that tables of substrings find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from densehash import hamming
from densehash.bits import bytes_for, pack, unpack
from densehash.errors import FileError, InputError
from densehash.index.kinds import Kind
from densehash.index.multi_tables import multi_probe, multi_top_k, multi_within
from densehash.index.native import rerank_codes, top_k_in_groups
from densehash.index.queries import Prepared
from densehash.index.segment import Segment
from densehash.index.sketches.sketch import Candidates, Column, Sketch
from densehash.index.visits import Allowed, Groups, Tables, Visits
from densehash.locks import cached_property
from densehash.rows import Floats, Rows
from densehash.rows.local import is_fine

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__ = ["CodeQueries", "Codes", "check_queries"]

# If at most this share of the rows of a segment may be found, only these are compared.
_FEW = 1 / 16

# BLAS uses one thread for so few numbers, however many threads it may use.
_FEW_NUMBERS = 8192

_MADE = ("codes", "margins")


class CodeQueries(Prepared):
    """Codes and margins of queries, which are computed when they are used.

    Parameters
    ----------
    hasher : computes them from ``rows``
    rows : real (q, d); None if only ``codes`` or ``margins`` are known
    codes : uint8 (q, width), if they are known
    margins : float32 (q, n_bits), if they are known
    n_bits : bits of the codes, if groups are chosen by codes; otherwise None
    """

    def __init__(
        self,
        hasher: Hasher | None = None,
        rows: NDArray[Any] | None = None,
        *,
        codes: NDArray[np.uint8] | None = None,
        margins: NDArray[np.float32] | None = None,
        n_bits: int | None = None,
    ) -> None:
        self._hasher, self._rows, self._n_bits = hasher, rows, n_bits
        if codes is not None:
            self.codes = codes
        if margins is not None:
            self.margins = margins

    def __len__(self) -> int:
        return len(self.codes if self._rows is None else self._rows)

    @property
    def points(self) -> NDArray[np.bool_] | None:
        """The bits of the codes, if groups are chosen by them; otherwise None."""
        return None if self._n_bits is None else unpack(self.codes, self._n_bits)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """uint8 (q, width)."""
        if "margins" in self.__dict__:
            return pack(self.margins >= 0)
        return self._source[0]._codes_of_checked(self._source[1])

    @cached_property
    def margins(self) -> NDArray[np.float32]:
        """float32 (q, n_bits)."""
        return self._source[0].project(self._source[1])

    @property
    def _source(self) -> tuple[Hasher, NDArray[Any]]:
        if self._hasher is None or self._rows is None:
            raise TypeError("these queries have codes only")
        return self._hasher, self._rows

    def some(self, which: slice | NDArray[np.intp]) -> CodeQueries:
        """The same for some of the queries."""
        known = {name: self.__dict__[name][which] for name in _MADE if name in self.__dict__}
        rows = None if self._rows is None else self._rows[which]
        return CodeQueries(self._hasher, rows, n_bits=self._n_bits, **known)

    def to_send(self, *, margins: bool) -> CodeQueries:
        """The same, with arrays only."""
        known = self.margins if margins else None  # first: codes are then made from them
        return CodeQueries(codes=self.codes, margins=known, n_bits=self._n_bits)


def check_queries(queries: NDArray[Any]) -> None:
    """Refuse queries with numbers that are too large to compute with.

    Examples
    --------
    >>> check_queries(np.ones((1, 2)))
    """
    if queries.dtype.kind == "f" and (queries.size > _FEW_NUMBERS or not is_fine(queries)):
        Rows(queries).for_each(lambda *_: None)  # checks; each block uses one thread of BLAS


class Codes(Sketch):
    """Codes of a hasher.

    Parameters
    ----------
    hasher : a fitted hasher; None only in :class:`~densehash.index.sketches.bits.Bits`

    Examples
    --------
    >>> from densehash import LSH
    >>> Codes(LSH(12, random_state=0).fit(np.eye(4))).columns
    (Column(name='codes', dtype=<class 'numpy.uint8'>, shape=(2,)),)
    """

    name: ClassVar[str] = "codes"
    distance_type: ClassVar[type[np.generic]] = np.int32
    reranks: tuple[str, ...] = ("asymmetric",)

    def __init__(self, hasher: Hasher | None) -> None:
        self._hasher = hasher

    @property
    def hasher(self) -> Hasher:
        """The hasher; an error if codes were made elsewhere by an unknown one."""
        if self._hasher is None:
            raise InputError(
                "this index was made from codes and has no hasher: give one to "
                "from_codes(..., hasher=...)"
            )
        return self._hasher

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return int(self.hasher.n_features_in_)

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return int(self.hasher.n_bits_)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The code."""
        return (Column("codes", np.uint8, (bytes_for(self.n_bits),)),)

    @property
    def in_words(self) -> str:
        """How many bits, and the name of the hasher."""
        return f"{self.n_bits} bits of {type(self.hasher).__name__}"

    @property
    def about(self) -> Mapping[str, Any]:
        """The hasher, and the length of its codes."""
        return {"hasher": type(self.hasher).__name__, "bits": self.n_bits}

    def settings(self) -> Mapping[str, Any]:
        """The hasher."""
        from densehash.hashers.state import state_of  # noqa: PLC0415  brings scikit-learn

        state = state_of(self.hasher)
        return {"hasher": {"description": state.description, "arrays": state.arrays}}

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Codes:  # noqa: ARG003
        """The sketch from a file."""
        from densehash.hashers.state import hasher_of  # noqa: PLC0415  brings scikit-learn

        hasher = hasher_of(content["hasher"]["description"], content["hasher"]["arrays"])
        for name, there in (("n_bits", hasher.n_bits_), ("n_features", hasher.n_features_in_)):
            if content[name] != there:
                raise FileError(f"{name} is {content[name]} but the hasher has {there}")
        return cls(hasher)

    def encode(
        self,
        rows: Floats,
        groups: NDArray[np.integer] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """Codes of rows."""
        return {"codes": self.hasher.transform(rows)}

    def prepare(self, queries: NDArray[Any], n_bits: int | None = None) -> CodeQueries:
        """Codes and margins of queries, computed when they are used; refuses large numbers now."""
        check_queries(queries)
        return CodeQueries(self.hasher, queries, n_bits=n_bits)

    def prepared_rows(self, segment: Segment, positions: NDArray[np.integer]) -> CodeQueries:
        """Codes of rows, as they are kept."""
        return CodeQueries(codes=segment.columns["codes"][positions])

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
        """The first n rows by (Hamming distance, rank) among those visited."""
        asked, codes = _codes(prepared), segment.columns["codes"]
        n = min(n, segment.n_rows)
        if isinstance(visits, Tables):
            return _in_tables(asked, codes, visits, allowed, n, n_threads)
        if visits is None:
            if allowed is None and segment.ranks is None:
                return Candidates(*hamming.top_k(asked.codes, codes, n, n_threads=n_threads))
            if allowed is not None and np.count_nonzero(allowed) <= _FEW * segment.n_rows:
                return _among_few(segment, asked.codes, n, allowed, n_threads)
            # one group of all rows
            visits = Groups(np.array([0, segment.n_rows]), np.zeros((len(asked), 1), np.int32))
        return Candidates(
            *top_k_in_groups(
                asked.codes,
                codes,
                visits.limits,
                visits.groups,
                segment.ranks,
                allowed,
                n,
                ordered=ordered,
                n_threads=n_threads,
            )
        )

    def within(
        self, segment: Segment, prepared: Prepared, visits: Visits, radius: float, *, n_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All rows at a Hamming distance of at most ``radius``, by a scan or by tables."""
        asked, codes = _codes(prepared).codes, segment.columns["codes"]
        if isinstance(visits, Tables):
            tables = visits.n_bits, visits.starts, visits.rows
            return multi_within(asked, codes, *tables, None, int(radius), n_threads=n_threads)
        return hamming.within(asked, codes, int(radius), n_threads=n_threads)

    def reranked(
        self,
        segment: Segment,
        prepared: Prepared,
        positions: NDArray[np.int64],
        k: int,
        *,
        n_threads: int,
    ) -> Candidates:
        """By asymmetric distances, from the margins of the query and the codes."""
        margins, codes = _codes(prepared).margins, segment.columns["codes"]
        return Candidates(
            *rerank_codes(margins, codes, positions, segment.ranks, k, n_threads=n_threads)
        )

    def equal(
        self,
        segment: Segment,
        positions: NDArray[np.int64],
        prepared: Prepared,
        queries: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Whether codes are equal."""
        same = segment.columns["codes"][positions] == _codes(prepared).codes[queries]
        found: NDArray[np.bool_] = same.all(axis=1)
        return found


def _codes(prepared: Prepared) -> CodeQueries:
    if not isinstance(prepared, CodeQueries):
        raise TypeError(f"queries were prepared by another sketch: {type(prepared).__name__}")
    return prepared


def _in_tables(
    asked: CodeQueries,
    codes: NDArray[np.uint8],
    visits: Tables,
    allowed: Allowed,
    n: int,
    n_threads: int,
) -> Candidates:
    tables = visits.n_bits, visits.starts, visits.rows, allowed
    if visits.probes is None:
        return Candidates(*multi_top_k(asked.codes, codes, *tables, n, n_threads=n_threads))
    margins = asked.margins  # before the codes, which are then made from them
    return Candidates(
        *multi_probe(asked.codes, margins, codes, *tables, visits.probes, n, n_threads=n_threads)
    )


def _among_few(
    segment: Segment,
    asked: NDArray[np.uint8],
    n: int,
    allowed: NDArray[np.bool_],
    n_threads: int,
) -> Candidates:
    if segment.ranks is None:
        positions = np.flatnonzero(allowed)
    else:
        positions = np.flatnonzero(allowed[segment.rank_at(np.arange(segment.n_rows))])
        positions = positions[np.argsort(segment.ranks[positions])]
    if len(positions) == 0:
        nothing = np.full((len(asked), 1), -1)
        return Candidates(nothing.astype(np.int32), nothing)
    distances, found = hamming.top_k(
        asked, segment.columns["codes"][positions], min(n, len(positions)), n_threads=n_threads
    )
    return Candidates(distances, positions[found])
