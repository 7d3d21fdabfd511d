"""How good a ranking by Hamming distance is, from counts alone.

Codes at equal distance are tied. Tie-aware measures are expectations over all orders of the tied
codes (McSherry and Najork, *Computing information retrieval performance measures efficiently in
the presence of tied scores*, ECIR 2008), so that no order is favoured and none has to be drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

from densehash.checks import as_array
from densehash.errors import InputError

__all__ = ["average_precision", "mean_average_precision"]


def mean_average_precision(counts: ArrayLike, relevant_counts: ArrayLike) -> float:
    """Mean of :func:`average_precision` over the queries, of which there is at least one.

    Parameters
    ----------
    counts : integers (q, n_bits + 1); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, n_bits + 1), the same for the relevant codes alone

    Examples
    --------
    >>> mean_average_precision([[1, 1, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    0.75
    """
    averages = average_precision(counts, relevant_counts)
    if averages.size == 0:
        raise InputError("counts must have at least 1 query, got none")
    return float(averages.mean())


def average_precision(counts: ArrayLike, relevant_counts: ArrayLike) -> NDArray[np.float64]:
    """Average precision of the ranking of all codes by distance, tie-aware.

    The average precision of one order is the mean, over the relevant codes, of the share of
    relevant ones among all codes up to there. This is its exact expectation where codes at equal
    distance come in random order.

    Parameters
    ----------
    counts : integers (q, n_bits + 1); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, n_bits + 1), the same for the relevant codes alone; at least
        one for each query. :func:`densehash.hamming.histogram` returns both.

    Returns
    -------
    float64 (q,)

    Examples
    --------
    One relevant code: alone and first, then tied with another.

    >>> average_precision([[1, 2, 0], [2, 1, 0]], [[1, 0, 0], [1, 0, 0]])
    array([1.  , 0.75])
    """
    every, relevant = _check_counts(counts, relevant_counts)
    n, r = every.astype(np.float64), relevant.astype(np.float64)
    before = np.cumsum(every, axis=1) - every
    relevant_before = np.cumsum(relevant, axis=1) - relevant

    # A code at rank i of its n tied ones is relevant with probability r / n. Then, each of the
    # i - 1 tied codes before it is relevant with probability (r - 1) / (n - 1), and the expected
    # precision there is (relevant_before + 1 + (i - 1) (r - 1) / (n - 1)) / (before + i).
    # Summed over i, with h for the sum of 1 / (before + i):
    h = _harmonic_step(before, every)
    rate = (r - 1) / np.maximum(n - 1, 1)
    precisions = (relevant_before + 1) * h + rate * (n - (before + 1) * h)
    shares = r / np.maximum(n, 1)
    averages: NDArray[np.float64] = (shares * precisions).sum(axis=1) / relevant.sum(axis=1)
    return averages


def _harmonic_step(start: NDArray[np.int64], n: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 / (start + 1) + ... + 1 / (start + n), to 13 digits."""
    # Far out, the difference of two digammas would lose what they have in common. There,
    # digamma(x + 1/2) = log(x) + 1 / (24 x²) - 7 / (960 x⁴) + ...
    first = np.maximum(start, 100) + 0.5
    last = first + n
    far = np.log1p(n / first) + _tail(last) - _tail(first)
    return np.where(start < 100, digamma(start + n + 1.0) - digamma(start + 1.0), far)


def _tail(x: NDArray[np.float64]) -> NDArray[np.float64]:
    inverse = 1 / np.square(x)
    return inverse * (1 / 24 - inverse * (7 / 960))


def _check_counts(
    counts: ArrayLike, relevant_counts: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    every, relevant = _as_counts(counts, "counts"), _as_counts(relevant_counts, "relevant_counts")
    if every.shape != relevant.shape:
        raise InputError(
            f"counts and relevant_counts must have one shape, got {every.shape} "
            f"and {relevant.shape}"
        )
    if (relevant > every).any():
        query, distance = np.argwhere(relevant > every)[0]
        raise InputError(
            f"relevant_counts must not exceed counts, got {relevant[query, distance]} of "
            f"{every[query, distance]} at distance {distance} of query {query}"
        )
    without = ~relevant.any(axis=1)
    if without.any():
        raise InputError(
            "relevant_counts must count at least 1 relevant code for each query, "
            f"got none for query {np.argmax(without)}"
        )
    return every, relevant


def _as_counts(values: ArrayLike, name: str) -> NDArray[np.int64]:
    array = as_array(values, name)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got dtype {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{name} must have 2 dimensions (q, n_bits + 1), got shape {array.shape}")
    found = array.astype(np.int64, copy=False)
    if (found < 0).any():
        query, distance = np.argwhere(found < 0)[0]
        raise InputError(
            f"{name} must not be negative, got {array[query, distance]} at distance {distance} "
            f"of query {query}"
        )
    return found
