"""What the papers of the smaller methods promise, and what all methods stand on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hasher_cases import bits_of, mixture
from hypothesis import given
from hypothesis import strategies as st

from densehash.errors import InputError
from densehash.hashers import KLSH, LSH, PCAH, SIKH, SpH
from densehash.hashers.distances import squared_distances
from densehash.hashers.klsh import gaussian_kernel, landmark_weights
from densehash.hashers.moments import fix_signs, mean, principal_directions
from densehash.hashers.sikh import mean_neighbor_distance
from densehash.hashers.sph import smoothest_modes
from densehash.rows import Rows

# --- what they stand on -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 100, 1e6])
def test_squared_distances(dtype: Any, offset: float) -> None:
    X = (mixture() + offset).astype(dtype)
    block, others = X[:50], X[100:130].astype(np.float64)
    expected = np.square(block[:, np.newaxis].astype(np.float64) - others).sum(axis=2)
    found = squared_distances(block, others)
    assert found.dtype == dtype
    rtol = 1e-4 if dtype == np.float32 else 1e-8
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    assert (squared_distances(others, others) >= 0).all()


@pytest.mark.parametrize("n", [2, 25, 3000])
def test_mean_and_directions(n: int) -> None:
    X = mixture()[:n]
    center = mean(Rows(X))
    np.testing.assert_allclose(center, X.mean(axis=0), atol=1e-12)
    directions, variances = principal_directions(Rows(X), center, 24)
    _, sizes, expected = np.linalg.svd(X - center, full_matrices=False)
    rank = min(n - 1, 24)
    np.testing.assert_allclose(variances[:rank], sizes[:rank] ** 2 / (n - 1), rtol=1e-8)
    np.testing.assert_allclose(variances[rank:], 0, atol=1e-10)
    np.testing.assert_allclose(directions @ directions.T, np.eye(24), atol=1e-10)
    same = np.abs((directions[:rank] * expected[:rank]).sum(axis=1))
    np.testing.assert_allclose(same, 1, rtol=1e-6)


def test_signs_are_fixed() -> None:
    vectors = np.array([[0.6, -0.8], [-0.8, 0.6], [0.5, -0.5], [-0.5, 0.5 + 1e-12]])
    fixed = fix_signs(vectors)
    np.testing.assert_array_equal(fixed, fix_signs(-vectors))
    assert fixed.tolist()[:3] == [[-0.6, 0.8], [0.8, -0.6], [0.5, -0.5]]
    np.testing.assert_allclose(fixed[3], [0.5, -0.5])  # equal but for rounding: the first counts


def test_all_rows_equal() -> None:
    X = np.full((20_000, 3), 0.1, np.float32)
    with pytest.raises(InputError, match="all rows are equal"):
        mean(Rows(X))
    for position in (0, 8191, 8192, 19_999):
        changed = X.copy()
        changed[position, 1] = 0.2
        assert mean(Rows(changed)).shape == (3,)
    X[8192:] = 0.2  # every block is constant
    assert mean(Rows(X)).shape == (3,)


# --- LSH ----------------------------------------------------------------------------------


def test_lsh_bits_differ_as_angles_do() -> None:
    """Charikar: two rows differ in a bit with probability angle / π, seen from the mean."""
    X = mixture()[:40]
    hasher = LSH(4096, random_state=0).fit(X)
    bits = bits_of(hasher, X)
    centered = X - X.mean(axis=0)
    units = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    angles = np.arccos(np.clip(units @ units.T, -1, 1)) / np.pi
    shares = (bits[:, np.newaxis] != bits).mean(axis=2)
    assert np.abs(shares - angles).max() < 5 * np.sqrt(0.25 / 4096)


def test_lsh_planes_are_normal_numbers() -> None:
    planes = LSH(512, random_state=0).fit(mixture()).planes_
    assert abs(planes.mean()) < 0.05
    assert abs(planes.std() - 1) < 0.05


# --- KLSH ---------------------------------------------------------------------------------


def test_klsh_weights_whiten_the_kernel() -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    kernel = gaussian_kernel(X, X, 1.0)
    np.testing.assert_allclose(
        kernel, np.exp(-np.square(X[:, np.newaxis] - X).sum(axis=2) / 2), atol=1e-12
    )
    subsets = np.array([[0, 1, 2], [3, 4, 5]])
    weights = landmark_weights(kernel, subsets)
    center = np.eye(30) - 1 / 30
    centered = center @ kernel @ center
    # K W = sqrt((p - 1) / t) K^(1/2) e; times its transpose, e' K e.
    e = np.zeros((30, 2))
    e[subsets[0], 0] = e[subsets[1], 1] = 1
    left, right = centered @ weights, np.sqrt(29 / 3) * e
    np.testing.assert_allclose(weights.T @ left, right.T @ (center @ right), atol=1e-5)
    np.testing.assert_allclose(left.T @ left, right.T @ centered @ right, atol=1e-6)


def test_klsh_learns_what_it_says() -> None:
    X = mixture()
    hasher = KLSH(20, n_landmarks=50, n_subset=7, bandwidth=0.4, random_state=0).fit(X)
    assert hasher.t_ == pytest.approx(0.4 * np.linalg.norm(X, axis=1).mean())
    assert hasher.landmarks_.shape == (50, 24)
    assert {*map(bytes, hasher.landmarks_)} <= {*map(bytes, X)}
    assert hasher.subsets_.shape == (20, 7)
    assert all(len(set(subset)) == 7 for subset in hasher.subsets_)
    kernel = gaussian_kernel(X, hasher.landmarks_, hasher.t_)
    np.testing.assert_allclose(hasher.project(X), kernel @ hasher.weights_, rtol=1e-4, atol=1e-5)


# --- SIKH ---------------------------------------------------------------------------------


def test_sikh_bits_are_waves() -> None:
    X = mixture()
    hasher = SIKH(64, gamma=0.3, random_state=0).fit(X)
    assert hasher.gamma_ == 0.3
    phases = (X - hasher.mean_) @ hasher.frequencies_.T + hasher.phases_
    expected = np.sqrt(2) * np.cos(phases) + hasher.offsets_
    np.testing.assert_allclose(hasher.project(X), expected, atol=1e-5)
    assert ((hasher.phases_ >= 0) & (hasher.phases_ <= 2 * np.pi)).all()
    assert (np.abs(hasher.offsets_) <= np.sqrt(2)).all()


def test_sikh_bits_differ_as_the_kernel_says() -> None:
    """Raginsky and Lazebnik, Lemma 2.3: a series in the kernel of the difference."""
    X = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0], [2.0, 2.0], [9.0, 0.0]])
    hasher = SIKH(4096, gamma=1.0, random_state=0).fit(X)
    bits = bits_of(hasher, X)
    shares = (bits[0] != bits).mean(axis=1)
    squares = np.square(X - X[0]).sum(axis=1)
    m = np.arange(1, 200)[:, np.newaxis]
    expected = 8 / np.pi**2 * ((1 - np.exp(-(m**2) * squares / 2)) / (4 * m**2 - 1)).sum(axis=0)
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 4096)


@pytest.mark.parametrize("n", [10, 60, 700])
def test_sikh_width(n: int) -> None:
    X = mixture()[:n]
    away = np.sqrt(np.square(X[:, np.newaxis] - X).sum(axis=2))
    expected = np.sort(away, axis=1)[:, min(50, n) - 1]
    found = mean_neighbor_distance(Rows(X), np.random.RandomState(0))
    asked = Rows(np.arange(n)[:, np.newaxis]).sample(min(100, n), np.random.RandomState(0))
    np.testing.assert_allclose(found, expected[asked[:, 0].astype(int)].mean(), rtol=1e-9)


# --- SpH and PCAH -------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 40))
def test_smoothest_modes(lengths: list[float], n_bits: int) -> None:
    sides = np.array(lengths)
    directions, modes = smoothest_modes(sides, n_bits)
    assert len(directions) == len(modes) == n_bits
    assert len({*zip(directions.tolist(), modes.tolist(), strict=True)}) == n_bits
    assert (modes >= 1).all()
    found = (modes / sides[directions]) ** 2
    every = [(mode / side) ** 2 for side in lengths for mode in range(1, n_bits + 1)]
    np.testing.assert_allclose(found, np.sort(every)[:n_bits])


def test_smoothest_modes_leave_out_flat_sides() -> None:
    directions, modes = smoothest_modes(np.array([1.0, 0.0, 1e-12]), 5)
    assert directions.tolist() == [0] * 5
    assert modes.tolist() == [1, 2, 3, 4, 5]


def test_sph_bits_are_waves_over_the_range() -> None:
    X = mixture()
    hasher = SpH(30).fit(X)
    projections = X @ hasher.directions_.T
    np.testing.assert_allclose(hasher.lower_, projections.min(axis=0), atol=1e-9)
    np.testing.assert_allclose(hasher.upper_, projections.max(axis=0), atol=1e-9)
    share = (projections - hasher.lower_) / (hasher.upper_ - hasher.lower_)
    expected = np.cos(np.pi * hasher.modes_ * share[:, hasher.mode_directions_])
    np.testing.assert_allclose(hasher.project(X), expected, atol=1e-5)


def test_pcah_bits_are_sides_of_the_mean() -> None:
    X = mixture()
    hasher = PCAH(10).fit(X)
    expected = (X - X.mean(axis=0)) @ hasher.planes_.T
    np.testing.assert_allclose(hasher.project(X), expected, atol=1e-5)
    np.testing.assert_allclose(hasher.variances_, expected.var(axis=0, ddof=1), rtol=1e-9)
    assert (np.diff(hasher.variances_) <= 0).all()
