"""Ranks the database for every query, and sums up each ranking."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash import asymmetric, estimates, hamming
from densehash.metrics import average_precision
from densehash.paper.problem import Problem

__all__ = [
    "rank_by_distances",
    "rank_by_hamming",
    "rank_by_margins",
    "rank_by_tables",
    "rank_summary",
]

_Arrays = dict[str, NDArray[Any]]

_N_LEVELS = 16384
_BLOCK = 1 << 24  # distances in memory at once


def rank_by_hamming(
    query_codes: NDArray[np.uint8], codes: NDArray[np.uint8], problem: Problem, n_bits: int
) -> _Arrays:
    """Rank by Hamming distance.

    Returns
    -------
    ``counts`` and ``relevant_counts`` int64 (q, n_bits + 1), how many codes and how many true
    neighbours are at each distance; ``near`` int64 (q, k), the distances of the k nearest rows
    """
    counts, relevant_counts = hamming.histogram(query_codes, codes, problem.relevant, n_bits=n_bits)
    differing = codes[problem.near] ^ query_codes[:, np.newaxis]
    near = np.unpackbits(differing, axis=2).sum(axis=2, dtype=np.int64)
    return {"counts": counts, "relevant_counts": relevant_counts, "near": near}


def rank_by_margins(
    margins: NDArray[np.float32], codes: NDArray[np.uint8], problem: Problem
) -> _Arrays:
    """Rank by the query's margins; returns what :func:`rank_summary` does."""
    return _rank(partial(asymmetric.histogram, margins), codes, problem)


def rank_by_tables(
    tables: NDArray[np.float32], codes: NDArray[np.uint8], problem: Problem
) -> _Arrays:
    """Rank by sums of entries of tables (q, width, 256), one entry for each byte of a code.

    Returns what :func:`rank_summary` does.
    """
    return _rank(partial(asymmetric.table_histogram, tables), codes, problem)


def rank_by_distances(
    distances_of: Callable[[NDArray[Any]], NDArray[np.float32]], problem: Problem
) -> _Arrays:
    """Rank by any distances; returns what :func:`rank_summary` does.

    Parameters
    ----------
    distances_of : takes some queries of ``problem.asked``, returns their distances to all rows
    problem : queries and rows
    """
    parts = []  # one query at a time: each has three arrays of thousands of counts
    step = max(1, _BLOCK // len(problem.base))
    for start in range(0, len(problem.asked), step):
        distances = distances_of(problem.asked[start : start + step])
        for query, found in enumerate(estimates.levels(distances, _N_LEVELS), start):
            every, relevant, near = (
                np.bincount(chosen, minlength=_N_LEVELS)[np.newaxis]
                for chosen in (found, found[problem.relevant[query]], found[problem.near[query]])
            )
            parts.append(rank_summary(every, relevant, near))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rank(histogram: Callable[..., Any], codes: NDArray[np.uint8], problem: Problem) -> _Arrays:
    every, relevant = histogram(codes, problem.relevant)
    # Counts of the k nearest rows only: ranks those of all queries, and counts each query's own k.
    own = np.arange(problem.near.size).reshape(problem.near.shape)
    nearest = histogram(codes[problem.near.ravel()], own)[1]
    return rank_summary(every, relevant, nearest)


def rank_summary(
    counts: NDArray[np.int64],
    relevant_counts: NDArray[np.int64],
    near_counts: NDArray[np.int64],
) -> _Arrays:
    """Sum up a ranking by real numbers, whose thousands of counts would make records too long.

    Parameters
    ----------
    counts, relevant_counts, near_counts : int64 (q, n_levels), how many of all codes, of the true
        neighbours and of the k nearest rows are at each level of distance

    Returns
    -------
    ``precision`` float32 (q,), the average precision of each query; ``before`` and ``level`` int64
    (q, k), how many codes come before each of its k nearest rows, and how many are level with it

    Examples
    --------
    >>> found = rank_summary(np.array([[1, 2]]), np.array([[1, 1]]), np.array([[0, 1]]))
    >>> found["before"], found["level"]
    (array([[1]]), array([[2]]))
    """
    n_queries, n_levels = counts.shape
    levels = np.tile(np.arange(n_levels), n_queries)
    near = np.repeat(levels, near_counts.ravel()).reshape(n_queries, -1)
    before = np.cumsum(counts, axis=1) - counts
    return {
        "precision": average_precision(counts, relevant_counts).astype(np.float32),
        "before": np.take_along_axis(before, near, axis=1),
        "level": np.take_along_axis(counts, near, axis=1),
    }
