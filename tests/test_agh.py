"""AGH against the dense matrices of its paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hasher_cases import bits_of, mixture
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.hashers import AGH
from densehash.hashers.agh import Sides, anchor_affinities, anchor_projection, second_thresholds

Floats = NDArray[np.float64]


def rows_and_anchors(seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 3))
    return X, X[:25] + 0.01


def affinities_by_definition(X: Floats, anchors: Floats, n_nearest: int, sigma: float) -> Floats:
    found = np.zeros((len(X), len(anchors)))
    for row, x in enumerate(X):
        squares = np.square(anchors - x).sum(axis=1)
        near = np.argsort(squares, kind="stable")[:n_nearest]
        found[row, near] = np.exp(-squares[near] / sigma**2)
    totals: Floats = found.sum(axis=1, keepdims=True)
    return found / totals


@pytest.mark.parametrize("n_nearest", [2, 3, 25])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_affinities(n_nearest: int, sigma: float, dtype: Any) -> None:
    X, anchors = rows_and_anchors()
    found = anchor_affinities(X.astype(dtype), anchors, n_nearest, sigma)
    expected = affinities_by_definition(X, anchors, n_nearest, sigma)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found.toarray(), expected, atol=tolerance)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_rows_far_from_all_anchors_have_affinities() -> None:
    anchors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = anchor_affinities(np.array([[1e4, 0.0], [-500.0, -500.0]]), anchors, 2, 0.1)
    np.testing.assert_allclose(found.toarray(), [[0, 1, 0], [1, 0, 0]], atol=1e-12)


def test_the_projection_gives_eigenvectors_of_the_graph() -> None:
    X, anchors = rows_and_anchors()
    Z = affinities_by_definition(X, anchors, 3, 0.7)
    values, projection = anchor_projection(Z.T @ Z, len(X), 6)
    graph = Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T  # the n x n matrix that is never made
    vectors = Z @ projection
    np.testing.assert_allclose(graph @ vectors, vectors * values, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, len(X) * np.eye(6), atol=1e-8)
    np.testing.assert_allclose(vectors.sum(axis=0), 0, atol=1e-8)  # orthogonal to the trivial one
    every = np.linalg.eigvalsh(graph)[::-1]
    assert every[0] == pytest.approx(1)
    np.testing.assert_allclose(values, every[1:7], atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_second_thresholds_are_the_smoothest(seed: int) -> None:
    X, anchors = rows_and_anchors(seed)
    Z = affinities_by_definition(X, anchors, 3, 0.7)
    degrees = Z.sum(axis=0)
    values = Z @ anchor_projection(Z.T @ Z, len(X), 4)[1]
    laplacian = np.eye(len(X)) - Z @ np.diag(1 / degrees) @ Z.T
    found = second_thresholds(Sides.of(scipy.sparse.csr_array(Z), values), degrees)
    for y, (b_positive, b_negative) in zip(values.T, found.T, strict=True):
        positive = y >= 0

        def second(b: float, y: Floats = y, positive: NDArray[np.bool_] = positive) -> Floats:
            """The second bit's values for one threshold; the other one balances them."""
            other = -(y[positive] - b).sum() + y[~positive].sum()
            return np.where(positive, y - b, other / (~positive).sum() - y)

        def roughness(b: float, second: Any = second) -> float:
            return float(second(b) @ laplacian @ second(b))

        best = scipy.optimize.minimize_scalar(roughness, (-1, 1), tol=1e-12)
        np.testing.assert_allclose(b_positive, best.x, atol=1e-5)
        v = np.where(positive, y - b_positive, b_negative - y)
        np.testing.assert_allclose(v.sum(), 0, atol=1e-8)
        assert v @ laplacian @ v <= best.fun + 1e-9


def test_two_layers_share_their_first_bits_with_one() -> None:
    X = mixture()
    two = AGH(12, n_anchors=40, random_state=0).fit(X)
    one = AGH(6, n_layers=1, n_anchors=40, random_state=0).fit(X)
    np.testing.assert_array_equal(bits_of(two, X)[:, :6], bits_of(one, X))
    assert two.second_thresholds_.shape == (2, 6)
    assert not hasattr(one, "second_thresholds_")


def test_the_second_bit_splits_both_sides() -> None:
    X = np.random.default_rng(0).standard_normal((3000, 8))
    bits = bits_of(AGH(16, n_anchors=60, random_state=0).fit(X), X)
    for first, second in zip(bits[:, :8].T, bits[:, 8:].T, strict=True):
        for side in (first, ~first):
            assert 0.05 < second[side].mean() < 0.95


def test_parts_of_the_graph_that_do_not_touch() -> None:
    """Outside its part an eigenvector is zero: no bit is rounding."""
    rng = np.random.default_rng(0)
    which = np.arange(2000) % 4
    X = 1000 * np.eye(4)[which] + rng.standard_normal((2000, 4))
    hasher = AGH(8, n_anchors=40, n_layers=1, random_state=0).fit(X)
    margins = hasher.project(X)
    for margin in margins.T:
        parts = [part for part in range(4) if np.abs(margin[which == part]).max() > 0]
        assert len(parts) == 1
    outside = margins == 0
    assert outside.mean() == 0.75
    assert bits_of(hasher, X)[outside].all()


def test_too_few_eigenvectors() -> None:
    with pytest.raises(InputError, match="the graph has 9 useful.*fewer than the 16 .*n_anchors"):
        AGH(32, n_anchors=10, random_state=0).fit(np.random.default_rng(0).random((500, 3)))
