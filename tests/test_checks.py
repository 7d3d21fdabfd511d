import os
import re
from typing import Any

import numpy as np
import pytest
from sklearn.utils import check_random_state

from densehash import checks
from densehash.errors import DensehashError, InputError


def test_the_exception_tree() -> None:
    assert issubclass(InputError, DensehashError)
    assert issubclass(InputError, ValueError)
    assert not issubclass(DensehashError, ValueError)


def test_contiguous_codes_are_not_copied() -> None:
    codes = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.shares_memory(checks.check_codes(codes), codes)


def test_codes_in_any_memory_order() -> None:
    codes = np.arange(24, dtype=np.uint8).reshape(4, 6)
    for same in (np.asfortranarray(codes), np.repeat(codes, 2, axis=1)[:, ::2], codes[::-1][::-1]):
        checked = checks.check_codes(same)
        assert checked.flags.c_contiguous
        np.testing.assert_array_equal(checked, codes)


def test_read_only_codes_are_accepted() -> None:
    codes = np.zeros((3, 4), dtype=np.uint8)
    codes.flags.writeable = False
    assert np.shares_memory(checks.check_codes(codes), codes)


def test_codes_without_rows_are_accepted() -> None:
    assert checks.check_codes(np.zeros((0, 8), dtype=np.uint8)).shape == (0, 8)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[1, 2]], "x must be a uint8 array of packed bits, got dtype int64; pass dtype=uint8"),
        (np.zeros((2, 8), np.int8), "got dtype int8; pass dtype=uint8"),
        (np.zeros((2, 8)), "x must be a uint8 array of packed bits, got dtype float64$"),
        (np.zeros((2, 8), bool), "got dtype bool"),
        (None, "got dtype object"),
        ("codes", "got dtype <U5"),
        ([[1], [2, 3]], "x cannot be read as an array"),
        (np.zeros(8, np.uint8), r"x must have 2 dimensions \(n, width\), got shape \(8,\)"),
        (np.uint8(3), r"got shape \(\)"),
        (np.zeros((1, 1, 1), np.uint8), r"got shape \(1, 1, 1\)"),
        (np.zeros((2, 0), np.uint8), "x must be 1 to 512 bytes wide, got 0"),
        (np.zeros((2, 513), np.uint8), "x must be 1 to 512 bytes wide, got 513"),
    ],
)
def test_bad_codes(bad: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checks.check_codes(bad, "x")


def test_same_width() -> None:
    queries, codes = np.zeros((2, 8), np.uint8), np.zeros((3, 16), np.uint8)
    checks.check_same_width(codes, codes)
    with pytest.raises(InputError) as error:
        checks.check_same_width(queries, codes)
    assert str(error.value) == "queries are 8 bytes wide but codes are 16 bytes wide"


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.int64(3)])
def test_integers(value: Any) -> None:
    checked = checks.check_integer(value, "k", 1, 3)
    assert type(checked) is int
    assert checked == 3


def test_there_need_be_no_maximum() -> None:
    assert checks.check_integer(2**70, "k", 1) == 2**70


@pytest.mark.parametrize(
    "value", [True, np.True_, 3.0, np.float64(3), "3", None, np.array(3), np.array([3]), [3]]
)
def test_not_integers(value: Any) -> None:
    with pytest.raises(InputError, match="k must be an integer from 1 to 9, got .* of type "):
        checks.check_integer(value, "k", 1, 9)


def test_integers_out_of_range() -> None:
    with pytest.raises(InputError, match="^k must be from 1 to 9, got 0$"):
        checks.check_integer(0, "k", 1, 9)
    with pytest.raises(InputError, match="^k must be from 1 to 9, got 10$"):
        checks.check_integer(10, "k", 1, 9)
    with pytest.raises(InputError, match="^k must be at least 1, got -5$"):
        checks.check_integer(-5, "k", 1)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_threads(3) == 3
    with pytest.raises(InputError, match="n_threads must be at least 1, got 0"):
        checks.check_threads(0)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert checks.check_threads(None) == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert checks.check_threads(None) == 1


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_positions_as_one_array(dtype: Any) -> None:
    relevant = np.array([[3, 1], [0, 2], [4, 4]], dtype=dtype)
    for same in (relevant, np.asfortranarray(relevant)):
        limits, positions = checks.check_positions(same, 3, 5)
        assert limits.dtype == positions.dtype == np.int64
        assert positions.flags.c_contiguous
        assert limits.tolist() == [0, 2, 4, 6]
        assert positions.tolist() == [3, 1, 0, 2, 4, 4]


def test_positions_in_the_final_form_are_not_copied() -> None:
    relevant = np.array([[3, 1], [0, 2]])
    assert np.shares_memory(checks.check_positions(relevant, 2, 5)[1], relevant)


@pytest.mark.parametrize(
    "relevant",
    [
        [[3, 1, 0], [], [4]],
        (np.array([3, 1, 0], np.uint64), np.array([], np.int32), np.array([4], np.int8)),
        np.array([np.array([3, 1, 0]), np.array([], np.int64), np.array([4])], dtype=object),
    ],
)
def test_positions_of_different_lengths(relevant: Any) -> None:
    limits, positions = checks.check_positions(relevant, 3, 5)
    assert limits.dtype == positions.dtype == np.int64
    assert limits.tolist() == [0, 3, 3, 4]
    assert positions.tolist() == [3, 1, 0, 4]


def test_no_positions() -> None:
    for relevant, n_queries in (([], 0), ([[], []], 2), (np.zeros((2, 0), np.int64), 2)):
        limits, positions = checks.check_positions(relevant, n_queries, 0)
        assert limits.tolist() == [0] * (n_queries + 1)
        assert positions.shape == (0,)
        assert positions.dtype == np.int64


@pytest.mark.parametrize(
    ("relevant", "query", "position"),
    [
        (np.array([[0, 1], [2, 5]]), 1, 5),
        (np.array([[0, -1], [2, 5]]), 0, -1),
        (np.array([[0, 1], [2**64 - 1, 0]], np.uint64), 1, 2**64 - 1),
        ([[], [0, 4, 9]], 1, 9),
        ([[1, -3], []], 0, -3),
        ([[1], np.array([2**63 + 1], np.uint64)], 1, 2**63 + 1),
    ],
)
def test_positions_out_of_range(relevant: Any, query: int, position: int) -> None:
    with pytest.raises(InputError) as error:
        checks.check_positions(relevant, 2, 5)
    assert str(error.value) == (
        f"relevant positions must lie in 0..4 for 5 codes, got {position} for query {query}"
    )


def test_positions_among_no_codes() -> None:
    with pytest.raises(InputError, match="where there are no codes, got position 0 for query 1"):
        checks.check_positions([[], [0]], 2, 0)


@pytest.mark.parametrize(
    ("relevant", "message"),
    [
        (np.array([1, 2]), r"got dtype int64 and shape \(2,\)"),
        (np.array([[1.0], [2.0]]), r"got dtype float64 and shape \(2, 1\)"),
        (np.array([[True], [False]]), "got dtype bool"),
        (np.array([[1]]), "relevant has rows for 1 queries but there are 2 queries"),
        ([[1]], "relevant has rows for 1 queries but there are 2 queries"),
        ([1, 2], r"got dtype int64 and shape \(\) for query 0"),
        ([[1], [2.5]], r"got dtype float64 and shape \(1,\) for query 1"),
        ([[1], [[2]]], r"got dtype int64 and shape \(1, 1\) for query 1"),
        ([[1], [True]], "got dtype bool"),
        ([[1], [[2], [3, 4]]], "relevant must hold one array of positions for each query"),
        (7, "relevant must hold one array of positions for each query"),
    ],
)
def test_bad_positions(relevant: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checks.check_positions(relevant, 2, 5)


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        ([1.5, 2], (3, 4)),
        [[True, False]],
        [[1, 2**63]],
        [[1, 2**70]],
        [np.arange(3, dtype=np.uint8)] * 2,
        [1.0, 2.0],
        [],
        [[]],
        [[], []],
        [[1, 2], [3]],
        [["1", "2"]],
        [["a", "b"]],
        [[1j, 2]],
        [[None, 1.0]],
        [[object()]],
        [[{}, 1]],
        [[np.datetime64("2020-01-01")]],
    ],
    ids=lambda rows: repr(rows).partition(" at 0x")[0],  # the same in every process
)
def test_lists_of_numbers_are_what_scikit_learn_makes_of_them(
    X: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[object, ...]:
        try:
            found = checks.check_vectors(X)
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        return found.dtype, found.shape, found.tolist()

    ours = outcome()
    monkeypatch.setattr(checks, "_plain_numbers", lambda _: None)
    assert ours == outcome()


@pytest.mark.parametrize("seed", [0, True, np.int32(7), 2**32 - 1, 2**32, -1, "0", 1.0, None])
def test_seeds_are_what_scikit_learn_makes_of_them(seed: Any) -> None:
    try:
        expected = check_random_state(seed)
    except ValueError as error:
        with pytest.raises(InputError, match=re.escape(str(error))):
            checks.check_chance(seed)
        return
    found = checks.check_chance(seed)
    assert (found is expected) == (seed is None)  # the global generator is one
    if seed is not None:
        assert found.randint(2**31) == expected.randint(2**31)
    assert checks.check_chance(found) is found
