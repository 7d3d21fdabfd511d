"""DSH against the paper's definitions."""

from __future__ import annotations

from itertools import combinations
from math import log2
from typing import Any

import numpy as np
import pytest
from hasher_cases import bits_of, mixture
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from densehash import hamming, metrics, truth
from densehash.errors import InputError
from densehash.hashers import DSH
from densehash.hashers.contrast import greedy_contrast, sample_pairs
from densehash.hashers.dsh import adjacent_pairs, binary_entropy, median_planes
from densehash.kmeans import nearest_center
from densehash.rows import Rows

Floats = NDArray[np.float64]

centers_on_a_grid = hnp.arrays(
    np.float64, st.tuples(st.integers(2, 9), st.integers(1, 3)), elements=st.integers(-2, 2)
)


def adjacent_by_definition(centers: Floats, r: int) -> set[tuple[int, int]]:
    """Definition 1: j is among the r nearest of i, or i among those of j; ties by position."""
    near = []
    for center in centers:
        away = np.square(centers - center).sum(axis=1)
        ordered = sorted((distance, j) for j, distance in enumerate(away) if distance > 0)
        near.append([j for _, j in ordered[:r]])
    pairs = combinations(range(len(centers)), 2)
    return {(i, j) for i, j in pairs if j in near[i] or i in near[j]}


@given(centers_on_a_grid, st.integers(1, 12))
def test_adjacent_pairs(centers: Floats, r: int) -> None:
    found = adjacent_pairs(centers, r)
    assert found.dtype == np.int64
    assert found.shape == (len(found), 2)
    listed = [(int(i), int(j)) for i, j in found]
    assert listed == sorted(adjacent_by_definition(centers, r))


@pytest.mark.parametrize("offset", [0.0, 1e6, 1 / 3])
def test_adjacent_pairs_of_many_groups(monkeypatch: pytest.MonkeyPatch, offset: float) -> None:
    # A grid, most of whose distances are equal, with some points twice, some nearly.
    monkeypatch.setattr("densehash.hashers.dsh._GROUPS_AT_ONCE", 17)
    monkeypatch.setattr("densehash.hashers.dsh._PAIR_NUMBERS", 400)
    rng = np.random.default_rng(0)
    centers = rng.integers(0, 3, (120, 4)).astype(np.float64)
    centers[::7] += 1e-9
    centers += offset
    for r in (1, 3, 200):
        found = {(i, j) for i, j in adjacent_pairs(centers, r).tolist()}
        assert found == adjacent_by_definition(centers, r)


def test_pairs_at_equal_distances_stay_two() -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert adjacent_pairs(square, 2).tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    X = np.repeat(square, 10, axis=0)
    assert DSH(4, init=square, r=2).fit(X).n_candidates_ == 4
    assert DSH(4, init=square, r=3).fit(X).n_candidates_ == 6


def test_r_is_cut_to_the_number_of_other_groups() -> None:
    X = mixture()
    everything = DSH(10, alpha=1, r=9, random_state=0).fit(X)
    assert everything.n_candidates_ == 45
    for r in (10, 1000):
        assert DSH(10, alpha=1, r=r, random_state=0).fit(X).pairs_.tolist() == (
            everything.pairs_.tolist()
        )
    assert DSH(2, random_state=0).fit(X).n_candidates_ == 3  # the default r = 3 of 3 groups


@given(centers_on_a_grid)
def test_median_planes_separate_their_centers(centers: Floats) -> None:
    pairs = adjacent_pairs(centers, 3)
    found = median_planes(centers, pairs)
    for (i, j), plane, threshold, distance in zip(*found, strict=True):
        np.testing.assert_array_equal(plane, centers[i] - centers[j])
        margins = centers[[i, j]] @ plane - threshold
        assert margins[0] > 0 > margins[1]
        # Midway: the two are equally far, half their distance.
        np.testing.assert_allclose(margins, [distance / 2, -distance / 2], rtol=1e-12)
        np.testing.assert_allclose(distance, np.square(centers[i] - centers[j]).sum())


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_binary_entropy(shares: list[int]) -> None:
    p = np.array(shares) / 1000
    expected = [-sum(q * log2(q) for q in (one, 1 - one) if q > 0) for one in p]
    found = binary_entropy(p)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert ((found >= 0) & (found <= 1)).all()


# --- a fit --------------------------------------------------------------------------------


@pytest.mark.parametrize("entropy", ["centers", "rows"])
@pytest.mark.parametrize("seed", range(4))
def test_the_planes_of_highest_entropy_are_taken(entropy: str, seed: int) -> None:
    X = mixture()
    hasher = DSH(16, entropy=entropy, random_state=seed).fit(X)
    centers, weights = hasher.centers_, hasher.weights_
    assert centers.shape == (24, 24)
    assert weights.sum() == pytest.approx(1)

    by_definition = {}
    for i, j in adjacent_by_definition(centers, 3):
        w = centers[i] - centers[j]
        t = (centers[i] + centers[j]) / 2 @ w
        if entropy == "centers":  # eq. 13, 14
            share = sum(nu for mu, nu in zip(centers, weights, strict=True) if w @ mu >= t)
        else:  # eq. 12
            share = np.mean([w @ x >= t for x in X])
        distance = np.square(w).sum()
        ones = round(float(share) * len(X))
        by_definition[i, j] = min(ones, len(X) - ones), -distance, -i, -j
    best = sorted(by_definition, key=by_definition.__getitem__, reverse=True)[:16]
    assert hasher.pairs_.tolist() == [list(pair) for pair in best]
    assert hasher.n_candidates_ == len(by_definition)

    shares = np.array([by_definition[pair][0] for pair in best]) / len(X)
    np.testing.assert_allclose(hasher.entropies_, binary_entropy(shares), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(50, 400), st.sampled_from(["centers", "rows"]))
def test_entropies_lie_in_0_to_1_and_fall(seed: int, n: int, entropy: str) -> None:
    X = np.random.default_rng(seed).standard_normal((n, 3))
    hasher = DSH(12, entropy=entropy, random_state=seed % 1000).fit(X)
    assert hasher.entropies_.shape == (12,)
    assert (hasher.entropies_ >= 0).all()
    assert (hasher.entropies_ <= 1).all()
    assert (np.diff(hasher.entropies_) <= 0).all()


def test_entropy_by_rows_is_that_of_the_bits() -> None:
    hasher = DSH(16, entropy="rows", random_state=0).fit(mixture())
    shares = bits_of(hasher, mixture()).mean(axis=0)
    np.testing.assert_allclose(hasher.entropies_, binary_entropy(shares), rtol=1e-12)


def test_entropy_by_centers_is_that_of_the_groups() -> None:
    hasher = DSH(16, random_state=0).fit(mixture())
    shares = hasher.weights_ @ bits_of(hasher, hasher.centers_)
    np.testing.assert_allclose(hasher.entropies_, binary_entropy(shares), rtol=1e-12)


@pytest.mark.parametrize("select", ["entropy", "contrast"])
def test_planes_are_those_of_their_pairs(select: str) -> None:
    hasher = DSH(16, select=select, random_state=0).fit(mixture())
    i, j = hasher.pairs_.T
    assert (i < j).all()
    assert len({tuple(pair) for pair in hasher.pairs_}) == 16
    planes = median_planes(hasher.centers_, hasher.pairs_)
    np.testing.assert_array_equal(hasher.planes_, planes.planes)
    np.testing.assert_array_equal(hasher.thresholds_, planes.thresholds)
    bits = bits_of(hasher, hasher.centers_)
    assert bits[i, range(16)].all()
    assert not bits[j, range(16)].any()


def test_complemented_planes_change_no_distance() -> None:
    X, hasher = mixture(), DSH(16, random_state=0).fit(mixture())
    before = hamming.distances(hasher.transform(X[:50]), hasher.transform(X))
    turned = np.arange(16) % 3 == 0
    signs = np.where(turned, -1, 1)
    hasher.planes_ = hasher.planes_ * signs[:, np.newaxis]
    hasher.thresholds_ = hasher.thresholds_ * signs
    after = hamming.distances(hasher.transform(X[:50]), hasher.transform(X))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("alpha", "n_bits", "groups"),
    [
        (1.5, 1, 2),
        (2.5, 1, 3),
        (1.5, 3, 5),
        (1.5, 5, 8),
        (1.1, 5, 6),
        (0.9, 5, 5),
        (1.5, 64, 96),
        (2, 4, 8),
        (0.5, 1, 2),  # never fewer than two
    ],
)
def test_alpha_times_bits_is_rounded_half_away_from_zero(
    alpha: float, n_bits: int, groups: int
) -> None:
    hasher = DSH(n_bits, alpha=alpha, r=10, random_state=0).fit(mixture())
    assert hasher.centers_.shape == (groups, 24)


def test_first_centers_may_be_given() -> None:
    X = mixture()
    hasher = DSH(8, init=X[:20], p=1).fit(X)
    labels = nearest_center(X, X[:20])
    np.testing.assert_allclose(hasher.weights_, np.bincount(labels) / len(X))
    np.testing.assert_allclose(hasher.centers_[3], X[labels == 3].mean(axis=0))
    same = DSH(8, init=X[:20].tolist(), p=1, alpha=7).fit(X)  # alpha has no part in it
    np.testing.assert_array_equal(same.planes_, hasher.planes_)


@pytest.mark.parametrize("p", [1, 2, 6])
def test_inertia_is_the_error_after_each_pass(p: int) -> None:
    X = mixture()
    hasher = DSH(8, p=p, random_state=0).fit(X)
    assert hasher.inertia_.shape == (p,)
    assert (np.diff(hasher.inertia_) <= 0).all()
    one_less = DSH(8, p=p - 1, random_state=0).fit(X) if p > 1 else None
    if one_less is not None:
        np.testing.assert_array_equal(one_less.inertia_, hasher.inertia_[:-1])
        labels = nearest_center(X, one_less.centers_)
        error = np.square(X - hasher.centers_[labels]).sum()
        np.testing.assert_allclose(hasher.inertia_[-1], error, rtol=1e-9)


def test_the_toy_of_figure_1() -> None:
    """Four Gaussians, two bits: each gets a code of its own, and none is split."""
    rng = np.random.default_rng(0)
    corners = np.array([[-5.0, -5.0], [4.0, -5.0], [-5.0, 5.0], [7.0, 7.0]])
    which = np.arange(400) % 4
    X = corners[which] + 0.7 * rng.standard_normal((400, 2))
    hasher = DSH(2, alpha=2, r=2, init=corners).fit(X)
    codes = hasher.transform(X)[:, 0]
    assert [len(set(codes[which == corner])) for corner in range(4)] == [1, 1, 1, 1]
    assert len(set(codes)) == 4


# --- contrast -----------------------------------------------------------------------------


def greedy_by_definition(near: Any, far: Any, n_bits: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(n_bits):
        best, best_contrast = -1, -np.inf
        for candidate in range(near.shape[1]):
            if candidate in chosen:
                continue
            close, apart = (part[:, [*chosen, candidate]].sum(axis=1) for part in (near, far))
            variance = max(close.var() + apart.var(), 1e-6)
            contrast = (apart.mean() - close.mean()) / np.sqrt(variance)
            if contrast > best_contrast + 1e-9:
                best, best_contrast = candidate, contrast
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_greedy_contrast_is_greedy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    near = rng.random((300, 20)) < rng.uniform(0.05, 0.4, 20)
    far = rng.random((300, 20)) < rng.uniform(0.2, 0.6, 20)
    near[:, 5], far[:, 5] = near[:, 4], far[:, 4]  # a plane that repeats another
    far[:, 6] = near[:, 6] = False  # one that splits nothing
    assert greedy_contrast(near, far, 12).tolist() == greedy_by_definition(near, far, 12)
    assert sorted(greedy_contrast(near, far, 20)) == list(range(20))


def test_sampled_pairs_are_near_and_far() -> None:
    X = mixture(dtype=np.float32)
    pairs = sample_pairs(Rows(X), 50, RandomState(0))
    one, near, far = (pairs.rows[at] for at in (pairs.first, pairs.near, pairs.far))
    assert one.shape == near.shape == far.shape == (20_000, X.shape[1])
    close, apart = (np.linalg.norm(one - other, axis=1) for other in (near, far))
    assert (close > 0).all()
    assert (apart > 0).all()
    every = np.linalg.norm(X - one[0], axis=1)
    np.testing.assert_allclose(np.sort(close[:20]), np.sort(every)[1:21], rtol=1e-3)
    assert np.median(close) < 0.7 * np.median(apart)


def test_sampled_pairs_of_few_rows_or_many_candidates() -> None:
    pairs = sample_pairs(Rows([[0.0], [1.0]]), 5, RandomState(0))
    np.testing.assert_array_equal(pairs.first + pairs.near, [1, 1])
    assert 1 <= len(sample_pairs(Rows(mixture()), 10**6, RandomState(0)).first) <= 40


def test_contrast_finds_nearer_neighbours() -> None:
    X = load_digits().data
    queries, database = X[:300], X[300:]
    relevant = truth.nearest(queries, database, fraction=0.02)
    found = {}
    for select in ("entropy", "contrast"):
        precisions = []
        for seed in range(3):
            hasher = DSH(32, select=select, random_state=seed).fit(database)
            counts = hamming.histogram(
                hasher.transform(queries), hasher.transform(database), relevant, n_bits=32
            )
            precisions.append(metrics.mean_average_precision(*counts))
        found[select] = np.mean(precisions)
    assert found["contrast"] > found["entropy"] + 0.02


def test_candidates_are_too_few_for_contrast_too() -> None:
    with pytest.raises(InputError, match="3 groups have 3 candidate planes.*n_bits = 8"):
        DSH(8, init=mixture()[:3], select="contrast").fit(mixture())
