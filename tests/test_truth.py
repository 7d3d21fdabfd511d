import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from densehash import progress, truth
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.source import Source


def below_one(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times a power of two, which changes no digit."""
    return np.asarray(np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]))


def plain_sums(queries: NDArray[Any], X: NDArray[Any], metric: MetricName) -> NDArray[np.float64]:
    """What decides, (q, n), as the module says it."""
    asked, rows = queries.astype(np.float64), X.astype(np.float64)
    if metric == "l2":
        return np.asarray(np.square(asked[:, np.newaxis] - rows).sum(axis=2))
    asked = below_one(asked)
    if metric == "cosine":
        rows = below_one(rows)
    products = (asked[:, np.newaxis] * rows).sum(axis=2)
    if metric == "ip":
        return np.asarray(-products)
    return np.asarray(-products * np.abs(products) / np.square(rows).sum(axis=1))


def nearest_by_sorting(
    queries: NDArray[Any],
    X: NDArray[Any],
    m: int,
    metric: MetricName = "l2",
    *,
    ordered: bool = False,
) -> NDArray[np.int64]:
    order = np.argsort(plain_sums(queries, X, metric), axis=1, kind="stable")[:, :m]
    return order if ordered else np.sort(order, axis=1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], int, int]:
    """Queries, rows, k and a block size; few distinct values, so that ties abound."""
    q, n, d = draw(st.integers(1, 4)), draw(st.integers(1, 20)), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.uint8, np.int64, np.bool_, np.float16, np.float32, float]))
    values: st.SearchStrategy[Any] = st.integers(0, 1 if dtype is np.bool_ else 3)
    if np.dtype(dtype).kind == "f":
        # A tenth is no binary fraction; 1e7 and 1e-160 lose digits and underflow when squared.
        scale = draw(st.sampled_from([0.1] if dtype is np.float16 else [0.1, 1e7, 1e-160]))
        offset = draw(st.sampled_from([0.0, 1000.0]))
        values = values.map(lambda value: np.dtype(dtype).type(value * scale + offset))
    queries = draw(hnp.arrays(dtype, (q, d), elements=values))
    X = draw(hnp.arrays(dtype, (n, d), elements=values))
    return queries, X, draw(st.integers(1, n)), draw(st.integers(1, 30))


@given(
    cases(),
    st.sampled_from(truth.METRICS),
    st.booleans(),
    st.sampled_from([None, np.float32, np.float64]),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=200)
def test_nearest_agrees_with_a_stable_sort(
    case: tuple[NDArray[Any], NDArray[Any], int, int],
    metric: MetricName,
    ordered: bool,
    dtype: type[np.floating] | None,
    threads: int,
) -> None:
    queries, X, k, block = case
    if metric == "cosine":
        assume(queries.any(axis=1).all() and X.any(axis=1).all())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truth, "_BLOCK", block)
        patch.setattr(truth, "n_threads", lambda: threads)
        if dtype is not None:  # a type that tells nothing apart may be slow, but never wrong
            patch.setattr(truth._Search, "_float_type", lambda _: dtype)
        found = truth.nearest(queries, X, k=k, metric=metric, ordered=ordered)
    assert found.dtype == np.int64
    expected = nearest_by_sorting(queries, X, k, metric, ordered=ordered)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", truth.METRICS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32, np.float64])
def test_several_blocks(dtype: Any, metric: MetricName, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(100, 20, (3000, 17)).astype(dtype)
    X[2000:2500] = X[500:1000]  # equal rows, blocks apart
    expected = nearest_by_sorting(X[:9], X, 300, metric, ordered=True)
    for block in (2**9, 2**12, 2**21):
        monkeypatch.setattr(truth, "_BLOCK", block)
        monkeypatch.setattr(truth, "_ROOM", block // 8)
        found = truth.nearest(X[:9], X, fraction=0.1, metric=metric, ordered=True)
        np.testing.assert_array_equal(found, expected)
        found = truth.nearest(X[:9], X, fraction=0.1, metric=metric)
        np.testing.assert_array_equal(found, np.sort(expected, axis=1))


def test_the_same_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 300)
    monkeypatch.setattr(truth, "_CHUNK", 1000)
    monkeypatch.setattr(truth, "_ROOM", 0)
    X = np.random.default_rng(4).normal(size=(2000, 3)).astype(np.float32)
    X[::3] = X[0]
    for metric in truth.METRICS:
        expected = nearest_by_sorting(X[:23], X, 700, metric)
        for threads in (1, 2, 7):
            monkeypatch.setattr(truth, "n_threads", lambda n=threads: n)
            found = truth.nearest(X[:23], X, k=700, metric=metric)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", truth.METRICS)
def test_more_ties_than_there_is_room_for(
    metric: MetricName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 3 * 100)
    monkeypatch.setattr(truth, "_ROOM", 0)
    X = np.full((1000, 3), 0.3)
    X[::10] = [[0.3, 0.3, 0.2]]
    for queries in (X[:2], np.zeros((1, 3))):
        if metric != "cosine" or queries.any():
            expected = nearest_by_sorting(queries, X, 150, metric, ordered=True)
            found = truth.nearest(queries, X, k=150, metric=metric, ordered=True)
            np.testing.assert_array_equal(found, expected)


def test_whole_numbers_are_not_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 100)
    monkeypatch.setattr(truth, "_ROOM", 0)
    monkeypatch.setattr(truth, "_plain", None)  # not to be called
    X = np.random.default_rng(5).integers(0, 3, (2000, 5), dtype=np.uint8)
    for metric in ("l2", "ip"):
        for ordered in (False, True):
            found = truth.nearest(X[:9], X, k=100, metric=metric, ordered=ordered)
            expected = nearest_by_sorting(X[:9], X, 100, metric, ordered=ordered)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 2900, 2**20])
def test_whole_numbers_up_to_where_floats_round(size: int) -> None:
    """Sums below, around and far beyond what float32 counts by ones."""
    rng = np.random.default_rng(6)
    X = rng.integers(0, 2, (500, 2)) + size
    for metric in ("l2", "ip"):
        expected = [
            sorted(range(500), key=lambda at, row=row: exact_sum(row, X[at], metric))[:40]  # type: ignore[misc]
            for row in X[:5]
        ]
        found = truth.nearest(X[:5], X, k=40, metric=metric, ordered=True)
        np.testing.assert_array_equal(found, expected)


def exact_sum(query: NDArray[np.int64], row: NDArray[np.int64], metric: MetricName) -> Fraction:
    pairs = list(zip(query.tolist(), row.tolist(), strict=True))
    if metric == "l2":
        return Fraction(sum((a - b) ** 2 for a, b in pairs))
    product = sum(a * b for a, b in pairs)
    if metric == "ip":
        return Fraction(-product)
    return Fraction(-product * abs(product), sum(b * b for _, b in pairs))


def test_cosines_of_small_integers_tie_exactly() -> None:
    rng = np.random.default_rng(7)
    X = rng.integers(-3, 4, (300, 2))
    X = X[X.any(axis=1)]
    X = np.concatenate([X * factor for factor in (3, 1, 7, 5, 30)]).astype(np.int8)  # same angles
    found = truth.nearest(X[:9], X, k=200, metric="cosine", ordered=True)
    for query, row in zip(X[:9], found, strict=True):
        expected = sorted(range(len(X)), key=lambda at: exact_sum(query, X[at], "cosine"))
        assert row.tolist() == expected[:200]


def test_lengths_do_not_matter_to_cosines() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 5))
    expected = truth.nearest(X[:7], X, k=30, metric="cosine", ordered=True)
    lengths = 2.0 ** rng.integers(-480, 480, (400, 1))
    found = truth.nearest(X[:7] * lengths[7:14], X * lengths, k=30, metric="cosine", ordered=True)
    np.testing.assert_array_equal(found, expected)
    scaled = truth.nearest(X[:7] * 1e-310, X * 1e-310, k=1, metric="cosine")
    np.testing.assert_array_equal(scaled.ravel(), np.arange(7))  # though digits were lost


def test_lengths_of_queries_do_not_matter_to_products() -> None:
    X = np.random.default_rng(9).normal(size=(400, 5))
    lengths = 2.0 ** np.arange(-450, 450, 100)[:, np.newaxis]
    expected = truth.nearest(X[:9], X, k=30, metric="ip", ordered=True)
    found = truth.nearest(X[:9] * lengths, X, k=30, metric="ip", ordered=True)
    np.testing.assert_array_equal(found, expected)
    assert nearest_by_sorting(X[:9], X, 30, "ip", ordered=True).tolist() == expected.tolist()


def test_far_from_the_origin_the_differences_decide() -> None:
    X = 1e8 + np.random.default_rng(1).normal(size=(500, 3))
    lengths = np.square(X).sum(axis=1)
    products = lengths[:5, np.newaxis] - 2 * X[:5] @ X.T + lengths
    order = np.argsort(products, axis=1, kind="stable")[:, :20]
    expected = nearest_by_sorting(X[:5], X, 20)
    assert not np.array_equal(np.sort(order, axis=1), expected), "products alone would do"
    np.testing.assert_array_equal(truth.nearest(X[:5], X, k=20), expected)


@pytest.mark.parametrize("metric", truth.METRICS)
@pytest.mark.parametrize("size", [1e10, 1e17, 1e25, 1e140])
def test_outliers_hide_nobody(
    metric: MetricName, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_ROOM", 0)
    monkeypatch.setattr(truth, "_BLOCK", 200)
    X = np.random.default_rng(2).normal(size=(2000, 4))
    X[7] = size
    X[1000:1100] *= size
    for queries in (X[:9], X[20:29]):  # with an outlier among them, and without
        expected = nearest_by_sorting(queries, X, 50, metric, ordered=True)
        found = truth.nearest(queries, X, k=50, metric=metric, ordered=True)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", truth.METRICS)
@pytest.mark.parametrize("size", [1e-18, 1e-25, 1e-44, 1e-158, 1e-310])
def test_squares_that_vanish(
    size: float, metric: MetricName, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth._Search, "_float_type", lambda _: dtype)
    X = np.random.default_rng(12).normal(size=(200, 3)) * size
    expected = nearest_by_sorting(X[:9], X, 20, metric, ordered=True)
    found = truth.nearest(X[:9], X, k=20, metric=metric, ordered=True)
    np.testing.assert_array_equal(found, expected)


def test_sums_that_differ_by_rounding_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(13)
    X = rng.permuted(np.tile(rng.random(40), (300, 1)), axis=1)  # equally long, but for rounding
    expected = nearest_by_sorting(np.zeros((1, 40)), X, 100, ordered=True)
    assert (np.diff(expected) < 0).any(), "all equal"
    for block in (40, 40 * 64, 40 * 300):
        monkeypatch.setattr(truth, "_BLOCK", block)
        monkeypatch.setattr(truth, "_ROOM", 0)
        for same in (X, np.asfortranarray(X), X[:, ::-1].copy()[:, ::-1]):
            found = truth.nearest(np.zeros((1, 40)), same, k=100, ordered=True)
            np.testing.assert_array_equal(found, expected)


def test_equal_rows_go_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 64)
    X = np.full((100, 3), 0.1)
    np.testing.assert_array_equal(truth.nearest(X[:2], X, k=30), [np.arange(30)] * 2)


@pytest.mark.parametrize(
    ("fraction", "m"), [(1e-9, 1), (0.02, 2), (np.float32(0.5), 50), (1.0, 100), (1, 100)]
)
def test_fractions(fraction: Any, m: int) -> None:
    X = np.arange(100)[:, np.newaxis]
    np.testing.assert_array_equal(truth.nearest([[-1]], X, fraction=fraction), [np.arange(m)])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_memory_maps_and_any_order(dtype: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(3).integers(0, 256, (300, 8)).astype(dtype)
    if dtype is np.float32:
        X *= dtype(0.1)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = nearest_by_sorting(X[:4], X, 30)
    for same in (mapped, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X.tolist()):
        found = truth.nearest(same[:4], same, k=30)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)


def test_memory_stays_bounded() -> None:
    X = np.repeat(np.arange(60_000, dtype=np.float32)[:, np.newaxis], 4, axis=1)
    queries = X[:1200]
    tracemalloc.start()
    truth.nearest(queries, X, k=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20 < queries.shape[0] * X.shape[0]  # a byte a pair would be more


class Rows(Source):
    """Rows of an array, read as a file would be, and nothing else."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.shape = array.shape[0], array.shape[1]
        self.dtype = array.dtype
        self.n_read = 0

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        if isinstance(rows, slice):
            assert rows.step in (None, 1)
        else:
            assert rows.dtype.kind == "i"
            assert (np.diff(rows) > 0).all()
        found = self.array[rows]
        self.n_read += len(found)
        return found


@pytest.mark.parametrize("metric", truth.METRICS)
@pytest.mark.parametrize("ordered", [False, True])
def test_sources(metric: MetricName, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 500)
    monkeypatch.setattr(truth, "_ROOM", 0)
    X = np.random.default_rng(10).normal(size=(2000, 5)).astype(np.float32)
    X[500:900] = X[0]
    source = Rows(X)
    expected = nearest_by_sorting(X[:9], X, 120, metric, ordered=ordered)
    found = truth.nearest(Rows(X[:9]), source, k=120, metric=metric, ordered=ordered)
    np.testing.assert_array_equal(found, expected)
    found = truth.nearest(X[:9], np.array(X.tolist()), k=120, metric=metric, ordered=ordered)
    np.testing.assert_array_equal(found, expected)


def test_a_source_is_read_about_once() -> None:
    X = np.random.default_rng(11).integers(0, 256, (200_000, 32), dtype=np.uint8)
    source = Rows(X)
    truth.nearest(X[:3], source, fraction=0.01)
    assert source.n_read < 1.5 * len(X)  # the first block twice


def test_a_bar_is_shown_if_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(truth, "_BLOCK", 50)
    X = np.arange(100.0)[:, np.newaxis]
    truth.nearest(X[:1], X, k=1)
    assert capsys.readouterr().err == ""
    truth.nearest(X[:1], X, k=1, verbose=True)
    shown = capsys.readouterr()
    assert "finding neighbours" in shown.err
    assert "100%" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("queries", "X", "message"),
    [
        ([[1, 2]], [[1, 2, 3]], "queries have 2 features but X has 3"),
        ([1, 2], [[1, 2]], r"queries must have 2 dimensions .*, got shape \(2,\)"),
        ([[1]], np.zeros((1, 1, 1)), r"X must have 2 dimensions .*, got shape \(1, 1, 1\)"),
        (np.zeros((1, 0)), np.zeros((1, 0)), "X is empty: 0 feature"),
        ([[1]], np.zeros((0, 1)), "X is empty: 0 sample"),
        (np.zeros((0, 1)), [[1]], "queries is empty: 0 sample"),
        ([[1j]], [[1]], "queries cannot be used"),
        ([[1]], [["a"]], "X (cannot be used|must be numbers)"),
        ([[1], [1, 2]], [[1]], "queries must be vectors of one length"),
        ([[0], [np.nan]], [[1]], "queries must hold finite rows .*, got length nan in row 1"),
        ([[1]], [[1], [2], [-np.inf]], "X must hold finite rows .*, got length inf in row 2"),
        ([[1]], [[1], [1e150]], r"X .* shorter than 1e\+150, got length 1e\+150 in row 1"),
        ([[1]], [[1], [1e300]], "X must hold finite rows .*, got length inf in row 1"),
    ],
)
def test_bad_rows(queries: Any, X: Any, message: str) -> None:
    for metric in truth.METRICS:
        with pytest.raises(InputError, match=message):
            truth.nearest(queries, X, k=1, metric=metric)


def test_cosines_of_zero_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 10)
    X = np.ones((50, 2))
    zero = X.copy()
    zero[[33, 40]] = 0
    for metric in ("l2", "ip"):
        assert truth.nearest(zero, zero, k=1, metric=metric).shape == (50, 1)
    with pytest.raises(InputError, match="X must hold no zero rows for the cosine, .* in row 33$"):
        truth.nearest(X, zero, k=1, metric="cosine")
    with pytest.raises(InputError, match="queries must hold no zero rows .* in row 33$"):
        truth.nearest(zero, X, k=1, metric="cosine")


@pytest.mark.parametrize("metric", ["L2", "euclidean", None, 2])
def test_bad_metrics(metric: Any) -> None:
    with pytest.raises(InputError, match="metric must be 'l2' or 'cosine' or 'ip', got"):
        truth.nearest([[1]], [[1]], k=1, metric=metric)


def test_a_bad_row_is_named_by_its_place_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_BLOCK", 4)
    X = np.zeros((50, 2), np.float32)
    X[[33, 40], 1] = np.nan
    with pytest.raises(InputError, match="in row 33$"):
        truth.nearest(X[:1], X, k=1)


@pytest.mark.parametrize(
    ("how_many", "message"),
    [
        ({}, "give one of fraction and k, got fraction=None and k=None"),
        ({"fraction": 0.1, "k": 1}, "give one of fraction and k, got fraction=0.1 and k=1"),
        ({"k": 0}, "k must be from 1 to 3, got 0"),
        ({"k": 4}, "k must be from 1 to 3, got 4"),
        ({"k": 1.0}, "k must be an integer from 1 to 3, got 1.0 of type float"),
        ({"fraction": 0}, "fraction must be a number above 0 and at most 1, got 0"),
        ({"fraction": -0.1}, "fraction must be .*, got -0.1"),
        ({"fraction": 1.01}, "fraction must be .*, got 1.01"),
        ({"fraction": np.nan}, "fraction must be .*, got nan"),
        ({"fraction": True}, "fraction must be .*, got True"),
        ({"fraction": "2%"}, "fraction must be .*, got '2%'"),
    ],
)
def test_bad_numbers_of_neighbours(how_many: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        truth.nearest([[1]], [[1], [2], [3]], **how_many)
