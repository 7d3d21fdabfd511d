"""The demonstration: hashes handwritten digits with every method, and finds neighbours.

The data is part of scikit-learn: 1797 pictures of 8 x 8 pixels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from densehash import hamming
from densehash.bits import MAX_BITS
from densehash.checks import check_integer
from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.paper.methods import PAPER, make_hasher

__all__ = ["DigitsDemo", "Score", "run"]

N_QUERIES = 200
N_NEIGHBOURS = 10
N_CANDIDATES = 50


@dataclass(frozen=True)
class Score:
    """How well and how fast one method did.

    Attributes
    ----------
    method : its name
    same_digit : share of the 10 nearest codes that have the query's digit
    recall : share of the 10 true (Euclidean) neighbours found among the 50 nearest codes
    seconds_fit, seconds_hash : times of learning, and of hashing pictures and queries
    """

    method: str
    same_digit: float
    recall: float
    seconds_fit: float
    seconds_hash: float


@dataclass(frozen=True)
class DigitsDemo:
    """What the demonstration found, for q queries among n codes.

    Attributes
    ----------
    n_bits, seed : the arguments of :func:`run`
    shown : the method whose neighbours are kept
    pictures : float32 array of shape (n, 64), what was searched; pixels from 0 to 16
    digits : int64 array of shape (n,), what the pictures show
    query_pictures, query_digits : likewise, of shapes (q, 64) and (q,)
    distances : int32 array of shape (q, 50), Hamming distances of the nearest codes
    neighbours : int64 array of shape (q, 50), their positions
    same_digit_exact : share of the 10 true neighbours that have the query's digit: the best that
        codes can reach
    scores : one for each method that can make codes of this length
    left_out : why other methods cannot, by name
    seconds_search, seconds_exact : times of the Hamming search, and of the exact search over
        the vectors
    """

    n_bits: int
    seed: int
    shown: str
    pictures: NDArray[np.float32]
    digits: NDArray[np.int64]
    query_pictures: NDArray[np.float32]
    query_digits: NDArray[np.int64]
    distances: NDArray[np.int32]
    neighbours: NDArray[np.int64]
    same_digit_exact: float
    scores: list[Score]
    left_out: dict[str, str]
    seconds_search: float
    seconds_exact: float


def run(n_bits: int = 64, seed: int = 0) -> DigitsDemo:
    """Hash the digits, take some of them as queries, and find their neighbours.

    Parameters
    ----------
    n_bits : bits of a code; from 1 to 4096
    seed : seed of the queries and of the methods; at least 0

    Examples
    --------
    >>> found = run(n_bits=32)
    >>> found.neighbours.shape
    (200, 50)
    >>> [score.method for score in found.scores][:3]
    ['LSH', 'KLSH', 'SIKH']
    """
    n_bits = check_integer(n_bits, "n_bits", 1, MAX_BITS)
    seed = check_integer(seed, "seed", 0, 2**32 - 1)
    vectors, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(vectors))
    vectors, labels = vectors[order].astype(np.float32), labels[order].astype(np.int64)
    query_pictures, pictures = vectors[:N_QUERIES], vectors[N_QUERIES:]
    query_digits, digits = labels[:N_QUERIES], labels[N_QUERIES:]

    started = time.perf_counter()
    exact = cdist(query_pictures, pictures, "sqeuclidean").argsort(axis=1, kind="stable")
    true_neighbours = exact[:, :N_NEIGHBOURS]
    seconds_exact = time.perf_counter() - started

    scores: list[Score] = []
    left_out: dict[str, str] = {}
    answers: dict[str, tuple[NDArray[np.int32], NDArray[np.int64], float]] = {}
    for name, hasher in _hashers(n_bits, seed).items():
        started = time.perf_counter()
        try:
            hasher.fit(pictures)
        except InputError as error:
            left_out[name] = str(error)
            continue
        fitted = time.perf_counter()
        codes, queries = hasher.transform(pictures), hasher.transform(query_pictures)
        hashed = time.perf_counter()
        distances, neighbours = hamming.top_k(queries, codes, N_CANDIDATES)
        answers[name] = distances, neighbours, time.perf_counter() - hashed
        same = _share(digits[neighbours[:, :N_NEIGHBOURS]], query_digits)
        found = (true_neighbours[:, :, np.newaxis] == neighbours[:, np.newaxis, :]).any(axis=2)
        scores.append(Score(name, same, float(found.mean()), fitted - started, hashed - fitted))

    shown = "DSH" if "DSH" in answers else scores[0].method
    distances, neighbours, seconds_search = answers[shown]
    return DigitsDemo(
        n_bits=n_bits,
        seed=seed,
        shown=shown,
        pictures=pictures,
        digits=digits,
        query_pictures=query_pictures,
        query_digits=query_digits,
        distances=distances,
        neighbours=neighbours,
        same_digit_exact=_share(digits[true_neighbours], query_digits),
        scores=scores,
        left_out=left_out,
        seconds_search=seconds_search,
        seconds_exact=seconds_exact,
    )


def _hashers(n_bits: int, seed: int) -> dict[str, Hasher]:
    # Refined takes a tenth of its default steps: enough for so few rows, and faster.
    return {
        method: make_hasher(
            method,
            n_bits,
            seed=seed,
            parameters={"n_steps": 300} if method.startswith("Refined") else {},
        )
        for method in (*PAPER, "ITQ", "Refined(DSH)")
    }


def _share(digits: NDArray[np.int64], query_digits: NDArray[np.int64]) -> float:
    return float((digits == query_digits[:, np.newaxis]).mean())
