"""Bad input is refused with the numbers in question; empty input gets an empty answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hamming_cases import SANITIZED, check, forced

from densehash import hamming
from densehash.errors import InputError


def saying(*words: object) -> str:
    """A pattern for a text that holds all these words, in any order, each by itself."""
    return "(?s)" + "".join(rf"(?=.*(?<!\w){re.escape(str(word))}(?!\w))" for word in words)


def rows(n: int, width: int = 8, dtype: type[np.generic] = np.uint8) -> np.ndarray[Any, Any]:
    return np.zeros((n, width), dtype=dtype)


CALLS: dict[str, Callable[..., Any]] = {
    "top_k": partial(hamming.top_k, k=2),
    "within": partial(hamming.within, radius=1),
    "distances": hamming.distances,
    "histogram": hamming.histogram,
}

BAD_ARRAYS: dict[str, tuple[Any, Any, tuple[object, ...]]] = {
    "queries of floats": (rows(3, dtype=np.float32), rows(5), ("queries", "uint8", "float32")),
    "codes of floats": (rows(3), rows(5, dtype=np.float64), ("codes", "uint8", "float64")),
    "codes of int64": (rows(3), rows(5, dtype=np.int64), ("codes", "uint8", "int64")),
    "codes of int8": (rows(3), rows(5, dtype=np.int8), ("codes", "uint8", "int8")),
    "codes of bool": (rows(3), rows(5, dtype=np.bool_), ("codes", "uint8", "bool")),
    "queries of objects": (rows(3, dtype=np.object_), rows(5), ("queries", "uint8", "object")),
    "queries one-dimensional": (np.zeros(8, np.uint8), rows(5), ("queries", "(8,)")),
    "codes one-dimensional": (rows(3), np.zeros(40, np.uint8), ("codes", "(40,)")),
    "codes three-dimensional": (rows(3), np.zeros((5, 8, 1), np.uint8), ("codes", "(5, 8, 1)")),
    "codes zero-dimensional": (rows(3), np.array(7, np.uint8), ("codes", "()")),
    "codes wider": (rows(3, 8), rows(5, 9), (8, 9)),
    "codes narrower": (rows(3, 8), rows(5, 7), (8, 7)),
    "no codes of another width": (rows(3, 8), rows(0, 7), (8, 7)),
    "no queries of another width": (rows(0, 9), rows(5, 8), (9, 8)),
    "width nought": (rows(3, 0), rows(5, 0), (0, 512)),
    "width above the most": (rows(3, 513), rows(5, 513), (513, 512)),
    "nothing for queries": (None, rows(5), ("queries",)),
    "text for codes": (rows(3), "codes", ("codes",)),
    "ragged lists": (rows(3), [[1, 2], [3]], ("codes",)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("queries", "codes", "words"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays(
    call: Callable[..., Any], queries: Any, codes: Any, words: tuple[object, ...]
) -> None:
    with pytest.raises(InputError, match=saying(*words)):
        call(queries, codes)


BAD_NUMBERS = [0, -1, -(2**70), 2.5, 2.0, np.float64(2), float("nan"), True, np.bool_(True), "2"]
BAD_NUMBERS += [[2], np.array([2, 3])]


@pytest.mark.parametrize("k", [*BAD_NUMBERS, None])
def test_bad_k(k: Any) -> None:
    shown = (k,) if type(k) is int else ()
    with pytest.raises(InputError, match=saying("k", *shown)):
        hamming.top_k(rows(3), rows(5), k)


@pytest.mark.parametrize("radius", [*BAD_NUMBERS[1:], None])
def test_bad_radius(radius: Any) -> None:
    shown = (radius,) if type(radius) is int else ()
    with pytest.raises(InputError, match=saying("radius", *shown)):
        hamming.within(rows(3), rows(5), radius)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("n_threads", BAD_NUMBERS)
def test_bad_n_threads(call: Callable[..., Any], n_threads: Any) -> None:
    shown = (n_threads,) if type(n_threads) is int else ()
    with pytest.raises(InputError, match=saying("n_threads", *shown)):
        call(rows(3), rows(5), n_threads=n_threads)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer ends the process")
@pytest.mark.parametrize("k", [2**45, 2**62, 2**63, 2**70])
def test_more_neighbours_than_any_memory_holds(k: int) -> None:
    with pytest.raises((InputError, MemoryError)):
        hamming.top_k(rows(3), rows(5), k)


@pytest.mark.parametrize("n_threads", [2**31, 2**63, 2**70])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_more_threads_than_any_machine_runs(call: Callable[..., Any], n_threads: int) -> None:
    call(rows(3), rows(5), n_threads=n_threads)
    call(rows(300), rows(5000), n_threads=n_threads)


@pytest.mark.parametrize("radius", [65, 2**31, 2**40, 2**70])
def test_a_radius_beyond_every_distance_takes_all_codes(radius: int) -> None:
    limits, near, at = hamming.within(rows(3), ~rows(5), radius)
    assert limits.tolist() == [0, 5, 10, 15]
    assert near.tolist() == [64] * 15
    assert at.tolist() == [0, 1, 2, 3, 4] * 3


@pytest.mark.parametrize("number", [np.int8(2), np.uint64(2), np.array(2)[()]])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    assert hamming.top_k(rows(3), rows(5), number, n_threads=number)[0].shape == (3, 2)
    assert hamming.within(rows(3), rows(5), number)[0].tolist() == [0, 5, 10, 15]


one = np.zeros(1, dtype=np.int64)
BAD_RELEVANT: dict[str, tuple[Any, tuple[object, ...]]] = {
    "too few rows": ([one, one], (2, 3)),
    "too many rows": ([one] * 4, (4, 3)),
    "an array of too few rows": (np.zeros((2, 1), np.int64), (2, 3)),
    "no rows": ([], (0, 3)),
    "a position after the last": ([one, one + 5, one], (5,)),
    "a position far away": ([one, one, one + 2**62], (2**62,)),
    "a position above int64": ([one, one, np.array([2**63 + 1], np.uint64)], (2**63 + 1,)),
    "a negative position": ([one - 1, one, one], (-1, 5)),
    "an array with a bad position": (np.array([[0, 1], [2, 7], [3, 4]]), (7, 5)),
    "floats": ([one, one.astype(float), one], ("float64",)),
    "booleans": ([one, one, np.zeros(5, np.bool_)], ("bool",)),
    "an array of floats": (np.zeros((3, 2)), ("float64",)),
    "an array of booleans": (np.zeros((3, 5), np.bool_), ("bool",)),
    "one-dimensional": (np.zeros(3, np.int64), ("relevant",)),
    "three-dimensional": (np.zeros((3, 2, 2), np.int64), ("relevant",)),
    "rows of two dimensions": ([one, one.reshape(1, 1), one], ("relevant",)),
    "a number": (3, ("relevant",)),
    "text": ("abc", ("relevant",)),
    "rows of nothing": ([None, one, one], ("relevant",)),
}


@pytest.mark.parametrize(("relevant", "words"), BAD_RELEVANT.values(), ids=BAD_RELEVANT)
def test_bad_relevant(relevant: Any, words: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match=saying(*words)):
        hamming.histogram(rows(3), rows(5), relevant)


def test_a_bad_position_among_many_queries_names_its_query() -> None:
    relevant: list[npt.NDArray[np.integer]] = [np.arange(100) for _ in range(300)]
    relevant[271] = np.array([3, 100])
    with pytest.raises(InputError, match=saying(100, 271)):
        hamming.histogram(rows(300), rows(100), relevant)


BAD_N_BITS: dict[Any, tuple[object, ...]] = {
    0: ("n_bits", 0),
    -3: ("n_bits", -3),
    4097: ("n_bits", 4097, 4096),
    65: (65, 8),
    56: (56, 8),
    60.5: ("n_bits",),
    "64": ("n_bits",),
}


@pytest.mark.parametrize(("n_bits", "words"), BAD_N_BITS.items())
def test_bad_n_bits(n_bits: Any, words: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match=saying(*words)):
        hamming.histogram(rows(3), rows(5), n_bits=n_bits)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bit", [60, 63])
def test_dirty_padding(which: int, bit: int) -> None:
    pair = rows(300), rows(5000)
    pair[which][-1, bit // 8] = 1 << bit % 8
    assert hamming.histogram(*pair).sum() == 300 * 5000
    assert hamming.histogram(*pair, n_bits=bit + 1).sum() == 300 * 5000
    words = ("queries", "codes")[which], 60, len(pair[which]) - 1
    with pytest.raises(InputError, match=saying(*words)):
        hamming.histogram(*pair, n_bits=60)


def test_no_queries() -> None:
    none = np.zeros((0, 3), dtype=np.int32), np.zeros((0, 3), dtype=np.int64)
    check(hamming.top_k, none, rows(0), rows(5), 3)
    nothing = none[0].ravel()[:0], none[1].ravel()[:0]
    check(hamming.within, (np.zeros(1, np.int64), *nothing), rows(0), rows(5), 3)
    check(hamming.distances, np.zeros((0, 5), np.uint16), rows(0), rows(5))
    counts = np.zeros((0, 65), np.int64)
    check(hamming.histogram, counts, rows(0), rows(5))
    check(hamming.histogram, (counts, counts), rows(0), rows(5), [])
    check(hamming.histogram, (counts, counts), rows(0), rows(5), np.zeros((0, 2), np.int64))


@pytest.mark.parametrize("q", [1, 40, 300])
def test_no_codes(q: int) -> None:
    missing = np.full((q, 3), -1, np.int32), np.full((q, 3), -1, np.int64)
    check(hamming.top_k, missing, rows(q), rows(0), 3)
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int64)
    check(hamming.within, (np.zeros(q + 1, np.int64), *nothing), rows(q), rows(0), 3)
    check(hamming.distances, np.zeros((q, 0), np.uint16), rows(q), rows(0))
    counts = np.zeros((q, 65), np.int64)
    check(hamming.histogram, counts, rows(q), rows(0))
    check(hamming.histogram, (counts, counts), rows(q), rows(0), [one[:0]] * q)


def test_neither_queries_nor_codes() -> None:
    assert hamming.distances(rows(0), rows(0)).shape == (0, 0)
    assert hamming.top_k(rows(0), rows(0), 2)[1].shape == (0, 2)


ALL_NAMES = ("scalar", "neon", "avx2", "avx512")


@pytest.mark.parametrize("name", ["sse9", "SCALAR ", "avx-512", *ALL_NAMES])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_instruction_set_that_is_not_there(name: str, call: Callable[..., Any]) -> None:
    if name in hamming.instruction_sets():
        pytest.skip(f"this machine has {name}")
    with forced(name), pytest.raises(InputError, match=saying("DENSEHASH_SIMD")) as caught:
        call(rows(3), rows(5))
    assert name.strip() in str(caught.value)
    with forced(name), pytest.raises(InputError):
        hamming.instruction_set()
    for there in hamming.instruction_sets():
        assert there in str(caught.value)


def test_input_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match=saying("k", 0)):
        hamming.top_k(rows(3), rows(5), 0)
