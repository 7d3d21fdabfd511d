"""A greedy choice among planes: near rows should agree, random rows should not.

This is not in the paper. Entropy drops planes that split the data badly, but it keeps planes that
repeat each other. Contrast does not: a repeated plane adds variance, but separates no new pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.hashers.distances import squared_distances
from densehash.rows import Floats, Rows
from densehash.rows.numerics import to_host

__all__ = ["Pairs", "greedy_contrast", "sample_pairs"]

_N_PAIRS = 20_000
_N_ROWS = 4_000
_NEAR = 20
"""How many of the nearest rows count as near to a sampled row."""

_MOST_NUMBERS = 1 << 23
"""The most numbers of a sample, and of pairs times candidates: a few such arrays take less than
256 MB."""


class Pairs(NamedTuple):
    """Rows, and which of them are near or random pairs.

    Attributes
    ----------
    rows : float array of shape (s, d)
    first : int64 array of shape (m,), positions in ``rows``
    near, far : int64 arrays of shape (m,), positions, too: ``near[i]`` is one of the rows nearest
        to ``first[i]``, and ``far[i]`` is any other row
    """

    rows: Floats
    first: NDArray[np.int64]
    near: NDArray[np.int64]
    far: NDArray[np.int64]


def sample_pairs(rows: Rows, n_candidates: int, random_state: RandomState) -> Pairs:
    """Pairs of near rows, and pairs of random rows, from a sample of 4,000.

    There are 20,000 pairs of each sort, or fewer if there are few rows or very many candidates.

    Examples
    --------
    >>> pairs = sample_pairs(Rows(np.arange(50.0).reshape(-1, 1)), 10, RandomState(0))
    >>> bool((np.abs(pairs.rows[pairs.first] - pairs.rows[pairs.near]) <= 20).all())
    True
    """
    most = _MOST_NUMBERS // n_candidates
    n_rows = min(_N_ROWS, rows.n_rows, max(_MOST_NUMBERS // rows.n_features, 2))
    sample = to_host(rows.sample(n_rows, random_state))
    n_near = min(_NEAR, len(sample) - 1)
    n_asked = max(min(_N_PAIRS, most) // n_near, 1)
    asked = random_state.permutation(len(sample))[:n_asked]
    distances = squared_distances(sample[asked], sample)
    distances[np.arange(len(asked)), asked] = np.inf
    nearest = np.argpartition(distances, n_near - 1, axis=1)[:, :n_near].reshape(-1)
    first = np.repeat(asked, n_near)
    # Any other row, each equally likely.
    other = (first + random_state.randint(1, len(sample), len(first))) % len(sample)
    return Pairs(sample, first, nearest, other)


def greedy_contrast(
    near: NDArray[np.bool_], far: NDArray[np.bool_], n_bits: int
) -> NDArray[np.int64]:
    """Choose planes one by one: each time the plane that raises the contrast most.

    The contrast of some planes is the mean Hamming distance of far pairs, minus that of near pairs,
    divided by the square root of the sum of the two variances.

    Parameters
    ----------
    near, far : bool arrays of shape (m, n_candidates): which planes separate which pairs
    n_bits : how many to choose, at most n_candidates

    Returns
    -------
    int64 array of shape (n_bits,), in the order of choice; of equally good planes, the first is
    chosen

    Examples
    --------
    The second plane repeats the first, so the third one is chosen after the first.

    >>> near = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]], dtype=bool)
    >>> far = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 1, 1]], dtype=bool)
    >>> greedy_contrast(near, far, 2)
    array([0, 2])
    """
    gain = far.mean(axis=0) - near.mean(axis=0)
    centered = [splits - splits.mean(axis=0, dtype=np.float32) for splits in (near, far)]
    own = sum((part**2).mean(axis=0, dtype=np.float64) for part in centered)
    shared = np.zeros(len(gain))  # covariance of each candidate with the sum of the chosen
    total_gain, total_variance = 0.0, 0.0
    free = np.ones(len(gain), dtype=bool)
    chosen = np.empty(n_bits, dtype=np.int64)
    for position in range(n_bits):
        variances = total_variance + own + 2 * shared
        # A variance as small as a rounding error counts as 1e-6: such planes split no pair, or all.
        contrast = (total_gain + gain) / np.sqrt(np.maximum(variances, 1e-6))
        best = int(np.where(free, contrast, -np.inf).argmax())
        chosen[position], free[best] = best, False
        total_gain, total_variance = total_gain + gain[best], variances[best]
        for part in centered:
            shared += part[:, best] @ part / len(part)
    return chosen
