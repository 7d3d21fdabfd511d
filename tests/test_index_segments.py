"""Segments stay few, and rows move seldom, in whatever sizes rows are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densehash.hashers import LSH
from densehash.index import placing
from densehash.index.changes import without_ids
from densehash.index.kinds import Flat
from densehash.index.segment import Rowset
from densehash.index.sketches import Codes
from densehash.index.state import State

EMPTY = State(Codes(LSH(8, random_state=0).fit(np.eye(2))), Flat(), "l2", "int64", None)
ROW = 9  # bytes of an id and a code


class Written:
    """What a place has been given."""

    def __init__(self) -> None:
        self.n_rows = 0

    def put(self, array: Any, name: str) -> Any:
        if name == "ids":
            self.n_rows += len(array)
        return placing.in_memory(array, name)


def added(state: State, n: int, written: Written) -> State:
    ids = np.arange(state.next_id, state.next_id + n)
    rows = Rowset(ids, {"codes": np.zeros((n, 1), np.uint8)}, None, None)
    return state.with_rows(rows, state.next_id + n, written.put)


def check_few(state: State) -> None:
    assert len(state.segments) <= math.log2(state.n_live) + 1


def check_seldom(written: Written, n: int) -> None:
    assert written.n_rows <= n * (math.log2(n) + 1)


def check(sizes: Sequence[int]) -> None:
    state, written = EMPTY, Written()
    for n in sizes:
        state = added(state, n, written)
        check_few(state)
    check_seldom(written, sum(sizes))
    ids = np.sort(np.concatenate([segment.ids for segment in state.segments]))
    assert ids.tolist() == list(range(sum(sizes)))


RANDOM = np.random.default_rng(0)
SIZES: dict[str, list[int]] = {
    "one at a time": [1] * 700,
    "equal": [50] * 300,
    "falling": list(range(300, 0, -1)),
    "rising": list(range(1, 300)),
    "halves": [2**at for at in range(12, -1, -1)] * 4,
    "doubles": [2**at for at in range(12)] * 4,
    "one and many": [1, 1000] * 60,
    "many, then ones": [5000, *[1] * 400],
    "Fibonacci, falling": [987, 610, 377, 233, 144, 89, 55, 34, 21, 13, 8, 5, 3, 2, 1] * 9,
    "saw": [*range(40, 0, -1)] * 8,
    "random": RANDOM.integers(1, 500, 300).tolist(),
    "of all scales": (2 ** (RANDOM.random(300) * 11)).astype(int).tolist(),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_segments_are_few_and_rows_move_seldom(sizes: list[int]) -> None:
    check(sizes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 200) | st.integers(1, 5), min_size=1, max_size=80))
def test_for_any_sizes(sizes: list[int]) -> None:
    check(sizes)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 80), st.booleans()), max_size=60),
)
def test_for_any_sizes_while_rows_are_removed(steps: list[tuple[int, int, bool]]) -> None:
    """Old rows or new ones go: each pays for one that moves."""
    state, written = EMPTY, Written()
    n_added = n_removed = 0
    for n, fewer, from_the_start in steps:
        state = added(state, n, written)
        n_added += n
        check_few(state)
        ids = np.sort(np.concatenate([segment.live_ids for segment in state.segments]))
        state, count = without_ids(state, ids[:fewer] if from_the_start else ids[-fewer:])
        n_removed += count
        assert all(segment.n_live for segment in state.segments)
        most = max(math.log2(max(n_added, 2)), 1)
        assert written.n_rows <= n_added * (most + 1) + n_removed * (most + 1)


def test_segments_with_few_rows_left_are_merged() -> None:
    state, written = added(EMPTY, 1000, Written()), Written()
    state, _ = without_ids(state, np.arange(995))
    state = added(added(state, 4, written), 1, written)
    assert [segment.n_rows for segment in state.segments] == [10]
    assert written.n_rows == 14


def test_large_segments_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """From half a piece on; so many there may be, and no small ones more than ever."""
    monkeypatch.setattr(placing, "PIECE_BYTES", 64 * ROW)
    for sizes in SIZES.values():
        state, written, large = EMPTY, Written(), set[int]()
        for n in sizes:
            state = added(state, n, written)
            there = {id(segment) for segment in state.segments}
            assert large <= there
            large = {id(segment) for segment in state.segments if segment.n_rows >= 32}
            assert len(there) <= len(large) + math.log2(32) + 1
        assert written.n_rows <= sum(sizes) * (math.log2(32) + 1)


def test_the_pieces_of_a_build_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "PIECE_BYTES", 64 * ROW)
    for n in (1, 64, 65, 100, 129, 1000):
        state, written = EMPTY, Written()
        for start, stop in placing.MEMORY._replace(piece_bytes=64 * ROW).pieces(n, ROW):
            state = added(state, stop - start, written)
        assert written.n_rows == n
        written = Written()
        added(state, 1, written)
        assert written.n_rows <= 1 + 32
