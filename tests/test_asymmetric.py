"""Asymmetric ranking and tables of any kind, against plain loops."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest
from hamming_cases import THREADS, same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from densehash import LSH, asymmetric, hamming, metrics
from densehash.bits import pack, unpack
from densehash.errors import InputError

Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def distances_by_definition(margins: Floats, codes: Codes) -> Floats:
    bits = unpack(codes, margins.shape[1])
    differ = (margins[:, np.newaxis] >= 0) != bits
    found: Floats = np.where(differ, np.abs(margins)[:, np.newaxis], 0.0).sum(axis=2)
    return found


def counts_by_definition(
    tables: NDArray[Any], codes: Codes, n_levels: int, positions: list[Any] | None = None
) -> Ints:
    found = np.zeros((len(tables), n_levels), np.int64)
    for query, table in enumerate(tables.astype(np.int64)):
        some = codes if positions is None else codes[np.asarray(positions[query], dtype=int)]
        sums = table[np.arange(codes.shape[1]), some].sum(axis=1)
        found[query] = np.bincount(sums, minlength=n_levels)
    return found


def random_tables(rng: np.random.Generator, q: int, width: int, n_levels: int) -> NDArray[np.int64]:
    """Some of whose sums are the largest there may be."""
    tables = rng.integers(0, max(1, n_levels // width), (q, width, 256))
    tables[:, 0] += rng.integers(0, n_levels - tables.max(axis=2).sum(axis=1))[:, None]
    tables[:, 0, 255] += n_levels - 1 - tables.max(axis=2).sum(axis=1)
    return tables


def random_codes(rng: np.random.Generator, n: int, width: int) -> Codes:
    codes = rng.integers(0, 256, (n, width), dtype=np.uint8)
    codes[::5] = 255
    return codes


# Sums of tables

QUERIES, N_CODES = (1, 3, 4, 5, 8, 33), (1, 7, 1023, 1024, 1025, 5000)
WIDTHS = (*range(1, 18), 23, 24, 25, 32, 65, 512)


@given(
    st.sampled_from(QUERIES),
    st.sampled_from(N_CODES),
    st.sampled_from(WIDTHS),
    st.sampled_from([1, 2, 1000, 4096, 65536]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=60)
def test_sums_of_integers(q: int, n: int, width: int, n_levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = random_tables(rng, q, width, n_levels)
    codes = random_codes(rng, n, width)
    positions = [rng.integers(0, n, rng.integers(0, 50)) for _ in range(q)]
    expected = counts_by_definition(tables, codes, n_levels)
    expected_relevant = counts_by_definition(tables, codes, n_levels, positions)
    for n_threads in THREADS:
        how: dict[str, Any] = {"n_levels": n_levels, "n_threads": n_threads}
        assert same(asymmetric.table_histogram(tables, codes, **how), expected)
        both = asymmetric.table_histogram(tables, codes, positions, **how)
        assert same(both, (expected, expected_relevant))


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_counts_its_last_byte(width: int) -> None:
    tables = np.zeros((5, width, 256), np.uint16)
    tables[:, -1] = np.arange(256) + np.arange(5)[:, np.newaxis]
    codes = np.random.default_rng(width).integers(0, 256, (1100, width), dtype=np.uint8)
    found = asymmetric.table_histogram(tables, codes, n_levels=512)
    assert same(found, counts_by_definition(tables, codes, 512))


def test_neighbouring_sums_do_not_spill() -> None:
    """Four sums share a word: each may be 65535, next to others that are 0."""
    tables = np.zeros((4, 2, 256), np.int32)
    tables[[0, 2], 0, 1] = 65535
    codes = np.array([[1, 0], [0, 0], [1, 9]], np.uint8)
    found = asymmetric.table_histogram(tables, codes, n_levels=65536)
    np.testing.assert_array_equal(found[:, [0, 65535]], [[1, 2], [3, 0], [1, 2], [3, 0]])


def test_a_few_queries_share_all_threads() -> None:
    rng = np.random.default_rng(3)
    codes = random_codes(rng, 300_001, 8)  # enough for several threads to be started
    tables = random_tables(rng, 6, 8, 4096)
    positions = rng.integers(0, len(codes), (6, 70_000))
    expected = (
        counts_by_definition(tables, codes, 4096),
        counts_by_definition(tables, codes, 4096, list(positions)),
    )
    for n_threads in (1, 2, 5):
        found = asymmetric.table_histogram(tables, codes, positions, n_threads=n_threads)
        assert same(found, expected)


def test_floats_keep_their_order_and_lose_their_offsets() -> None:
    rng = np.random.default_rng(4)
    tables = rng.random((7, 3, 256))
    codes = random_codes(rng, 500, 3)
    found = asymmetric.table_histogram(tables, codes)
    # Another offset for each byte, another scale for each query: the same levels.
    moved = tables * 2.0 ** np.arange(-3, 4)[:, None, None] + np.array([-64.0, 0, 16])[:, None]
    ends = np.abs(np.cumsum(asymmetric.table_histogram(moved, codes) - found, axis=1)).max()
    assert ends <= 2  # what a rounding moves over an edge
    exact = tables[:, np.arange(3), codes].sum(axis=2)
    low, high = tables.min(axis=2).sum(axis=1), tables.max(axis=2).sum(axis=1)
    check_levels(found, (exact - low[:, None]) / (high - low)[:, None], 3)


@pytest.mark.parametrize("value", [0.0, -3.5, 1e308, 5e-324])
def test_tables_of_one_value_put_all_codes_in_level_nought(value: float) -> None:
    found = asymmetric.table_histogram(np.full((2, 2, 256), value), np.zeros((5, 2), np.uint8))
    np.testing.assert_array_equal(found[:, 0], [5, 5])


def test_tables_as_large_as_floats_get() -> None:
    tables = np.zeros((1, 2, 256))
    tables[0, :, 1], tables[0, :, 2] = 1.7e308, -1.7e308
    codes = np.array([[1, 1], [2, 2], [0, 0], [1, 2]], np.uint8)
    found = asymmetric.table_histogram(tables, codes, n_levels=5)
    np.testing.assert_array_equal(found, [[1, 0, 2, 0, 1]])


# Margins


def check_levels(counts: Ints, shares: Floats, n_terms: int) -> None:
    """Levels are of one width, up to what rounding of the terms of a sum can do.

    shares (q, n) : the distances, as shares of the largest that could be
    """
    n_levels = counts.shape[1]
    width = 1  # of a level, in units of the rounded sums
    while 2 * width * n_levels <= 65536:
        width *= 2
    ends = width * np.arange(1, n_levels + 1)
    for row, share in zip(np.cumsum(counts, axis=1), shares, strict=True):
        sums = np.sort(share) * (width * n_levels - 1 - n_terms / 2)
        assert (row >= np.searchsorted(sums + n_terms / 2 + 0.01, ends)).all()
        assert (row <= np.searchsorted(sums - n_terms / 2 - 0.01, ends)).all()


@given(
    st.integers(0, 6),
    st.integers(0, 60),
    st.integers(1, 70),
    st.sampled_from([1, 3, 256, 4096, 65536]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=60)
def test_histograms_of_margins(q: int, n: int, n_bits: int, n_levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(q, n_bits)) * 10.0 ** rng.integers(-300, 300, (q, 1))
    margins[rng.random(margins.shape) < 0.1] = -0.0
    codes = pack(rng.random((n, n_bits)) < 0.5)
    exact = distances_by_definition(margins, codes)
    most = np.abs(margins).sum(axis=1, keepdims=True)
    counts = asymmetric.histogram(margins, codes, n_levels=n_levels)
    assert counts.dtype == np.int64
    assert counts.shape == (q, n_levels)
    check_levels(counts, exact / np.where(most > 0, most, 1), n_bits)
    np.testing.assert_array_equal(counts.sum(axis=1), n)
    for n_threads in THREADS:
        again = asymmetric.histogram(margins, codes, n_levels=n_levels, n_threads=n_threads)
        assert same(again, counts)


@given(st.integers(0, 5), st.integers(0, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_distances(q: int, n: int, n_bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(q, n_bits))
    codes = pack(rng.random((n, n_bits)) < 0.5)
    found = asymmetric.distances(margins, codes)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, distances_by_definition(margins, codes), rtol=1e-6)
    tables = asymmetric.tables(margins)
    sums = tables[:, np.arange(codes.shape[1]), codes].sum(axis=2)
    np.testing.assert_allclose(found, sums, rtol=1e-6)


def test_a_code_of_the_own_bits_is_at_distance_nought() -> None:
    margins = np.random.default_rng(5).normal(size=(30, 45)) * 1e-3
    codes = pack(margins >= 0)
    assert not np.diag(asymmetric.distances(margins, codes)).any()
    far = pack(margins < 0)
    np.testing.assert_allclose(
        np.diag(asymmetric.distances(margins, far)), np.abs(margins).sum(axis=1), rtol=1e-6
    )
    for margin, near, other in zip(margins, codes, far, strict=True):
        both = asymmetric.histogram(margin[np.newaxis], np.stack([near, other]), n_levels=1000)
        np.testing.assert_array_equal(np.flatnonzero(both), [0, 999])


def test_equal_margins_rank_as_hamming_does() -> None:
    rng = np.random.default_rng(6)
    bits = rng.random((9, 40)) < 0.5
    codes = pack(rng.random((400, 40)) < 0.5)
    relevant = rng.integers(0, 400, (9, 30))
    margins = np.where(bits, 0.25, -0.25)
    left = asymmetric.histogram(margins, codes, relevant)
    right = hamming.histogram(pack(bits), codes, relevant, n_bits=40)
    for found, expected in zip(left, right, strict=True):
        for row, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(row[row > 0], other[other > 0])
    relevant = np.unique(relevant[0])[np.newaxis]
    np.testing.assert_allclose(
        metrics.average_precision(*asymmetric.histogram(margins[:1], codes, relevant)),
        metrics.average_precision(*hamming.histogram(pack(bits[:1]), codes, relevant)),
    )


@pytest.mark.parametrize("n_bits", [1, 8, 12])
def test_margins_that_are_all_nought_tie_all_codes(n_bits: int) -> None:
    codes = pack(np.random.default_rng(7).random((50, n_bits)) < 0.5)
    counts = asymmetric.histogram(np.zeros((2, n_bits)), codes)
    np.testing.assert_array_equal(counts[:, 0], [50, 50])


@pytest.mark.parametrize("size", [1e308, 1e-308, 5e-324])
def test_margins_of_any_size(size: float) -> None:
    signs = np.random.default_rng(8).choice([-1.0, 1.0], (4, 20))
    codes = pack(np.random.default_rng(9).random((50, 20)) < 0.5)
    with np.errstate(over="raise", invalid="raise"):
        found = asymmetric.histogram(signs * size, codes)
        assert same(found, asymmetric.histogram(signs, codes))
        assert not np.isnan(asymmetric.distances(signs * size, codes)).any()


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    margins = rng.normal(size=(23, 20))
    codes = pack(rng.random((100, 20)) < 0.5)
    relevant = [rng.integers(0, 100, size) for size in range(23)]
    tables = asymmetric.tables(margins)
    before = asymmetric.histogram(margins, codes, relevant)
    by_tables = asymmetric.table_histogram(tables, codes, relevant)
    for block in (1, 5 * 3 * 256):
        monkeypatch.setattr(asymmetric, "_BLOCK", block)
        assert same(asymmetric.histogram(margins, codes, relevant), before)
        assert same(asymmetric.histogram(margins, codes), before[0])
        assert same(asymmetric.table_histogram(tables, codes, relevant), by_tables)


def test_it_ranks_better_than_bits_do() -> None:
    X = np.random.default_rng(11).normal(size=(3000, 16)).astype(np.float32)
    hasher = LSH(n_bits=32, random_state=0).fit(X)
    codes, asked = hasher.transform(X), X[:50]
    distances = np.square(asked[:, np.newaxis] - X).sum(axis=2)
    relevant = np.argsort(distances, axis=1)[:, :60]
    by_margins = asymmetric.histogram(hasher.project(asked), codes, relevant)
    by_bits = hamming.histogram(codes[:50], codes, relevant)
    found = metrics.mean_average_precision(*by_margins)
    assert found > 1.1 * metrics.mean_average_precision(*by_bits)


def test_nothing_to_count() -> None:
    none = np.zeros((0, 12))
    codes = np.zeros((5, 2), np.uint8)
    assert asymmetric.histogram(none, codes).shape == (0, 4096)
    assert asymmetric.distances(none, codes).shape == (0, 5)
    assert asymmetric.tables(none).shape == (0, 2, 256)
    assert asymmetric.table_histogram(np.zeros((0, 2, 256)), codes).shape == (0, 4096)
    counts, relevant_counts = asymmetric.histogram(np.ones((3, 12)), codes[:0], [[]] * 3)
    assert counts.shape == relevant_counts.shape == (3, 4096)
    assert not counts.any()
    assert asymmetric.distances(np.ones((3, 12)), codes[:0]).shape == (3, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to send")
def test_control_c_stops_a_long_call() -> None:
    script = """
        import numpy as np
        from densehash import asymmetric
        codes = np.random.default_rng(0).integers(0, 256, (4_000_000, 8), dtype=np.uint8)
        margins = np.random.default_rng(1).normal(size=(100_000, 64))
        print("calling", flush=True)
        try:
            asymmetric.histogram(margins, codes, n_levels=64, n_threads=2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "calling\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        try:
            assert child.communicate(timeout=60)[0] == "interrupted\n"
        finally:
            child.kill()
    assert child.returncode == 0


# What is refused

CODES = np.zeros((5, 2), np.uint8)


@pytest.mark.parametrize(
    ("margins", "codes", "message"),
    [
        (np.zeros(12), CODES, r"margins must have 2 dimensions \(q, n_bits\), got shape \(12,\)"),
        (np.zeros((1, 0)), CODES, "margins must have 1 to 4096 columns, got 0"),
        (np.zeros((1, 4097)), CODES, "margins must have 1 to 4096 columns, got 4097"),
        (np.zeros((1, 12), bool), CODES, "margins must be real numbers, got dtype bool"),
        (np.zeros((1, 12), complex), CODES, "margins must be real numbers, got dtype complex128"),
        ([[1.0], [1.0, 2.0]], CODES, "margins cannot be read as an array"),
        ([[1.0] * 12, [1.0] * 11 + [np.nan]], CODES, "finite, got nan in row 1, column 11"),
        ([[-np.inf] + [1.0] * 11], CODES, "finite, got -inf in row 0, column 0"),
        (np.zeros((1, 17)), CODES, "codes of 17 bits must be 3 bytes wide, got 2"),
        (np.zeros((1, 12)), CODES + 255, "4 zero padding bits"),
        (np.zeros((1, 12)), CODES.astype(int), "codes must be a uint8 array"),
    ],
)
def test_bad_margins_and_codes(margins: Any, codes: Any, message: str) -> None:
    for function in (asymmetric.histogram, asymmetric.distances):
        with pytest.raises(InputError, match=message):
            function(margins, codes)


def largest(value: int, dtype: type[np.generic] = np.int64) -> NDArray[Any]:
    tables = np.zeros((3, 2, 256), dtype)
    tables[2, :, 17] = value
    return tables


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (np.zeros((1, 2, 255)), r"shape \(q, width, 256\), got \(1, 2, 255\)"),
        (np.zeros((2, 256)), r"shape \(q, width, 256\), got \(2, 256\)"),
        (np.zeros((1, 3, 256)), "tables are for codes of 3 bytes but codes are 2 bytes wide"),
        (np.zeros((1, 2, 256), bool), "tables must be integers or floats, got dtype bool"),
        (largest(2048), "below n_levels = 4096, got up to 4096 for query 2"),
        (largest(2**63, np.uint64), f"below n_levels = 4096, got up to {2**64} for query 2"),
        (largest(2**62), f"got up to {2**63} for query 2"),
        (-largest(1), "must not be negative, got some for query 2"),
        (np.full((1, 2, 256), np.inf), "tables must be finite, got others for query 0"),
    ],
)
def test_bad_tables(tables: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        asymmetric.table_histogram(tables, CODES)


def test_a_bad_table_is_named_by_its_place_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asymmetric, "_BLOCK", 1)
    with pytest.raises(InputError, match="got up to 4096 for query 2"):
        asymmetric.table_histogram(largest(2048), CODES)
    floats = largest(1).astype(float)
    floats[1, 0, 3] = np.nan
    with pytest.raises(InputError, match="got others for query 1"):
        asymmetric.table_histogram(floats, CODES)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_levels": 0}, "n_levels must be from 1 to 65536, got 0"),
        ({"n_levels": 65537}, "n_levels must be from 1 to 65536, got 65537"),
        ({"n_levels": 4096.0}, "n_levels must be an integer"),
        ({"n_threads": 0}, "n_threads must be at least 1, got 0"),
        ({"relevant": [[0]]}, "relevant has rows for 1 queries but there are 2 queries"),
        ({"relevant": [[0], [5]]}, "got 5 for query 1"),
    ],
)
def test_bad_options(how: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        asymmetric.histogram(np.zeros((2, 12)), CODES, **how)
    with pytest.raises(InputError, match=message):
        asymmetric.table_histogram(np.zeros((2, 2, 256)), CODES, **how)
