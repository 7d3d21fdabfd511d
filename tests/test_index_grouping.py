"""Centres of groups: rows go to the nearest, and learning puts centres amid their rows."""

import pickle

import numpy as np
import pytest
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import Index, InputError
from densehash.index.grouping import Centers
from densehash.rows import Rows


def blobs(n: int, d: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    middles = 3 * np.random.default_rng(9).standard_normal((40, d))
    near = rng.standard_normal((n, d)) + middles[rng.integers(40, size=n)]
    return near.astype(np.float32)


def squares(X: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float64]:
    away = X[:, np.newaxis].astype(np.float64) - centers
    found: NDArray[np.float64] = np.square(away).sum(axis=2)
    return found


@pytest.mark.parametrize(
    ("n_groups", "d", "right"), [(1, 3, 1), (7, 1, 1), (100, 17, 1), (900, 40, 0.95)]
)
def test_rows_go_to_the_nearest_centre(n_groups: int, d: int, right: float) -> None:
    X, shift = blobs(500, d), np.full(d, 0.5)
    centers = Centers(blobs(n_groups, d, seed=1), shift)
    to_all = squares((X - shift).astype(np.float32), centers.centers)
    labels = centers.nearest(X)
    here = np.take_along_axis(to_all, labels[:, np.newaxis].astype(int), axis=1)[:, 0]
    assert (here <= to_all.min(axis=1) * (1 + 1e-6)).mean() >= right
    assert (here <= 1.5 * to_all.min(axis=1) + 1e-6).all()  # and else to one nearby


def test_the_group_of_a_row_does_not_depend_on_other_rows() -> None:
    X = blobs(300, 12)
    centers = Centers.learn(Rows(X), 300, RandomState(0))
    together = centers.nearest(X)
    assert [centers.nearest(X[i : i + 1])[0] for i in range(300)] == together.tolist()
    again = pickle.loads(pickle.dumps(centers))
    np.testing.assert_array_equal(again.nearest(X[::-1])[::-1], together)


def test_the_first_of_equal_centres() -> None:
    centers = Centers(np.ones((600, 4), np.float32), np.zeros(4))
    assert set(centers.nearest(blobs(50, 4)).tolist()) == {0}


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_rows_of_any_size(scale: float) -> None:
    X = blobs(200, 6).astype(np.float64) * scale
    centers = Centers.learn(Rows(X.astype(np.float32)), 300 if scale > 1 else 5, RandomState(0))
    assert len(np.unique(centers.nearest(X.astype(np.float32)))) > 3


def test_centres_are_amid_their_rows() -> None:
    X = blobs(6000, 10)
    centers = Centers.learn(Rows(X), 40, RandomState(0))
    error = squares((X - centers.shift).astype(np.float32), centers.centers).min(axis=1).mean()
    assert error < 1.6 * 10  # 40 blobs of variance 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups_a_row": 3}, "groups_a_row must be"),
        ({"groups_a_row": 2, "kind": "flat"}, "for the grouped kind, this one is flat"),
        ({"groups_a_row": 2, "n_groups": 5, "keep_vectors": False}, "keeps vectors"),
        ({"groups_a_row": 2, "sketch": "codes"}, "for sketch='signs'"),
    ],
)
def test_what_two_groups_do_not_go_with(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Index.build(blobs(60, 5), **options)  # type: ignore[arg-type]
