"""Refined: its derivatives, what it reaches, and where it must stay as it began."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from densehash import hamming
from densehash.errors import InputError
from densehash.hashers import DSH, ITQ, KLSH, LSH, PCAH, Hasher, LinearHasher, Refined, refined
from densehash.hashers.refined import ranking_loss, sign_slope
from densehash.metrics import mean_average_precision
from densehash.rows import Rows
from densehash.truth import nearest

Floats = NDArray[np.float64]


@cache
def digits() -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Queries, a database, and its nearest 2% to each query."""
    rows = np.random.default_rng(0).permutation(load_digits().data)
    return rows[:300], rows[300:], nearest(rows[:300], rows[300:], fraction=0.02)


def accuracy(hasher: Hasher) -> float:
    queries, database, relevant = digits()
    asked, codes = hasher.transform(queries), hasher.transform(database)
    both = hamming.histogram(asked, codes, relevant, n_bits=hasher.n_bits_)
    return mean_average_precision(*both)


# The loss, written once more: from distances that need not be whole numbers.


def soft_loss(far: Floats, near: Floats, n_bits: int) -> float:
    """The loss of one anchor whose far and near rows lie at these distances."""
    bins = np.arange(-refined._REACH, n_bits + refined._REACH + 1)

    def spread(distances: Floats) -> Floats:
        offsets = bins - distances[:, np.newaxis]
        # Whole offsets sum to the kernel's own total, wherever its middle lies.
        density = np.exp(-0.5 * (offsets / refined._SMOOTHING) ** 2)
        counts: Floats = density.sum(axis=0) / (np.sqrt(2 * np.pi) * refined._SMOOTHING)
        return counts

    soft_far, soft_near = spread(far), spread(near)
    half = np.tril(np.ones((len(bins), len(bins)))) - 0.5 * np.eye(len(bins))
    precision = (half @ soft_near + refined._EMPTY) / (
        half @ (soft_near + soft_far) + refined._EMPTY
    )
    return float(-(soft_near * np.log(precision)).sum() / len(near))


def counts_of(far: Floats, near: Floats, n_bits: int) -> NDArray[np.int64]:
    both = [np.bincount(part.astype(np.int64), minlength=n_bits + 1) for part in (far, near)]
    return np.array([both])


def test_the_loss_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        far = rng.binomial(24, 0.5, 60).astype(float)
        near = rng.binomial(24, 0.3, 5).astype(float)
        losses, _ = ranking_loss(counts_of(far, near, 24))
        assert losses[0] == pytest.approx(soft_loss(far, near, 24), rel=1e-3)


def test_slopes_are_the_derivatives_by_distances() -> None:
    rng = np.random.default_rng(1)
    step = 1e-4
    for _ in range(5):
        far = rng.binomial(24, 0.5, 40).astype(float)
        near = rng.binomial(24, 0.35, 6).astype(float)
        _, slopes = ranking_loss(counts_of(far, near, 24))
        for kind, distances in enumerate((far, near)):
            for at in range(0, len(distances), 3):
                moved = np.zeros(len(distances))
                moved[at] = step
                losses = [
                    soft_loss(far + moved, near, 24)
                    if kind == 0
                    else soft_loss(far, near + moved, 24)
                    for moved in (moved, -moved)
                ]
                numeric = (losses[0] - losses[1]) / (2 * step)
                found = slopes[0, kind, int(distances[at])]
                assert found == pytest.approx(numeric, rel=0.01, abs=2e-4)


def test_the_slope_of_a_sign_is_that_of_a_smooth_step() -> None:
    margins = np.random.default_rng(2).standard_normal((500, 3)) * [0.1, 1, 20]
    width = refined._WIDTH * margins.std(axis=0)

    def smooth(values: Floats) -> Floats:
        found: Floats = values / (width + np.abs(values))
        return found

    step = 1e-6 * width
    numeric = width * (smooth(margins + step) - smooth(margins - step)) / (2 * step)
    np.testing.assert_allclose(sign_slope(margins), numeric, rtol=1e-4)


def test_the_gradient_is_that_of_the_loss_of_smooth_signs() -> None:
    rng = np.random.default_rng(3)
    n_anchors, n_bits = 4, 12
    sample = np.full((60, 6), -1, dtype=np.float32)
    sample[:, :-1] = rng.standard_normal((60, 5))
    planes = rng.standard_normal((n_bits, 6)).astype(np.float32)
    draw = refined._draw(sample, np.arange(60), n_anchors, 0.1, n_bits)
    near = (draw.cells - n_bits / 2) // (n_bits + 1) % 2 == 1
    before = (sample @ planes.T).astype(np.float64)
    width = refined._WIDTH * before.std(axis=0)

    def loss(moved: Floats) -> float:
        """Signs move as a smooth step does, from where they are."""
        margins = sample @ moved.T
        signs = np.sign(before) + margins / (width + abs(margins)) - before / (width + abs(before))
        distances = (n_bits - signs[:n_anchors] @ signs[n_anchors:].T) / 2
        pairs = zip(distances, near, strict=True)
        return float(np.mean([soft_loss(d[~is_near], d[is_near], n_bits) for d, is_near in pairs]))

    found = refined._gradient(draw, planes) / width[:, np.newaxis]
    step = 1e-5
    for at in np.ndindex(n_bits, 6):
        moved = np.zeros(planes.shape)
        moved[at] = step
        numeric = (loss(planes + moved) - loss(planes - moved)) / (2 * step)
        assert found[at] == pytest.approx(numeric, rel=0.02, abs=2e-3 * np.abs(found).max())


# What it reaches


@pytest.mark.parametrize("make", [DSH, ITQ, LSH, PCAH])
def test_it_ranks_better_than_the_hasher_it_began_with(make: Any) -> None:
    hasher = Refined(make(32), n_steps=120, random_state=0).fit(digits()[1])
    assert accuracy(hasher) > 1.05 * accuracy(hasher.hasher_)
    assert hasher.losses_.min() < hasher.losses_[0]


def test_refined_dsh_is_above_itq() -> None:
    database = digits()[1]
    found = accuracy(Refined(DSH(32), n_steps=300, random_state=0).fit(database))
    assert found > accuracy(ITQ(32, random_state=0).fit(database)) + 0.02


def test_more_bits_than_features_and_features_of_very_different_scales() -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((1500, 6)) * [1e-3, 1, 1, 2, 50, 1000]
    hasher = Refined(LSH(24), n_steps=300, random_state=0).fit(rows)
    assert hasher.losses_.min() < 0.9 * hasher.losses_[0]
    assert hasher.planes_.shape == (24, 6)


def test_rows_far_from_zero_are_as_good() -> None:
    database = digits()[1]
    near, far = (
        Refined(ITQ(16), n_steps=200, random_state=0).fit(rows)
        for rows in (database, 1000 * database + 1e5)
    )
    assert far.losses_.min() == pytest.approx(near.losses_.min(), rel=0.03)


def test_few_directions_are_learnt_from_few_rows_but_planes_begin_where_they_were() -> None:
    rows = np.random.default_rng(5).standard_normal((400, 100))
    inner = LSH(16, random_state=0).fit(rows)
    frame = refined._frame(Rows(rows), 400, inner.planes_, np.random.RandomState(0))
    assert len(frame.axes) == refined._FEWEST_COORDINATES + 16
    np.testing.assert_allclose(frame.axes @ frame.axes.T, np.eye(len(frame.axes)), atol=1e-12)
    inside = frame.enter(inner.planes_, inner.thresholds_)
    planes, thresholds = frame.leave(inside)
    margins = rows @ planes.T - thresholds
    expected = rows @ inner.planes_.T - inner.thresholds_
    expected *= (planes / inner.planes_)[:, :1].T  # planes have size 1 inside
    np.testing.assert_allclose(margins, expected, atol=1e-4)
    np.testing.assert_allclose(frame.place(rows) @ inside.T * frame.scale, margins, atol=1e-4)


# Options


@pytest.mark.parametrize(
    "options", [{"n_steps": 21}, {"near": 0.1}, {"n_rows": 500}, {"random_state": 1}]
)
def test_every_option_changes_something(options: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"n_steps": 20, "random_state": 0}
    database = digits()[1]
    one = Refined(LSH(16, random_state=0), **usual).fit(database)
    two = Refined(LSH(16, random_state=0), **{**usual, **options}).fit(database)
    assert not np.array_equal(one.planes_, two.planes_)


def test_no_step_keeps_the_planes() -> None:
    hasher = Refined(ITQ(16), n_steps=0, random_state=0).fit(digits()[1])
    np.testing.assert_array_equal(hasher.planes_, hasher.hasher_.planes_)
    np.testing.assert_array_equal(hasher.thresholds_, hasher.hasher_.thresholds_)
    assert hasher.n_steps_ == 0
    assert hasher.losses_.size == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"near": 0}, "near must be a finite number greater than 0, got 0"),
        ({"near": 1.0}, "near must be less than 1, got 1.0"),
        ({"near": "2%"}, "near must be a finite number greater than 0, got '2%'"),
        ({"n_steps": -1}, "n_steps must be"),
        ({"n_rows": 1}, "n_rows must be"),
        ({"hasher": KLSH(16)}, "hasher must be a linear hasher, DSH for instance, got KLSH"),
        ({"hasher": 64}, "hasher must be a linear hasher, DSH for instance, got 64"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Refined(**{"hasher": LSH(8), **options}).fit(digits()[1])


# Chance, threads, stopping


def fitted(hasher: LinearHasher) -> bytes:
    return hasher.planes_.tobytes() + hasher.thresholds_.tobytes()


def test_a_seed_gives_the_same_bytes_on_any_number_of_threads() -> None:
    database = digits()[1]
    found = set()
    for n_threads in (1, 3):
        with threadpool_limits(n_threads):
            found.add(fitted(Refined(DSH(16), n_steps=60, random_state=3).fit(database)))
    assert len(found) == 1


def test_chance_is_drawn_alike_on_any_number_of_threads() -> None:
    left = set()
    for n_threads in (1, 2):
        chance = np.random.RandomState(0)
        with threadpool_limits(n_threads):
            Refined(LSH(8), n_steps=10, random_state=chance).fit(digits()[1])
        left.add(chance.randint(1 << 30))
    assert len(left) == 1


def test_a_seed_of_the_hasher_is_its_own() -> None:
    database = digits()[1]
    plain = LSH(16, random_state=7).fit(database)
    for seed in (0, 1):
        inner = Refined(LSH(16, random_state=7), n_steps=5, random_state=seed).fit(database)
        np.testing.assert_array_equal(inner.hasher_.planes_, plain.planes_)


def test_it_stops_when_there_is_nothing_to_gain() -> None:
    rng = np.random.default_rng(6)
    rows = np.repeat(np.eye(8) * 100, 50, axis=0) + rng.standard_normal((400, 8)) * 1e-3
    hasher = Refined(LSH(4, random_state=0), n_steps=400, near=0.1, random_state=0).fit(rows)
    assert hasher.n_steps_ < 400
    assert len(hasher.losses_) <= 1 + hasher.n_steps_ // 20


def test_what_is_kept_has_the_lowest_loss() -> None:
    database = digits()[1]
    hasher = Refined(LSH(16), n_steps=100, random_state=0).fit(database)
    assert hasher.losses_.shape == (21,)
    assert hasher.losses_.argmin() > 0
    assert hasher.n_steps_ == 100
    # Hardly near its end, a step from good planes makes them worse: then they are kept.
    kept = Refined(Refined(ITQ(16), n_steps=600), n_steps=1, random_state=0).fit(database)
    assert kept.losses_[1] > kept.losses_[0]
    assert fitted(kept) == fitted(kept.hasher_)


# Small things


@pytest.mark.parametrize("shape", [(2, 1), (3, 4), (9, 2), (10, 2), (20, 1), (20, 30), (33, 3)])
@pytest.mark.parametrize("n_bits", [1, 5])
def test_few_rows(shape: tuple[int, int], n_bits: int) -> None:
    rows = np.random.default_rng(7).standard_normal(shape)
    hasher = Refined(LSH(n_bits), n_steps=15, random_state=0).fit(rows)
    assert np.isfinite(hasher.planes_).all()
    assert np.isfinite(hasher.thresholds_).all()
    assert hasher.planes_.shape == (n_bits, shape[1])
    assert hasher.transform(rows).shape == (shape[0], 1)


def test_rows_that_are_nearly_all_equal() -> None:
    rows = np.zeros((200, 3))
    rows[:3] = np.eye(3)
    hasher = Refined(LSH(8), n_steps=30, random_state=0).fit(rows)
    assert np.isfinite(hasher.planes_).all()


def test_it_clones_and_pickles_and_leaves_its_hasher_alone() -> None:
    database = digits()[1]
    inner = ITQ(16)
    hasher = Refined(inner, n_steps=20, random_state=0).fit(database)
    assert not hasattr(inner, "planes_")
    again = pickle.loads(pickle.dumps(hasher))
    np.testing.assert_array_equal(again.transform(database), hasher.transform(database))
    fresh = clone(hasher)
    assert not hasattr(fresh, "planes_")
    assert fresh.hasher is not inner
    assert fitted(fresh.fit(database)) == fitted(hasher)
    assert fresh.set_params(hasher__n_bits=8).fit(database).n_bits_ == 8


def test_the_hasher_inside_is_a_hasher_of_its_own() -> None:
    database = digits()[1]
    hasher = Refined(DSH(16), n_steps=5, random_state=0).fit(database)
    assert hasher.hasher_.transform(database).shape == (len(database), 2)


def test_a_refined_hasher_can_be_refined() -> None:
    twice = Refined(Refined(LSH(8), n_steps=10), n_steps=10, random_state=0).fit(digits()[1])
    assert twice.n_bits_ == 8
