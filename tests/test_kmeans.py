"""Lloyd's passes against the definition, against scikit-learn, and where groups run empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from densehash.errors import InputError
from densehash.kmeans import Groups, lloyd, nearest_center, random_centers
from densehash.rows import Rows
from densehash.rows import local as rows

Floats = NDArray[np.float64]


def brute_force(X: Floats, centers: Floats, n_passes: int) -> Groups:
    """Plain Lloyd by differences. An empty group takes the row farthest from its centre, but none
    that was taken before, nor one equal to the mean of its group."""
    inertia = []
    for _ in range(n_passes):
        away = X[:, np.newaxis] - centers
        labels = np.square(away).sum(axis=2).argmin(axis=1)
        distances = np.square(X - centers[labels]).sum(axis=1)
        taken: list[list[float]] = []
        for group in range(len(centers)):
            if (labels == group).any():
                continue
            for row in np.argsort(-distances, kind="stable"):
                if distances[row] == 0:
                    break
                group_mean = X[labels == labels[row]].mean(axis=0)
                different = X[row].tolist() not in taken and not np.allclose(X[row], group_mean)
                if (labels == labels[row]).sum() > 1 and different:
                    labels[row] = group
                    taken.append(X[row].tolist())
                    distances[row] = 0
                    break
        groups = [group for group in range(len(centers)) if (labels == group).any()]
        centers = np.array([X[labels == group].mean(axis=0) for group in groups])
        counts = np.array([(labels == group).sum() for group in groups])
        labels = np.searchsorted(groups, labels)
        inertia.append(np.square(X - centers[labels]).sum())
    return Groups(centers, counts, np.array(inertia))


def blobs(n: int = 500, d: int = 5, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    X: Floats = rng.standard_normal((n, d)) + 3 * rng.integers(-1, 2, (n, d))
    return X


def assert_same(found: Groups, expected: Groups, rtol: float = 1e-9) -> None:
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.centers, expected.centers, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=rtol, atol=rtol)
    assert found.centers.dtype == np.float64
    assert found.counts.dtype == np.int64
    assert found.inertia.dtype == np.float64


@pytest.mark.parametrize("n_passes", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 2, 7, 60])
@pytest.mark.parametrize("block_rows", [8192, 7, 64])
def test_lloyd_is_lloyd(
    monkeypatch: pytest.MonkeyPatch, n_passes: int, k: int, block_rows: int
) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", block_rows)
    X = blobs()
    centers = X[:k]
    found = lloyd(Rows(X), centers, n_passes)
    assert_same(found, brute_force(X, centers, n_passes))
    np.testing.assert_array_equal(centers, X[:k])  # what came in is not changed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_passes", [1, 3, 10])
def test_lloyd_is_that_of_scikit_learn(dtype: Any, n_passes: int) -> None:
    X = blobs(20_000, 8).astype(dtype)
    centers = X[:12]
    found = lloyd(Rows(X), centers, n_passes)
    init = centers.astype(np.float64)
    peer = KMeans(12, init=init, n_init=1, max_iter=n_passes, tol=0, algorithm="lloyd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # that it has not converged
        peer.fit(X.astype(np.float64))  # in float32 its sums depend on the number of threads
    rtol = 1e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(found.centers, peer.cluster_centers_, rtol=rtol, atol=rtol)
    # Its inertia is that of the last centres with labels of their own: one more assignment.
    labels = nearest_center(X.astype(np.float64), found.centers)
    last = np.square(X - found.centers[labels]).sum()
    np.testing.assert_allclose(last, peer.inertia_, rtol=rtol)
    assert found.inertia[-1] >= last * (1 - rtol)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 9), st.integers(1, 4))
def test_lloyd_on_a_grid(seed: int, n: int, k: int, n_passes: int) -> None:
    """Whole numbers: ties are exact, rows repeat, groups run empty."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, 2)).astype(np.float64)
    centers = X[rng.integers(0, n, min(k, n))]
    found, expected = lloyd(Rows(X), centers, n_passes), brute_force(X, centers, n_passes)
    if n_passes == 1:  # from means on, ties are broken by rounding
        assert_same(found, expected)
    assert found.counts.sum() == n
    assert found.counts.min() >= 1
    assert (np.diff(found.inertia) <= 1e-9).all()
    distinct = np.unique(X, axis=0)
    assert len(found.centers) <= min(len(centers), len(distinct))


def test_nearest_center_takes_the_first_of_equals() -> None:
    centers = np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    block = np.array([[0.0, 0.0], [2.0, 0.0], [-3.0, 0.0], [1.0, 1.0]])
    assert nearest_center(block, centers).tolist() == [0, 0, 1, 0]


# --- empty groups -------------------------------------------------------------------------

LINE = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])


@pytest.mark.parametrize(
    ("X", "first", "centers", "counts"),
    [
        # Nobody chooses 99 and 99: they take the two rows farthest from 0.
        (LINE, [0, 99, 99], [13 / 4, 30, 11], [4, 1, 1]),
        (LINE, [99, 0, 99], [30, 13 / 4, 11], [1, 4, 1]),
        # Two rows are equally far from 0: the earlier one.
        (np.array([[3.0], [0.0], [-3.0], [1.0]]), [0, 99], [-2 / 3, 3], [3, 1]),
        (np.array([[-3.0], [0.0], [3.0], [1.0]]), [0, 99], [4 / 3, -3], [3, 1]),
        # 30 is farthest, but alone in its group; taking it would empty that one.
        (np.array([[0.0], [1.0], [2.0], [30.0]]), [0, 18, 99], [0.5, 30, 2], [2, 1, 1]),
        # Equal rows make no two groups; what cannot be filled is left out.
        (np.array([[0.0], [5.0], [5.0], [5.0]]), [0, 99, 99, 99], [10 / 3, 5], [3, 1]),
        (np.array([[1.0], [2.0], [2.0]]), [1, 2, 99], [1, 2], [1, 2]),
        (np.array([[7.0], [7.0], [7.0]]), [7, 7], [7], [3]),
        # More rows equal to the farthest than there are groups hide none of the others.
        (np.array([[9.0]] * 8 + [[0.0], [4.0]]), [0, 99, 99], [63 / 8, 9, 4], [8, 1, 1]),
    ],
)
def test_empty_groups_take_the_farthest_rows(
    monkeypatch: pytest.MonkeyPatch, X: Floats, first: list[float], centers: Any, counts: Any
) -> None:
    for block_rows in (1, 2, 8192):
        monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", block_rows)
        found = lloyd(Rows(X), np.array(first, dtype=float)[:, np.newaxis], 1)
        np.testing.assert_allclose(found.centers.ravel(), centers)
        np.testing.assert_array_equal(found.counts, counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_distinct", [1, 2, 5, 17])
def test_repeated_rows_make_no_more_groups_than_values(dtype: Any, n_distinct: int) -> None:
    """The mean of equal rows is not quite that row: the difference must fill no group."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal((n_distinct, 24)).astype(dtype)
        X = values[np.arange(3000) % n_distinct]
        first = random_centers(Rows(X), 24, RandomState(seed), "groups")
        found = lloyd(Rows(X), first, 4)
        assert len(found.centers) <= n_distinct
        assert found.counts.sum() == len(X)
        if len(found.centers) == n_distinct:
            order = np.argsort(found.centers[:, 0])
            expected = values[np.argsort(values[:, 0])]
            np.testing.assert_allclose(found.centers[order], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_fills_no_group(dtype: Any) -> None:
    """The mean of equal rows is not quite that row; yet it leaves them nothing to take."""
    values = np.random.default_rng(0).standard_normal((2, 24)).astype(dtype)
    X = values[np.arange(6001) % 2]
    first = np.concatenate([values + 0.1, np.full((1, 24), 50.0)])
    for n_passes in (1, 2, 3, 4):
        found = lloyd(Rows(X), first, n_passes)
        assert sorted(found.counts) == [3000, 3001]
        order = found.counts.argsort()[::-1]
        np.testing.assert_allclose(found.centers[order], values, rtol=1e-3, atol=1e-4)


def test_far_duplicate_centers_are_the_same_for_any_block_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, first = blobs(1000, 3), np.full((9, 3), 1e3)
    first[4] = 0
    found = []
    for block_rows in (8192, 100, 7, 1):
        monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", block_rows)
        found.append(lloyd(Rows(X), first, 3))
    for other in found[1:]:
        assert_same(other, found[0])
    assert_same(found[0], brute_force(X, first, 3))
    assert len(found[0].centers) == 9


# --- rounding -----------------------------------------------------------------------------


def test_inertia_falls() -> None:
    for seed in range(10):
        X = blobs(2000, 6, seed)
        inertia = lloyd(Rows(X), X[:20], 15).inertia
        assert (np.diff(inertia) <= 1e-9 * inertia[0]).all()
        assert inertia[-1] < inertia[0]


@pytest.mark.parametrize("offset", [0, 1e3, 1e6, -1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_zero(dtype: Any, offset: float) -> None:
    X = (blobs(3000, 6) + offset).astype(dtype)  # rounded: what follows is exact for these
    near = X.astype(np.float64) - offset
    found = lloyd(Rows(X), X[:10], 3)
    expected = brute_force(near, near[:10], 3)
    tolerance = 1e-5 if dtype == np.float32 else 1e-8
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.centers - offset, expected.centers, atol=tolerance)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=tolerance)


def test_too_few_rows() -> None:
    with pytest.raises(InputError, match="9 anchors need at least 9 rows.*got n_samples = 8"):
        random_centers(Rows(blobs(8)), 9, RandomState(0), "anchors")
    drawn = random_centers(Rows(blobs(8)), 8, RandomState(0), "anchors")
    np.testing.assert_array_equal(drawn, blobs(8))
