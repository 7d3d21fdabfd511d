from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from densehash import hamming, metrics
from densehash.errors import InputError


def average_precision_of(order: list[bool]) -> Fraction:
    """Of one ranking, from its definition."""
    hits, total = 0, Fraction(0)
    for rank, relevant in enumerate(order, start=1):
        if relevant:
            hits += 1
            total += Fraction(hits, rank)
    return total / hits


def mean_over_all_orders(counts: list[int], relevant_counts: list[int]) -> Fraction:
    groups = [
        list(permutations([True] * r + [False] * (n - r)))
        for n, r in zip(counts, relevant_counts, strict=True)
    ]
    orders = [average_precision_of([*map(bool, sum(order, ()))]) for order in product(*groups)]
    return sum(orders, Fraction(0)) / len(orders)


def sum_by_rank(counts: list[int], relevant_counts: list[int]) -> float:
    """The expectation rank by rank, without a closed form."""
    terms, before, relevant_before = [], 0, 0
    for n, r in zip(counts, relevant_counts, strict=True):
        i = np.arange(1, n + 1)
        expected = relevant_before + 1 + (i - 1) * (r - 1) / max(1, n - 1)
        terms.append(r / max(1, n) * np.sum(expected / (before + i)))
        before, relevant_before = before + n, relevant_before + r
    return float(np.sum(terms) / relevant_before)


def test_the_mean_over_all_orders() -> None:
    for counts in product(range(5), repeat=2):
        for relevant in product(*(range(n + 1) for n in counts)):
            if any(relevant):
                found = metrics.average_precision([counts], [relevant])
                expected = float(mean_over_all_orders(list(counts), list(relevant)))
                np.testing.assert_allclose(found, [expected], rtol=1e-14)


groups = st.tuples(st.integers(0, 400), st.floats(0, 1)).map(lambda g: (g[0], round(g[0] * g[1])))


@given(st.lists(groups, min_size=1, max_size=9).filter(lambda rows: any(r for _, r in rows)))
def test_the_closed_form_is_the_sum_over_ranks(rows: list[tuple[int, int]]) -> None:
    counts, relevant = [n for n, _ in rows], [r for _, r in rows]
    found = metrics.average_precision([counts], [relevant])[0]
    assert found == pytest.approx(sum_by_rank(counts, relevant), rel=1e-12)
    assert 0 < found < 1 + 1e-12


@pytest.mark.parametrize(
    ("counts", "relevant"),
    [
        ([10**6], [1]),
        ([10**6], [10**6]),
        ([10**6, 2], [0, 2]),
        ([10**6, 10**6, 5], [1, 10**6, 5]),
        ([99, 10**6, 1], [0, 20_000, 1]),
        ([100, 1, 10**6], [50, 1, 20_000]),
    ],
)
def test_large_groups(counts: list[int], relevant: list[int]) -> None:
    found = metrics.average_precision([counts], [relevant])
    np.testing.assert_allclose(found, [sum_by_rank(counts, relevant)], rtol=1e-9, atol=1e-15)


def test_without_ties_it_is_that_of_scikit_learn() -> None:
    relevant = np.random.default_rng(0).random((20, 200)) < 0.1
    found = metrics.average_precision(np.ones((20, 200), int), relevant.astype(int))
    expected = [average_precision_score(row, -np.arange(200)) for row in relevant]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_it_is_the_mean_of_random_orders_of_real_codes() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (300, 1), dtype=np.uint8)
    relevant = np.sort(rng.permutation(300)[:40])[np.newaxis]
    distances = hamming.distances(codes[:1], codes)[0]
    drawn = []
    for _ in range(2000):
        order = np.lexsort([rng.random(300), distances])
        drawn.append(float(average_precision_of(np.isin(order, relevant).tolist())))
    found = metrics.mean_average_precision(*hamming.histogram(codes[:1], codes, relevant))
    assert found == pytest.approx(np.mean(drawn), abs=5 * np.std(drawn) / np.sqrt(len(drawn)))


def test_the_mean_is_over_queries() -> None:
    counts: NDArray[np.int64] = np.array([[1, 1, 0], [2, 0, 2], [0, 0, 7]])
    relevant: NDArray[np.uint8] = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 7]], np.uint8)
    each = metrics.average_precision(counts, relevant)
    assert each.dtype == np.float64
    assert each.shape == (3,)
    assert metrics.mean_average_precision(counts, relevant) == each.mean()


def test_empty_groups_change_nothing() -> None:
    plain = metrics.average_precision([[2, 3]], [[1, 2]])
    padded = metrics.average_precision([[0, 2, 0, 0, 3, 0]], [[0, 1, 0, 0, 2, 0]])
    np.testing.assert_allclose(padded, plain, rtol=1e-15)


def test_no_queries() -> None:
    none = np.zeros((0, 9), int)
    assert metrics.average_precision(none, none).shape == (0,)
    with pytest.raises(InputError, match="counts must have at least 1 query, got none"):
        metrics.mean_average_precision(none, none)


@pytest.mark.parametrize(
    ("counts", "relevant", "message"),
    [
        ([[2, 1], [2, 1]], [[1, 0], [0, 0]], "at least 1 relevant code .*, got none for query 1$"),
        ([[2, 1]], [[1, 2]], "must not exceed counts, got 2 of 1 at distance 1 of query 0"),
        ([[2, 1]], [[1, 0, 0]], r"must have one shape, got \(1, 2\) and \(1, 3\)"),
        ([2, 1], [1, 0], r"counts must have 2 dimensions \(q, n_bits \+ 1\), got shape \(2,\)"),
        ([[2.0, 1.0]], [[1, 0]], "counts must be integers, got dtype float64"),
        ([[2, 1]], [[True, False]], "relevant_counts must be integers, got dtype bool"),
        ([[2, -1]], [[1, 0]], "counts must not be negative, got -1 at distance 1 of query 0"),
        ([[2, 1]], [[1, -3]], "relevant_counts must not be negative, got -3"),
        (np.full((1, 1), 2**64 - 1, np.uint64), [[1]], "got 18446744073709551615 at distance 0"),
        ([[2], [1, 1]], [[1]], "counts cannot be read as an array"),
        (np.zeros((1, 0), int), np.zeros((1, 0), int), "got none for query 0"),
    ],
)
def test_bad_counts(counts: Any, relevant: Any, message: str) -> None:
    for function in (metrics.average_precision, metrics.mean_average_precision):
        with pytest.raises(InputError, match=message):
            function(counts, relevant)
