"""The sketch of codes and lengths: rows are ranked by inner products that are estimated from both.

The hasher makes codes of directions: all rows and queries are scaled to one length first. A line
that is learnt turns the share of bits in which two codes differ into the cosine of their rows, and
the product is this cosine times both lengths. So rows may have any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import hamming
from densehash.bits import pack
from densehash.checks import check_chance, check_positive
from densehash.errors import FileError
from densehash.index.kinds import Kind
from densehash.index.lengths import lengths_of, of_length, unit
from densehash.index.native import rerank_codes, top_products_in_groups
from densehash.index.queries import Prepared
from densehash.index.segment import Segment
from densehash.index.sketches.codes import CodeQueries, Codes, check_queries
from densehash.index.sketches.sketch import Candidates, Column
from densehash.index.visits import Allowed, Groups, Visits
from densehash.rows import Floats, Rows
from densehash.rows.numerics import to_host

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__ = ["Line", "ProductQueries", "Products", "Sample"]

_SAMPLE = 512  # rows: a line has two numbers, and these rows make a quarter of a million pairs


class Line(NamedTuple):
    """The cosine of two rows, from the share of bits that differ: ``slope * (zero - share)``.

    Attributes
    ----------
    zero : above 0, the share at which the cosine is zero
    slope : above 0

    Examples
    --------
    >>> Line.through(np.array([0.0, 0.25, 0.5]), np.array([1.0, 0.5, 0.0]))
    Line(zero=0.5, slope=2.0)
    """

    zero: float
    slope: float

    @classmethod
    def through(cls, shares: NDArray[Any], cosines: NDArray[Any]) -> Line:
        """The line of least squares; if it does not fall, nearly that of random planes."""
        x, y = shares.astype(np.float64), cosines.astype(np.float64)
        if np.ptp(x) > 0:
            slope = -float(np.mean((x - x.mean()) * y) / x.var())
            zero = float(x.mean() + y.mean() / slope) if slope > 0 else 0
            if zero > 0:
                return cls(zero, slope)
        return _USUAL


_USUAL = Line(0.5, 2.0)


class Sample(NamedTuple):
    """Some rows of an index, from which its sketch learns.

    Attributes
    ----------
    rows : float array (n, d), without rows of zeros
    length : the mean length of rows, to which they are scaled before they are hashed. A hasher that
        is fitted already has learnt from rows that are about so long.
    """

    rows: NDArray[Any]
    length: float

    @classmethod
    def of(cls, rows: Rows, random_state: int | RandomState | None) -> Sample:
        """Draw random rows."""
        drawn = to_host(rows.sample(min(rows.n_rows, _SAMPLE), check_chance(random_state)))
        lengths = lengths_of(drawn)
        some = lengths > 0
        return cls(drawn[some], float(lengths[some].mean()) if some.any() else 1.0)


class ProductQueries(CodeQueries):
    """Codes, margins and lengths of queries.

    Parameters
    ----------
    lengths : float32 (q,)
    hasher, rows, codes, margins : as in :class:`~densehash.index.sketches.codes.CodeQueries`
    """

    def __init__(
        self,
        lengths: NDArray[np.float32],
        hasher: Hasher | None = None,
        rows: NDArray[Any] | None = None,
        *,
        codes: NDArray[np.uint8] | None = None,
        margins: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(hasher, rows, codes=codes, margins=margins)
        self.lengths = lengths

    def some(self, which: slice | NDArray[np.intp]) -> ProductQueries:
        """The same for some of the queries."""
        return self._with(self.lengths[which], super().some(which))

    def to_send(self, *, margins: bool) -> ProductQueries:
        """The same, with arrays only."""
        return self._with(self.lengths, super().to_send(margins=margins))

    @staticmethod
    def _with(lengths: NDArray[np.float32], queries: CodeQueries) -> ProductQueries:
        found = ProductQueries(lengths)
        found.__dict__.update(queries.__dict__)
        return found


class Products(Codes):
    """Codes of a hasher, and lengths.

    Parameters
    ----------
    hasher : a fitted hasher
    length : the length to which rows are scaled before they are hashed
    by_bits : the cosine, from the share of bits that differ
    by_margins : the cosine, from the share that these bits have in the sum of all margins

    Examples
    --------
    >>> from densehash import LSH
    >>> rows = np.random.default_rng(0).standard_normal((100, 4))
    >>> sample = Sample.of(Rows(rows), random_state=0)
    >>> sketch = Products.of(LSH(12, random_state=0).fit(rows), sample)
    >>> sketch.encode(rows[:2], None)["lengths"].shape
    (2, 1)
    """

    name: ClassVar[str] = "products"
    distance_type: ClassVar[type[np.generic]] = np.float32
    format_version: ClassVar[int] = 2

    def __init__(self, hasher: Hasher, length: float, by_bits: Line, by_margins: Line) -> None:
        super().__init__(hasher)
        self.length, self.by_bits, self.by_margins = length, by_bits, by_margins

    @classmethod
    def of(cls, hasher: Hasher, sample: Sample) -> Products:
        """The sketch that suits rows.

        Parameters
        ----------
        hasher : fitted
        sample : some of the rows
        """
        if len(sample.rows) < 2:
            return cls(hasher, sample.length, _USUAL, _USUAL)
        rows = unit(sample.rows)
        margins, cosines = hasher.project(rows * sample.length), rows @ rows.T
        codes = pack(margins >= 0)
        others = np.array([np.delete(np.arange(len(rows)), row) for row in range(len(rows))])
        bits = np.take_along_axis(hamming.distances(codes, codes), others, axis=1)
        by_bits = Line.through(bits / hasher.n_bits_, np.take_along_axis(cosines, others, axis=1))
        sums, which = rerank_codes(margins, codes, others, None, others.shape[1])
        by_margins = Line.through(
            sums / _whole(margins), np.take_along_axis(cosines, which, axis=1)
        )
        return cls(hasher, sample.length, by_bits, by_margins)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The code and the length."""
        return (*super().columns, Column("lengths", np.float32, (1,)))

    @property
    def in_words(self) -> str:
        """How many bits, the name of the hasher, and that there are lengths."""
        return f"{super().in_words} and lengths"

    def settings(self) -> Mapping[str, Any]:
        """The hasher, the length, and the lines."""
        lines = {"by_bits": self.by_bits._asdict(), "by_margins": self.by_margins._asdict()}
        return {
            **super().settings(),
            "sketch": self.name,
            "sketch_settings": {"length": self.length, **lines},
        }

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Products:
        """The sketch from a file."""
        if content["metric"] != "ip":
            raise FileError(f"{cls.name} are for the metric ip, not for {content['metric']}")
        stored = content["sketch_settings"]
        if {*stored} != {"length", "by_bits", "by_margins"}:
            raise FileError(f"sketch_settings of {cls.name} are {', '.join(sorted(stored))}")
        lines = (
            Line(*(check_positive(stored[name][part], f"{name} {part}") for part in Line._fields))
            for name in ("by_bits", "by_margins")
        )
        hasher = Codes.from_settings(content, kind).hasher
        return cls(hasher, check_positive(stored["length"], "length"), *lines)

    def encode(
        self,
        rows: Floats,
        groups: NDArray[np.integer] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """Codes and lengths of rows."""
        codes = self.hasher.transform(of_length(rows, self.length))
        return {"codes": codes, "lengths": lengths_of(rows)[:, np.newaxis]}

    def prepare(self, queries: NDArray[Any], n_bits: int | None = None) -> ProductQueries:  # noqa: ARG002
        """Codes, margins and lengths of queries; refuses large numbers now."""
        check_queries(queries)
        scaled = of_length(queries, self.length)
        return ProductQueries(lengths_of(queries), self.hasher, scaled)

    def prepared_rows(self, segment: Segment, positions: NDArray[np.integer]) -> ProductQueries:
        """Codes and lengths of rows, as they are kept."""
        codes, lengths = (segment.columns[name][positions] for name in ("codes", "lengths"))
        return ProductQueries(lengths[:, 0], codes=codes)

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
        """The first n rows by (minus the estimated product, rank) among those visited.

        Tables find near codes, not large products: instead of looking there, all rows are compared.
        """
        asked = _products(prepared)
        if not isinstance(visits, Groups):  # one group of all rows
            visits = Groups(np.array([0, segment.n_rows]), np.zeros((len(asked), 1), np.int32))
        factors = asked.lengths * np.float32(self.by_bits.slope / self.n_bits)
        return Candidates(
            *top_products_in_groups(
                asked.codes,
                factors,
                segment.columns["codes"],
                segment.columns["lengths"][:, 0],
                self.by_bits.zero * self.n_bits,
                visits.limits,
                visits.groups,
                segment.ranks,
                allowed,
                min(n, segment.n_rows),
                ordered=ordered,
                n_threads=n_threads,
            )
        )

    def reranked(
        self,
        segment: Segment,
        prepared: Prepared,
        positions: NDArray[np.int64],
        k: int,
        *,
        n_threads: int,
    ) -> Candidates:
        """By products that are estimated from the margins of the query, the codes and lengths."""
        asked = _products(prepared)
        sums, found = rerank_codes(
            asked.margins,
            segment.columns["codes"],
            positions,
            segment.ranks,
            positions.shape[1],
            n_threads=n_threads,
        )
        there = found >= 0
        lengths = segment.columns["lengths"][np.maximum(found, 0), 0]
        zero, slope = self.by_margins
        shares = np.where(there, sums, 0) / _whole(asked.margins)
        near = lengths * (shares - zero) * (asked.lengths[:, np.newaxis] * slope)
        near = np.where(there, near, np.inf).astype(np.float32)
        first = np.lexsort((segment.rank_at(np.maximum(found, 0)), near, ~there))[:, :k]
        return Candidates(
            np.take_along_axis(near, first, axis=1), np.take_along_axis(found, first, axis=1)
        )

    def equal(
        self,
        segment: Segment,
        positions: NDArray[np.int64],
        prepared: Prepared,
        queries: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Whether codes and lengths are equal."""
        same = super().equal(segment, positions, prepared, queries)
        same &= segment.columns["lengths"][positions, 0] == _products(prepared).lengths[queries]
        return same


def _whole(margins: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of all margins of each query, (q, 1), which a distance by margins has at most."""
    sums: NDArray[np.float32] = np.abs(margins).sum(axis=1, keepdims=True)
    return np.maximum(sums, np.finfo(np.float32).tiny)


def _products(prepared: Prepared) -> ProductQueries:
    if not isinstance(prepared, ProductQueries):
        raise TypeError(f"queries were prepared by another sketch: {type(prepared).__name__}")
    return prepared
