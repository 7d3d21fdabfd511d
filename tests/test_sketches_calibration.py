"""Settings that reach a recall: on rows with a structure, on unseen queries, and where none do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.index.queries import Reach
from densehash.index.sketches.calibration import calibrated
from densehash.index.sketches.entries import Segment, SignModel, second_groups

Floats = NDArray[np.float32]
RECALLS = (0.9, 0.95, 0.99, 0.995)


class Made:
    """Rows around many points, in two groups each, and queries of the same kind."""

    def __init__(self, n: int = 3000, n_queries: int = 600, d: int = 16, g: int = 60) -> None:
        state = RandomState(0)
        points = state.standard_normal((200, d)) * 2
        around = points[state.randint(200, size=n + n_queries)]
        everything = (around + state.standard_normal(around.shape)).astype(np.float32)
        self.rows: Floats = everything[:n]
        self.queries: Floats = everything[n:]
        centers = self.rows[:g]
        labels = np.square(self.rows[:, None] - centers).sum(axis=2).argmin(axis=1)
        first = labels.astype(np.uint32)
        both = np.stack([first, second_groups(self.rows, first, centers)], axis=1)
        shift = np.zeros(d, np.float32)
        self.signs = SignModel.learn(self.rows, first, centers, shift, 48, "l2", state)
        self.entries = self.signs.entries(self.rows, both)
        self.searcher = self.signs.searcher([Segment(self.entries, n, self.rows)])

    def truth(self, queries: Floats, k: int = 10) -> tuple[Floats, NDArray[np.int64]]:
        squares = np.square(queries[:, None] - self.rows).sum(axis=2)
        order = squares.argsort(axis=1, kind="stable")[:, :k]
        return np.sqrt(np.take_along_axis(squares, order, axis=1)), order

    def recall(self, setting: Reach, queries: Floats) -> float:
        found = self.search(setting, queries)[1]
        return float((self.truth(queries)[1][:, :, None] == found[:, None]).any(axis=2).mean())

    def search(self, setting: Reach, queries: Floats, k: int = 10) -> Any:
        return self.searcher.search(
            queries, k, setting.probes, setting.spread, setting.stop, None, 1, ""
        )


@pytest.fixture(scope="module")
def made() -> Made:
    return Made()


def test_unseen_queries_reach_what_was_asked_for(made: Made) -> None:
    seen, unseen = made.queries[:300], made.queries[300:]
    settings = calibrated(made.signs, made.searcher, seen, made.truth(seen)[1], RECALLS)
    assert [setting.recall for setting in settings] == list(RECALLS)
    for setting in settings:
        assert setting.expected >= setting.recall
        assert setting.expected == pytest.approx(made.recall(setting, seen), abs=1e-9)
        assert made.recall(setting, unseen) >= setting.recall - 0.01


def test_less_recall_costs_less_and_not_all_is_looked_at(made: Made) -> None:
    seen = made.queries[:300]
    settings = calibrated(made.signs, made.searcher, seen, made.truth(seen)[1], recalls=[0.8, 0.99])
    low, high = (made.search(setting, seen)[2].mean(axis=0) for setting in settings)
    assert (low < high).all()
    assert high[1] < 0.7 * len(made.entries.rows)
    assert high[2] < 0.1 * len(made.rows)


def test_distances_say_the_same_as_positions_and_the_same_again(made: Made) -> None:
    seen = made.queries[:200]
    distances, positions = made.truth(seen)
    by_position = calibrated(made.signs, made.searcher, seen, positions, recalls=[0.95])
    assert by_position == calibrated(made.signs, made.searcher, seen, positions, recalls=[0.95])
    assert by_position == calibrated(made.signs, made.searcher, seen, distances, recalls=[0.95])


def test_rows_of_the_index_do_not_count_as_their_own_neighbours(made: Made) -> None:
    own = np.arange(1000, 1300)
    rows = made.rows[own]
    truth = made.truth(rows, 11)[1]
    assert (truth[:, 0] == own).all()
    (setting,) = calibrated(made.signs, made.searcher, rows, truth[:, 1:], recalls=[0.9], own=own)
    found = made.search(setting, rows, 11)[1]
    others = (truth[:, 1:, None] == found[:, None]).any(axis=2).mean()
    assert setting.expected == pytest.approx(others)
    assert others >= 0.9


def test_recall_out_of_reach_is_said(made: Made) -> None:
    seen = made.queries[:100]
    without = made.signs.searcher([Segment(made.entries, len(made.rows), None)])
    (setting,) = calibrated(made.signs, without, seen, made.truth(seen)[1], recalls=[0.999])
    most = without.search(seen, 10, 60, 1.0, 1e30, None, 1, "")[1]
    reachable = (made.truth(seen)[1][:, :, None] == most[:, None]).any(axis=2).mean()
    assert reachable - 0.01 < setting.expected < 0.999


def test_fewer_rows_than_neighbours() -> None:
    rows = RandomState(0).standard_normal((6, 3)).astype(np.float32)
    labels = np.zeros(6, np.uint32)
    zeros = np.zeros(3, np.float32)
    signs = SignModel.learn(rows, labels, zeros[None], zeros, 8, "l2", RandomState(0))
    searcher = signs.searcher([Segment(signs.entries(rows, labels[:, None]), 6, rows)])
    truth = np.full((6, 10), -1)
    truth[:, :6] = np.square(rows[:, None] - rows).sum(axis=2).argsort(axis=1)
    (setting,) = calibrated(signs, searcher, rows, truth, recalls=[1.0])
    assert (setting.expected, setting.probes) == (1.0, 1)
