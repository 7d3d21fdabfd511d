"""Tables of substrings: the answers of a scan, found elsewhere; and the likeliest places."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference
from hamming_cases import check, clean, make, same
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Codes

from densehash import hamming
from densehash.errors import FileError, InputError
from densehash.index import multi_tables
from densehash.index.multi_tables import (
    build_tables,
    multi_probe,
    multi_top_k,
    multi_within,
    n_tables_for,
)

Mask = npt.NDArray[np.bool_]

# By tables alone, by scans alone, and by whatever is cheaper: for few rows that is a scan.
WAYS = {"tables": math.inf, "scans": -1.0, "cheapest": 1.0}
# bits of a code, tables
CUTS = [(1, 1), (5, 5), (8, 1), (13, 1), (13, 4), (20, 2), (31, 3), (48, 3), (64, 4), (65, 5),
        (71, 8), (128, 9), (200, 25), (256, 20)]  # fmt: skip

SHAPES = ("random", "pool", "equal", "near", "ramp")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_tables, "_PATIENCE", WAYS[request.param])


def lengths(n_bits: int, n_tables: int) -> list[int]:
    return [n_bits // n_tables + (t < n_bits % n_tables) for t in range(n_tables)]


def values_of(codes: Codes, n_bits: int, n_tables: int) -> list[npt.NDArray[np.int64]]:
    """The substrings as numbers, table by table."""
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64)
    ends = np.cumsum(lengths(n_bits, n_tables))
    parts = np.split(bits[:, :n_bits], ends[:-1], axis=1)
    return [part @ (1 << np.arange(part.shape[1])) for part in parts]


def masks(n: int) -> list[Mask | None]:
    """All rows, most, few, none."""
    rng = np.random.default_rng(n)
    return [None, *(rng.random(n) < share for share in (0.8, 0.02, -1))]


def masked_top_k(queries: Codes, codes: Codes, allowed: Mask | None, k: int) -> Any:
    if allowed is None:
        return reference.top_k(queries, codes, k)
    where = np.flatnonzero(allowed)
    near, order = reference.top_k(queries, codes[where], k)
    return near, np.where(order < 0, -1, np.append(where, -1)[order])


def masked_within(queries: Codes, codes: Codes, allowed: Mask | None, radius: int) -> Any:
    if allowed is None:
        return reference.within(queries, codes, radius)
    where = np.flatnonzero(allowed)
    limits, near, order = reference.within(queries, codes[where], radius)
    return limits, near, where[order]


# The tables


@pytest.mark.parametrize(("n_bits", "n_tables"), CUTS)
@pytest.mark.parametrize("shape", ["random", "pool", "near"])
def test_tables_hold_rows_by_substring_then_by_the_next_one(
    shape: str, n_bits: int, n_tables: int
) -> None:
    codes = make(shape, 1, 500, n_bits, seed=n_bits)[1]
    values = values_of(codes, n_bits, n_tables)
    expected_starts, expected_rows = [], []
    for t, length in enumerate(lengths(n_bits, n_tables)):
        counts = np.bincount(values[t], minlength=2**length)
        expected_starts.append(np.concatenate([[0], np.cumsum(counts)]))
        following = values[(t + 1) % n_tables]
        expected_rows.append(np.lexsort([np.arange(500), following, values[t]]))
    for n_threads in (1, 2, 8):
        starts, rows = build_tables(codes, n_bits, n_tables, n_threads=n_threads)
        assert starts.dtype == rows.dtype == np.uint32
        np.testing.assert_array_equal(starts, np.concatenate(expected_starts))
        np.testing.assert_array_equal(rows, expected_rows)


def test_the_longest_substring() -> None:
    codes = make("random", 1, 300, 52, seed=0)[1]
    tables = build_tables(codes, 52, 2)
    assert tables[0].shape == (2 * (2**26 + 1),)
    assert same(multi_top_k(codes, codes, 52, *tables, None, 5), reference.top_k(codes, codes, 5))


@pytest.mark.parametrize(
    ("n_bits", "n_rows", "expected"),
    [(64, 10**7, 3), (64, 10**6, 4), (128, 10**6, 7), (64, 0, 8), (64, 1, 8), (5, 10**6, 1),
     (64, 4 * 10**9, 3), (4096, 10**9, 158), (33, 2**16, 3)],
)  # fmt: skip
def test_the_number_of_tables_suits_the_rows(n_bits: int, n_rows: int, expected: int) -> None:
    assert n_tables_for(n_bits, n_rows) == expected


# The answers of a scan


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("shape", "n_bits", "n_tables"),  # each cut with two of the shapes
    [(SHAPES[(at + more) % len(SHAPES)], *cut) for at, cut in enumerate(CUTS) for more in (0, 2)],
)
def test_answers_are_those_of_a_scan(shape: str, n_bits: int, n_tables: int) -> None:
    queries, codes = make(shape, 5, 160, n_bits, seed=n_bits)
    queries[1:3] = codes[:2]
    tables = build_tables(codes, n_bits, n_tables)
    for allowed in masks(160):
        given = n_bits, *tables, allowed
        for k in (1, 7, 200):
            expected = masked_top_k(queries, codes, allowed, k)
            assert same(multi_top_k(queries, codes, *given, k, n_threads=2), expected)
        for radius in (0, 2, 3, n_bits // 4, n_bits + 9):
            near = masked_within(queries, codes, allowed, radius)
            assert same(multi_within(queries, codes, *given, radius, n_threads=2), near)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", ["near", "random", "equal", "ramp"])
def test_same_bytes_for_any_number_of_threads_and_any_instruction_set(shape: str) -> None:
    queries, codes = make(shape, 70, 3000, 30, seed=1)
    tables = build_tables(codes, 30, 3)
    for allowed in (None, np.arange(3000) % 3 > 0):
        near = masked_within(queries, codes, allowed, 4)
        check(multi_within, near, queries, codes, 30, *tables, allowed, 4)
        for k in (1, 60):
            expected = masked_top_k(queries, codes, allowed, k)
            check(multi_top_k, expected, queries, codes, 30, *tables, allowed, k)


@pytest.mark.usefixtures("way")
def test_large_buckets_are_searched_where_neighbours_may_be() -> None:
    # Few bits of each substring vary: buckets of thousands of rows, and of duplicates.
    rng = np.random.default_rng(3)
    bits = np.where(np.arange(64) % 5 == 0, rng.random((20_000, 64)) < 0.5, np.arange(64) % 3 == 0)
    codes = np.packbits(bits, axis=1, bitorder="little")
    queries = codes[:40] ^ np.packbits(rng.random((40, 64)) < 0.02, axis=1)
    for n_tables in (3, 4, 7):
        tables = build_tables(codes, 64, n_tables)
        for radius in range(7):
            expected = hamming.within(queries, codes, radius)
            assert same(multi_within(queries, codes, 64, *tables, None, radius), expected)
        for k in (1, 10, 100, 4000):
            expected_k = hamming.top_k(queries, codes, k)
            assert same(multi_top_k(queries, codes, 64, *tables, None, k), expected_k)


@pytest.mark.usefixtures("way")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_codes(data: st.DataObject) -> None:
    n_bits = data.draw(st.integers(1, 80), "bits")
    n_tables = data.draw(st.integers(-(-n_bits // 12), n_bits), "tables")
    n, q = data.draw(st.integers(0, 60), "codes"), data.draw(st.integers(0, 6), "queries")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    pool = rng.random((data.draw(st.integers(1, 9), "pool"), n_bits)) < 0.5
    noise = data.draw(st.sampled_from([0, 0.02, 0.1, 0.5]), "noise")

    def some(count: int) -> Codes:
        bits = pool[rng.integers(0, len(pool), count)] ^ (rng.random((count, n_bits)) < noise)
        return np.packbits(bits, axis=1, bitorder="little")

    queries, codes = some(q), some(n)
    allowed = data.draw(st.sampled_from([None, 0.5, 0.03]), "allowed")
    mask = None if allowed is None else rng.random(n) < allowed
    k, radius = data.draw(st.integers(1, 70), "k"), data.draw(st.integers(0, 90), "radius")
    tables = build_tables(codes, n_bits, n_tables)
    given_tables = n_bits, *tables, mask
    top = multi_top_k(queries, codes, *given_tables, k)
    assert same(top, masked_top_k(queries, codes, mask, k))
    found = multi_within(queries, codes, *given_tables, radius)
    assert same(found, masked_within(queries, codes, mask, radius))


@pytest.mark.usefixtures("way")
def test_no_codes_and_no_queries() -> None:
    codes = np.zeros((0, 8), np.uint8)
    tables = build_tables(codes, 64, n_tables_for(64, 0))
    query = np.zeros((2, 8), np.uint8)
    for given_queries in (query, query[:0]):
        q = len(given_queries)
        near, positions = multi_top_k(given_queries, codes, 64, *tables, None, 3)
        assert (near == -1).all()
        assert (positions == -1).all()
        assert near.shape == positions.shape == (q, 3)
        limits, near, positions = multi_within(given_queries, codes, 64, *tables, None, 3)
        assert limits.tolist() == [0] * (q + 1)
        assert len(near) == len(positions) == 0
        margins = np.zeros((q, 64))
        near, _ = multi_probe(given_queries, margins, codes, 64, *tables, None, 9, 3)
        assert near.shape == (q, 3)
        assert (near == -1).all()


def test_tables_may_be_mapped_and_read_only(tmp_path: Path) -> None:
    queries, codes = make("near", 20, 3000, 64, seed=5)
    arrays: list[npt.NDArray[Any]] = [codes, *build_tables(codes, 64, 4)]
    mapped = []
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
    found = multi_top_k(queries, mapped[0], 64, mapped[1], mapped[2], None, 9)
    assert same(found, reference.top_k(queries, codes, 9))


# The likeliest places


def perturbations(margins: npt.NDArray[np.floating], count: int) -> npt.NDArray[np.int64]:
    """The first sets of bits by (sum of |margin|, ranks of the bits), all of them made."""
    order = np.argsort(np.abs(margins), kind="stable")
    ranks = np.arange(2 ** len(margins))
    chosen = ranks[:, np.newaxis] >> np.arange(len(margins)) & 1
    costs = np.zeros(len(ranks))
    for rank, bit in enumerate(order):  # rounded alike for all
        costs += chosen[:, rank] * abs(float(margins[bit]))
    return (chosen @ (1 << order))[np.lexsort([ranks, costs])[:count]]


def probed(
    queries: Codes, margins: Any, codes: Codes, n_bits: int, n_tables: int, n_probes: int, k: int,
    allowed: Mask | None = None,
) -> Any:  # fmt: skip
    """What a query sees in each table, the nearest of it, one by one."""
    ours, theirs = (values_of(rows, n_bits, n_tables) for rows in (queries, codes))
    ends = np.cumsum(lengths(n_bits, n_tables))[:-1]
    near = np.full((len(queries), k), -1, np.int32)
    order = np.full((len(queries), k), -1, np.int64)
    for i in range(len(queries)):
        seen = np.zeros(len(codes), bool)
        for t, part in enumerate(np.split(margins[i], ends)):
            seen |= np.isin(theirs[t] ^ ours[t][i], perturbations(part, n_probes))
        rows = masked_top_k(
            queries[i : i + 1], codes, seen if allowed is None else seen & allowed, k
        )
        near[i], order[i] = rows[0][0], rows[1][0]
    return near, order


@pytest.mark.parametrize(("n_bits", "n_tables"), [(7, 1), (13, 2), (20, 3), (64, 8), (71, 9)])
@pytest.mark.parametrize("kind", ["real", "ties", "zero"])
def test_probes_are_where_the_margins_are_least(kind: str, n_bits: int, n_tables: int) -> None:
    rng = np.random.default_rng(n_bits)
    margins = rng.normal(0, 1, (9, n_bits)).astype(np.float32)
    if kind != "real":
        margins = np.rint(2 * margins) * (kind == "ties")  # sums without rounding
    queries = np.packbits(margins >= 0, axis=1, bitorder="little")
    pool = queries[rng.integers(0, 9, 700)]
    codes = pool ^ clean(np.packbits(rng.random((700, 8 * pool.shape[1])) < 0.2, axis=1), n_bits)
    tables = build_tables(codes, n_bits, n_tables)
    for n_probes, k in ((1, 5), (2, 700), (9, 40), (100, 40), (5000, 700)):
        for allowed in (None, rng.random(700) < 0.5):
            given_tables = codes, n_bits, *tables, allowed, n_probes, k
            expected = probed(queries, margins, codes, n_bits, n_tables, n_probes, k, allowed)
            check(multi_probe, expected, queries, margins, *given_tables)


def test_all_probes_see_all_rows() -> None:
    queries, codes = make("random", 6, 400, 24, seed=8)
    margins = np.random.default_rng(0).normal(size=(6, 24))
    tables = build_tables(codes, 24, 3)
    found = multi_probe(queries, margins, codes, 24, *tables, None, 256, 30)
    assert same(found, reference.top_k(queries, codes, 30))


def test_perturbations_come_in_order_for_any_margins() -> None:
    # As many probes as rows with one value each: those that are found are those of least cost.
    rng = np.random.default_rng(1)
    values = np.arange(2**10)
    codes = np.stack([values & 255, values >> 8], axis=1).astype(np.uint8)
    tables = build_tables(codes, 10, 1)
    for scale, n_probes in itertools.product((1e-30, 1, 1e30), (1, 17, 300, 1023)):
        margins = (scale * rng.normal(0, 1, (1, 10)) ** 5).astype(np.float32)
        query = np.packbits(margins >= 0, axis=1, bitorder="little")
        bits = np.unpackbits(codes ^ query, axis=1, count=10, bitorder="little")
        costs = bits @ np.abs(margins[0]).astype(np.float64)
        found = multi_probe(query, margins, codes, 10, *tables, None, n_probes, n_probes)[1][0]
        assert set(found) == set(np.argsort(costs)[:n_probes])


# Damage


def calls(codes: Codes, starts: Any, rows: Any) -> list[Any]:
    queries, margins = codes[:50], np.linspace(-1, 1, 50 * 20).reshape(50, 20)
    given_tables = 20, starts, rows, None
    return [
        lambda: multi_top_k(queries, codes, *given_tables, 30),
        lambda: multi_within(queries, codes, *given_tables, 5),
        lambda: multi_probe(queries, margins, codes, *given_tables, 200, 30),
    ]


@pytest.mark.parametrize(
    "damage", ["falling", "beyond", "largest", "rows beyond", "one row", "short", "long", "fewer",
               "more", "type", "shape"]
)  # fmt: skip
def test_damaged_tables_are_refused(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_tables, "_PATIENCE", math.inf)
    codes = make("near", 1, 2000, 20, seed=2)[1]
    starts, rows = (array.copy() for array in build_tables(codes, 20, 2))
    if damage == "falling":
        starts[: 2**10] = starts[: 2**10][::-1]
    elif damage == "beyond":
        starts[2**9 :] += 5
    elif damage == "largest":
        starts[::2] = 2**32 - 1
    elif damage == "rows beyond":
        rows += 2000
    elif damage == "one row":
        rows[rows == 7] = 2000  # of a query
    elif damage == "short":
        starts = starts[:-1]
    elif damage == "long":
        starts = np.append(starts, np.uint32(2000))
    elif damage == "fewer":
        rows = rows[:, :-1].copy()
    elif damage == "more":
        rows = np.concatenate([rows, rows[:1]])
    elif damage == "type":
        rows = rows.astype(np.int32)
    else:
        starts = starts[np.newaxis]
    for call in calls(codes, starts, rows):
        with pytest.raises(FileError, match="index is damaged: the tables|of tables must be"):
            call()


@pytest.mark.usefixtures("way")
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_damage_is_an_answer_or_our_error(data: st.DataObject) -> None:
    codes = make("near", 1, 300, 20, seed=2)[1]
    starts, rows = (array.copy() for array in build_tables(codes, 20, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    for array in (starts, rows.reshape(-1)):
        where = rng.integers(0, len(array), data.draw(st.integers(0, 50), "places"))
        top = data.draw(st.sampled_from([299, 300, 301, 2**32 - 1]), "most")
        array[where] = rng.integers(0, top, len(where), endpoint=True)
    for call in calls(codes, starts, rows):
        try:
            answer = call()
        except FileError:
            continue
        assert answer[-1].min(initial=-1) >= -1
        assert answer[-1].max(initial=0) < 300


# Input


def test_wrong_input_is_refused() -> None:
    codes = make("random", 1, 40, 20, seed=0)[1]
    tables = 20, *build_tables(codes, 20, 2)
    margins = np.zeros((40, 20))
    with pytest.raises(InputError, match="n_tables must be from 1 to 20, got 21"):
        build_tables(codes, 20, 21)
    with pytest.raises(InputError, match="n_tables must be from 3 to 64, got 2"):
        build_tables(np.zeros((1, 8), np.uint8), 64, 2)
    with pytest.raises(InputError, match="zero padding bits"):
        build_tables(np.full((1, 3), 255, np.uint8), 20, 2)
    with pytest.raises(InputError, match="queries of 20 bits must have 4 zero padding bits"):
        multi_top_k(np.full((1, 3), 255, np.uint8), codes, *tables, None, 1)
    with pytest.raises(InputError, match="queries are 2 bytes wide but codes are 3"):
        multi_within(codes[:, :2], codes, *tables, None, 1)
    for allowed in (np.ones(39, bool), np.ones(40, np.uint8), np.ones((40, 1), bool)):
        with pytest.raises(InputError, match=r"allowed must be bool of shape \(40,\)"):
            multi_top_k(codes, codes, *tables, allowed, 1)
    with pytest.raises(InputError, match="k must be"):
        multi_top_k(codes, codes, *tables, None, 0)
    with pytest.raises(InputError, match="radius must be"):
        multi_within(codes, codes, *tables, None, -1)
    for n_probes in (0, 2**20 + 1):
        with pytest.raises(InputError, match="n_probes must be from 1 to 1048576"):
            multi_probe(codes, margins, codes, *tables, None, n_probes, 1)
    with pytest.raises(InputError, match=r"margins must be real numbers of shape \(40, 20\)"):
        multi_probe(codes, margins[:, :19], codes, *tables, None, 1, 1)
    for wrong in (np.nan, np.inf, 1e39):
        margins[3, 4] = wrong
        with pytest.raises(InputError, match="in row 3, column 4"):
            multi_probe(codes, margins, codes, *tables, None, 1, 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.parametrize("name", ["top_k", "within", "probe", "build"])
def test_what_a_signal_raises_comes_out_of_the_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_tables, "_PATIENCE", math.inf)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (200_000, 8), dtype=np.uint8)
    tables = 64, *build_tables(codes, 64, 4), None
    longer = np.concatenate([codes] * 20)
    long_calls: dict[str, Callable[[], object]] = {
        "top_k": lambda: multi_top_k(codes, codes, *tables, 10, n_threads=2),
        "within": lambda: multi_within(codes, codes, *tables, 14, n_threads=2),
        "probe": lambda: multi_probe(
            codes, np.ones((len(codes), 64)), codes, *tables, 1000, 10, n_threads=2
        ),
        "build": lambda: build_tables(longer, 64, 64, n_threads=2),
    }

    def out(*_: object) -> None:
        raise TimeoutError("the bell rang")

    before = signal.signal(signal.SIGALRM, out)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError, match="the bell rang"):
            long_calls[name]()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
