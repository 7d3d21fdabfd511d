"""Distances estimated from codes, against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hasher_cases import mixture
from numpy.typing import NDArray

from densehash import DSH, ITQ, LSH, asymmetric, estimates, hamming, metrics, truth
from densehash.bits import pack, unpack
from densehash.datasets import load
from densehash.errors import InputError
from densehash.hashers import Hasher

Floats = NDArray[np.float64]


def decoded_by_definition(codes: NDArray[np.uint8], X: Floats) -> Floats:
    """Least squares with an intercept and a small ridge on the signs alone."""
    signs = 2.0 * unpack(codes, 8 * codes.shape[1]) - 1
    ones = np.ones((len(X), 1))
    ridge = np.sqrt(1e-3 * len(X)) * np.eye(signs.shape[1])
    left = np.vstack([np.hstack([signs, ones]), np.hstack([ridge, 0 * ridge[:, :1]])])
    right = np.vstack([X - X.mean(axis=0), np.zeros((signs.shape[1], X.shape[1]))])
    found: Floats = np.hstack([signs, ones]) @ np.linalg.lstsq(left, right, rcond=None)[0]
    return found


def estimates_by_definition(codes: NDArray[np.uint8], X: Floats, queries: Floats) -> Floats:
    y, r = decoded_by_definition(codes, X), X - X.mean(axis=0)
    lengths, of_y = np.linalg.norm(r, axis=1), np.linalg.norm(y, axis=1)
    f = np.sqrt(np.clip((y * r).sum(axis=1) / of_y / lengths, 0, 1)) * lengths / of_y
    asked = queries - X.mean(axis=0)
    away = np.square(asked[:, np.newaxis]).sum(axis=2) + lengths**2 - 2 * f * (asked @ y.T)
    return np.asarray(away)


@pytest.mark.parametrize(("n_bits", "far"), [(8, 0.0), (21, 3.0), (64, 1e6)])
def test_estimates_are_what_they_are_said_to_be(
    n_bits: int, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = mixture(700).astype(np.float64) + far
    rows, queries = X[:680], X[680:]
    codes = LSH(n_bits, random_state=0).fit(rows).transform(rows)
    monkeypatch.setattr(estimates, "_BLOCK", 4000)  # several blocks of rows and of queries
    estimator = estimates.learn(codes, rows)
    factors = estimator.factors(codes, rows)
    found = estimator.distances(queries, codes, factors)
    assert found.dtype == np.float32
    expected = estimates_by_definition(codes, rows, queries)
    # Factors are float16.
    assert np.abs(found - expected).max() < 3e-3 * np.abs(expected).max()


def test_a_code_that_decodes_its_row_knows_the_distance() -> None:
    """Rows that are sums of few columns: signs say all there is to say."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (2000, 16))
    X = signs @ rng.normal(size=(16, 40))
    codes = pack(signs > 0)
    estimator = estimates.learn(codes, X)
    found = estimator.distances(X[:20], codes, estimator.factors(codes, X))
    exact = np.square(X[:20, np.newaxis] - X).sum(axis=2)
    assert np.abs(found - exact).max() < 0.01 * exact.max()


def test_counts_are_those_of_the_estimates() -> None:
    X = mixture(300)
    codes = ITQ(16, random_state=0).fit(X).transform(X)
    estimator = estimates.learn(codes, X)
    kept = estimator.factors(codes, X)
    relevant: list[Any] = [[3, 7], [], [299, 0, 1]]
    counts, of_relevant = estimator.histogram(X[:3], codes, kept, relevant, n_levels=50)
    found = estimator.distances(X[:3], codes, kept)
    np.testing.assert_array_equal(counts, estimator.histogram(X[:3], codes, kept, n_levels=50))
    for query, row in enumerate(found):
        edges = np.linspace(row.min(), row.max(), 51)
        expected = np.histogram(row, edges)[0]
        assert np.abs(np.cumsum(counts[query] - expected)).max() <= 1  # rounding at an edge
        assert counts[query].sum() == 300
        levels = estimates.levels(row[np.newaxis], 50)[0, relevant[query]]
        np.testing.assert_array_equal(of_relevant[query], np.bincount(levels, minlength=50))


@pytest.mark.parametrize("hasher", [LSH, DSH, ITQ])
def test_codes_rank_better_by_estimates_than_by_bits_or_margins(hasher: type[Hasher]) -> None:
    X = np.asarray(load("digits").base[:], np.float32)
    queries, rows = X[:150], X[150:]
    near = truth.nearest(queries, rows, k=10)
    learnt = hasher(n_bits=32, random_state=0).fit(rows)
    codes = learnt.transform(rows)
    estimator = estimates.learn(codes, rows)
    found = estimator.histogram(queries, codes, estimator.factors(codes, rows), near)
    by_margins = asymmetric.histogram(learnt.project(queries), codes, near)
    by_bits = hamming.histogram(learnt.transform(queries), codes, near)
    n = [10, 20, 50]
    best = metrics.recall_at(*found, n)
    assert (best > metrics.recall_at(*by_bits, n) + 0.03).all()
    assert (best > metrics.recall_at(*by_margins, n)).all()


def test_rows_that_say_nothing() -> None:
    """All rows equal, codes all equal, one row: no division by zero, and every estimate finite."""
    for X in (np.ones((20, 3)), np.ones((1, 3)), np.random.default_rng(0).normal(size=(20, 3))):
        codes = np.zeros((len(X), 2), np.uint8)
        estimator = estimates.learn(codes, X)
        found = estimator.distances(X, codes, estimator.factors(codes, X))
        assert np.isfinite(found).all()
        counts = estimator.histogram(X[:1], codes, estimator.factors(codes, X))
        assert counts.sum() == len(X)


def test_nothing_to_rank() -> None:
    X, codes = mixture(50), np.zeros((50, 1), np.uint8)
    estimator = estimates.learn(codes, X)
    kept = estimator.factors(codes, X)
    assert estimator.distances(X[:2], codes[:0], kept[:0]).shape == (2, 0)
    assert estimator.histogram(X[:2], codes[:0], kept[:0]).sum() == 0


def test_what_is_refused() -> None:
    X, codes = mixture(50), np.zeros((50, 1), np.uint8)
    estimator = estimates.learn(codes, X)
    kept = estimator.factors(codes, X)
    with pytest.raises(InputError, match="a code for each row, .* got 49 codes and 50 rows"):
        estimates.learn(codes[:49], X)
    with pytest.raises(InputError, match="learnt from codes of 1 bytes, got 2 bytes"):
        estimator.distances(X[:1], np.zeros((50, 2), np.uint8), kept)
    with pytest.raises(InputError, match=r"factors must be floats of shape \(50, 2\)"):
        estimator.distances(X[:1], codes, kept[:, :1])
    with pytest.raises(InputError, match="queries have 2 features, the estimator has 24"):
        estimator.distances(X[:1, :2], codes, kept)
    bad = X[:2].copy()
    bad[1, 3] = np.nan
    with pytest.raises(InputError, match="queries must be finite, got NaN in row 1, column 3"):
        estimator.distances(bad, codes, kept)
    with pytest.raises(InputError, match="n_levels must be from 1 to 65536, got 0"):
        estimator.histogram(X[:1], codes, kept, n_levels=0)
