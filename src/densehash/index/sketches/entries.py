"""The parts of a sketch of signs: centres, a decoder and entries, and a searcher for them.

A row lies in one group or in two, so an index holds *entries*: signs, factors and the number of a
row. Entries are ordered by group, in blocks of 32; a block may have entries of several groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.errors import FileError
from densehash.index.sketches.decoder import Decoder, learn_decoder, signs_of
from densehash.index.sketches.second import SecondDecoder, packed, rounded
from densehash.locks import cached_property
from densehash.parallel import n_threads
from densehash.source import Source

__all__ = [
    "BLOCK",
    "Blocks",
    "ByRow",
    "Entries",
    "Lengths",
    "NearCenters",
    "Second",
    "Segment",
    "SignModel",
    "entries_of",
    "near_centers",
    "numbers_of",
    "placed",
    "rows_of",
    "second_groups",
]

Floats = NDArray[np.float32]

_NEAR = 32  # centres near the first one of a row, among which the second one is chosen
_AT_A_TIME = 256  # centres that are compared with all others
BLOCK = 32
"""How many entries a block has."""


class Entries(NamedTuple):
    """What a segment holds of its rows.

    Attributes
    ----------
    blocks : uint8 (ceil(e / 32), 4 n_bits + 128); native/kernels.hpp describes the layout
    limits : int64 (g + 1,): the entries of group i are at ``limits[i]:limits[i + 1]``
    rows : uint32 (e,), the row of each entry
    """

    blocks: NDArray[np.uint8]
    limits: NDArray[np.int64]
    rows: NDArray[np.uint32]


class ByRow(NamedTuple):
    """What is kept of rows, by row: as it is computed, and as it is merged.

    Attributes
    ----------
    labels : uint32 (n, c), the groups of each row; c is 1 or 2
    codes : uint8 (n, c, n_bits / 8)
    factors : int16 (n, c, 2)
    """

    labels: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    factors: NDArray[np.int16]


class Blocks(Source):
    """Entries in blocks, which are packed when they are read, so that they need not be in memory.

    Parameters
    ----------
    codes : uint8 (n, c n_bits / 8), an array or a Source: the c codes of a row beside each other
    factors : int16 (n, 2 c), in the same way
    order : integers (e,): entry i is copy ``order[i] % c`` of row ``order[i] // c``
    n_copies : c

    Examples
    --------
    >>> codes, factors = np.zeros((40, 2), np.uint8), np.ones((40, 4), np.int16)
    >>> blocks = Blocks(codes, factors, np.arange(80), 2)
    >>> blocks.shape, blocks[1:3].shape
    ((3, 160), (2, 160))
    """

    def __init__(
        self,
        codes: NDArray[Any] | Source,
        factors: NDArray[Any] | Source,
        order: NDArray[np.integer],
        n_copies: int,
    ) -> None:
        self._codes, self._factors, self._order, self._n_copies = codes, factors, order, n_copies
        width = BLOCK * codes.shape[1] // n_copies + 4 * BLOCK
        self.shape, self.dtype = (-(-len(order) // BLOCK), width), np.dtype(np.uint8)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.uint8]:
        """Read blocks: a slice of step 1."""
        if not isinstance(rows, slice):
            raise TypeError("blocks are read one after the other")
        start, stop, _ = rows.indices(len(self))
        numbers, copies = np.divmod(self._order[BLOCK * start : BLOCK * stop], self._n_copies)
        at = np.arange(len(numbers))
        codes, factors = (
            source[numbers].reshape(-1, self._n_copies, source.shape[1] // self._n_copies)[
                at, copies
            ]
            for source in (self._codes, self._factors)
        )
        return _native.pack_signs(codes, factors)


def placed(labels: NDArray[np.uint32], n_groups: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The order of entries for :class:`Blocks`, by group and then by row, and the limits of groups.

    Examples
    --------
    >>> placed(np.array([[1, 2], [0, 1]], np.uint32), 3)
    (array([2, 0, 3, 1], dtype=uint32), array([0, 1, 3, 4]))
    """
    groups = labels.reshape(-1)
    order: NDArray[Any] = np.argsort(groups, kind="stable")
    if len(order) <= 2**32:
        order = order.astype(np.uint32)
    counts = np.bincount(groups, minlength=n_groups)
    return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def entries_of(kept: ByRow, n_groups: int) -> Entries:
    """Entries of rows, by group and then by row.

    Examples
    --------
    >>> kept = ByRow(np.array([[1], [0]], np.uint32), np.zeros((2, 1, 1), np.uint8),
    ...     np.ones((2, 1, 2), np.int16))
    >>> entries_of(kept, 2).rows
    array([1, 0], dtype=uint32)
    """
    order, limits = placed(kept.labels, n_groups)
    n, c, n_bytes = kept.codes.shape
    codes, factors = kept.codes.reshape(n, c * n_bytes), kept.factors.reshape(n, 2 * c)
    return Entries(Blocks(codes, factors, order, c)[:], limits, numbers_of(order, c))


def numbers_of(order: NDArray[Any], n_copies: int) -> NDArray[np.uint32]:
    """The row of each entry.

    Examples
    --------
    >>> numbers_of(np.array([2, 0, 3, 1]), 2)
    array([1, 0, 1, 0], dtype=uint32)
    """
    return (order // n_copies).astype(np.uint32)


def rows_of(entries: Entries, n_rows: int) -> ByRow:
    """What is kept of rows, by row; if a row lies in two groups, the lower group comes first.

    Raises
    ------
    FileError : if not all rows have the same number of entries

    Examples
    --------
    >>> kept = ByRow(np.array([[1], [0]], np.uint32), np.zeros((2, 1, 1), np.uint8),
    ...     np.ones((2, 1, 2), np.int16))
    >>> rows_of(entries_of(kept, 2), 2).labels.tolist()
    [[1], [0]]
    """
    blocks, limits, rows = entries
    n_copies = len(rows) // n_rows
    order = np.argsort(rows, kind="stable")
    if not np.array_equal(rows[order], np.repeat(np.arange(n_rows, dtype=np.uint32), n_copies)):
        raise FileError("a row of a segment has too few entries, or too many: the index is damaged")
    groups = np.repeat(np.arange(len(limits) - 1, dtype=np.uint32), np.diff(limits))
    codes, factors = _native.unpack_signs(blocks, len(rows))
    return ByRow(
        groups[order].reshape(n_rows, n_copies),
        codes[order].reshape(n_rows, n_copies, -1),
        factors[order].reshape(n_rows, n_copies, 2),
    )


class Second(NamedTuple):
    """What a second sketch keeps of rows, each in one group.

    Attributes
    ----------
    codes : uint8 (n, n_bits / 8)
    factors : uint32 (n,), two numbers a and b: the second estimate is the first one plus
        a − b ⟨s, H q⟩
    """

    codes: NDArray[np.uint8]
    factors: NDArray[np.uint32]


class Segment(NamedTuple):
    """Entries, and what else a search needs of their rows.

    Attributes
    ----------
    entries : entries of the rows
    n_rows : how many rows there are
    vectors : float32, float16, uint8 or int8 (n_rows, d), or None: then distances are estimates
    ranks : uint32 (n_rows,), the place of each row in the order of ties, or None: its number
    first : added to the numbers of rows in answers
    second : codes and factors of a second sketch, if there are no vectors, or None: see
        :class:`Second`
    scales : float32 (n_rows,), the scale of each vector, if they are int8 with scales; or None
    """

    entries: Entries
    n_rows: int
    vectors: NDArray[Any] | None
    ranks: NDArray[np.uint32] | None = None
    first: int = 0
    second: Second | None = None
    scales: Floats | None = None


class Lengths(NamedTuple):
    """The lengths of centres, if queries look for large products; see :class:`Centers`.

    Attributes
    ----------
    squares : float32 (g,), squared lengths of the centres, with the additional feature
    longest : the length of all rows with the additional feature
    """

    squares: Floats
    longest: float


@dataclass(frozen=True)
class SignModel:
    """What all segments of an index share.

    Attributes
    ----------
    shift : float32 (d,), subtracted from rows and centres
    centers : float32 (g, d)
    decoder : decoder of the signs of all rows
    second : decoder of the second sketch, or None
    lengths : lengths of the centres, if groups were made for products, or None

    Examples
    --------
    >>> X = RandomState(0).standard_normal((500, 8)).astype(np.float32)
    >>> shift, centers = np.zeros(8, np.float32), X[:20]
    >>> labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint32)
    >>> signs = SignModel.learn(X, labels, centers, shift, 32, "l2", RandomState(0))
    >>> segment = Segment(signs.entries(X, labels[:, np.newaxis]), len(X), X)
    >>> searcher = signs.searcher([segment])
    >>> distances, positions, efforts = searcher.search(X[:3], 2, 20, 1.0, 1e9, None, 1, "")
    >>> positions[:, 0]
    array([0, 1, 2])
    """

    shift: Floats
    centers: Floats
    decoder: Decoder
    second: SecondDecoder | None = None
    lengths: Lengths | None = None

    @classmethod
    def learn(
        cls,
        rows: Floats,
        labels: NDArray[np.uint32],
        centers: Floats,
        shift: Floats,
        n_bits: int,
        metric: str,
        random_state: RandomState,
    ) -> SignModel:
        """Learn a decoder.

        Parameters
        ----------
        rows : float32 (n, d), a sample of 8,000 to 32,000 rows, relative to the shift
        labels : uint32 (n,), the group of each
        centers : float32 (g, d), relative to the shift
        shift : float32 (d,)
        n_bits : signs of a row, a multiple of 8 from 8 to 1,024
        metric : "l2", "cosine" (rows had length 1 before the shift) or "ip"
        random_state : draws a rotation
        """
        decoder = learn_decoder(rows, labels, centers, n_bits, metric, random_state)
        return cls(shift, centers, decoder)

    def encode(self, rows: Floats, labels: NDArray[np.uint32]) -> ByRow:
        """What is kept of rows, by row.

        Parameters
        ----------
        rows : float32 (n, d), relative to the shift
        labels : uint32 (n, 1) or (n, 2), the groups of each row
        """
        parts = [
            self.decoder.encode(
                rows,
                np.ascontiguousarray(column),
                self.centers,
                self.products,
                nearest=self.second is not None,
            )
            for column in labels.T
        ]
        codes, factors = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        return ByRow(labels, codes, factors)

    def with_second(self, rows: Floats, labels: NDArray[np.uint32], n_bits: int) -> SignModel:
        """The model with a second sketch of so many bits, which learns from the same rows.

        Parameters
        ----------
        rows, labels : as in :meth:`learn`
        n_bits : a multiple of 8
        """
        codes, factors = self.decoder.encode(
            rows, labels, self.centers, self.products, nearest=True
        )
        residuals = rows - self.centers[labels]
        decoded = signs_of(codes) @ self.decoder.matrix
        left = residuals - self._factors(factors)[:, np.newaxis] * decoded
        return replace(self, second=SecondDecoder.learn(residuals, left, n_bits))

    def encode_second(self, rows: Floats, kept: ByRow) -> Second:
        """What the second sketch keeps of rows, each in one group.

        Parameters
        ----------
        rows : float32 (n, d), relative to the shift
        kept : what :meth:`encode` returned for them
        """
        if self.second is None:
            raise TypeError("there is no second sketch")
        of_first, of_centers = self._second_products
        labels = kept.labels[:, 0]
        signs = signs_of(kept.codes[:, 0])
        first = self._factors(kept.factors[:, 0])
        residuals = rows - self.centers[labels]
        products = self.second.products(residuals)
        products -= first[:, np.newaxis] * _native.multiply(signs, of_first)[:, : products.shape[1]]
        codes, second, values = self.second.encode_products(products)
        second = rounded(2 * second)
        own = np.zeros(len(rows), np.float32)
        if self.decoder.metric != "ip":
            # |r|² + 2 ⟨f y + f₂ y₂, c⟩, minus the part that is in the first estimate already.
            own += np.einsum("ij,ij->i", residuals, residuals)
            own += 2 * first * np.einsum("ij,ij->i", signs, self.products[labels])
            own += second * np.einsum("ij,ij->i", values, of_centers[labels])
            own -= 2 * first * (kept.factors[:, 0, 0] * np.float32(self.decoder.alpha))
        return Second(codes, packed(rounded(own), second))

    def _factors(self, factors: NDArray[np.int16]) -> Floats:
        """The factors f = 1 / (2 β)."""
        return np.float32(0.5) / (factors[:, 1] * np.float32(self.decoder.beta))

    @cached_property
    def _second_products(self) -> tuple[Floats, Floats]:
        """Products with the directions: of the decoder (n_bits, m rounded up to 8), and centres."""
        if self.second is None:
            raise TypeError("there is no second sketch")
        of_first = _native.multiply(self.decoder.matrix, self.second.panels)
        return of_first, self.second.products(self.centers)

    def entries(self, rows: Floats, labels: NDArray[np.uint32]) -> Entries:
        """Entries of rows, by group and then by row; the parameters are those of :meth:`encode`."""
        return entries_of(self.encode(rows, labels), len(self.centers))

    @cached_property
    def products(self) -> Floats:
        """Products of the centres with the decoder, float32 (g, n_bits)."""
        return self.decoder.products(self.centers)

    @cached_property
    def near(self) -> NearCenters:
        """The centres near each one."""
        return near_centers(self.centers)

    def searcher(self, segments: Sequence[Segment]) -> _native.Signs:
        """A native searcher of segments, which keeps their arrays alive."""
        searcher = _native.Signs(
            self.decoder.metric,
            self.shift,
            self.centers,
            self.decoder.whole,
            self.decoder.steps,
            self.decoder.alpha,
            self.decoder.beta,
        )
        if self.lengths is not None:
            searcher.set_lengths(*self.lengths)
        if self.second is not None:
            searcher.set_second(self.second.directions, self.second.numbers, self.second.halves)
        for segment in segments:
            codes, factors = segment.second or (None, None)
            searcher.add(
                *segment.entries,
                segment.vectors,
                segment.ranks,
                segment.n_rows,
                segment.first,
                segment.scales,
                codes,
                factors,
            )
        return searcher


class NearCenters(NamedTuple):
    """The centres near each centre, without itself.

    Attributes
    ----------
    numbers : uint32 (g, m), rising
    products : float32 (g, m), inner products of the centre with each of these
    squares : float32 (g,), squared lengths of all centres
    """

    numbers: NDArray[np.uint32]
    products: Floats
    squares: Floats


def near_centers(centers: Floats) -> NearCenters:
    """The centres near each centre.

    Examples
    --------
    >>> near_centers(np.array([[0.0], [1.0], [3.0]], np.float32)).numbers
    array([[1, 2],
           [0, 2],
           [0, 1]], dtype=uint32)
    """
    n_near = min(_NEAR, len(centers) - 1)
    numbers = np.empty((len(centers), n_near), np.uint32)
    products = np.empty((len(centers), n_near), np.float32)
    squares = np.einsum("ij,ij->i", centers, centers)
    for first in range(0, len(centers) if n_near else 0, _AT_A_TIME):
        some = centers[first : first + _AT_A_TIME]
        of_all = some @ centers.T
        away = squares - 2 * of_all
        away[np.arange(len(some)), np.arange(first, first + len(some))] = np.inf
        near = np.sort(np.argpartition(away, n_near - 1)[:, :n_near], axis=1)
        numbers[first : first + len(some)] = near
        products[first : first + len(some)] = np.take_along_axis(of_all, near, axis=1)
    return NearCenters(numbers, products, squares)


def second_groups(
    rows: Floats,
    labels: NDArray[np.uint32],
    centers: Floats,
    near: NearCenters | None = None,
) -> NDArray[np.uint32]:
    """A second group for every row: near, and in another direction than the first.

    P. Sun, D. Simcha, D. Dopson, R. Guo, S. Kumar, SOAR: improved indexing for approximate nearest
    neighbor search, NeurIPS 2023, with λ = 1: the square of the part of the new residual that is
    parallel to the first residual is added to the squared distance. If there is only one group, it
    is the second group, too.

    Parameters
    ----------
    rows : float32 (n, d)
    labels : uint32 (n,), the first group of each row
    centers : float32 (g, d)
    near : what :func:`near_centers` returns, if this is called more than once

    Returns
    -------
    uint32 (n,); the group of a row does not depend on the other rows

    Examples
    --------
    >>> centers = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.7]], np.float32)
    >>> second_groups(np.array([[0.4, 0.0]], np.float32), np.zeros(1, np.uint32), centers)
    array([2], dtype=uint32)
    """
    if len(centers) == 1:
        return labels.copy()
    if near is None:
        near = near_centers(centers)
    return _native.second_groups(rows, labels, centers, *near, n_threads())
