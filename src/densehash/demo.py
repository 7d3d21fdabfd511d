"""The demonstration: handwritten digits, hashed by random planes, and their neighbours.

The data come inside scikit-learn: 1797 pictures of 8 x 8 pixels. A random plane through the
mean cuts them in two, and the side is one bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from densehash import hamming
from densehash.bits import MAX_BITS, pack
from densehash.checks import check_integer

__all__ = ["DigitsDemo", "run"]

N_QUERIES = 200
N_NEIGHBOURS = 10
N_CANDIDATES = 50


@dataclass(frozen=True)
class DigitsDemo:
    """What the demonstration found, for q queries among n codes.

    Attributes
    ----------
    n_bits, seed : what was asked for
    pictures : float32 array of shape (n, 64), what was searched; pixels from 0 to 16
    digits : int64 array of shape (n,), what the pictures show
    query_pictures, query_digits : likewise, of shapes (q, 64) and (q,)
    distances : int32 array of shape (q, 50), Hamming distances of the nearest codes
    neighbours : int64 array of shape (q, 50), their positions
    same_digit : share of the 10 nearest codes that carry the query's digit
    recall : share of the 10 true (Euclidean) neighbours found among the 50 nearest codes
    same_digit_exact : as same_digit, for the 10 true neighbours: the best that codes can hope for
    seconds_hash, seconds_search, seconds_exact : times of hashing everything, of the Hamming
        search, and of the exact search over the vectors
    """

    n_bits: int
    seed: int
    pictures: NDArray[np.float32]
    digits: NDArray[np.int64]
    query_pictures: NDArray[np.float32]
    query_digits: NDArray[np.int64]
    distances: NDArray[np.int32]
    neighbours: NDArray[np.int64]
    same_digit: float
    recall: float
    same_digit_exact: float
    seconds_hash: float
    seconds_search: float
    seconds_exact: float


def run(n_bits: int = 64, seed: int = 0) -> DigitsDemo:
    """Hash the digits, hold some of them out as queries, and find their neighbours.

    Parameters
    ----------
    n_bits : planes, hence bits of a code; from 1 to 4096
    seed : draws the planes and the queries; at least 0

    Examples
    --------
    >>> found = run(n_bits=32)
    >>> found.neighbours.shape
    (200, 50)
    >>> 0.5 < found.same_digit < 1
    True
    """
    n_bits = check_integer(n_bits, "n_bits", 1, MAX_BITS)
    seed = check_integer(seed, "seed", 0)
    generator = np.random.default_rng(seed)
    vectors, labels = load_digits(return_X_y=True)
    order = generator.permutation(len(vectors))
    vectors, labels = vectors[order].astype(np.float32), labels[order].astype(np.int64)
    query_pictures, pictures = vectors[:N_QUERIES], vectors[N_QUERIES:]
    query_digits, digits = labels[:N_QUERIES], labels[N_QUERIES:]

    started = time.perf_counter()
    planes = generator.standard_normal((n_bits, pictures.shape[1]), dtype=np.float32)
    mean = pictures.mean(axis=0)
    codes = pack((pictures - mean) @ planes.T >= 0)
    queries = pack((query_pictures - mean) @ planes.T >= 0)
    hashed = time.perf_counter()
    distances, neighbours = hamming.top_k(queries, codes, N_CANDIDATES)
    searched = time.perf_counter()
    exact = cdist(query_pictures, pictures, "sqeuclidean").argsort(axis=1, kind="stable")
    true_neighbours = exact[:, :N_NEIGHBOURS]
    finished = time.perf_counter()

    found = (true_neighbours[:, :, np.newaxis] == neighbours[:, np.newaxis, :]).any(axis=2)
    return DigitsDemo(
        n_bits=n_bits,
        seed=seed,
        pictures=pictures,
        digits=digits,
        query_pictures=query_pictures,
        query_digits=query_digits,
        distances=distances,
        neighbours=neighbours,
        same_digit=_share(digits[neighbours[:, :N_NEIGHBOURS]], query_digits),
        recall=float(found.mean()),
        same_digit_exact=_share(digits[true_neighbours], query_digits),
        seconds_hash=hashed - started,
        seconds_search=searched - hashed,
        seconds_exact=finished - searched,
    )


def _share(digits: NDArray[np.int64], query_digits: NDArray[np.int64]) -> float:
    return float((digits == query_digits[:, np.newaxis]).mean())
