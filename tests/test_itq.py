from __future__ import annotations

import numpy as np
import pytest
from hasher_cases import mixture
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.hashers import ITQ, PCAH
from densehash.hashers import itq as module
from densehash.hashers.itq import closest_rotation, random_rotation, rotation_step
from densehash.rows import Rows

Floats = NDArray[np.float64]


def quantisation_error(projections: Floats, rotation: Floats) -> float:
    turned = projections @ rotation
    return float(np.square(np.where(turned >= 0, 1, -1) - turned).sum())


@pytest.mark.parametrize("n_bits", [1, 8, 24, 25, 40, 100])
def test_rotations_and_frames_are_orthonormal(n_bits: int) -> None:
    hasher = ITQ(n_bits, n_iter=4, random_state=0).fit(mixture())
    c = min(n_bits, 24)
    assert hasher.rotation_.shape == (c, n_bits)
    np.testing.assert_allclose(hasher.rotation_ @ hasher.rotation_.T, np.eye(c), atol=1e-12)
    np.testing.assert_allclose(hasher.planes_, hasher.rotation_.T @ hasher.directions_, atol=1e-12)
    np.testing.assert_allclose(hasher.thresholds_, hasher.planes_ @ hasher.mean_, atol=1e-12)
    np.testing.assert_allclose(hasher.mean_, mixture().mean(axis=0), atol=1e-12)
    directions = PCAH(c).fit(mixture()).planes_
    np.testing.assert_allclose(hasher.directions_, directions, atol=1e-9)


@pytest.mark.parametrize("n_bits", [8, 24])
def test_the_error_falls(n_bits: int) -> None:
    """With a square rotation, every alternation lowers |B - V R|²."""
    X = mixture() - mixture().mean(axis=0)
    projections = X @ PCAH(n_bits).fit(X).planes_.T
    rotation = random_rotation(n_bits, n_bits, RandomState(0))
    errors = [quantisation_error(projections, rotation)]
    for _ in range(10):
        rotation = rotation_step(Rows(projections), rotation)
        errors.append(quantisation_error(projections, rotation))
    assert (np.diff(errors) <= 1e-9 * errors[0]).all()
    assert errors[-1] < 0.99 * errors[0]


@pytest.mark.parametrize("shape", [(4, 4), (4, 9), (1, 5)])
def test_the_closest_rotation_is_the_closest(shape: tuple[int, int]) -> None:
    state = RandomState(0)
    matrix = state.standard_normal(shape)
    best = closest_rotation(matrix)
    distance = np.square(matrix - best).sum()
    for _ in range(200):
        other = closest_rotation(best + 0.3 * state.standard_normal(shape))
        assert np.square(matrix - other).sum() >= distance - 1e-12


@pytest.mark.parametrize("n_bits", [6, 40])
def test_n_iter_counts_the_steps(n_bits: int) -> None:
    X = mixture()
    start = ITQ(n_bits, n_iter=0, random_state=0).fit(X)
    state = RandomState(0)
    Rows(X).sample(len(X), state)
    drawn = random_rotation(min(n_bits, 24), n_bits, state)
    np.testing.assert_array_equal(start.rotation_, drawn)
    projections = Rows((X - start.mean_) @ start.directions_.T)
    rotation = start.rotation_
    for n_iter in range(1, 4):
        rotation = rotation_step(projections, rotation)
        found = ITQ(n_bits, n_iter=n_iter, random_state=0).fit(X)
        np.testing.assert_allclose(found.rotation_, rotation, atol=1e-9)


def test_the_rotation_is_learnt_from_a_sample_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X = mixture()
    everything = ITQ(8, random_state=0).fit(X)
    monkeypatch.setattr(module, "_MOST_ROWS", 500)
    sampled = ITQ(8, random_state=0).fit(X)
    np.testing.assert_array_equal(sampled.directions_, everything.directions_)
    assert (sampled.rotation_ != everything.rotation_).any()
