"""Dask arrays and data frames: the bytes of a local fit, lazy codes, errors that name rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hasher_cases import MAKERS, Make, every_hasher, fitted, learnt, mixture
from numpy.random import RandomState
from numpy.typing import NDArray
from row_cases import InChunks

from densehash.errors import InputError
from densehash.hashers import DSH, LSH, PCAH
from densehash.index import Index
from densehash.rows import Rows, is_dask, local, rows_of, tree_reduce
from densehash.truth import nearest

dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")


@pytest.fixture(autouse=True)
def _scheduler() -> Any:
    """Threads of this process; tests/test_cluster.py has workers."""
    with dask.config.set(scheduler="threads"):
        yield


# --- the same bytes -----------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize(
    ("dtype", "rows_a_chunk"), [(np.float32, 256), (np.float64, 1024), (np.uint8, 4096)]
)
@pytest.mark.usefixtures("small_blocks")
def test_a_fit_has_the_bytes_of_the_fit_in_memory(
    make: Make, dtype: Any, rows_a_chunk: int
) -> None:
    X = (mixture() * 10 + 100).astype(dtype)
    spread = da.from_array(X, chunks=(rows_a_chunk, 24))
    assert learnt(make().fit(spread)) == learnt(make().fit(X))


@every_hasher
@pytest.mark.parametrize(
    ("chunks", "columns"),  # columns that are cut are put together
    [((1000, 1, 1999), 24), ((7, 2993), 10), ((500, 0, 500, 2000), 24)],
)
@pytest.mark.usefixtures("small_blocks")
def test_any_chunks_have_the_bytes_of_the_same_parts_here(
    make: Make, chunks: Any, columns: int
) -> None:
    X = mixture()
    here = make().fit(InChunks(X, chunks))
    assert learnt(make().fit(da.from_array(X, chunks=(chunks, columns)))) == learnt(here)


@every_hasher
def test_codes_and_margins_are_lazy_and_the_same(make: Make) -> None:
    X, hasher = mixture(), fitted(make)
    spread = da.from_array(X, chunks=(1024, 24))
    codes, margins = hasher.transform(spread), hasher.project(spread)
    assert is_dask(codes)
    assert (codes.shape, codes.dtype, codes.chunks[0]) == ((3000, 2), np.uint8, (1024, 1024, 952))
    assert (margins.shape, margins.dtype) == ((3000, 12), np.float32)
    np.testing.assert_array_equal(codes.compute(), hasher.transform(X))
    np.testing.assert_array_equal(margins.compute(), hasher.project(X))
    np.testing.assert_array_equal(codes[1020:1030].compute(), hasher.transform(X)[1020:1030])


def test_nothing_is_computed_before_it_must_be() -> None:
    def explode(block: NDArray[Any]) -> NDArray[Any]:
        raise RuntimeError("computed")

    hasher = fitted(MAKERS["LSH"])
    spread = da.ones((100, 24), chunks=(10, 24)).map_blocks(
        explode, dtype=np.float64, meta=np.empty((0, 0))
    )
    codes = hasher.transform(spread)
    with pytest.raises(RuntimeError, match="computed"):
        codes.compute()


def test_samples_and_sums_are_those_of_the_array() -> None:
    X = mixture()
    spread = rows_of(da.from_array(X, chunks=((900, 0, 2100), 24)))
    here = Rows(X)
    for m in (1, 50, 3000):
        np.testing.assert_array_equal(
            spread.sample(m, RandomState(3)), here.sample(m, RandomState(3))
        )
    kept = spread.sample(700, RandomState(3), lambda block: block[:, :2])
    np.testing.assert_array_equal(kept, here.sample(700, RandomState(3))[:, :2])
    assert (spread.n_rows, spread.n_features, spread.needs_float64()) == (3000, 24, False)


def test_answers_are_not_changed_twice() -> None:
    """A combine that changes its first argument is safe where a task is run again."""
    answers: list[NDArray[Any]] = []

    def keep(block: NDArray[Any], start: int) -> NDArray[Any]:
        answers.append(block.sum(axis=0))
        return answers[-1]

    def add(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
        one += two
        return one

    rows_of(da.ones((100, 2), chunks=(10, 2))).map_reduce(keep, add)
    assert [answer.tolist() for answer in answers] == [[10.0, 10.0]] * 10


# --- unknown lengths and data frames --------------------------------------------------------


def test_unknown_chunk_sizes() -> None:
    X = mixture()
    spread = da.from_array(X, chunks=(1000, 24))
    some = spread[spread[:, 0] > 0]
    assert np.isnan(some.shape[0])
    chosen = X[X[:, 0] > 0]
    lengths = [int((X[at : at + 1000, 0] > 0).sum()) for at in (0, 1000, 2000)]
    hasher = DSH(12, random_state=0).fit(some)
    assert learnt(hasher) == learnt(DSH(12, random_state=0).fit(InChunks(chosen, tuple(lengths))))
    assert np.isnan(some.shape[0])  # the caller's array is left as it was
    np.testing.assert_array_equal(hasher.transform(some).compute(), hasher.transform(chosen))


def test_data_frames_of_numbers_and_columns_of_vectors() -> None:
    pandas = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    X = mixture()
    numbers = dd.from_pandas(pandas.DataFrame(X).add_prefix("x"), npartitions=3)
    frame = pandas.DataFrame({"id": np.arange(len(X)), "embedding": list(X)})
    parts = InChunks(X, tuple(len(part) for part in np.array_split(X, 3)))
    expected = DSH(12, random_state=0).fit(parts)
    with dask.config.set({"dataframe.convert-string": False}):
        vectors = dd.from_pandas(frame, npartitions=3)["embedding"]
        for spread in (numbers, vectors):
            hasher = DSH(12, random_state=0).fit(spread)
            assert learnt(hasher) == learnt(expected)
            codes = hasher.transform(spread).compute()
            np.testing.assert_array_equal(codes, expected.transform(X))
    texts = dd.from_pandas(pandas.DataFrame({"a": ["1.0, 2.0", "x"]}), npartitions=1)["a"]
    with pytest.raises(InputError, match="must hold vectors, got text: .*convert-string"):
        DSH(12).fit(texts)
    with pytest.raises(InputError, match="must have columns of real numbers"):
        DSH(12).fit(dd.from_pandas(pandas.DataFrame({"a": ["x", "y"]}), npartitions=1))
    with pytest.raises(InputError, match="must be a column of vectors"):
        DSH(12).fit(numbers["x0"])


# --- bad input ----------------------------------------------------------------------------


def chunked(*blocks: NDArray[Any], d: int = 4, dtype: Any = np.float64) -> Any:
    """An array that says one thing, and whose chunks are what they are."""
    delayed = [dask.delayed(block) for block in blocks]
    return da.concatenate(
        [
            da.from_delayed(one, (len(block), d), dtype)
            for one, block in zip(delayed, blocks, strict=True)
        ]
    )


def test_nan_in_the_37th_chunk_names_the_row() -> None:
    X = np.random.default_rng(0).standard_normal((1000, 4))
    X[733, 2] = np.nan
    spread = da.from_array(X, chunks=(20, 4))  # row 733 is the 13th of chunk 36
    with pytest.raises(InputError, match=r"got NaN in row 733, column 2"):
        DSH(8, random_state=0).fit(spread)
    hasher = LSH(8, random_state=0).fit(X[:700])
    with pytest.raises(InputError, match=r"got NaN in row 733, column 2"):
        hasher.transform(spread).compute()


def test_chunks_that_are_not_what_they_should_be() -> None:
    good = np.ones((5, 4)) * np.arange(5.0)[:, np.newaxis]
    cases: list[tuple[NDArray[Any], str]] = [
        (np.ones((5, 3)), "chunk 1 of X, which begins at row 5, must have 4 features, got 3 feat"),
        (np.ones((5, 4), np.float32), "chunk 1 .* must be float64, got float32"),
        (np.ones(5), r"chunk 1 .* must have 4 features, got shape \(5,\)"),
        (np.full((5, 4), "x"), "chunk 1 .* must hold real numbers, got <U1"),
    ]
    for bad, message in cases:
        with pytest.raises(InputError, match=message):
            PCAH(2).fit(chunked(good, bad))
    short = da.concatenate(
        [da.from_delayed(dask.delayed(good), (5, 4), float) for _ in range(2)]
        + [da.from_delayed(dask.delayed(good), (6, 4), float)]
    )
    with pytest.raises(InputError, match="chunk 2 .* must have 6 rows, got 5"):
        DSH(2).fit(short)


def test_empty_and_flat_arrays() -> None:
    with pytest.raises(InputError, match="X is empty"):
        LSH(8).fit(da.ones((0, 4)))
    with pytest.raises(InputError, match=r"must have 2 dimensions"):
        LSH(8).fit(da.ones(5))
    with pytest.raises(InputError, match="must hold real numbers, got complex128"):
        LSH(8).fit(da.ones((5, 4), dtype=complex))
    empty = da.ones((40, 4), chunks=(10, 4))
    with pytest.raises(InputError, match="X is empty"):
        LSH(8).fit(empty[empty[:, 0] > 5])
    with pytest.raises(InputError, match="4 features, but LSH is expecting 24"):
        fitted(MAKERS["LSH"]).transform(da.ones((5, 4)).rechunk((2, 4))[:, :4]).compute()
    with pytest.raises(InputError, match="out must be None"):
        fitted(MAKERS["LSH"]).transform(da.ones((5, 24)), out=np.empty((5, 2), np.uint8))


def test_what_would_compute_everything_here_is_refused() -> None:
    """Numpy makes an array of any collection, in the memory of this process."""
    spread = da.ones((50, 4), chunks=(10, 4))
    for call in (Index.build, lambda X: nearest(np.ones((1, 4)), X, k=1)):
        with pytest.raises(InputError, match=r"is a collection of Dask: .*ShardedIndex"):
            call(spread)


def test_an_error_leaves_the_hasher_as_it_was() -> None:
    hasher = LSH(8, random_state=0).fit(mixture())
    before = learnt(hasher)
    with pytest.raises(InputError):
        hasher.fit(da.full((50, 24), np.nan, chunks=(10, 24)))
    assert learnt(hasher) == before


def test_the_tree_over_chunks_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_MOST_BLOCK_ROWS", 4)

    def join(one: str, two: str) -> str:
        return f"({one}{two})"

    spread = rows_of(da.ones((100, 2), chunks=(16, 2)))
    found = spread.map_reduce(lambda _, start: f"{start},", join)
    assert found == tree_reduce((f"{at}," for at in range(0, 100, 4)), join)
