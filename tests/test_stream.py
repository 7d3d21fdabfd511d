"""Rows that are no array: blocks of a callable, datasets of h5py, and maps, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from row_cases import InChunks

from densehash import DSH, ITQ, LSH
from densehash.checks import check_vectors
from densehash.choices import MetricName
from densehash.datasets import Blocks, DataSet, open_vectors, write_vectors
from densehash.errors import FileError, InputError
from densehash.paper import problem as problems
from densehash.paper.problem import Problem
from densehash.paper.runs import Run, measure
from densehash.paper.view import View
from densehash.source import LockedRows, Source
from densehash.stream import DatasetRows
from densehash.truth import nearest


def make(n: int, d: int = 5, seed: int = 0, dtype: Any = np.float32) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(0, 100, (n, d)).astype(dtype)


def in_blocks(array: NDArray[Any], lengths: Any) -> Any:
    """A callable that yields an array in blocks of these lengths."""

    def blocks() -> Iterator[NDArray[Any]]:
        start = 0
        for length in lengths:
            yield array[start : start + length]
            start += length

    return blocks


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason="datasets of h5py need the extra hdf5")


# --- blocks -------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_the_array(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
    whole = make(sum(lengths), dtype=data.draw(st.sampled_from([np.uint8, np.float32, ">f8"])))
    n = len(whole)
    given_rows = data.draw(st.sampled_from([None, n]))
    rows = Blocks(in_blocks(whole, lengths), n_rows=given_rows)
    assert (rows.shape, rows.dtype) == (whole.shape, whole.dtype)
    assert rows.chunks == (None if given_rows else tuple(filter(None, lengths)))
    for _ in range(6):
        if data.draw(st.booleans()):
            some = slice(*sorted(data.draw(st.tuples(*[st.integers(-n - 2, n + 2)] * 2))))
            np.testing.assert_array_equal(rows[some], whole[some])
        else:
            positions = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=n)), np.int64)
            chosen = np.unique(positions) if data.draw(st.booleans()) else positions
            np.testing.assert_array_equal(rows[chosen], whole[chosen])


@pytest.mark.usefixtures("small_blocks")
def test_learning_from_blocks_is_learning_from_their_parts() -> None:
    # No whole numbers: how their sums are put together must be seen.
    whole, lengths = np.random.default_rng(0).random((3000, 8)), (700, 0, 1, 1299, 1000)
    parts = InChunks(whole, tuple(filter(None, lengths)))
    blocks = in_blocks(whole, lengths)
    # With so many rows said before, blocks are no parts.
    for rows, same in ((blocks, parts), (Blocks(blocks, n_rows=3000), whole)):
        for make_hasher in (DSH, ITQ):
            hasher, other = make_hasher(8, random_state=0), make_hasher(8, random_state=0)
            assert hasher.fit(rows).planes_.tobytes() == other.fit(same).planes_.tobytes()
            codes = hasher.transform(rows)
            np.testing.assert_array_equal(codes, hasher.transform(whole))
    # Else the parts were for nothing.
    one, two = DSH(8, random_state=0).fit(whole), DSH(8, random_state=0).fit(parts)
    assert one.planes_.tobytes() != two.planes_.tobytes()


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_neighbours_among_blocks(metric: MetricName) -> None:
    whole = make(500, 4) + 1
    for rows in (in_blocks(whole, [100, 399, 0, 1]), Blocks(in_blocks(whole, [500]), n_rows=500)):
        found = nearest(in_blocks(whole[:9], [4, 5]), rows, k=50, metric=metric, ordered=True)
        expected = nearest(whole[:9], whole, k=50, metric=metric, ordered=True)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("suffix", [".npy", ".fvecs", ".mat", ".npz"])
def test_blocks_are_written(tmp_path: Path, suffix: str) -> None:
    whole = make(100)
    write_vectors(tmp_path / f"a{suffix}", in_blocks(whole, [30, 70]))
    np.testing.assert_array_equal(open_vectors(tmp_path / f"a{suffix}")[:], whole)


def test_an_array_that_is_filled_anew_for_each_block() -> None:
    def refilled() -> Any:
        block = np.empty((10, 3))
        for number in range(20):
            block[:] = number
            yield block

    rows = Blocks(refilled)
    first = rows[0:5]
    rows[60:70]
    assert (first == 0).all()
    found = rows[:]
    np.testing.assert_array_equal(found[:, 0], np.repeat(np.arange(20), 10))
    codes = LSH(4, random_state=0).fit(cast(Any, refilled)).transform(rows)
    np.testing.assert_array_equal(codes, LSH(4, random_state=0).fit(found).transform(found))


def test_one_block_is_held_at_a_time() -> None:
    made: list[Any] = []

    def blocks() -> Iterator[NDArray[Any]]:
        for _ in range(5):
            assert not [ref for ref in made if ref() is not None], "the one before is let go of"
            block = np.zeros((10, 2))
            made.append(weakref.ref(block))
            yield block
            del block

    rows = Blocks(blocks)
    for start in range(0, 50, 10):
        rows[start : start + 10]
    rows[35:45]
    rows[np.array([1, 20, 49])]
    assert len(made) > 15


def test_forward_reading_is_one_pass() -> None:
    passes = 0

    def counted() -> Iterator[NDArray[Any]]:
        nonlocal passes
        passes += 1
        yield from in_blocks(make(100), [10] * 10)()

    rows = Blocks(counted, n_rows=100)
    for start in range(0, 100, 7):
        rows[start : start + 7]
    rows[np.array([91, 95])]  # in the block that is held
    assert passes == 1
    rows[89:95]
    assert passes == 2
    assert Blocks(counted)[:5].shape == (5, 5)
    assert passes == 4  # to count, and to read


def test_a_pass_that_is_given_up_is_closed() -> None:
    events: list[str] = []

    def blocks() -> Iterator[NDArray[Any]]:
        events.append("open")
        try:
            yield from in_blocks(make(100), [10] * 10)()
        finally:
            events.append("close")

    rows = Blocks(blocks, n_rows=100)
    rows[50:60]
    assert events == ["open"]
    rows[0:10]
    assert events == ["open", "close", "open"]
    rows[90:100]
    assert events == ["open", "close", "open", "close"]


def test_many_threads_read_at_once() -> None:
    whole = make(300)

    def slow() -> Iterator[NDArray[Any]]:
        for block in in_blocks(whole, [30] * 10)():
            time.sleep(1e-4)  # others may run meanwhile
            yield block

    rows = Blocks(slow)

    def read(seed: int) -> bool:
        start, stop = np.sort(np.random.default_rng(seed).integers(0, 300, 2))
        return np.array_equal(rows[start:stop], whole[start:stop])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(300)))


def test_callables_of_other_kinds() -> None:
    class Reader:
        def __call__(self) -> list[Any]:
            return [[[1, 2]], [[3, 4], [5, 6]]]

    assert Blocks(Reader())[:].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert check_vectors(lambda: [np.eye(2)])[1:].tolist() == [[0.0, 1.0]]
    frames = pytest.importorskip("pandas", reason="data frames need pandas")
    assert Blocks(lambda: [frames.DataFrame({"a": [1, 2], "b": [3, 4]})])[:].tolist() == [
        [1, 3],
        [2, 4],
    ]


# --- bad blocks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((2, 4)), "must have 3 features, as those before have, got 4$"),
        (np.zeros((2, 3), np.float32), "must be float64, as those before are, got float32$"),
        (np.zeros(3), r"must hold real numbers \(b, d\), got float64 of shape \(3,\)$"),
        (np.zeros((1, 3), complex), "must hold real numbers .*, got complex128 of shape"),
        ([["a", "b", "c"]], "must hold real numbers .*, got <U1 of shape"),
        ([[1.0], [2.0, 3.0]], "cannot be read as an array"),
        (None, r"must hold real numbers .*, got object of shape \(\)$"),
        (np.zeros((2, 0)), "must have 3 features, as those before have, got 0$"),
    ],
)
def test_a_bad_block_is_named(bad: Any, message: str) -> None:
    def blocks() -> Any:
        yield np.zeros((10, 3))
        yield np.zeros((0, 7))
        yield np.zeros((5, 3))
        yield bad
        yield np.zeros((100, 3))

    expected = f"^block 3, which begins at row 15, {message}"
    for call in (lambda: Blocks(blocks), lambda: LSH(4).fit(cast(Any, blocks))):
        with pytest.raises(InputError, match=expected):
            call()
    later = Blocks(blocks, n_rows=120)  # seen on the way
    for _ in range(2):
        assert later[:15].shape == (15, 3)
        with pytest.raises(InputError, match=expected):
            later[10:20]


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (np.zeros((2, 0)), r"block 0, which begins at row 0, must have at least 1 feature"),
        (np.zeros(2), "block 0, which begins at row 0, must hold real numbers"),
    ],
)
def test_a_bad_first_block(first: Any, message: str) -> None:
    for n_rows in (None, 5):
        with pytest.raises(InputError, match=message):
            Blocks(lambda: [first], n_rows=n_rows)


@pytest.mark.parametrize("nothing", [[], [np.zeros((0, 3))], [[]], [np.zeros((0, 3)), np.zeros(0)]])
def test_no_rows_at_all(nothing: Any) -> None:
    with pytest.raises(InputError, match="the blocks have no rows, at least 1 is needed"):
        LSH(4).fit(cast(Any, lambda: nothing))
    with pytest.raises(InputError, match="n_rows is 5, but the blocks have 0 rows"):
        Blocks(lambda: nothing, n_rows=5)


@pytest.mark.parametrize("later", [0, 5, 19, 21, 30])
@pytest.mark.parametrize("step", [1, 10, 30])
def test_other_rows_in_a_later_pass(later: int, step: int) -> None:
    passes = iter([20])

    def blocks() -> Iterator[NDArray[Any]]:
        n = next(passes, later)
        yield from in_blocks(make(n), [step] * (n // step) + [n % step])()

    rows = Blocks(blocks)
    came = "more than 20" if later > 20 else str(later)
    expected = f"the blocks had 20 rows at first and have {came} now: each call of make must"
    with pytest.raises(InputError, match=expected):
        rows[:]
    with pytest.raises(InputError, match=expected):
        LSH(4).fit(rows)


@pytest.mark.parametrize("lengths", [[20], [19, 1], [10, 10]])
def test_another_number_of_rows_than_was_said(lengths: list[int]) -> None:
    blocks = in_blocks(make(20), lengths)
    for n_rows, came in ((19, "more than 19"), (21, "20"), (5, "more than 5")):
        with pytest.raises(InputError, match=f"n_rows is {n_rows}, but the blocks have {came} ro"):
            Blocks(blocks, n_rows=n_rows)[:]


def test_an_iterator_that_is_returned_twice() -> None:
    blocks = in_blocks(make(20), [20])()
    with pytest.raises(InputError, match="at first and have 0 now: .* return a fresh iterator"):
        LSH(4).fit(cast(Any, lambda: blocks))


def test_generators_are_refused_with_advice() -> None:
    generator = in_blocks(make(20), [20])()
    for call in (
        lambda: Blocks(generator),
        lambda: LSH(4).fit(generator),
        lambda: nearest(make(1), generator, k=1),
    ):
        with pytest.raises(InputError, match="a generator can be read only once: pass the funct"):
            call()
    assert len(next(generator)) == 20  # it was not touched


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"make": 3}, "make must be a callable that returns an iterator .*, got a int"),
        ({"make": [np.eye(2)]}, "make must be a callable .*, got a list"),
        ({"make": lambda: 3}, "make must return an iterator of arrays .*, it returned a int"),
        ({"make": lambda: None}, "it returned a NoneType"),
        ({"make": list, "n_rows": 0}, "n_rows must be an integer of at least 1, got 0"),
        ({"make": list, "n_rows": True}, "n_rows must be an integer .*, got True"),
        ({"make": list, "n_rows": 2.0}, "n_rows must be an integer .*, got 2.0"),
    ],
)
def test_bad_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Blocks(**arguments)


def test_what_a_callable_raises_is_raised_and_the_next_pass_begins_anew() -> None:
    fails = iter([False, True, True])

    def flaky() -> Iterator[NDArray[Any]]:
        yield make(10)
        if next(fails, False):
            raise ConnectionError("gone")
        yield make(10, seed=1)

    rows = Blocks(flaky)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="gone"):
            rows[5:15]
    np.testing.assert_array_equal(rows[:], np.concatenate([make(10), make(10, seed=1)]))


# --- datasets of h5py ---------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", [{}, {"chunks": (64, 3), "compression": "gzip"}])
def test_a_dataset_is_an_array(tmp_path: Path, h5py: Any, options: Any) -> None:
    whole = make(2000, 8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("some/X", data=whole, **options)
        rows: Any = check_vectors(dataset)
        assert isinstance(rows, DatasetRows)
        assert (rows.shape, rows.dtype, rows.chunks) == (whole.shape, whole.dtype, None)
        positions = np.array([0, 1, 2, 900, 1900, 1999])
        np.testing.assert_array_equal(rows[positions], whole[positions])
        np.testing.assert_array_equal(rows[positions[::-1]], whole[positions[::-1]])
        hasher, other = DSH(8, random_state=0).fit(dataset), DSH(8, random_state=0).fit(whole)
        assert hasher.planes_.tobytes() == other.planes_.tobytes()
        np.testing.assert_array_equal(hasher.transform(dataset), other.transform(whole))
        np.testing.assert_array_equal(
            nearest(dataset, dataset, k=3)[:9], nearest(whole, whole, k=3)[:9]
        )
        write_vectors(tmp_path / "a.npy", dataset)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), whole)


def test_datasets_that_are_no_vectors(tmp_path: Path, h5py: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["line"] = np.zeros(5)
        file["cube"] = np.zeros((2, 2, 2))
        file["text"] = np.array([[b"a"]])
        file["none"] = np.zeros((0, 3))
        file["empty"] = h5py.Empty("f4")
        X = file.create_dataset("X", data=make(20))
        for name, message in (
            ("line", r"X must have 2 dimensions \(n, d\), got shape \(5,\)"),
            ("cube", r"got shape \(2, 2, 2\)"),
            ("text", r"X must be numbers, got dtype \|S1"),
            ("none", r"X is empty: 0 sample\(s\)"),
            ("empty", "got shape None"),
        ):
            with pytest.raises(InputError, match=message):
                LSH(4).fit(file[name])
        rows = check_vectors(X)
    with pytest.raises(InputError, match="X is a dataset of an HDF5 file that was closed"):
        check_vectors(X)
    with pytest.raises(FileError, match="rows 3 to 8 of an HDF5 dataset cannot be read"):
        rows[3:9]


def test_a_missing_dataset_lists_those_that_are_there(tmp_path: Path, h5py: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train"], file["more/labels"] = make(20), np.zeros(20, np.int64)
    with pytest.raises(InputError) as error:
        open_vectors(tmp_path / "a.h5", key="vectors")
    for part in (
        "a.h5 has nothing named 'vectors'; it has",
        "'train' float32 (20, 5)",
        "'more/labels' int64 (20,)",
    ):
        assert part in str(error.value)


# --- rows at positions --------------------------------------------------------------------


class Recorded(LockedRows):
    """An array that notes what is read of it."""

    def __init__(self, array: NDArray[Any]) -> None:
        super().__init__()
        self.shape, self.dtype = (array.shape[0], array.shape[1]), array.dtype
        self.array, self.read = array, []  # type: NDArray[Any], list[tuple[int, int]]

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        self.read.append((start, stop))
        return self.array[start:stop]


def test_positions_are_read_in_runs() -> None:
    rows = Recorded(np.arange(50_000 * 64).reshape(50_000, 64))
    positions = np.array([3, 4, 100, 20_000, 20_255, 20_512, 49_999])
    np.testing.assert_array_equal(rows[positions], rows.array[positions])
    assert rows.read == [(3, 101), (20_000, 20_256), (20_512, 20_513), (49_999, 50_000)]
    rows.read.clear()
    rows[np.arange(50_000)]
    assert max(stop - start for start, stop in rows.read) * 64 <= 2**20


# --- views of sets that stay in their files -----------------------------------------------


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_view_is_the_rows_of_an_array(data: st.DataObject) -> None:
    whole = make(data.draw(st.integers(2, 40)))
    taken = np.array(sorted(data.draw(st.sets(st.integers(0, len(whole) - 1)))), np.int64)
    if len(taken) == 0 or data.draw(st.booleans()):
        rows, expected = View(whole, left_out=taken), np.delete(whole, taken, axis=0)
    else:
        rows, expected = View(whole, chosen=taken), whole[taken]
    assert rows.shape == expected.shape
    n, d = data.draw(st.sampled_from([None, *range(len(rows) + 1)])), data.draw(st.integers(1, 5))
    start, stop = data.draw(st.tuples(*[st.integers(0, len(rows) + 2)] * 2))
    np.testing.assert_array_equal(rows[start:stop], expected[start:stop])
    np.testing.assert_array_equal(rows[:n, :d][:], expected[:n, :d])
    np.testing.assert_array_equal(np.ascontiguousarray(rows[:, :d], float), expected[:, :d])
    positions = np.arange(len(expected))[:: data.draw(st.integers(1, 9))]
    np.testing.assert_array_equal(rows[positions], expected[positions])


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("own", [False, True], ids=["drawn", "own queries"])
@pytest.mark.parametrize("most_rows", [None, 300])
def test_a_problem_in_a_file_is_the_problem_in_memory(
    metric: MetricName,
    own: bool,
    most_rows: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = make(1000, 12).astype(np.float32) + 1
    np.save(tmp_path / "a.npy", whole)
    queries = make(30, 12, seed=1) + 1 if own else None
    wanted: dict[str, Any] = {"metric": metric, "n_queries": 30, "most_rows": most_rows}
    memory = Problem.of(DataSet("a", whole, queries), **wanted)
    monkeypatch.setattr(problems, "_IN_MEMORY", 100)
    monkeypatch.setattr(problems, "_BLOCK", 1000)
    run = Run("DSH", 16, asymmetric=True)
    for base in (
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        open_vectors([tmp_path / "a.npy"]),
        check_vectors(in_blocks(whole, [1000])),
    ):
        streamed = Problem.of(DataSet("a", base, queries), **wanted)
        stays: Any = streamed.base
        assert isinstance(stays, View)
        assert streamed.identity == memory.identity
        for name in ("base", "vectors"):
            one, two = getattr(streamed, name)[:], getattr(memory, name)
            assert one.tobytes() == two.tobytes()
        if metric != "l2":  # of all blocks, not of the first
            lengths = np.linalg.norm(streamed.vectors[:], axis=1)
            np.testing.assert_allclose(lengths, lengths[0], rtol=1e-5)
        for name in ("asked", "relevant", "near"):
            np.testing.assert_array_equal(getattr(streamed, name), getattr(memory, name))
        arrays = measure(streamed, run)["arrays"]
        assert arrays == measure(memory, run)["arrays"]
        part = Run("LSH", 8, n_rows=200, n_features=7, ranks=False)
        assert measure(streamed, part)["bytes"] == 1


def test_small_sets_in_files_are_read_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", make(1000))
    found = Problem.of(DataSet("a", np.load(tmp_path / "a.npy", mmap_mode="r"), None))
    assert type(found.base) is np.ndarray


def test_the_paper_share_is_that_of_a_million_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Problem.of(DataSet("a", make(1000), None)).identity["fraction"] == 0.02
    monkeypatch.setattr(problems, "_MOST_TRUE", 9)
    assert Problem.of(DataSet("a", make(1000), make(5))).relevant.shape == (5, 9)


# --- not finite ---------------------------------------------------------------------------


def sources(whole: NDArray[Any], folder: Path) -> Iterator[tuple[str, Any]]:
    """The same rows from everywhere that rows come from."""
    yield "callable", in_blocks(whole, [100] * 9)
    yield "blocks", Blocks(in_blocks(whole, [899, 1]), n_rows=900)
    for suffix in (".npy", ".fvecs"):
        halves = [folder / f"{half}{suffix}" for half in (0, 1)]
        for path, half in zip(halves, (whole[:450], whole[450:]), strict=True):
            write_vectors(path, half)
        yield f"list of {suffix}", open_vectors(halves)
        write_vectors(folder / f"whole{suffix}", whole)
        yield f"map of {suffix}", open_vectors(folder / f"whole{suffix}")


def optional_sources(whole: NDArray[Any], folder: Path) -> Iterator[tuple[str, Any]]:
    h5py = pytest.importorskip("h5py", reason="datasets of h5py need the extra hdf5")
    pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    write_vectors(folder / "a.h5", whole)
    yield "file of HDF5", open_vectors(folder / "a.h5")
    yield "dataset", h5py.File(folder / "a.h5", "r")["train"]
    (folder / "parquet").mkdir()
    write_vectors(folder / "parquet" / "a.parquet", whole[:600])
    write_vectors(folder / "parquet" / "b.parquet", whole[600:])
    yield "folder of Parquet", open_vectors(folder / "parquet")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("every", [sources, optional_sources])
def test_a_bad_row_is_named_by_its_place_among_all(tmp_path: Path, every: Any) -> None:
    whole = make(900)
    hasher = LSH(4, random_state=0).fit(whole)
    whole[777, 3] = np.nan
    expected = "got NaN in row 777, column 3$"
    seen = 0
    for name, X in every(whole, tmp_path):
        rows: Any = check_vectors(X)
        for call, message in (
            (lambda: DSH(4, random_state=0).fit(X), expected),  # noqa: B023
            (lambda: hasher.transform(X), expected),  # noqa: B023
            (lambda: nearest(whole[:2], X, k=3), "got length nan in row 777$"),  # noqa: B023
            (lambda: Problem.of(DataSet("set", rows, None)), "in row 777, column 3"),  # noqa: B023
        ):
            with pytest.raises(InputError, match=message):
                call()
        seen += 1
        assert isinstance(rows, Source) or name.startswith("map")
    assert seen >= 3


# --- memory -------------------------------------------------------------------------------

WRITING = """
import sys
import numpy as np
from densehash import LSH

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024

X = np.random.default_rng(0).random((400_000, 2), dtype=np.float32)
hasher, shape = LSH(4096, random_state=0).fit(X[:100]), (len(X), 512)
codes = np.memmap(sys.argv[1], np.uint8, "w+", shape=shape)  # 205 MB
hasher.transform(X[:1000], out=np.empty((1000, 512), np.uint8))
before = peak()
hasher.transform(X, out=codes)
held = peak() - before
assert (codes[-100:] == hasher.transform(X[-100:])).all()
assert (codes[:100] == hasher.transform(X[:100])).all()
print(held)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells the memory in use")
def test_codes_in_a_map_do_not_stay_in_memory(tmp_path: Path) -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", WRITING, str(tmp_path / "codes")]
    child = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    assert int(child.stdout) < 150e6


STREAMING = """
import json, sys
import numpy as np
from densehash import PCAH
from densehash.datasets import DataSet, open_vectors, write_vectors
from densehash.paper.problem import Problem
from densehash.paper.runs import Run, measure
from densehash.truth import nearest

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024

folder = sys.argv[1]
X, queries = open_vectors(f"{folder}/a.npy"), np.load(f"{folder}/queries.npy")
before, held = peak(), {}
hasher = PCAH(32).fit(X)
held["fit"] = peak() - before
codes = np.lib.format.open_memmap(f"{folder}/codes.npy", "w+", np.uint8, (len(X), 4))
hasher.transform(X, out=codes)
held["transform"] = peak() - before
found = nearest(queries, X, k=10)
held["nearest"] = peak() - before
problem = Problem.of(DataSet("a", X, queries))
measure(problem, Run("LSH", 32))
held["compare"] = peak() - before
write_vectors(f"{folder}/copy.npy", X)
held["write"] = peak() - before
assert "h5py" not in sys.modules
print(json.dumps({"held": held, "found": found.tolist(), "k": len(problem.relevant[0])}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells the memory in use")
def test_a_large_file_is_worked_on_in_little_memory(tmp_path: Path) -> None:
    n, d, n_filled = 750_000, 80, 20_000
    rng = np.random.default_rng(0)
    whole = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float64, (n, d))  # 480 MB
    filled, queries = rng.random((n_filled, d)), rng.random((10, d))
    whole[:n_filled] = filled  # the rest are zeros, and far from all queries
    np.save(tmp_path / "queries.npy", queries)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", STREAMING, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    answer = json.loads(child.stdout)
    np.testing.assert_array_equal(answer["found"], nearest(queries, filled, k=10))
    assert answer["k"] == 15_000
    assert max(answer["held"].values()) < 250e6, answer["held"]
    np.testing.assert_array_equal(
        np.load(tmp_path / "copy.npy", mmap_mode="r")[::999], whole[::999]
    )
