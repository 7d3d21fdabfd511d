"""Visiting groups and re-ranking against plain numpy: all instruction sets, all thread counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from hamming_cases import SHAPES, check, everywhere, make, same
from numpy.typing import NDArray

from densehash import asymmetric
from densehash.errors import FileError, InputError
from densehash.index.native import (
    nearest_groups,
    rerank,
    rerank_codes,
    top_k_in_groups,
    top_products_in_groups,
)

Array = NDArray[Any]
METRICS = ("l2", "cosine", "ip")
BITS = (8, 40, 64, 128, 248, 256, 264, 1000)


# --- the definitions ----------------------------------------------------------------------


def best(distances: Array, positions: Array, ranks: Array | None, k: int) -> tuple[Array, Array]:
    """The k least by (distance, rank), of one query."""
    by = positions if ranks is None else ranks[positions]
    order = np.lexsort((by, distances))[:k]
    return distances[order], positions[order]


def filled(rows: list[tuple[Array, Array]], k: int, missing: Any) -> tuple[Array, Array]:
    distances = np.full((len(rows), k), missing)
    positions = np.full((len(rows), k), -1, np.int64)
    for query, (near, at) in enumerate(rows):
        distances[query, : len(near)] = near
        positions[query, : len(at)] = at
    return distances, positions


def top_k_by_definition(
    queries: Array,
    codes: Array,
    limits: Array,
    probes: Array,
    ranks: Array | None,
    allowed: Array | None,
    k: int,
) -> tuple[Array, Array]:
    rows = []
    for query, groups in zip(queries, probes, strict=True):
        parts = [np.arange(limits[group], limits[group + 1]) for group in groups]
        positions = np.concatenate([np.zeros(0, np.int64), *parts])
        if allowed is not None:
            positions = positions[allowed[positions if ranks is None else ranks[positions]]]
        distances = reference.distances(query[np.newaxis], codes[positions])[0]
        rows.append(best(distances.astype(np.int32), positions, ranks, k))
    return filled(rows, k, np.int32(-1))


def lanes(products: Array) -> Array:
    """The sum of float32 in the one order that rounds the same everywhere, along the last axis."""
    sums = np.zeros((*products.shape[:-1], 16), np.float32)
    for first in range(0, products.shape[-1], 16):
        part = products[..., first : first + 16]
        sums[..., : part.shape[-1]] += part
    four = (sums[..., 0:4] + sums[..., 4:8]) + (sums[..., 8:12] + sums[..., 12:16])
    found: Array = (four[..., 0] + four[..., 1]) + (four[..., 2] + four[..., 3])
    return found.astype(np.float64)


def distances_by_definition(query: Array, vectors: Array, metric: str) -> Array:
    whole = query.dtype == vectors.dtype and query.dtype.kind in "iu"
    number: Any = np.int64 if whole else np.float32
    q: Array = query.astype(number)
    v: Array = vectors.astype(number)

    def total(products: Array) -> Array:
        return products.sum(axis=-1).astype(np.float64) if whole else lanes(products)

    with np.errstate(invalid="ignore", over="ignore"):
        if metric == "l2":
            found = np.sqrt(total((q - v) * (q - v)))
        elif metric == "ip":
            found = -total(q * v)
        else:
            lengths = np.sqrt(total(q * q) * total(v * v))
            found = 1 - total(q * v) / np.where(lengths == 0, 1, lengths)
            found = np.where(lengths == 0, 1, np.maximum(found, 0))
        return found.astype(np.float32) + np.float32(0)


def rerank_by_definition(
    queries: Array, vectors: Array, positions: Array, ranks: Array | None, k: int, metric: str
) -> tuple[Array, Array]:
    rows = []
    for query, of_query in zip(queries, positions, strict=True):
        there = of_query[of_query != -1]
        rows.append(best(distances_by_definition(query, vectors[there], metric), there, ranks, k))
    return filled(rows, k, np.float32(np.inf))


def some_positions(rng: np.random.Generator, q: int, n: int, c: int) -> Array:
    """Positions without repetition, some of them missing."""
    found = np.array([rng.permutation(n)[:c] for _ in range(q)], np.int64).reshape(q, min(c, n))
    found[rng.random(found.shape) < 0.1] = -1
    return found


def cut_into_groups(rng: np.random.Generator, n: int, g: int) -> Array:
    """Limits of groups, some of them empty."""
    inner = np.sort(rng.integers(0, n + 1, g - 1))
    inner[: g // 4] = 0
    return np.concatenate([[0], inner, [n]]).astype(np.int64)


def some_probes(rng: np.random.Generator, q: int, g: int, p: int) -> Array:
    return np.array([rng.permutation(g)[:p] for _ in range(q)], np.int32).reshape(q, p)


def permutation(rng: np.random.Generator, n: int) -> Array:
    return rng.permutation(n).astype(np.uint32)


# --- groups -------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [1, 2, 15, 16, 17, 100, 1024, 1031])
def test_nearest_groups(g: int) -> None:
    rng = np.random.default_rng(g)
    for drawn in (rng.standard_normal((40, g)), rng.integers(-3, 3, (40, g))):
        scores = drawn.astype(np.float32)
        for p in {1, min(7, g), (g + 1) // 2, g}:
            order = np.argsort(-scores, axis=1, kind="stable")[:, :p]
            check(nearest_groups_anywhere, order.astype(np.int32), scores, p)


def nearest_groups_anywhere(scores: Array, p: int, n_threads: int) -> Array:
    return nearest_groups(scores, p, n_threads=n_threads)


def test_groups_with_scores_that_are_hard_to_order() -> None:
    scores = np.array([[-0.0, 0.0, np.nan, -np.inf, np.inf, -np.nan, 1e-45, -1e-45]], np.float32)
    assert nearest_groups(scores, 8).tolist() == [[4, 6, 0, 1, 7, 3, 2, 5]]
    assert nearest_groups(np.full((3, 500), np.nan, np.float32), 2).tolist() == [[0, 1]] * 3


def test_many_queries_for_groups() -> None:
    scores = np.random.default_rng(1).standard_normal((3000, 700)).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    check(nearest_groups_anywhere, order.astype(np.int32), scores, 20)
    assert nearest_groups(scores[:0], 20).shape == (0, 20)


# --- codes in groups ----------------------------------------------------------------------


def check_top_k(*args: Any) -> None:
    """In order: to the byte. In any order: the same pairs, and always in the same order."""
    expected = top_k_by_definition(*args)
    check(top_k_in_groups, expected, *args, ordered=True)
    distances, positions = everywhere(top_k_in_groups, *args, ordered=False)
    key = np.where(positions < 0, 10**9, distances).astype(np.int64) * 2**32 + positions
    order = np.argsort(key, axis=1)
    wanted = np.where(expected[1] < 0, 10**9, expected[0]).astype(np.int64) * 2**32 + expected[1]
    np.testing.assert_array_equal(np.take_along_axis(key, order, 1), np.sort(wanted, axis=1))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_top_k_in_groups(shape: str, bits: int) -> None:
    rng = np.random.default_rng([bits, SHAPES.index(shape)])
    n, g = int(rng.integers(400, 900)), 11
    queries, codes = make(shape, 5, n, bits, seed=bits)
    limits, ranks = cut_into_groups(rng, n, g), permutation(rng, n)
    for p, k in ((1, 10), (4, 100), (g, 30), (g, n + 7)):
        probes = some_probes(rng, 5, g, p)
        allowed = rng.random(n) < 0.3
        check_top_k(queries, codes, limits, probes, ranks, None, k)
        check_top_k(queries, codes, limits, probes, None, allowed, k)
        check_top_k(queries, codes, limits, probes, ranks, allowed, k)


@pytest.mark.parametrize("bits", [64, 256, 320])
def test_groups_larger_than_a_block(bits: int) -> None:
    rng = np.random.default_rng(bits)
    n = 14_000
    queries, codes = make("pool", 3, n, bits, seed=1)
    codes[rng.random(n) < 0.3] ^= 1
    limits = np.array([0, 100, 100, 9000, 9001, 14_000])
    ranks, probes = permutation(rng, n), some_probes(rng, 3, 5, 4)
    for k in (1, 500, 4095, 5000, 13_000):
        check_top_k(queries, codes, limits, probes, ranks, None, k)
        check_top_k(queries, codes, limits, probes, ranks, rng.random(n) < 0.1, k)


@pytest.mark.parametrize("k", [1, 40, 120, 290, 300])
def test_a_distance_of_256_is_not_taken_for_0(k: int) -> None:
    rng = np.random.default_rng(k)
    query = rng.integers(0, 256, (1, 32), dtype=np.uint8)
    codes = np.repeat(query, 300, axis=0)
    codes[50:100, 3] ^= 0x11
    codes[100:150] = ~query
    codes[150:290, :20] ^= rng.integers(0, 256, (140, 20), dtype=np.uint8)
    codes[290:300] = ~query
    codes[290:300, 31] ^= 1  # 255
    codes = codes[rng.permutation(300)]
    limits, probes = np.array([0, 30, 160, 300]), np.array([[1, 0, 2]], np.int32)
    check_top_k(query, codes, limits, probes, permutation(rng, 300), None, k)
    check_top_k(query, codes, limits, probes, None, rng.random(300) < 0.7, k)
    far = np.repeat(~query, 300, axis=0)  # no bound is ever found
    check_top_k(query, far, limits, probes, permutation(rng, 300), None, k)


def test_limits_may_leave_rows_out() -> None:
    rng = np.random.default_rng(3)
    queries, codes = make("random", 4, 300, 64, seed=3)
    limits, probes = np.array([20, 50, 250]), some_probes(rng, 4, 2, 2)
    check_top_k(queries, codes, limits, probes, None, None, 20)


def test_nothing_to_find() -> None:
    queries, codes = make("random", 4, 50, 64, seed=4)
    limits = np.array([0, 0, 50, 50])
    nowhere = np.array([[0, 2]] * 4, np.int32)
    none = np.zeros(50, np.bool_)
    for probes in (nowhere, np.zeros((4, 0), np.int32)):
        check_top_k(queries, codes, limits, probes, None, None, 3)
    check_top_k(queries, codes, limits, np.array([[1]] * 4, np.int32), None, none, 3)
    check_top_k(queries[:0], codes, limits, nowhere[:0], None, None, 3)
    check_top_k(queries, codes[:0], np.zeros(2, np.int64), nowhere[:, :1], None, none[:0], 3)


def test_many_queries_in_groups() -> None:
    rng = np.random.default_rng(5)
    queries, codes = make("ramp", 200, 6000, 256, seed=5)
    limits, ranks = cut_into_groups(rng, 6000, 20), permutation(rng, 6000)
    check_top_k(queries, codes, limits, some_probes(rng, 200, 20, 6), ranks, None, 50)


# --- products in groups -------------------------------------------------------------------


def check_products(queries: Array, codes: Array, lengths: Array, *visits: Any, k: int) -> None:
    """In order: to the byte. In any order: the same rows."""
    limits, probes, ranks, allowed = visits
    zero, factors = 8 * codes.shape[1] * 0.6, np.linspace(0, 2, len(queries)).astype(np.float32)
    rows = []
    for query, factor, groups in zip(queries, factors, probes, strict=True):
        parts = [np.arange(limits[group], limits[group + 1]) for group in groups]
        positions = np.concatenate([np.zeros(0, np.int64), *parts])
        if allowed is not None:
            positions = positions[allowed[positions if ranks is None else ranks[positions]]]
        bits = reference.distances(query[np.newaxis], codes[positions])[0].astype(np.float32)
        with np.errstate(all="ignore"):
            far = lengths[positions] * ((bits - np.float32(zero)) * factor) + np.float32(0)
        rows.append(best(far, positions, ranks, k))
    expected = filled(rows, k, np.float32(np.inf))
    args = queries, factors, codes, lengths, zero, *visits, k
    check(top_products_in_groups, expected, *args, ordered=True)
    _, positions = everywhere(top_products_in_groups, *args, ordered=False)
    np.testing.assert_array_equal(np.sort(positions, axis=1), np.sort(expected[1], axis=1))


@pytest.mark.parametrize("bits", [8, 64, 256, 1000])
@pytest.mark.parametrize("shape", ["random", "pool", "equal"])
def test_top_products_in_groups(shape: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    n, g = 700, 11
    queries, codes = make(shape, 5, n, bits, seed=bits)
    limits, ranks = cut_into_groups(rng, n, g), permutation(rng, n)
    allowed = rng.random(n) < 0.3
    for lengths in (rng.random(n), rng.integers(0, 3, n)):  # the second: many ties
        for p, k in ((1, 10), (4, 100), (g, n + 7)):
            visits = limits, some_probes(rng, 5, g, p)
            floats = lengths.astype(np.float32)
            check_products(queries, codes, floats, *visits, ranks, None, k=k)
            check_products(queries, codes, floats, *visits, None, allowed, k=k)
            check_products(queries, codes, floats, *visits, ranks, allowed, k=k)


def test_products_in_groups_larger_than_a_block() -> None:
    rng = np.random.default_rng(0)
    n = 14_000
    queries, codes = make("pool", 3, n, 64, seed=1)
    limits, probes = np.array([0, 100, 100, 9000, 9001, 14_000]), some_probes(rng, 3, 5, 4)
    for lengths in (np.exp(rng.standard_normal(n)), np.ones(n), np.linspace(0, 1, n)):
        for k in (1, 500, 5000):
            visits = limits, probes, permutation(rng, n), None
            check_products(queries, codes, lengths.astype(np.float32), *visits, k=k)


def test_lengths_that_are_no_numbers_come_last() -> None:
    queries, codes = make("random", 1, 9000, 64, seed=4)
    lengths = np.ones(9000, np.float32)
    lengths[::3], lengths[1::50] = np.nan, np.inf
    told = 99.0, np.array([0, 9000]), np.zeros((1, 1), np.int32), None, None
    args = queries, np.ones(1, np.float32), codes, lengths, *told
    for k in (20, 7000, 9000):
        distances, positions = top_products_in_groups(*args, k, ordered=True)
        is_last = np.isnan(lengths[positions[0]])
        assert is_last.sum() == max(k - np.count_nonzero(~np.isnan(lengths)), 0)
        assert bool((np.diff(is_last.astype(int)) >= 0).all())
        assert bool((distances[0, :20] == -np.inf).all())


# --- vectors ------------------------------------------------------------------------------


def whole_numbers(
    rng: np.random.Generator, shape: tuple[int, int], dtype: Any, low: int, high: int
) -> Array:
    """Of which all sums are exact, with many ties."""
    return rng.integers(max(low, 0) if dtype == np.uint8 else low, high, shape).astype(dtype)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int8])
def test_rerank(dtype: Any, metric: str) -> None:
    rng = np.random.default_rng(6)
    for width, n, c in ((1, 80, 80), (3, 200, 60), (16, 300, 90), (33, 150, 150), (128, 400, 300)):
        vectors = whole_numbers(rng, (n, width), dtype, -4, 5)
        vectors[::9] = 0
        positions, ranks = some_positions(rng, 6, n, c), permutation(rng, n)
        for asked in {np.float32, dtype, np.float64, np.int64}:
            queries = whole_numbers(rng, (6, width), asked, -4, 5)
            if np.dtype(dtype) == np.uint8:
                queries = np.abs(queries)
            queries[0] = 0
            compared = queries.astype(dtype if asked == dtype else np.float32)
            for by, k in ((None, 1), (ranks, 10), (ranks, c // 2), (ranks, c + 5)):
                expected = rerank_by_definition(compared, vectors, positions, by, k, metric)
                check(rerank, expected, queries, vectors, positions, by, k, metric=metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int8])
def test_sums_of_floats_are_made_in_one_order(dtype: Any, metric: str) -> None:
    rng = np.random.default_rng(7)
    for width in (1, 2, 15, 16, 17, 50, 128, 200):
        vectors = (rng.standard_normal((120, width)) * 40).clip(0, 127).astype(dtype)
        queries = rng.standard_normal((5, width)).astype(np.float32) * 30
        positions, ranks = some_positions(rng, 5, 120, 110), permutation(rng, 120)
        expected = rerank_by_definition(queries, vectors, positions, ranks, 40, metric)
        check(rerank, expected, queries, vectors, positions, ranks, 40, metric=metric)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("metric", METRICS)
def test_sums_of_integers_are_exact(dtype: Any, metric: str) -> None:
    rng = np.random.default_rng(8)
    limits = np.iinfo(dtype)
    for width in (960, 70_000):  # beyond what 24 bits, and what 32 bits hold
        vectors = rng.choice([limits.min, limits.max], (30, width)).astype(dtype)
        vectors[3:9] = limits.max
        queries = np.array([[limits.min] * width, vectors[1]], dtype)
        positions = some_positions(rng, 2, 30, 30)
        expected = rerank_by_definition(queries, vectors, positions, None, 30, metric)
        check(rerank, expected, queries, vectors, positions, None, 30, metric=metric)


def test_distances_that_are_equal_after_rounding_are_ties() -> None:
    rng = np.random.default_rng(9)
    positions, ranks = some_positions(rng, 8, 200, 190), permutation(rng, 200)
    for level in (126, 250):
        vectors = np.full((200, 1000), level, np.uint8)
        vectors[:, 980:] = rng.integers(0, 2, (200, 20))  # squares differ by 1, roots do not
        queries = np.zeros((8, 1000), np.uint8)
        for k in (1, 3, 20):
            expected = rerank_by_definition(queries, vectors, positions, ranks, k, "l2")
            assert len(np.unique(expected[0])) < 5
            check(rerank, expected, queries, vectors, positions, ranks, k, metric="l2")
    # Cosines near 0, of which the distance, near 1, keeps little.
    sides = np.array([[i, 2**24] for i in rng.permutation(200)], np.float32)
    ahead = np.array([[1, 0], [-1, 0]] * 4, np.float32)
    expected = rerank_by_definition(ahead, sides, positions, ranks, 20, "cosine")
    assert len(np.unique(expected[0])) < 60
    check(rerank, expected, ahead, sides, positions, ranks, 20, metric="cosine")


@pytest.mark.parametrize("scale", [1e-22, 1e-17, 1e17])
def test_cosines_of_vectors_very_short_and_very_long(scale: float) -> None:
    rng = np.random.default_rng(10)
    vectors = rng.standard_normal((300, 20)).astype(np.float32)
    vectors[::3] *= np.float32(scale)
    queries = vectors[[0, 1, 3, 4]] + np.float32(0)
    positions = some_positions(rng, 4, 300, 290)
    expected = rerank_by_definition(queries, vectors, positions, None, 30, "cosine")
    check(rerank, expected, queries, vectors, positions, None, 30, metric="cosine")


def test_every_half() -> None:
    halves = np.arange(65536).astype(np.uint16).view(np.float16)[:, np.newaxis]
    everything = np.arange(65536)[np.newaxis]
    one = np.ones((1, 1), np.float32)
    distances, positions = rerank(one, halves, everything, None, 65536, metric="ip")
    with np.errstate(invalid="ignore"):  # some are NaN that signal
        values = np.float32(0) - halves[:, 0].astype(np.float32)
    order = np.lexsort((everything[0], values))  # NaN is last
    np.testing.assert_array_equal(distances[0], values[order])
    np.testing.assert_array_equal(positions[0], order)


@pytest.mark.parametrize("metric", METRICS)
def test_numbers_that_are_none_come_last(metric: str) -> None:
    rng = np.random.default_rng(11)
    vectors = rng.standard_normal((60, 20)).astype(np.float32)
    vectors[::5, 7] = np.nan
    vectors[::7, 3] = [np.inf, -np.inf, np.inf] * 3
    queries = rng.standard_normal((3, 20)).astype(np.float32)
    positions, ranks = some_positions(rng, 3, 60, 60), permutation(rng, 60)
    expected = rerank_by_definition(queries, vectors, positions, ranks, 60, metric)
    assert np.isnan(expected[0]).any()
    for n_threads in (1, 2):
        found = rerank(queries, vectors, positions, ranks, 60, metric=metric, n_threads=n_threads)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        few = rerank(queries, vectors, positions, ranks, 5, metric=metric, n_threads=n_threads)
        np.testing.assert_array_equal(few[1], expected[1][:, :5])


def test_no_candidates() -> None:
    vectors = np.ones((5, 3), np.float32)
    for positions in (np.full((2, 4), -1), np.zeros((2, 0), np.int64)):
        distances, found = rerank(vectors[:2], vectors, positions, None, 3, metric="l2")
        assert (distances == np.inf).all()
        assert (found == -1).all()
        assert distances.shape == found.shape == (2, 3)
    assert rerank(vectors[:0], vectors, np.zeros((0, 4), int), None, 3, metric="l2")[1].size == 0
    empty = rerank(vectors[:1], vectors[:0], np.full((1, 4), -1), None, 1, metric="ip")
    assert empty[1].tolist() == [[-1]]


def test_many_queries_for_vectors() -> None:
    rng = np.random.default_rng(12)
    for dtype in (np.uint8, np.float32):
        vectors = rng.integers(0, 50, (3000, 40)).astype(dtype)
        queries = rng.integers(0, 50, (300, 40)).astype(dtype)
        positions, ranks = some_positions(rng, 300, 3000, 500), permutation(rng, 3000)
        expected = rerank_by_definition(queries, vectors, positions, ranks, 10, "l2")
        check(rerank, expected, queries, vectors, positions, ranks, 10, metric="l2")


def test_arrays_that_are_mapped_or_cut_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    vectors = rng.integers(0, 200, (100, 24)).astype(np.uint8)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    positions = some_positions(rng, 4, 100, 50)
    expected = rerank_by_definition(vectors[:4], vectors, positions, None, 10, "l2")
    wide = np.asfortranarray(np.concatenate([vectors, vectors], axis=1))[:, :24]
    for rows in (mapped, wide):
        assert same(rerank(mapped[:4], rows, positions, None, 10, metric="l2"), expected)
    limits, probes = np.array([0, 40, 100]), np.array([[1, 0]] * 4, np.int32)
    near = top_k_by_definition(vectors[:4], vectors, limits, probes, None, None, 7)
    found = top_k_in_groups(mapped[:4], mapped, limits, probes, None, None, 7, ordered=True)
    assert same(found, near)


# --- codes by margins ---------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 8, 13, 64, 129, 256, 1000])
def test_rerank_codes(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for shape in ("random", "pool"):
        codes = make(shape, 1, 300, bits, seed=bits)[1]
        margins = rng.standard_normal((5, bits)).astype(np.float32)
        margins[1] = np.sign(margins[1])  # many ties
        margins[2] = 0
        positions, ranks = some_positions(rng, 5, 300, 200), permutation(rng, 300)
        all_distances = asymmetric.distances(margins, codes)
        for by, k in ((None, 1), (ranks, 20), (ranks, 250)):
            rows = []
            for distances, of_query in zip(all_distances, positions, strict=True):
                there = of_query[of_query != -1]
                rows.append(best(distances[there], there, by, k))
            expected = filled(rows, k, np.float32(np.inf))
            check(rerank_codes, expected, margins, codes, positions, by, k)


# --- damage -------------------------------------------------------------------------------


DAMAGED: dict[str, dict[str, Array]] = {
    "falling limits": {"limits": np.array([0, 60, 40, 100])},
    "a falling end": {"limits": np.array([0, 20, 40, 39])},
    "negative limits": {"limits": np.array([-1, 20, 40, 100])},
    "limits beyond": {"limits": np.array([0, 20, 40, 101])},
    "limits far beyond": {"limits": np.array([0, 20, 40, 2**62])},
    "a negative group": {"probes": np.array([[0, 1], [2, -1]], np.int32)},
    "a group beyond": {"probes": np.array([[0, 1], [2, 3]], np.int32)},
    "a group far beyond": {"probes": np.array([[0, 1], [2, 2**31 - 1]], np.int32)},
    "ranks beyond": {"ranks": np.full(100, 100, np.uint32)},
    "ranks far beyond": {"ranks": np.full(100, 2**32 - 1, np.uint32)},
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("ordered", [True, False])
def test_damaged_groups(damage: str, ordered: bool) -> None:
    queries, codes = make("equal", 2, 100, 64, seed=14)  # all are ties
    whole: dict[str, Any] = {
        "limits": np.array([0, 20, 40, 100]),
        "probes": np.array([[0, 2], [2, 1]], np.int32),
        "ranks": np.arange(100, dtype=np.uint32),
        "allowed": None,
        "k": 10,
    }
    top_k_in_groups(queries, codes, **whole, ordered=ordered)
    ones = np.ones(100, np.float32)
    for allowed in (None, np.ones(100, np.bool_)):
        for n_threads in (1, 2):
            wrong = whole | DAMAGED[damage] | {"allowed": allowed}
            with pytest.raises(FileError, match="the index is damaged: "):
                top_k_in_groups(queries, codes, **wrong, ordered=ordered, n_threads=n_threads)
            with pytest.raises(FileError, match="the index is damaged: "):
                top_products_in_groups(
                    queries, ones[:2], codes, ones, 9.0, **wrong, ordered=ordered,
                    n_threads=n_threads,
                )  # fmt: skip


@pytest.mark.parametrize("wrong", [-2, 100, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)])
def test_damaged_positions(wrong: int) -> None:
    codes = make("random", 2, 100, 64, seed=15)[1]
    positions = np.array([[1, 2, -1, 4], [1, 2, 3, wrong]])
    for dtype in (np.float32, np.float16, np.uint8, np.int8):
        vectors = np.ones((100, 5), dtype)
        for metric in METRICS:
            with pytest.raises(FileError, match="a position is beyond the last row"):
                rerank(vectors[:2], vectors, positions, None, 3, metric=metric)
    with pytest.raises(FileError, match="a position is beyond the last row"):
        rerank_codes(np.ones((2, 64), np.float32), codes, positions, None, 3)


def test_damaged_ranks_of_ties() -> None:
    vectors, positions = np.ones((100, 5), np.float32), np.arange(80).reshape(2, 40)
    codes = make("equal", 1, 100, 64, seed=16)[1]
    for wrong in (100, 2**32 - 1):
        ranks = np.full(100, wrong, np.uint32)
        for k in (1, 10, 40, 50):
            with pytest.raises(FileError, match="a rank is beyond the last row"):
                rerank(vectors[:2], vectors, positions, ranks, k, metric="l2")
            with pytest.raises(FileError, match="a rank is beyond the last row"):
                rerank_codes(np.ones((2, 64), np.float32), codes, positions, ranks, k)


def test_ranks_that_repeat_are_no_reason_to_crash() -> None:
    rng = np.random.default_rng(17)
    queries, codes = make("pool", 4, 500, 64, seed=17)
    ranks = rng.integers(0, 3, 500).astype(np.uint32)
    limits, probes = np.array([0, 100, 500]), np.array([[1, 0]] * 4, np.int32)
    found = top_k_in_groups(queries, codes, limits, probes, ranks, None, 90, ordered=True)
    assert (found[1] >= 0).all()
    ones = np.ones(500, np.float32)
    told = limits, probes, ranks, None, 90
    _, at = top_products_in_groups(queries, ones[:4], codes, ones, 9.0, *told, ordered=True)
    assert (at >= 0).all()
    positions = rng.permuted(np.tile(np.arange(500), (4, 1)), axis=1)
    assert (rerank(np.ones((4, 8)), codes, positions, ranks, 90, metric="l2")[1] >= 0).all()


# --- input --------------------------------------------------------------------------------


def test_groups_refuse_what_they_cannot_take() -> None:
    queries, codes = make("random", 2, 100, 64, seed=18)
    limits, probes = np.array([0, 100]), np.zeros((2, 1), np.int32)

    def search(**changed: Any) -> None:
        given: dict[str, Any] = {
            "queries": queries,
            "codes": codes,
            "limits": limits,
            "probes": probes,
            "ranks": None,
            "allowed": None,
            "k": 3,
            "ordered": True,
        }
        top_k_in_groups(**(given | changed))

    search()
    for name, value, message in (
        ("queries", queries[:, :4], "queries are 4 bytes wide but codes are 8"),
        ("limits", limits.astype(np.int32), "limits must be int64 of 1 dimensions"),
        ("limits", limits[:0], "limits must have shape"),
        ("probes", probes.astype(np.int64), "probes must be int32 of 2 dimensions and length 2"),
        ("probes", probes[:1], "probes must be int32 of 2 dimensions and length 2"),
        ("ranks", np.zeros(99, np.uint32), "ranks must be uint32 of 1 dimensions and length 100"),
        ("ranks", np.zeros(100, np.int64), "ranks must be uint32"),
        ("allowed", np.ones(99, np.bool_), "allowed must be bool of 1 dimensions and length 100"),
        ("allowed", np.ones(100, np.uint8), "allowed must be bool"),
        ("k", 0, "k must be from 1"),
    ):
        with pytest.raises(InputError, match=message):
            search(**{name: value})
    ones, told = np.ones(100, np.float32), (9.0, limits, probes, None, None, 3)
    for factors, lengths, message in (
        (ones[:1], ones, "factors must be float32 of 1 dimensions and length 2"),
        (ones[:2], ones[:99], "lengths must be float32 of 1 dimensions and length 100"),
        (ones[:2], ones.astype(np.float64), "lengths must be float32"),
    ):
        with pytest.raises(InputError, match=message):
            top_products_in_groups(queries, factors, codes, lengths, *told, ordered=True)
    scores = np.zeros((3, 4), np.float32)
    for p in (0, 5):
        with pytest.raises(InputError, match="p must be from 1 to 4"):
            nearest_groups(scores, p)
    with pytest.raises(InputError, match="scores must be float32"):
        nearest_groups(scores.astype(np.float64), 2)


def test_re_ranking_refuses_what_it_cannot_take() -> None:
    vectors, positions = np.ones((9, 4), np.float32), np.zeros((2, 3), np.int64)

    def order(**changed: Any) -> None:
        given: dict[str, Any] = {
            "queries": vectors[:2],
            "vectors": vectors,
            "positions": positions,
            "ranks": None,
            "k": 3,
            "metric": "l2",
        }
        rerank(**(given | changed))

    order()
    for name, value, message in (
        ("vectors", vectors.astype(np.float64), "vectors must be float32, float16, uint8 or int8"),
        ("vectors", vectors.astype(">f4"), "vectors must be"),
        ("vectors", vectors[0], "vectors must be"),
        ("queries", vectors[:2, :3], r"queries must be real of shape \(q, 4\)"),
        ("queries", vectors[:2].astype(complex), "queries must be real"),
        ("positions", positions[:1], "positions must be int64 of 2 dimensions and length 2"),
        ("positions", positions.astype(np.int32), "positions must be int64"),
        ("ranks", np.zeros(8, np.uint32), "ranks must be uint32 of 1 dimensions and length 9"),
        ("metric", "l1", "metric must be 'l2' or 'cosine' or 'ip'"),
        ("k", 0, "k must be from 1"),
    ):
        with pytest.raises(InputError, match=message):
            order(**{name: value})
    with pytest.raises(InputError, match="at least one column"):
        order(queries=vectors[:2, :0], vectors=vectors[:, :0])
    codes = np.zeros((9, 2), np.uint8)
    with pytest.raises(InputError, match="margins of 17 bits need codes of 3 bytes, got 2"):
        rerank_codes(np.ones((2, 17), np.float32), codes, positions, None, 3)
