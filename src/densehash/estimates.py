"""Distances estimated from codes: any hasher's codes ranked with a decoder, bits unchanged.

A code says on which side of each plane its row x lies. A decoder G (n_bits × d), learnt by least
squares, turns its signs s ∈ {−1, 1}^n_bits into an approximation of the row: with the mean c of
all rows and the mean s̄ of all signs, y = (s − s̄) G is near to r = x − c. With two numbers for
each row, ``|r|`` and f, distances are estimated from y::

    |q − x|² ≈ |q − c|² + |r|² − 2 f ⟨y, q − c⟩,    f = √cos(y, r) |r| / |y|

f lies between ``|r| / |y|``, which keeps the length of the residual, and least squares, which has
cos(y, r) in place of its root. If codes are short and decode badly, it ranks better than both. The
products G (q − c) are computed once for each query. So ranking a row costs as much as comparing its
bits with the query's margins (:mod:`densehash.asymmetric`), and a row needs two more numbers of 16
bits. The sketch of signs of an index chooses its signs for such a decoder: see
``docs/sketches.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import (
    VectorsLike,
    as_array,
    check_codes,
    check_integer,
    check_positions,
    check_vectors,
)
from densehash.errors import InputError
from densehash.parallel import one_blas_thread
from densehash.rows import Floats, Rows
from densehash.rows.local import is_fine

__all__ = ["Estimator", "learn", "levels"]

_RIDGE = 1e-3  # share of the number of rows
_BLOCK = 1 << 23  # estimates, or signs, in memory at once
_MOST_LEVELS = 65536
_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Estimator:
    """A decoder of codes, and what is needed to rank by it. :func:`learn` makes one.

    Attributes
    ----------
    matrix : float32 (8 * width, d), G; zeros for padding bits
    offset : float32 (d,), −s̄ G
    center : float64 (d,), c
    scale : the length ``|r|`` for which the first factor of a row is 1

    Examples
    --------
    >>> import numpy as np
    >>> from densehash import LSH
    >>> X = np.random.RandomState(0).standard_normal((500, 8)).astype(np.float32)
    >>> codes = LSH(32, random_state=0).fit(X).transform(X)
    >>> estimator = learn(codes, X)
    >>> factors = estimator.factors(codes, X)
    >>> factors.shape, factors.dtype
    ((500, 2), dtype('float16'))
    >>> estimator.distances(X[:3], codes, factors).argmin(axis=1)
    array([0, 1, 2])
    """

    matrix: NDArray[np.float32]
    offset: NDArray[np.float32]
    center: NDArray[np.float64]
    scale: float

    def factors(self, codes: ArrayLike, X: VectorsLike) -> NDArray[np.float16]:
        """Compute the two numbers that are kept for each row beside its code.

        Parameters
        ----------
        codes : uint8 (n, width)
        X : real array (n, d), or any rows that a hasher takes: those of the codes

        Returns
        -------
        factors : float16 (n, 2), ``|r| / scale`` and f
        """
        packed, rows = _check_rows(codes, X)
        self._check_codes(packed)
        found = np.empty((len(packed), 2), np.float16)

        def fill(block: Floats, start: int) -> None:
            residuals = (block - self.center).astype(np.float32)
            decoded = _signs(packed[start : start + len(block)]) @ self.matrix + self.offset
            lengths = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
            of_decoded = np.maximum(np.sqrt(np.einsum("ij,ij->i", decoded, decoded)), _TINY)
            products = np.einsum("ij,ij->i", decoded, residuals)
            cosines = np.clip(products / of_decoded / np.maximum(lengths, _TINY), 0, 1)
            found[start : start + len(block), 0] = lengths / self.scale
            found[start : start + len(block), 1] = np.sqrt(cosines) * lengths / of_decoded

        rows.for_each(fill, width=len(self.matrix))
        return found

    def distances(
        self, queries: ArrayLike, codes: ArrayLike, factors: ArrayLike
    ) -> NDArray[np.float32]:
        """Estimate the squared distance of every query to every row.

        For few of both: :meth:`histogram` never holds so many numbers.

        Parameters
        ----------
        queries : real array (q, d), finite
        codes : uint8 (n, width)
        factors : real array (n, 2), what :meth:`factors` returned

        Returns
        -------
        estimates : float32 (q, n), of squared Euclidean distances; some may be negative
        """
        return self._estimates(self._relative(queries), *self._check_kept(codes, factors))

    def _estimates(
        self,
        relative: NDArray[np.float32],
        packed: NDArray[np.uint8],
        kept: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        squares = np.einsum("ij,ij->i", relative, relative)[:, np.newaxis]
        found = np.empty((len(relative), len(packed)), np.float32)
        step = max(1, _BLOCK // len(self.matrix))
        with one_blas_thread():
            products, offsets = relative @ self.matrix.T, relative @ self.offset
            for start in range(0, len(packed), step):
                part = slice(start, start + step)
                lengths, times = kept[part].T
                decoded = products @ _signs(packed[part]).T + offsets[:, np.newaxis]
                found[:, part] = squares + np.square(lengths * self.scale) - 2 * times * decoded
        return found

    @overload
    def histogram(
        self,
        queries: ArrayLike,
        codes: ArrayLike,
        factors: ArrayLike,
        relevant: None = None,
        *,
        n_levels: int = 4096,
    ) -> NDArray[np.int64]: ...
    @overload
    def histogram(
        self,
        queries: ArrayLike,
        codes: ArrayLike,
        factors: ArrayLike,
        relevant: Sequence[ArrayLike] | NDArray[Any],
        *,
        n_levels: int = 4096,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def histogram(
        self,
        queries: ArrayLike,
        codes: ArrayLike,
        factors: ArrayLike,
        relevant: Sequence[ArrayLike] | NDArray[Any] | None = None,
        *,
        n_levels: int = 4096,
    ) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the rows at each level of estimated distance, for :mod:`densehash.metrics`.

        Parameters
        ----------
        queries, codes, factors : as in :meth:`distances`
        relevant : for each query the positions of its true neighbours in ``codes``, in any order:
            integer (q, m), or q integer arrays of any lengths
        n_levels : from 1 to 65536; a query's levels are those of :func:`levels`

        Returns
        -------
        counts : int64 (q, n_levels)
        relevant_counts : int64 (q, n_levels), the same for the relevant ones alone; only with
            ``relevant``
        """
        packed, kept = self._check_kept(codes, factors)
        asked = self._relative(queries)
        limits, positions = check_positions(
            [[]] * len(asked) if relevant is None else relevant, len(asked), len(packed)
        )
        check_integer(n_levels, "n_levels", 1, _MOST_LEVELS)
        counts = np.zeros((2, len(asked), n_levels), np.int64)
        step = max(1, _BLOCK // max(len(packed), 1))
        for start in range(0, len(asked), step):
            estimates = self._estimates(asked[start : start + step], packed, kept)
            for query, level in enumerate(levels(estimates, n_levels), start):
                own = level[positions[limits[query] : limits[query + 1]]]
                counts[0, query] = np.bincount(level, minlength=n_levels)
                counts[1, query] = np.bincount(own, minlength=n_levels)
        return counts[0] if relevant is None else (counts[0], counts[1])

    def _relative(self, queries: ArrayLike) -> NDArray[np.float32]:
        asked = np.asarray(check_vectors(queries, "queries"))
        d = len(self.center)
        if asked.shape[1] != d:
            raise InputError(f"queries have {asked.shape[1]} features, the estimator has {d}")
        relative = (asked - self.center).astype(np.float32)
        if not is_fine(relative):
            Rows(asked, name="queries").for_each(lambda *_: None)
        return relative

    def _check_kept(
        self, codes: ArrayLike, factors: ArrayLike
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        packed, kept = self._check_codes(codes), as_array(factors, "factors")
        if kept.dtype.kind != "f" or kept.shape != (len(packed), 2):
            raise InputError(
                f"factors must be floats of shape ({len(packed)}, 2), two for each code, got dtype "
                f"{kept.dtype} and shape {kept.shape}"
            )
        return packed, kept.astype(np.float32)

    def _check_codes(self, codes: ArrayLike) -> NDArray[np.uint8]:
        packed = check_codes(codes)
        width = len(self.matrix) // 8
        if packed.shape[1] != width:
            raise InputError(
                f"the estimator learnt from codes of {width} bytes, got {packed.shape[1]} bytes"
            )
        return packed


def learn(codes: ArrayLike, X: VectorsLike) -> Estimator:
    """Learn a decoder of codes by least squares, from codes and their rows.

    Parameters
    ----------
    codes : uint8 (n, width), n at least 1; what a hasher's ``transform(X)`` returned, or any other
        codes of these rows
    X : real array (n, d), or any rows that a hasher takes. Distances are Euclidean: for cosine,
        give rows and queries of length one

    Examples
    --------
    >>> import numpy as np
    >>> from densehash import DSH
    >>> X = np.random.RandomState(0).standard_normal((500, 8)).astype(np.float32)
    >>> codes = DSH(12, random_state=0).fit(X).transform(X)
    >>> learn(codes, X).matrix.shape
    (16, 8)
    """
    packed, rows = _check_rows(codes, X)
    n = rows.n_rows
    total = rows.map_reduce(lambda block, _: block.sum(axis=0, dtype=np.float64), np.add)
    center = total / n

    def of_block(block: Floats, start: int) -> list[NDArray[Any]]:
        signs = _signs(packed[start : start + len(block)])
        residuals = (block - center).astype(np.float32)
        squares = np.einsum("ij,ij->i", residuals, residuals)
        sums = signs.T @ signs, signs.T @ residuals, signs.sum(axis=0), squares.max(keepdims=True)
        return [one.astype(np.float64) for one in sums]

    def both(one: list[NDArray[Any]], two: list[NDArray[Any]]) -> list[NDArray[Any]]:
        return [*(a + b for a, b in zip(one[:3], two[:3], strict=True)), np.maximum(one[3], two[3])]

    squares, products, signs, longest = rows.map_reduce(of_block, both, width=8 * packed.shape[1])
    mean = signs / n
    squares -= n * np.outer(mean, mean)  # residuals have the mean zero, so products do not change
    squares[np.diag_indices_from(squares)] += _RIDGE * n
    import scipy.linalg  # noqa: PLC0415  only learning needs it

    with one_blas_thread():
        matrix = scipy.linalg.solve(squares, products, assume_a="pos")
        offset = -mean @ matrix
    scale = float(np.sqrt(longest[0])) or 1.0
    return Estimator(matrix.astype(np.float32), offset.astype(np.float32), center, scale)


def levels(distances: NDArray[Any], n_levels: int) -> NDArray[np.int64]:
    """Divide the distances of each query into levels of one width, from smallest to largest.

    Parameters
    ----------
    distances : floats (q, n), finite
    n_levels : at least 1

    Returns
    -------
    int64 (q, n), from 0 to n_levels - 1; the largest is in the last one, unless all are equal

    Examples
    --------
    >>> import numpy as np
    >>> levels(np.array([[0.0, 1.0, 4.0], [7.0, 7.0, 7.0]]), 5)
    array([[0, 1, 4],
           [0, 0, 0]])
    """
    least = distances.min(axis=1, keepdims=True, initial=np.inf)
    most = distances.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num((distances - least) / (most - least))
    found: NDArray[np.int64] = np.minimum(shares * n_levels, n_levels - 1).astype(np.int64)
    return found


def _check_rows(codes: ArrayLike, X: VectorsLike) -> tuple[NDArray[np.uint8], Rows]:
    packed, rows = check_codes(codes), Rows(check_vectors(X))
    if len(packed) != rows.n_rows or not len(packed):
        raise InputError(
            f"there must be a code for each row, and at least 1, got {len(packed)} codes and "
            f"{rows.n_rows} rows"
        )
    return packed, rows


def _signs(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32) * 2 - 1
