"""Means, covariances and principal directions, as sums over blocks of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.rows import Floats, Rows
from densehash.rows.numerics import column_sums, like, to_float64, to_host

__all__ = ["fix_signs", "mean", "principal_directions"]


class _Total(NamedTuple):
    """The sum of some rows, the first of them, and whether they are all equal."""

    vectors: NDArray[np.float64]
    first: Floats
    equal: bool


def mean(rows: Rows) -> NDArray[np.float64]:
    """The mean row; raises an error if all rows are equal: there is nothing to learn from them.

    Returns
    -------
    float64 array of shape (d,)

    Examples
    --------
    >>> mean(Rows([[1.0, 2.0], [3.0, 2.0]]))
    array([2., 2.])
    """

    def total_of(block: Floats, _: int) -> _Total:
        first = block[0]
        equal = bool((block[-1] == first).all()) and bool((block == first).all())
        return _Total(column_sums(block), to_host(first), equal)

    def add(one: _Total, two: _Total) -> _Total:
        equal = one.equal and two.equal and bool((one.first == two.first).all())
        return _Total(one.vectors + two.vectors, one.first, equal)

    total = rows.map_reduce(total_of, add, label="mean")
    if total.equal:
        raise InputError("all rows are equal: there is nothing to learn from them")
    center: NDArray[np.float64] = total.vectors / rows.n_rows
    return center


def principal_directions(
    rows: Rows, center: NDArray[np.float64], n_directions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions of the largest variance, largest first.

    Parameters
    ----------
    rows : n rows of d features
    center : their mean, of shape (d,)
    n_directions : how many, at most d

    Returns
    -------
    directions : float64 array of shape (n_directions, d), orthonormal rows; in each row, the number
        with the largest absolute value is positive
    variances : float64 array of shape (n_directions,)

    Examples
    --------
    >>> rows = Rows([[1.0, 1.0], [-1.0, -1.0]])
    >>> directions, variances = principal_directions(rows, np.zeros(2), 1)
    >>> directions.round(3), variances
    (array([[0.707, 0.707]]), array([4.]))
    """

    def products_of(block: Floats, _: int) -> NDArray[np.float64]:
        block = block - like(center, block)
        return to_float64(block.T @ block)

    def add(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
        one += two
        return one

    products = rows.map_reduce(products_of, add, label="covariance")
    d = rows.n_features
    variances, vectors = scipy.linalg.eigh(
        products / (rows.n_rows - 1), subset_by_index=(d - n_directions, d - 1)
    )
    return fix_signs(vectors[:, ::-1].T), np.maximum(variances[::-1], 0.0)


def fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flip rows so that the number with the largest absolute value is positive.

    If several are equally large, the first of them counts.

    Examples
    --------
    >>> fix_signs(np.array([[1.0, -2.0], [3.0, 1.0]]))
    array([[-1.,  2.],
           [ 3.,  1.]])
    """
    # Rounded, so that numbers that differ only by a rounding error count as equal.
    largest = np.abs(vectors).round(8).argmax(axis=1)
    signs = np.where(vectors[np.arange(len(vectors)), largest] < 0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs[:, np.newaxis])
