"""K-means: Lloyd's passes over rows in blocks.

A pass sends every row to its nearest centre and then moves each centre to the mean of its rows.
Only sums, counts and one number for the error are carried from block to block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.columns import is_tensor
from densehash.errors import InputError
from densehash.rows import Floats, Rows
from densehash.rows.numerics import (
    add_by_label,
    like,
    module_of,
    nearest,
    square_sum,
    to_float64,
    to_host,
)

__all__ = ["Groups", "lloyd", "nearest_center", "random_centers"]


class Groups(NamedTuple):
    """What k-means found.

    Attributes
    ----------
    centers : float64 array of shape (k, d), the means of the groups
    counts : int64 array of shape (k,), how many rows each group has; at least 1
    inertia : float64 array of shape (n_passes,), the sum of squared distances between rows and
        the mean of their group, after each pass
    """

    centers: NDArray[np.float64]
    counts: NDArray[np.int64]
    inertia: NDArray[np.float64]


class _Sums(NamedTuple):
    """Sums over the rows of some blocks, relative to a shift."""

    vectors: NDArray[np.float64]  # (k, d): of the rows of each group
    counts: NDArray[np.int64]  # (k,)
    squares: float  # of all numbers


class _Farthest(NamedTuple):
    """The rows that are farthest from their centres, farthest first."""

    distances: NDArray[np.floating]  # (m,), squared
    positions: NDArray[np.int64]  # (m,)
    labels: NDArray[np.intp]  # (m,)
    vectors: Floats  # (m, d)


def random_centers(rows: Rows, k: int, random_state: RandomState, name: str) -> Floats:
    """``k`` random rows to start from; ``name`` is the name of k in errors.

    Returns
    -------
    float array of shape (k, d)

    Examples
    --------
    >>> random_centers(Rows([[1.0], [2.0]]), 2, RandomState(0), "groups").ravel()
    array([1., 2.])
    """
    if rows.n_rows < k:
        raise InputError(
            f"{k} {name} need at least {k} rows to start from, got n_samples = {rows.n_rows}"
        )
    return rows.sample(k, random_state)


def nearest_center(block: Floats, centers: Floats) -> NDArray[np.intp]:
    """Position of the nearest centre of every row; the first if several are equally near.

    Parameters
    ----------
    block : float array or tensor of shape (m, d)
    centers : float array of shape (k, d)

    Returns
    -------
    intp array of shape (m,); if the block is a tensor, a tensor on the same device

    Examples
    --------
    >>> nearest_center(np.array([[0.0], [0.9], [0.5]]), np.array([[0.0], [1.0]]))
    array([0, 1, 0])
    """
    labels: NDArray[np.intp] = nearest(block, centers)[0]
    return labels


def lloyd(rows: Rows, centers: Floats, n_passes: int) -> Groups:
    """Group rows around centres.

    An empty group takes the row that is farthest from its centre; of two equally far rows, the
    earlier one. It does not take a row that equals one taken by another empty group, or one that
    equals the mean of its own group. If no row can be taken, the group is left out of the answer.

    Parameters
    ----------
    rows : n rows of d features
    centers : float array of shape (k, d) to start from
    n_passes : how many passes, at least 1

    Examples
    --------
    >>> rows = Rows([[0.0], [1.0], [10.0], [12.0]])
    >>> groups = lloyd(rows, np.array([[0.0], [1.0]]), n_passes=2)
    >>> groups.centers.ravel(), groups.counts, groups.inertia
    (array([ 0.5, 11. ]), array([2, 2]), array([68.66666667,  2.5       ]))
    """
    relative = to_float64(centers)
    shift = _shift_for(relative, rows.dtype)
    if shift is not None:
        relative = relative - shift
    inertia = np.empty(n_passes)
    squares = None
    for number in range(n_passes):
        label = f"k-means, pass {number + 1} of {n_passes}"
        sums = _assign(rows, relative, shift, squares, label)
        squares = sums.squares
        if (sums.counts == 0).any():
            sums = _refill(sums, _find_farthest(rows, relative, shift))
        counts = sums.counts
        relative = (
            sums.vectors / counts.astype(np.float64)[:, np.newaxis]
        )  # faster than with integers
        moved = np.einsum("ij,ij,i->", relative, relative, counts)
        inertia[number] = max(sums.squares - moved, 0.0)
    return Groups(relative if shift is None else relative + shift, counts, inertia)


def _shift_for(
    centers: NDArray[np.float64], dtype: type[np.floating]
) -> NDArray[np.float64] | None:
    """The point from which to measure: far from zero, differences between rows would be lost."""
    # Rounded as rows are; otherwise rows and centres would be measured from two points.
    middle: NDArray[np.float64] = centers.mean(axis=0).astype(dtype).astype(np.float64)
    spread = np.square(centers - middle).sum() / len(centers)
    return middle if np.square(middle).sum() > 100 * spread else None


def _shifted(block: Floats, shift: NDArray[np.float64] | None) -> Floats:
    return block if shift is None else block - like(shift, block)


def _assign(
    rows: Rows,
    centers: NDArray[np.float64],
    shift: NDArray[np.float64] | None,
    squares: float | None,
    label: str,
) -> _Sums:
    """Sums by the nearest centre; ``squares`` are those of an earlier pass, if there was one."""
    k = len(centers)
    here = centers.astype(rows.dtype)

    # Rows of a cluster are not sent with the function.
    known = None if rows.is_lazy or shift is not None else rows.squares_of

    def sums_of(block: Floats, start: int) -> _Sums:
        block = _shifted(block, shift)
        vectors, counts = add_by_label(block, nearest_center(block, here), k)
        own = 0.0
        if squares is None:
            own = square_sum(block) if known is None else known(block, start)
        return _Sums(vectors, counts, own)

    sums = rows.map_reduce(sums_of, _add, width=k, label=label)
    return sums if squares is None else sums._replace(squares=squares)


def _add(one: _Sums, two: _Sums) -> _Sums:
    np.add(one.vectors, two.vectors, out=one.vectors)
    return _Sums(one.vectors, one.counts + two.counts, one.squares + two.squares)


def _find_farthest(
    rows: Rows, centers: NDArray[np.float64], shift: NDArray[np.float64] | None
) -> _Farthest:
    """As many different rows as groups: enough to fill empty groups without emptying others."""
    k = len(centers)
    here = centers.astype(rows.dtype)

    def farthest_of(block: Floats, start: int) -> _Farthest:
        block = _shifted(block, shift)
        labels, scores = nearest(block, here)
        if not is_tensor(block):
            return measured(block, labels, start + np.arange(len(block)))
        # Copies only the farthest to the host; more of them while too many are equal.
        squares = module_of(block).linalg.vector_norm(block, dim=1) ** 2
        order = (squares - 2 * scores).argsort(descending=True, stable=True)
        n_taken = 2 * k
        while True:
            some = order[:n_taken]
            found = measured(*map(to_host, (block[some], labels[some], start + some)))
            if len(found.positions) == k or n_taken >= len(block):
                return found
            n_taken *= 4

    def measured(
        vectors: Floats, labels: NDArray[np.intp], positions: NDArray[np.int64]
    ) -> _Farthest:
        away = vectors - here[labels]
        distances = np.einsum("ij,ij->i", away, away)
        return first(_Farthest(distances, positions, labels, vectors))

    def first(found: _Farthest) -> _Farthest:
        distances, positions, labels, vectors = found
        # The first of equal rows, compared as bytes; adding 0 turns −0 into 0.
        as_bytes = (vectors + 0).view(np.dtype((np.void, vectors.itemsize * vectors.shape[1])))
        different = np.unique(as_bytes.reshape(-1), return_index=True)[1]
        order = different[np.lexsort((positions[different], -distances[different]))][:k]
        return _Farthest(distances[order], positions[order], labels[order], vectors[order])

    def merge(one: _Farthest, two: _Farthest) -> _Farthest:
        both = (np.concatenate(parts) for parts in zip(one, two, strict=True))
        return first(_Farthest(*both))

    return rows.map_reduce(farthest_of, merge, width=2 * k, label="k-means, filling empty groups")


def _refill(sums: _Sums, farthest: _Farthest) -> _Sums:
    vectors, counts = sums.vectors.copy(), sums.counts.copy()
    empty = list(np.flatnonzero(counts == 0))
    for distance, label, vector in zip(
        farthest.distances, farthest.labels, farthest.vectors, strict=True
    ):
        if not empty:
            break
        # The mean of equal rows is that row, up to a rounding error that grows with their number.
        away = vector - vectors[label] / counts[label]
        rounding = np.finfo(vector.dtype).eps * min(max(counts[label], 64), 8192)
        different = distance > 0 and away @ away > rounding**2 * (vector @ vector)
        if different and counts[label] > 1:  # otherwise the other group would become empty
            group = empty.pop(0)
            vectors[group], counts[group] = vector, 1
            vectors[label] -= vector
            counts[label] -= 1
    filled = counts > 0
    return _Sums(vectors[filled], counts[filled], sums.squares)
