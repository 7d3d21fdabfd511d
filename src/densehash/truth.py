"""Exact Euclidean neighbours: the truth that codes are measured against.

Rows are read in blocks, and most are ruled out by one matrix product a block, in float64. A
product rounds differently from machine to machine, so wherever its error could decide, the
squared differences themselves are summed. Every answer is therefore that of the plain sum, with
ties by position, for any number of threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import check_integer, check_vectors
from densehash.errors import InputError

__all__ = ["nearest"]

_BLOCK = 2**21  # numbers in a block of rows and in a block of distances: 16 MiB of float64 each
_LONGEST = 1e150  # squared distances of longer rows could overflow


def nearest(
    queries: ArrayLike, X: ArrayLike, *, fraction: float | None = None, k: int | None = None
) -> NDArray[np.int64]:
    """Find the m nearest rows of every query: m = k, or a fraction of all rows.

    The distance is the sum of squared differences in float64: exact for integers of up to 16
    bits. Rows at equal distance go by position. Beside the result, this takes memory for twice
    its size and some 64 MiB, however many rows there are.

    Parameters
    ----------
    queries : real array (q, d), finite
    X : real array (n, d), or a memory map of one; finite
    fraction : above 0, at most 1; m is ``max(1, round(fraction * n))``
    k : from 1 to n; m is k. Exactly one of ``fraction`` and ``k`` is given.

    Returns
    -------
    positions : int64 (q, m), positions in ``X``, rising (not by distance)

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [5.0], [1.0], [9.0], [3.0]])
    >>> nearest([[2.0], [8.0]], X, k=2)
    array([[2, 4],
           [1, 3]])
    >>> nearest([[2.0]], X, fraction=0.6)
    array([[0, 2, 4]])
    """
    rows, asked = check_vectors(X, "X"), check_vectors(queries, "queries")
    if asked.shape[1] != rows.shape[1]:
        raise InputError(f"queries have {asked.shape[1]} features but X has {rows.shape[1]}")
    m = _how_many(len(rows), fraction, k)
    asked, lengths = _read(asked, "queries", 0, len(asked))
    near = [np.empty(0, np.float64)] * len(asked)
    where = [np.empty(0, np.int64)] * len(asked)
    limits = np.full(len(asked), np.inf)  # beyond it, a row cannot be among the nearest

    step = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), step):
        block, squares = _read(rows, "X", start, start + step)
        at_once = max(1, _BLOCK // len(block))
        for first in range(0, len(asked), at_once):
            some = slice(first, first + at_once)
            # |q - x|² = |q|² - 2 q.x + |x|²
            distances = (-2 * asked[some]) @ block.T
            distances += lengths[some, np.newaxis]
            distances += squares
            for query, found in enumerate(distances, first):
                hits = np.flatnonzero(found <= limits[query])
                if hits.size:
                    near[query], where[query], limits[query] = _nearest_of(
                        np.concatenate([near[query], found[hits]]),
                        np.concatenate([where[query], hits + start]),
                        m,
                        asked[query],
                        rows,
                    )
    return np.array(where, dtype=np.int64)


def _nearest_of(
    distances: NDArray[np.float64],
    positions: NDArray[np.int64],
    m: int,
    query: NDArray[np.float64],
    rows: NDArray[np.generic],
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Cut candidates, in order of position, to the m nearest; and the limit for those to come."""
    if len(distances) < m:
        return distances, positions, np.inf
    furthest = np.partition(distances, m - 1)[m - 1]
    # More than twice what the product form and the sum of squares can differ by: each errs by a
    # few d eps (|q| + |x|)², and |x| is at most |q| and the distance together.
    precision = np.finfo(np.float64)
    slack = 64 * (len(query) + 8) * precision.eps * (query @ query + abs(furthest)) + precision.tiny
    kept = distances < furthest - slack
    doubtful = np.flatnonzero(~kept & (distances <= furthest + slack))
    missing = m - np.count_nonzero(kept)
    if missing < len(doubtful):
        exact = _squared_differences(query, rows, positions[doubtful])
        doubtful = doubtful[np.argsort(exact, kind="stable")[:missing]]
    kept[doubtful] = True
    distances = distances[kept]
    return distances, positions[kept], float(distances.max() + slack)


def _squared_differences(
    query: NDArray[np.float64], rows: NDArray[np.generic], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    step = max(1, _BLOCK // len(query))
    found = np.empty(len(positions))
    for start in range(0, len(positions), step):
        some = slice(start, start + step)
        found[some] = np.square(rows[positions[some]].astype(np.float64) - query).sum(axis=1)
    return found


def _read(
    rows: NDArray[np.generic], name: str, start: int, stop: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some rows in float64, and their squared lengths."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = rows[start:stop].astype(np.float64)
        squares = np.einsum("ij,ij->i", block, block)
    good = squares < _LONGEST**2  # which NaN is not, either
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(
            f"{name} must hold finite rows shorter than {_LONGEST:g}, "
            f"got length {np.sqrt(squares[row])} in row {start + row}"
        )
    return block, squares


def _how_many(n: int, fraction: float | None, k: int | None) -> int:
    if (fraction is None) == (k is None):
        raise InputError(f"give one of fraction and k, got fraction={fraction!r} and k={k!r}")
    if k is not None:
        return check_integer(k, "k", 1, n)
    return max(1, round(_check_fraction(fraction) * n))


def _check_fraction(value: object) -> float:
    # A bool is an int to Python, but hardly ever what was meant.
    if isinstance(value, (int, float, np.floating)) and not isinstance(value, bool):
        share = float(value)
        if 0 < share <= 1:
            return share
    raise InputError(f"fraction must be a number above 0 and at most 1, got {value!r}")
