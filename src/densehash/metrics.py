"""How good a ranking of codes by distance is, from counts alone.

Counts are integers of shape (q, D): ``counts[i, d]`` codes are at distance d of query i, and
``relevant_counts[i, d]`` of them are relevant. :func:`densehash.hamming.histogram` returns both,
with D = n_bits + 1. So does :func:`densehash.asymmetric.histogram`, with levels of distance.

Codes at equal distance are tied. Tie-aware measures are expectations over all orders of the tied
codes (McSherry and Najork, *Computing information retrieval performance measures efficiently in
the presence of tied scores*, ECIR 2008), so that no order is favoured and none has to be drawn.
A search orders ties by position instead. For that order, :func:`ranks` finds the place of each
relevant code, and :func:`average_precision_of_ranks` measures the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash import hamming
from densehash.checks import (
    as_array,
    check_codes,
    check_integer,
    check_positions,
    check_same_width,
    check_threads,
)
from densehash.errors import InputError
from densehash.parallel import map_in_order

__all__ = [
    "average_precision",
    "average_precision_of_ranks",
    "expected_hits",
    "mean_average_precision",
    "precision_at",
    "precision_recall",
    "precision_within",
    "ranks",
    "recall_after_reranking",
    "recall_at",
    "share_of_empty_balls",
]


def mean_average_precision(counts: ArrayLike, relevant_counts: ArrayLike) -> float:
    """Mean of :func:`average_precision` over the queries, of which there is at least one.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone

    Examples
    --------
    >>> mean_average_precision([[1, 1, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    0.75
    """
    return _mean(average_precision(counts, relevant_counts))


def average_precision(counts: ArrayLike, relevant_counts: ArrayLike) -> NDArray[np.float64]:
    """Average precision of the ranking of all codes by distance, tie-aware.

    The average precision of one order is the mean, over the relevant codes, of the share of
    relevant codes among all codes up to that one. This function returns its exact expectation if
    codes at equal distance come in random order.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query

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
    # Only levels with relevant codes: of thousands, few have any.
    where = np.nonzero(relevant)
    there, r = every[where], relevant[where].astype(np.float64)
    n = there.astype(np.float64)
    before = np.cumsum(every, axis=1)[where] - there
    relevant_before = np.cumsum(relevant, axis=1)[where] - r

    # A code at rank i of its n tied ones is relevant with probability r / n. Then, each of the
    # i - 1 tied codes before it is relevant with probability (r - 1) / (n - 1), and the expected
    # precision there is (relevant_before + 1 + (i - 1) (r - 1) / (n - 1)) / (before + i).
    # Summed over i, with h for the sum of 1 / (before + i):
    h = _harmonic_step(before, there)
    rate = (r - 1) / np.maximum(n - 1, 1)
    precisions = (relevant_before + 1) * h + rate * (n - (before + 1) * h)
    sums = np.bincount(where[0], precisions * r / n, minlength=len(every))
    averages: NDArray[np.float64] = sums / relevant.sum(axis=1)
    return averages


def ranks(
    queries: ArrayLike,
    codes: ArrayLike,
    relevant: Sequence[ArrayLike] | NDArray[Any],
    *,
    n_threads: int | None = None,
) -> list[NDArray[np.int64]]:
    """Find the place of each relevant code among all, in order of (Hamming distance, position).

    All codes are sorted for every query: for a million of them, some 15 ms a query and 12 MB a
    thread.

    Parameters
    ----------
    queries : uint8 (q, width)
    codes : uint8 (n, width)
    relevant : for each query the positions of its relevant codes: integer (q, m), or q integer
        arrays of any lengths
    n_threads : number of threads; None uses every CPU that the process may use

    Returns
    -------
    ranks : q arrays, int64 (m,), the first place being 1; in the order of ``relevant``

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b0000], [0b0111], [0b0001], [0b0100]], dtype=np.uint8)
    >>> ranks(codes[:1], codes, [[1, 3]])
    [array([4, 3])]
    """
    asked, every = check_codes(queries, "queries"), check_codes(codes)
    check_same_width(asked, every)
    limits, positions = check_positions(relevant, len(asked), len(every))

    def of_query(query: int) -> NDArray[np.int64]:
        distances = hamming.distances(asked[query : query + 1], every, n_threads=1)[0]
        order = np.argsort(distances, kind="stable")
        own, back = np.unique(positions[limits[query] : limits[query + 1]], return_inverse=True)
        wanted = np.zeros(len(every), np.bool_)
        wanted[own] = True
        places = np.flatnonzero(wanted.take(order))
        return (places[np.argsort(order[places])] + 1)[back]

    threads = max(1, min(check_threads(n_threads), len(asked)))
    with closing(map_in_order(of_query, range(len(asked)), threads)) as found:
        return list(found)


def average_precision_of_ranks(
    ranks: Sequence[ArrayLike] | NDArray[Any],
) -> NDArray[np.float64]:
    """Average precision of rankings in which each relevant code has one place.

    Parameters
    ----------
    ranks : for each query the places of its relevant codes, distinct and at least one, the first
        place being 1: integer (q, m), or q integer arrays of any lengths. :func:`ranks` returns
        them.

    Returns
    -------
    float64 (q,)

    Examples
    --------
    Relevant codes in the first and the fourth place: the precision there is 1 and 1 / 2.

    >>> average_precision_of_ranks([[1, 4], [3]])
    array([0.75      , 0.33333333])
    """
    if not hasattr(ranks, "__len__") or not hasattr(ranks, "__iter__"):
        raise InputError(f"ranks must hold one array for each query, got {ranks!r}")
    found = np.empty(len(ranks))
    for query, of_query in enumerate(ranks):
        places = _as_ranks(of_query, query)
        found[query] = np.mean(np.arange(1, len(places) + 1) / places)
    return found


def precision_recall(
    counts: ArrayLike, relevant_counts: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall of all codes within each distance, averaged over the queries.

    A query without any code within a distance has no precision at that distance, and is left out of
    the mean; if no query has any code, the mean is NaN. (:func:`precision_within` instead counts a
    lookup that finds nothing as zero.)

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query

    Returns
    -------
    precision : float64 (D,); at d the mean, over queries, of the share of relevant codes among
        all codes at distance d or less
    recall : float64 (D,), rising to 1; at d the mean, over queries, of the share of the relevant
        codes that are at distance d or less

    Examples
    --------
    >>> precision, recall = precision_recall([[1, 1, 2], [0, 2, 2]], [[1, 0, 1], [0, 1, 0]])
    >>> precision
    array([1.   , 0.5  , 0.375])
    >>> recall
    array([0.25, 0.75, 1.  ])
    """
    every, relevant = _check_counts(counts, relevant_counts)
    _check_queries(every)
    within, relevant_within = np.cumsum(every, axis=1), np.cumsum(relevant, axis=1)
    n_not_empty = np.count_nonzero(within, axis=0)
    sums = (relevant_within / np.maximum(within, 1)).sum(axis=0)
    precision = np.full(len(sums), np.nan)
    np.divide(sums, n_not_empty, out=precision, where=n_not_empty > 0)
    return precision, (relevant_within / relevant_within[:, -1:]).mean(axis=0)


def precision_within(counts: ArrayLike, relevant_counts: ArrayLike, radius: int = 2) -> float:
    """Precision of a lookup of all codes within a radius; a query that finds none counts as zero.

    Papers on hashing report lookups by this measure, most with radius 2. It is low for codes so
    long that most queries find nothing: :func:`share_of_empty_balls` says how many.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query
    radius : from 0 to D - 1

    Returns
    -------
    The mean, over the queries, of the share of relevant codes among those at distance ``radius``
    or less

    Examples
    --------
    >>> precision_within([[1, 1, 2, 0], [0, 0, 0, 4]], [[1, 0, 1, 0], [0, 0, 0, 1]])
    0.25
    """
    every, relevant = _check_counts(counts, relevant_counts)
    stop = check_integer(radius, "radius", 0, every.shape[1] - 1) + 1
    within, relevant_within = every[:, :stop].sum(axis=1), relevant[:, :stop].sum(axis=1)
    return _mean(relevant_within / np.maximum(within, 1))


def share_of_empty_balls(counts: ArrayLike, radius: int = 2) -> float:
    """Share of the queries that have no code within a radius.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    radius : from 0 to D - 1

    Examples
    --------
    >>> share_of_empty_balls([[1, 1, 2, 0], [0, 0, 0, 4]])
    0.5
    """
    every = _as_counts(counts, "counts")
    stop = check_integer(radius, "radius", 0, every.shape[1] - 1) + 1
    return _mean(np.where(every[:, :stop].any(axis=1), 0.0, 1.0))


def expected_hits(
    counts: ArrayLike, relevant_counts: ArrayLike, n: int | Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float64]:
    """How many of the first n codes are relevant, for every query, tie-aware.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query
    n : one or several integers, from 1 to the number of codes

    Returns
    -------
    float64 (q, len(n)), with one column for a single n: the exact expectation if codes at
    equal distance come in random order

    Examples
    --------
    Two codes are tied in the first place, and one of them is relevant.

    >>> expected_hits([[2, 3]], [[1, 1]], [1, 2, 5])
    array([[0.5, 1. , 2. ]])
    """
    return _hits(*_check_counts(counts, relevant_counts), n)


@overload
def precision_at(counts: ArrayLike, relevant_counts: ArrayLike, n: int) -> float: ...
@overload
def precision_at(
    counts: ArrayLike, relevant_counts: ArrayLike, n: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float64]: ...
def precision_at(
    counts: ArrayLike, relevant_counts: ArrayLike, n: int | Sequence[int] | NDArray[np.integer]
) -> float | NDArray[np.float64]:
    """Share of relevant codes among the first n, tie-aware; the mean over the queries.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query
    n : one or several integers, from 1 to the number of codes

    Returns
    -------
    A float for a single n, or float64 (len(n),)

    Examples
    --------
    >>> precision_at([[2, 3]], [[1, 1]], 1)
    0.5
    >>> precision_at([[2, 3]], [[1, 1]], [2, 5])
    array([0.5, 0.4])
    """
    every, relevant = _check_counts(counts, relevant_counts)
    shares = _hits(every, relevant, n) / np.atleast_1d(np.asarray(n))
    return _mean_of_each(shares, n)


@overload
def recall_at(counts: ArrayLike, relevant_counts: ArrayLike, n: int) -> float: ...
@overload
def recall_at(
    counts: ArrayLike, relevant_counts: ArrayLike, n: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float64]: ...
def recall_at(
    counts: ArrayLike, relevant_counts: ArrayLike, n: int | Sequence[int] | NDArray[np.integer]
) -> float | NDArray[np.float64]:
    """Share of the relevant codes that are among the first n, tie-aware; the mean over queries.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    relevant_counts : integers (q, D), the same for the relevant codes alone; at least one for
        each query
    n : one or several integers, from 1 to the number of codes

    Returns
    -------
    A float for a single n, or float64 (len(n),)

    Examples
    --------
    >>> recall_at([[2, 3]], [[1, 1]], 1)
    0.25
    >>> recall_at([[2, 3]], [[1, 1]], [2, 5])
    array([0.5, 1. ])
    """
    every, relevant = _check_counts(counts, relevant_counts)
    return _mean_of_each(_hits(every, relevant, n) / relevant.sum(axis=1, keepdims=True), n)


@overload
def recall_after_reranking(counts: ArrayLike, near_distances: ArrayLike, n: int) -> float: ...
@overload
def recall_after_reranking(
    counts: ArrayLike, near_distances: ArrayLike, n: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float64]: ...
def recall_after_reranking(
    counts: ArrayLike, near_distances: ArrayLike, n: int | Sequence[int] | NDArray[np.integer]
) -> float | NDArray[np.float64]:
    """Recall of the k true neighbours if the first n codes are ranked again by true distance.

    Ranking again puts the true neighbours among the n candidates first. So this is the share of the
    true neighbours that are among the candidates, tie-aware; the mean over the queries.

    Parameters
    ----------
    counts : integers (q, D); ``counts[i, d]`` codes are at distance d of query i
    near_distances : integers (q, k), from 0 to D - 1, the distances (or levels) of the codes of
        each query's k true neighbours
    n : one or several integers, from 1 to the number of codes

    Returns
    -------
    A float for a single n, or float64 (len(n),)

    Examples
    --------
    >>> recall_after_reranking([[1, 4, 3]], [[0, 1]], [1, 3, 5])
    array([0.5 , 0.75, 1.  ])
    """
    every = _as_counts(counts, "counts")
    near = as_array(near_distances, "near_distances")
    if near.dtype.kind not in "iu" or near.ndim != 2 or near.shape[0] != every.shape[0]:
        raise InputError(
            f"near_distances must be integers (q, k) for {every.shape[0]} queries, "
            f"got dtype {near.dtype} and shape {near.shape}"
        )
    if near.size and (near.min() < 0 or near.max() >= every.shape[1]):
        query, column = np.argwhere((near < 0) | (near >= every.shape[1]))[0]
        raise InputError(
            f"near_distances must lie in 0..{every.shape[1] - 1}, got {near[query, column]} "
            f"for query {query}"
        )
    relevant = np.zeros_like(every)
    np.add.at(relevant, (np.arange(len(near))[:, np.newaxis], near), 1)
    return recall_at(every, relevant, n)


def _hits(
    every: NDArray[np.int64],
    relevant: NDArray[np.int64],
    n: int | Sequence[int] | NDArray[np.integer],
) -> NDArray[np.float64]:
    found = np.atleast_1d(as_array(n, "n"))
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputError(
            f"n must be an integer or a sequence of integers, got dtype {found.dtype} "
            f"and shape {found.shape}"
        )
    _check_queries(every)
    n_codes = int(every.sum(axis=1).min())
    for value in found:
        check_integer(value, "n", 1, n_codes)
    # Within a tie, each further code adds r / n relevant ones: a straight line from tie to tie.
    ends, relevant_ends = (
        np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1) for values in (every, relevant)
    )
    return np.stack(
        [np.interp(found, *of_query) for of_query in zip(ends, relevant_ends, strict=True)]
    )


def _mean_of_each(
    values: NDArray[np.float64], n: int | Sequence[int] | NDArray[np.integer]
) -> float | NDArray[np.float64]:
    means: NDArray[np.float64] = values.mean(axis=0)
    return means if np.ndim(n) else float(means[0])


def _mean(values: NDArray[np.float64]) -> float:
    _check_queries(values)
    return float(values.mean())


def _check_queries(values: NDArray[Any]) -> None:
    if len(values) == 0:
        raise InputError("counts must have at least 1 query, got none")


def _as_ranks(values: ArrayLike, query: int) -> NDArray[np.int64]:
    array = as_array(values, "ranks")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError(
            "ranks must hold a one-dimensional array of at least 1 integer for each query, "
            f"got dtype {array.dtype} and shape {array.shape} for query {query}"
        )
    if array.min() < 1:
        raise InputError(f"ranks must be at least 1, got {array.min()} for query {query}")
    places = np.sort(array)
    if (places[1:] == places[:-1]).any():
        again = places[1:][places[1:] == places[:-1]][0]
        raise InputError(f"ranks must be distinct, got {again} twice for query {query}")
    return places.astype(np.int64)


def _harmonic_step(start: NDArray[np.int64], n: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 / (start + 1) + ... + 1 / (start + n), to 13 digits."""
    from scipy.special import digamma  # noqa: PLC0415  most measures do not need it

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
        raise InputError(f"{name} must have 2 dimensions (q, distances), got shape {array.shape}")
    found = array.astype(np.int64, copy=False)
    if (found < 0).any():
        query, distance = np.argwhere(found < 0)[0]
        raise InputError(
            f"{name} must not be negative, got {array[query, distance]} at distance {distance} "
            f"of query {query}"
        )
    return found
