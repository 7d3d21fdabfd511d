"""Every Hamming kernel against the numpy reference: all instruction sets, all thread counts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from hamming_cases import SHAPES, WIDTHS, check, forced, make, same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import Codes

from densehash import hamming

QUERIES = (0, 1, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300)
CODES = (0, 1, 2, 15, 16, 17, 255, 256, 257, 1000, 1023, 1024, 1025, 2049, 5000)

few = settings(deadline=None, max_examples=120)
cases = st.builds(
    make,
    st.sampled_from(SHAPES),
    st.sampled_from(QUERIES),
    st.sampled_from(CODES),
    st.sampled_from(WIDTHS),
    st.integers(0, 2**32 - 1),
)
small = st.builds(
    make,
    st.sampled_from(SHAPES),
    st.integers(0, 70),
    st.integers(0, 300),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
)


@given(pair=small)
@settings(deadline=None, max_examples=20)
def test_the_reference_agrees_with_python_integers(pair: tuple[Codes, Codes]) -> None:
    queries, codes = (rows[:4] for rows in pair)
    wide = [[int.from_bytes(row.tobytes(), "little") for row in rows] for rows in (queries, codes)]
    expected = [[(a ^ b).bit_count() for b in wide[1]] for a in wide[0]]
    assert reference.distances(queries, codes).tolist() == expected


@given(pair=cases | small, data=st.data())
@few
def test_top_k(pair: tuple[Codes, Codes], data: st.DataObject) -> None:
    n = len(pair[1])
    ks = {1, 2, 10, 100, 2048, 2049, max(1, n // 2), max(1, n - 1), max(1, n), n + 3}
    k = data.draw(st.sampled_from(sorted(ks)), label="k")
    check(hamming.top_k, reference.top_k(*pair, k), *pair, k)


@given(pair=cases | small, data=st.data())
@few
def test_within(pair: tuple[Codes, Codes], data: st.DataObject) -> None:
    n_bits = 8 * pair[0].shape[1]
    near = st.sampled_from([0, 1, 2, 254, 255, 256, 257, n_bits - 1, n_bits, n_bits + 1, 10**6])
    radius = data.draw(near | st.integers(0, n_bits), label="radius")
    check(hamming.within, reference.within(*pair, radius), *pair, radius)


@given(pair=cases | small)
@few
def test_distances(pair: tuple[Codes, Codes]) -> None:
    check(hamming.distances, reference.distances(*pair), *pair)


@given(pair=cases | small)
@few
def test_histogram(pair: tuple[Codes, Codes]) -> None:
    expected = reference.histogram(*pair, n_bits=8 * pair[0].shape[1])
    check(hamming.histogram, expected, *pair)


@given(pair=cases | small, seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0, 0.02, 0.5, 2]))
@few
def test_histogram_of_the_relevant(pair: tuple[Codes, Codes], seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    n, n_bits = len(pair[1]), 8 * pair[0].shape[1]
    relevant = []
    for count in rng.integers(0, int(share * n) + 1, size=len(pair[0])):
        positions = rng.integers(0, max(n, 1), count)  # some of them twice
        relevant.append(np.sort(positions) if rng.random() < 0.5 else positions)
    expected = (
        reference.histogram(*pair, n_bits=n_bits),
        reference.histogram(*pair, relevant, n_bits=n_bits),
    )
    check(hamming.histogram, expected, *pair, relevant)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_relevant_positions_of_any_integer_type_and_order(dtype: type[np.integer]) -> None:
    queries, codes = make("random", 5, 100, 64, seed=1)
    positions = np.random.default_rng(2).permuted(np.tile(np.arange(100), (5, 1)), axis=1)[:, :30]
    expected = reference.histogram(queries, codes, list(positions), n_bits=64)
    as_type = positions.astype(dtype)
    for relevant in (as_type, np.asfortranarray(as_type), list(as_type), tuple(as_type)):
        np.testing.assert_array_equal(hamming.histogram(queries, codes, relevant)[1], expected)
    backwards = as_type[:, ::-1]
    np.testing.assert_array_equal(hamming.histogram(queries, codes, backwards)[1], expected)
    as_lists = [[int(position) for position in row] for row in positions]
    np.testing.assert_array_equal(hamming.histogram(queries, codes, as_lists)[1], expected)


def test_relevant_with_rows_of_no_positions() -> None:
    queries, codes = make("random", 3, 50, 64, seed=3)
    nothing = np.zeros(0, dtype=np.int64)
    relevant = [nothing, np.arange(50), nothing]
    expected = reference.histogram(queries, codes, relevant, n_bits=64)
    np.testing.assert_array_equal(hamming.histogram(queries, codes, relevant)[1], expected)
    for empty in ([nothing] * 3, np.zeros((3, 0), dtype=np.int64)):
        every, alone = hamming.histogram(queries, codes, empty)
        assert every.sum() == 150
        assert not alone.any()


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_histogram_has_a_column_for_each_distance_of_n_bits(n_bits: int) -> None:
    queries, codes = make("ramp", 33, 700, n_bits, seed=n_bits)
    relevant = [np.arange(i, 700, 7) for i in range(33)]
    expected = (
        reference.histogram(queries, codes, n_bits=n_bits),
        reference.histogram(queries, codes, relevant, n_bits=n_bits),
    )
    check(hamming.histogram, expected[0], queries, codes, n_bits=n_bits)
    check(hamming.histogram, expected, queries, codes, relevant, n_bits=n_bits)


@pytest.mark.parametrize("width", [*range(1, 35), 47, 48, 49, 63, 64, 65, 127, 128, 129, 511, 512])
def test_every_number_of_bytes(width: int) -> None:
    for q, n in ((1, 33), (9, 130), (40, 35), (70, 17)):
        queries, codes = make("ramp", q, n, 8 * width, seed=width)
        check(hamming.top_k, reference.top_k(queries, codes, 20), queries, codes, 20)
        check(hamming.distances, reference.distances(queries, codes), queries, codes)
        expected = reference.histogram(queries, codes, n_bits=8 * width)
        check(hamming.histogram, expected, queries, codes)
        near = reference.within(queries, codes, 4 * width)
        check(hamming.within, near, queries, codes, 4 * width)


# How many queries a call has decides how they are compared: one by one, by tables of 32 or of 64.
@pytest.mark.parametrize("n_bits", [64, 72, 128, 256, 512, 520])
@pytest.mark.parametrize("shape", ["pool", "far", "falling"])  # ties; above 255; bounds that fall
def test_every_number_of_queries(shape: str, n_bits: int) -> None:
    queries, codes = make(shape, 100, 301, n_bits, seed=n_bits)
    found, order = reference.top_k(queries, codes, 20)
    limits, near, at = reference.within(queries, codes, n_bits // 3)
    for name in hamming.instruction_sets():
        with forced(name):
            for q in range(1, 101):
                answer = hamming.top_k(queries[:q], codes, 20, n_threads=1)
                assert same(answer, (found[:q], order[:q])), f"{name}, {q} queries"
                inside = hamming.within(queries[:q], codes, n_bits // 3, n_threads=1)
                upto = limits[q]
                expected = (limits[: q + 1], near[:upto], at[:upto])
                assert same(inside, expected), f"{name}, {q} queries"


BIG = [  # enough work for several threads, and more than one batch of queries
    # shape, queries, codes, bits, ks
    ("random", 1, 600_000, 64, (1, 100, 2048, 3000, 300_000)),
    ("falling", 1, 600_000, 64, (100, 2048, 3000)),
    ("random", 33, 20_000, 64, (1, 100, 2000, 19_999)),
    ("falling", 33, 20_000, 64, (1, 100, 2049, 20_003)),
    ("rising", 70, 10_000, 128, (10, 5000)),
    ("pool", 300, 10_000, 64, (10, 5000)),
    ("falling", 300, 5_000, 256, (100, 2500)),
    ("far", 65, 10_000, 512, (100, 4000)),
    ("ramp", 40, 10_000, 1000, (100, 4000)),
    ("falling", 10, 10_000, 4096, (100, 4000)),
    ("falling", 40, 20_000, 8, (100, 8000)),
    ("near", 40, 20_000, 16, (100, 8000)),
    ("pool", 520, 3_000, 32, (100, 3000)),
    ("random", 4_200, 300, 64, (10, 700)),
    ("random", 2_200, 550, 512, (10, 550)),
]


@pytest.mark.parametrize(("shape", "q", "n", "n_bits", "ks"), BIG)
def test_many_codes(shape: str, q: int, n: int, n_bits: int, ks: tuple[int, ...]) -> None:
    queries, codes = make(shape, q, n, n_bits, seed=n)
    every = reference.distances(queries, codes)
    order = np.argsort(every.astype(np.int16), axis=1, kind="stable")  # a radix sort
    rank = np.take_along_axis(every, order, axis=1).astype(np.int32)
    for k in ks:
        room = ((0, 0), (0, max(0, k - n)))
        expected = (np.pad(rows[:, :k], room, constant_values=-1) for rows in (rank, order))
        check(hamming.top_k, tuple(expected), queries, codes, k)
    for radius in np.quantile(every[:, :1000], [0.01, 0.6], method="lower").tolist():
        inside = rank <= radius
        limits = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        check(hamming.within, (limits, rank[inside], order[inside]), queries, codes, radius)
    relevant = [np.arange(i % 7, n, 50) for i in range(q)]
    width = 8 * codes.shape[1]
    counts = np.array([np.bincount(row, minlength=width + 1) for row in every])
    alone = reference.histogram(queries, codes, relevant, n_bits=width)
    check(hamming.histogram, (counts, alone), queries, codes, relevant)


# Few queries of 256 bits are compared in bytes, where a distance of 256 becomes 0.
@pytest.mark.parametrize("q", [1, 8, 40])
def test_the_opposite_of_a_query_is_the_farthest(q: int) -> None:
    queries, codes = make("random", q, 3_000, 256, seed=6)
    codes[100::50] = ~queries[0]
    codes[2_000] = queries[0]
    check(hamming.top_k, reference.top_k(queries, codes, 30), queries, codes, 30)
    check(hamming.within, reference.within(queries, codes, 120), queries, codes, 120)
    check(hamming.within, reference.within(queries, codes, 256), queries, codes, 256)


@pytest.mark.parametrize("q", [1, 40])
def test_more_equal_codes_than_sixteen_bits_can_count(q: int) -> None:
    queries, codes = make("equal", q, 140_000, 64, seed=5)
    first = np.tile(np.arange(140_000), (q, 1))
    for k in (1, 100, 70_000, 140_000):
        found, order = hamming.top_k(queries, codes, k)
        np.testing.assert_array_equal(order, first[:, :k])
        np.testing.assert_array_equal(found[:, 0], found[:, -1])
    check(hamming.histogram, reference.histogram(queries, codes, n_bits=64), queries, codes)


# From 65,536 codes on, distances of up to 96 bits are counted in pairs, by blocks of codes.
@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 9, 12, 13, 32])
def test_histogram_of_many_codes(width: int) -> None:
    queries, codes = make("near", 3, 70_001, 8 * width, seed=width)
    n, rng = len(codes), np.random.default_rng(width)
    rising = np.sort(rng.integers(0, n, 5000))
    relevant = [
        rising,
        rng.permutation(rising),
        rising[[*range(4999), 0]],
    ]
    expected = (
        reference.histogram(queries, codes, n_bits=8 * width),
        reference.histogram(queries, codes, relevant, n_bits=8 * width),
    )
    check(hamming.histogram, expected, queries, codes, relevant)


@cache
def hundred_thousand() -> tuple[Codes, Codes, NDArray[Any]]:
    """Queries, codes, and how far each is from each."""
    queries, codes = make("random", 2, 100_000, 64, seed=5)
    return queries, codes, reference.distances(queries, codes)


@given(data=st.data())
@few
def test_relevant_positions_that_nearly_rise(data: st.DataObject) -> None:
    queries, codes, every = hundred_thousand()
    positions = np.sort(np.random.default_rng(6).integers(0, 100_000, (2, 200)), axis=1)
    for row in positions:  # any two of them change places
        one, two = data.draw(st.tuples(st.integers(0, 199), st.integers(0, 199)))
        row[[one, two]] = row[[two, one]]
    expected = [np.bincount(d[at], minlength=65) for d, at in zip(every, positions, strict=True)]
    np.testing.assert_array_equal(hamming.histogram(queries, codes, positions)[1], expected)


@pytest.mark.slow
def test_positions_beyond_thirty_two_bits() -> None:
    # Zeros that are only read are never backed by memory: these four billion cost none.
    n = 2**32 + 100
    codes = np.zeros((n, 1), dtype=np.uint8)
    codes[n - 3 :] = 255
    query = np.full((1, 1), 255, dtype=np.uint8)
    found, order = hamming.top_k(query, codes, 5)
    assert found.tolist() == [[0, 0, 0, 8, 8]]
    assert order.tolist() == [[n - 3, n - 2, n - 1, 0, 1]]
    limits, near, at = hamming.within(query, codes, 7)
    assert (limits.tolist(), near.tolist()) == ([0, 3], [0, 0, 0])
    assert at.tolist() == [n - 3, n - 2, n - 1]
    every, alone = hamming.histogram(query, codes, [[0, n - 1, n - 2]])
    assert every.tolist() == [[3, 0, 0, 0, 0, 0, 0, 0, n - 3]]
    assert alone.tolist() == [[2, 0, 0, 0, 0, 0, 0, 0, 1]]


def unaligned(rows: Codes) -> Codes:
    """The same rows, one byte after where an allocator would put them."""
    room = np.empty(rows.size + 1, dtype=np.uint8)
    room[1:] = rows.ravel()
    return room[1:].reshape(rows.shape)


def strided(rows: Codes) -> Codes:
    room = np.full((2 * len(rows), 3 * rows.shape[1] + 1), 0xA5, dtype=np.uint8)
    room[::2, 1::3] = rows
    return room[::2, 1::3]


def column_slice(rows: Codes) -> Codes:
    room = np.full((len(rows), rows.shape[1] + 3), 0xA5, dtype=np.uint8)
    room[:, 2:-1] = rows
    return room[:, 2:-1]


def backwards(rows: Codes) -> Codes:
    return np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1]


def read_only(rows: Codes) -> Codes:
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


def memory_map(rows: Codes) -> Codes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codes.npy"
        np.save(path, rows)
        mapped: Codes = np.load(path, mmap_mode="r")
        return mapped


LAYOUTS = [
    unaligned, strided, column_slice, backwards, np.asfortranarray, read_only, memory_map
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_bits", [8, 31, 64, 200])
def test_arrays_in_any_memory_order(layout: Callable[[Codes], Codes], n_bits: int) -> None:
    queries, codes = make("near", 40, 3001, n_bits, seed=n_bits)
    expected = reference.top_k(queries, codes, 50)
    near = reference.within(queries, codes, 2)
    for q in (40, 1):
        asked, given_codes = layout(queries[:q]), layout(codes)
        before = asked.tobytes(), given_codes.tobytes()
        check(hamming.top_k, (expected[0][:q], expected[1][:q]), asked, given_codes, 50)
        upto = near[0][q]
        few_near = (near[0][: q + 1], near[1][:upto], near[2][:upto])
        check(hamming.within, few_near, asked, given_codes, 2)
        check(hamming.distances, reference.distances(queries[:q], codes), asked, given_codes)
        counts = reference.histogram(queries[:q], codes, n_bits=n_bits)
        check(hamming.histogram, counts, asked, given_codes, n_bits=n_bits)
        assert (asked.tobytes(), given_codes.tobytes()) == before


def test_one_code_broadcast_over_many_rows() -> None:
    queries, codes = make("random", 9, 1, 64, seed=6)
    many = np.broadcast_to(codes, (5000, 8))
    expected = reference.top_k(queries, many, 30)
    check(hamming.top_k, expected, queries, many, 30)


def test_codes_searched_for_themselves() -> None:
    codes = make("random", 0, 3000, 64, seed=7)[1]
    expected = reference.top_k(codes, codes, 5)
    check(hamming.top_k, expected, codes, codes, 5)
    assert expected[1][:, 0].tolist() == list(range(3000))


def test_padding_bits_count_where_the_number_of_bits_is_not_said() -> None:
    queries = np.zeros((1, 1), dtype=np.uint8)
    codes = np.array([[0x80], [0x01], [0x00]], dtype=np.uint8)
    assert hamming.distances(queries, codes).tolist() == [[1, 1, 0]]


def test_the_default_instruction_set_is_one_that_the_machine_has() -> None:
    assert "scalar" in hamming.instruction_sets()
    assert len(set(hamming.instruction_sets())) == len(hamming.instruction_sets())
    assert hamming.instruction_set() in hamming.instruction_sets()


def test_the_environment_forces_an_instruction_set() -> None:
    for name in hamming.instruction_sets():
        with forced(name):
            assert hamming.instruction_set() == name


@pytest.mark.parametrize("n_threads", [None, 3, 7, 1000, 10**6])
def test_any_number_of_threads(n_threads: int | None) -> None:
    queries, codes = make("pool", 40, 5000, 64, seed=8)
    found, order = hamming.top_k(queries, codes, 9, n_threads=n_threads)
    expected = reference.top_k(queries, codes, 9)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(order, expected[1])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_sample_that_misleads_does_not_change_the_answer(n_threads: int) -> None:
    """Long lists are begun with a bound from a sample of the codes; here it is far too tight."""
    n, k = 70_000, 1_000
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n, 4), dtype=np.uint8)
    queries = rng.integers(0, 256, (70, 4), dtype=np.uint8)
    step = n // 64
    for piece in range(64):  # the sample sees the queries' own codes everywhere
        codes[piece * step : piece * step + step // 32] = queries[piece]
    found, where = hamming.top_k(queries, codes, k, n_threads=n_threads)
    true_distances, true_positions = reference.top_k(queries, codes, k)
    np.testing.assert_array_equal(found, true_distances)
    np.testing.assert_array_equal(where, true_positions)
