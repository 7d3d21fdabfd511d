from fractions import Fraction
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
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
        ([2, 1], [1, 0], r"counts must have 2 dimensions \(q, distances\), got shape \(2,\)"),
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
    for function in (
        metrics.average_precision,
        metrics.mean_average_precision,
        metrics.precision_recall,
        partial(metrics.precision_within, radius=0),
        partial(metrics.expected_hits, n=1),
        partial(metrics.precision_at, n=1),
        partial(metrics.recall_at, n=[1]),
    ):
        with pytest.raises(InputError, match=message):
            function(counts, relevant)


# The first n codes


def hits_over_all_orders(counts: list[int], relevant_counts: list[int], n: int) -> Fraction:
    groups = [
        list(permutations([True] * r + [False] * (n - r)))
        for n, r in zip(counts, relevant_counts, strict=True)
    ]
    orders = [sum(sum(order, ())[:n]) for order in product(*groups)]
    return Fraction(sum(orders), len(orders))


def test_expected_hits_are_the_mean_over_all_orders() -> None:
    for counts in product(range(4), repeat=2):
        for relevant in product(*(range(n + 1) for n in counts)):
            if not any(relevant):
                continue
            ns = range(1, sum(counts) + 1)
            expected = [float(hits_over_all_orders([*counts], [*relevant], n)) for n in ns]
            found = metrics.expected_hits([counts], [relevant], [*ns])
            np.testing.assert_allclose(found, [expected], rtol=1e-14)
            for n, hits in zip(ns, expected, strict=True):
                precision = metrics.precision_at([counts], [relevant], n)
                assert precision == pytest.approx(hits / n)
                recall = metrics.recall_at([counts], [relevant], n)
                assert recall == pytest.approx(hits / sum(relevant))


@st.composite
def tables(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts and relevant counts of a few queries, each of which has as many codes."""
    q, n, n_distances = draw(st.integers(1, 4)), draw(st.integers(1, 60)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    counts: NDArray[np.int64] = rng.multinomial(n, rng.dirichlet(np.full(n_distances, 0.5)), q)
    relevant = rng.binomial(counts, rng.random(counts.shape))
    first = np.argmax(counts > 0, axis=1)[:, np.newaxis]
    some = np.maximum(np.take_along_axis(relevant, first, axis=1), 1)
    np.put_along_axis(relevant, first, some, axis=1)
    return counts, relevant


@given(tables())
def test_the_first_n_codes(case: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
    counts, relevant = case
    n_codes = int(counts[0].sum())
    ns = np.arange(1, n_codes + 1)
    hits = metrics.expected_hits(counts, relevant, ns)
    assert hits.shape == (len(counts), n_codes)
    steps = np.diff(hits, axis=1, prepend=0)
    assert ((steps > -1e-9) & (steps < 1 + 1e-9)).all()  # one code more is one hit more at most
    precision, recall = (f(counts, relevant, ns) for f in (metrics.precision_at, metrics.recall_at))
    prevalence = relevant.sum(axis=1).mean() / n_codes
    assert precision[-1] == pytest.approx(prevalence)
    assert recall[-1] == pytest.approx(1)
    assert (np.diff(recall) > -1e-12).all()
    np.testing.assert_allclose(precision, (hits / ns).mean(axis=0))
    np.testing.assert_allclose(recall, (hits / relevant.sum(axis=1)[:, np.newaxis]).mean(axis=0))
    # The average precision by places, where no two codes are tied, is the mean at the hits.
    single = np.isclose(steps, np.round(steps)).all(axis=1)
    for row, step in zip(np.flatnonzero(single), steps[single], strict=True):
        places = np.flatnonzero(step > 0.5) + 1
        by_place = metrics.average_precision_of_ranks([places])
        by_counts = metrics.average_precision(counts[[row]], relevant[[row]])
        np.testing.assert_allclose(by_place, by_counts, rtol=1e-9)


@given(tables())
def test_whole_groups_are_balls(case: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
    """At the end of a group of ties, the first n codes are those within a radius."""
    counts, relevant = (rows[:1] for rows in case)
    precision, recall = metrics.precision_recall(counts, relevant)
    for radius, n in enumerate(np.cumsum(counts[0]).tolist()):
        assert metrics.share_of_empty_balls(counts, radius) == (n == 0)
        within = metrics.precision_within(counts, relevant, radius)
        if n == 0:
            assert np.isnan(precision[radius])
            assert (within, recall[radius]) == (0, 0)
            continue
        assert metrics.precision_at(counts, relevant, n) == pytest.approx(precision[radius])
        assert metrics.recall_at(counts, relevant, n) == pytest.approx(recall[radius])
        assert within == pytest.approx(precision[radius])


@given(tables())
def test_curves_are_means_over_queries(case: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
    counts, relevant = case
    precision, recall = metrics.precision_recall(counts, relevant)
    for radius in range(counts.shape[1]):
        shares, found, lookups = [], [], []
        for every, good in zip(counts.tolist(), relevant.tolist(), strict=True):
            n, r = sum(every[: radius + 1]), sum(good[: radius + 1])
            shares += [r / n] if n else []
            lookups.append(r / n if n else 0.0)
            found.append(r / sum(good))
        assert recall[radius] == pytest.approx(np.mean(found))
        assert np.isnan(precision[radius]) == (not shares)
        assert not shares or precision[radius] == pytest.approx(np.mean(shares))
        assert metrics.precision_within(counts, relevant, radius) == pytest.approx(np.mean(lookups))
        share = metrics.share_of_empty_balls(counts, radius)
        assert share == pytest.approx(1 - len(shares) / len(counts))


def test_one_number_gives_one_number() -> None:
    counts, relevant = [[2, 3], [4, 1]], [[1, 1], [0, 1]]
    for function in (metrics.precision_at, metrics.recall_at):
        numbers: tuple[Any, ...] = (3, np.int16(3), np.array(3)[()])
        for one in numbers:
            assert type(function(counts, relevant, one)) is float
        several = function(counts, relevant, [3, 1])
        assert several.shape == (2,)
        assert several[0] == function(counts, relevant, 3)
    assert metrics.expected_hits(counts, relevant, 3).shape == (2, 1)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (0, "n must be from 1 to 4, got 0"),
        (5, "n must be from 1 to 4, got 5"),
        ([1, 5], "n must be from 1 to 4, got 5"),
        (-(2**40), "n must be from 1 to 4, got -1099511627776"),
        (1.0, "n must be an integer or a sequence of integers, got dtype float64"),
        (True, "n must be .*, got dtype bool"),
        ("1", "n must be .*, got dtype <U1"),
        ([[1]], r"n must be .*, got dtype int64 and shape \(1, 1\)"),
        ([[1], [1, 2]], "n cannot be read as an array"),
    ],
)
def test_bad_n(n: Any, message: str) -> None:
    counts, relevant = [[2, 3], [4, 0]], [[1, 1], [1, 0]]
    for function in (metrics.expected_hits, metrics.precision_at, metrics.recall_at):
        with pytest.raises(InputError, match=message):
            function(counts, relevant, n)
    with pytest.raises(InputError, match=message):
        metrics.recall_after_reranking(counts, [[1], [0]], n)


@pytest.mark.parametrize("radius", [-1, 2, 1.0, True])
def test_bad_radius(radius: Any) -> None:
    with pytest.raises(InputError, match="radius must be"):
        metrics.precision_within([[2, 3]], [[1, 1]], radius)
    with pytest.raises(InputError, match="radius must be"):
        metrics.share_of_empty_balls([[2, 3]], radius)


def test_means_of_no_queries() -> None:
    none = np.zeros((0, 9), int)
    for function in (
        metrics.precision_recall,
        metrics.precision_within,
        partial(metrics.precision_at, n=1),
        partial(metrics.recall_at, n=1),
        partial(metrics.recall_after_reranking, n=1),
        lambda counts, _: metrics.share_of_empty_balls(counts),
    ):
        with pytest.raises(InputError, match="counts must have at least 1 query, got none"):
            function(none, none)


# Candidates that are ranked again


def test_reranking_finds_the_neighbours_among_the_candidates() -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (200, 2), dtype=np.uint8)
    near = rng.permutation(200)[:10]
    distances = hamming.distances(codes[:1], codes)
    counts = hamming.histogram(codes[:1], codes)
    ns = [1, 5, 30, 100, 200]
    found = metrics.recall_after_reranking(counts, distances[:, near], ns)
    drawn = np.zeros((2000, len(ns)))
    for row in drawn:
        order = np.lexsort([rng.random(200), distances[0]])
        row[:] = [np.isin(near, order[:n]).mean() for n in ns]
    margin = 5 * drawn.std(axis=0) / np.sqrt(len(drawn)) + 1e-12
    assert (np.abs(found - drawn.mean(axis=0)) < margin).all()
    assert metrics.recall_after_reranking(counts, distances[:, near], 30) == found[2]
    both = hamming.histogram(codes[:1], codes, near[np.newaxis])
    np.testing.assert_array_equal(found, metrics.recall_at(*both, ns))


@pytest.mark.parametrize(
    ("near", "message"),
    [
        ([[0, 2], [0, 1]], "near_distances must lie in 0..1, got 2 for query 0"),
        ([[0, 0], [0, -1]], "near_distances must lie in 0..1, got -1 for query 1"),
        ([[0, 1]], r"integers \(q, k\) for 2 queries, got dtype int64 and shape \(1, 2\)"),
        ([0, 1], r"integers \(q, k\) for 2 queries, got dtype int64 and shape \(2,\)"),
        ([[0.0], [1.0]], "got dtype float64"),
        ([[0], [0, 1]], "near_distances cannot be read as an array"),
        ([[1, 1, 1, 1], [0, 0, 0, 0]], "must not exceed counts, got 4 of 3 at distance 1"),
        (np.zeros((2, 0), int), "at least 1 relevant code .* got none for query 0"),
    ],
)
def test_bad_distances_of_neighbours(near: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.recall_after_reranking([[2, 3], [4, 1]], near, 1)


# Places


@given(st.integers(0, 5), st.integers(1, 80), st.integers(1, 2), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_ranks_are_places_in_a_stable_sort(q: int, n: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (n, width), dtype=np.uint8)
    queries = rng.integers(0, 4, (q, width), dtype=np.uint8)
    relevant = [rng.integers(0, n, rng.integers(0, 9)) for _ in range(q)]
    order = np.argsort(hamming.distances(queries, codes), axis=1, kind="stable").tolist()
    expected = [[row.index(at) + 1 for at in own] for row, own in zip(order, relevant, strict=True)]
    for n_threads in (1, 3, None):
        found = metrics.ranks(queries, codes, relevant, n_threads=n_threads)
        assert [row.tolist() for row in found] == expected
        assert all(row.dtype == np.int64 for row in found)


def extremes(counts: NDArray[np.int64], relevant: NDArray[np.int64]) -> tuple[float, float]:
    """Average precision where in every tie the relevant codes come last, and first."""
    last, first = [], []
    for n, r in zip(counts.tolist(), relevant.tolist(), strict=True):
        last += [False] * (n - r) + [True] * r
        first += [True] * r + [False] * (n - r)
    return float(average_precision_of(last)), float(average_precision_of(first))


@given(st.integers(2, 60), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_average_precision_by_place(n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 8, (n, 1), dtype=np.uint8)
    relevant = rng.permutation(n)[np.newaxis, :m]
    found = metrics.average_precision_of_ranks(metrics.ranks(codes[:1], codes, relevant))
    order = np.argsort(hamming.distances(codes[:1], codes)[0], kind="stable")
    expected = average_precision_of(np.isin(order, relevant).tolist())
    np.testing.assert_allclose(found, [float(expected)], rtol=1e-14)
    counts, relevant_counts = hamming.histogram(codes[:1], codes, relevant)
    worst, best = extremes(counts[0], relevant_counts[0])
    tied = metrics.average_precision(counts, relevant_counts)[0]
    assert worst - 1e-12 <= tied <= best + 1e-12
    assert worst - 1e-12 <= found[0] <= best + 1e-12


def test_average_precision_of_ranks_is_that_of_scikit_learn() -> None:
    relevant = np.random.default_rng(3).random((20, 200)) < 0.1
    places = [np.flatnonzero(row)[::-1] + 1 for row in relevant]
    expected = [average_precision_score(row, -np.arange(200)) for row in relevant]
    np.testing.assert_allclose(metrics.average_precision_of_ranks(places), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[1], []], r"at least 1 integer .* shape \(0,\) for query 1"),
        ([[1.0]], "at least 1 integer .* got dtype float64"),
        ([[[1]]], r"shape \(1, 1\) for query 0"),
        ([1], r"shape \(\) for query 0"),
        ([[3], [2, 0]], "ranks must be at least 1, got 0 for query 1"),
        ([[3, 1, 3]], "ranks must be distinct, got 3 twice for query 0"),
        (3, "ranks must hold one array for each query, got 3"),
    ],
)
def test_bad_ranks(ranks: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.average_precision_of_ranks(ranks)


@pytest.mark.parametrize(
    ("queries", "relevant", "message"),
    [
        (np.zeros((2, 3), np.uint8), [[0], [0]], "queries are 3 bytes wide but codes are 1"),
        (np.zeros((2, 1)), [[0], [0]], "queries must be a uint8 array"),
        (np.zeros((2, 1), np.uint8), [[0]], "rows for 1 queries but there are 2"),
        (np.zeros((2, 1), np.uint8), [[0], [9]], "got 9 for query 1"),
    ],
)
def test_bad_codes(queries: Any, relevant: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.ranks(queries, np.zeros((9, 1), np.uint8), relevant)
