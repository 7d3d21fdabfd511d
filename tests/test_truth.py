import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from densehash import truth
from densehash.errors import InputError


def nearest_by_sorting(queries: NDArray[Any], X: NDArray[Any], m: int) -> NDArray[np.int64]:
    differences = queries.astype(np.float64)[:, np.newaxis] - X.astype(np.float64)
    order = np.argsort(np.square(differences).sum(axis=2), axis=1, kind="stable")
    return np.sort(order[:, :m], axis=1)


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


@given(cases())
def test_nearest_agrees_with_a_stable_sort(
    case: tuple[NDArray[Any], NDArray[Any], int, int],
) -> None:
    queries, X, k, block = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truth, "_BLOCK", block)
        found = truth.nearest(queries, X, k=k)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, nearest_by_sorting(queries, X, k))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32, np.float64])
def test_several_blocks(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(100, 20, (3000, 17)).astype(dtype)
    X[2000:2500] = X[500:1000]  # equal rows, blocks apart
    expected = nearest_by_sorting(X[:9], X, 300)
    for block in (2**9, 2**12, 2**21):
        monkeypatch.setattr(truth, "_BLOCK", block)
        np.testing.assert_array_equal(truth.nearest(X[:9], X, fraction=0.1), expected)


def test_far_from_the_origin_the_differences_decide() -> None:
    X = 1e8 + np.random.default_rng(1).normal(size=(500, 3))
    lengths = np.square(X).sum(axis=1)
    products = lengths[:5, np.newaxis] - 2 * X[:5] @ X.T + lengths
    order = np.argsort(products, axis=1, kind="stable")[:, :20]
    expected = nearest_by_sorting(X[:5], X, 20)
    assert not np.array_equal(np.sort(order, axis=1), expected), "products alone would do"
    np.testing.assert_array_equal(truth.nearest(X[:5], X, k=20), expected)


def test_an_outlier_hides_nobody() -> None:
    X = np.random.default_rng(2).normal(size=(200, 4))
    X[7] = 1e140
    np.testing.assert_array_equal(truth.nearest(X[:9], X, k=5), nearest_by_sorting(X[:9], X, 5))


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


def test_memory_maps_and_any_order(tmp_path: Path) -> None:
    X = np.random.default_rng(3).integers(0, 256, (300, 8), dtype=np.uint8)
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
        ([[1], [1, 2]], [[1]], "queries cannot be used"),
        ([[0], [np.nan]], [[1]], "queries must hold finite rows .*, got length nan in row 1"),
        ([[1]], [[1], [2], [-np.inf]], "X must hold finite rows .*, got length inf in row 2"),
        ([[1]], [[1], [1e150]], r"X .* shorter than 1e\+150, got length 1e\+150 in row 1"),
        ([[1]], [[1], [1e300]], "X must hold finite rows .*, got length inf in row 1"),
    ],
)
def test_bad_rows(queries: Any, X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        truth.nearest(queries, X, k=1)


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
