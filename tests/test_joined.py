"""Several files as one: lists of files, folders of Parquet, and what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from densehash import DSH, ITQ
from densehash.datasets import open_vectors, vecs, write_vectors
from densehash.datasets.joined import JoinedRows
from densehash.errors import FileError, InputError
from densehash.truth import nearest

LENGTHS = {".npy": 7, ".fvecs": 30, ".npz": 1, ".fbin": 12}


def make(n: int, d: int = 5, seed: int = 0, dtype: Any = np.float32) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(0, 100, (n, d)).astype(dtype)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], NDArray[Any]]:
    """Files of all formats that need no extra, and of those whose packages are there."""
    folder, lengths = tmp_path_factory.mktemp("parts"), dict(LENGTHS)
    for suffix, package in ((".hdf5", "h5py"), (".parquet", "pyarrow"), (".arrow", "pyarrow")):
        try:
            __import__(package)
        except ImportError:
            continue
        lengths[suffix] = 9
    arrays = [make(n, seed=seed) for seed, n in enumerate(lengths.values())]
    paths = [folder / f"{number}{suffix}" for number, suffix in enumerate(lengths)]
    for path, array in zip(paths, arrays, strict=True):
        write_vectors(path, array)
    return paths, np.concatenate(arrays)


def parquet(path: Path, array: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_vectors(path, array)


def empty_parquet(path: Path) -> None:
    """A file with a column of vectors and no rows."""
    pa = pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    table = pa.table({"vectors": pa.array([], pa.list_(pa.float32()))})
    __import__("pyarrow.parquet")
    pa.parquet.write_table(table, path)


# --- lists of files -----------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_the_arrays_one_below_the_other(
    parts: tuple[list[Path], NDArray[Any]], data: st.DataObject
) -> None:
    paths, whole = parts
    rows = open_vectors(paths)
    assert isinstance(rows, JoinedRows)
    assert (rows.shape, rows.dtype, rows.chunks) == (whole.shape, whole.dtype, None)
    n = len(whole)
    for _ in range(5):
        if data.draw(st.booleans()):
            some = slice(*sorted(data.draw(st.tuples(*[st.integers(-n - 2, n + 2)] * 2))))
            np.testing.assert_array_equal(rows[some], whole[some])
        else:
            positions = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=n)), np.int64)
            chosen = np.unique(positions) if data.draw(st.booleans()) else positions
            np.testing.assert_array_equal(rows[chosen], whole[chosen])


def test_the_order_is_that_of_the_list(tmp_path: Path) -> None:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.full((2, 1), ord(name)))
    paths = [tmp_path / "b.npy", tmp_path / "c.npy", tmp_path / "a.npy", tmp_path / "b.npy"]
    for given_ in (paths, tuple(paths), iter(paths), [str(path) for path in paths]):
        found = open_vectors(given_)[:]
        assert "".join(map(chr, found.ravel())) == "bbccaabb"


def test_learning_from_files_is_learning_from_the_array(
    parts: tuple[list[Path], NDArray[Any]], small_blocks: None
) -> None:
    paths, _ = parts
    rows = open_vectors(paths * 8)
    whole = rows[:]
    for hasher in (DSH(8, random_state=0), ITQ(4, random_state=0)):
        codes = hasher.fit(rows).transform(rows)
        planes = hasher.planes_.tobytes()
        np.testing.assert_array_equal(codes, hasher.fit(whole).transform(whole))
        assert hasher.planes_.tobytes() == planes
    for metric in ("l2", "ip"):
        found = nearest(whole[:20], rows, k=30, metric=metric, ordered=True)
        expected = nearest(whole[:20], whole, k=30, metric=metric, ordered=True)
        np.testing.assert_array_equal(found, expected)


def test_a_pass_opens_every_file_once(tmp_path: Path) -> None:
    opened: list[str] = []
    arrays = {Path(name): make(10, seed=ord(name)) for name in "abcde"}

    def open_file(path: Path) -> NDArray[Any]:
        opened.append(str(path))
        return arrays[path]

    rows = JoinedRows(list(arrays), open_file)
    assert "".join(opened) == "abcde"
    opened.clear()
    for start in range(0, 50, 3):
        rows[start : start + 3]
    assert "".join(opened) == "abcde"
    opened.clear()
    rows[np.array([0, 9, 11, 49])]
    assert "".join(opened) == "abe"


def test_byte_orders_are_one_type(tmp_path: Path) -> None:
    whole = make(6)
    np.save(tmp_path / "a.npy", whole[:3].astype(">f4"))
    np.save(tmp_path / "b.npy", np.asfortranarray(whole[3:]))
    rows = open_vectors([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert rows.dtype == np.dtype("=f4")
    assert rows[:].dtype.isnative
    np.testing.assert_array_equal(rows[:], whole)


def test_many_threads_read_at_once(parts: tuple[list[Path], NDArray[Any]]) -> None:
    paths, whole = parts
    rows = open_vectors(paths)

    def read(seed: int) -> bool:
        start, stop = np.sort(np.random.default_rng(seed).integers(0, len(whole), 2))
        return np.array_equal(rows[start:stop], whole[start:stop])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))


def test_paths_stay_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", make(3))
    monkeypatch.chdir(tmp_path)
    rows = open_vectors(["a.npy", "a.npy"])
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(rows[:], np.concatenate([make(3), make(3)]))


def test_the_key_is_for_files_that_have_names(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", make(3))
    np.savez(tmp_path / "b.npz", X=make(4, seed=1), Y=make(5, seed=2))
    paths = [tmp_path / "a.npy", tmp_path / "b.npz"]
    np.testing.assert_array_equal(open_vectors(paths, key="Y")[3:], make(5, seed=2))
    with pytest.raises(InputError, match="b.npz has several arrays: give one of them as key"):
        open_vectors(paths)
    with pytest.raises(InputError, match="key must be None for .npy, which has no names"):
        open_vectors(paths[:1], key="Y")
    with pytest.raises(InputError, match="key must be a str, got 3"):
        open_vectors(paths, key=3)  # type: ignore[arg-type]


# --- bad lists ----------------------------------------------------------------------------


def test_other_widths_and_types_name_both_files(tmp_path: Path) -> None:
    for name, array in (
        ("a", make(3)),
        ("b", make(2)),
        ("wide", make(3, d=6)),
        ("double", make(3, dtype=float)),
    ):
        np.save(tmp_path / f"{name}.npy", array)

    def paths(*names: str) -> list[Path]:
        return [tmp_path / f"{name}.npy" for name in names]

    with pytest.raises(InputError, match=r"a.npy has 5 features, \S*wide.npy has 6$"):
        open_vectors(paths("a", "b", "wide"))
    with pytest.raises(InputError, match=r"a.npy has float32, \S*double.npy has float64$"):
        open_vectors(paths("a", "b", "double"))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "path must be one or several files, got an empty list"),
        ([3], "path must be a str or a Path, got int"),
        (["a.npy", None], "path must be a str or a Path, got NoneType"),
        ([["a.npy"]], "path must be a str or a Path, got list"),
        (["a.txt"], "path must end in one of"),
        (["a\0.npy"], "path must have no NUL characters"),
        (b"a.npy", "path must be a str or a Path, got bytes"),
    ],
)
def test_what_is_no_list_of_paths(paths: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_vectors(paths)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", make(3))
    with pytest.raises(FileError, match="none.npy does not exist"):
        open_vectors([tmp_path / "a.npy", tmp_path / "none.npy"])


def test_files_that_change_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path in paths:
        np.save(path, make(3))
    rows = open_vectors(paths)
    np.save(paths[1], make(4))
    np.testing.assert_array_equal(rows[:3], make(3))
    expected = r"b.npy was changed while in use: it had float32 \(3, 5\), now float32 \(4, 5\)"
    with pytest.raises(FileError, match=expected):
        rows[:]
    paths[1].unlink()
    with pytest.raises(FileError, match="b.npy does not exist"):
        rows[2:5]


# --- folders of Parquet -------------------------------------------------------------------


def test_a_folder_of_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    whole = make(40)
    parquet(tmp_path / "year=2024" / "part-1.parquet", whole[20:30])
    parquet(tmp_path / "year=2023" / "month=12" / "b.snappy.parquet", whole[10:20])
    parquet(tmp_path / "year=2023" / "month=11" / "c.parquet", whole[:10])
    parquet(tmp_path / "zz.PARQUET", whole[30:])
    for ignored in (".hidden.parquet", "_metadata.parquet", "_delta_log/a.parquet"):
        parquet(tmp_path / ignored, make(2, d=9))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").touch()
    empty_parquet(tmp_path / "a.parquet")
    for folder in (tmp_path, str(tmp_path), [tmp_path]):
        rows = open_vectors(folder)
        assert rows.shape == whole.shape
        np.testing.assert_array_equal(rows[:], whole)
    both = open_vectors([tmp_path / "zz.PARQUET", tmp_path / "year=2023"], key="vectors")
    np.testing.assert_array_equal(both[:], np.concatenate([whole[30:], whole[:20]]))


def test_a_folder_that_is_named_like_a_file(tmp_path: Path) -> None:
    """Spark writes such."""
    pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    parquet(tmp_path / "table.parquet" / "part-0.parquet", make(3))
    np.testing.assert_array_equal(open_vectors(tmp_path / "table.parquet")[:], make(3))


def test_folders_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    expected = r"is a directory, expected a file, or a folder with Parquet files \(\*\.parquet\)"
    with pytest.raises(FileError, match=expected):
        open_vectors(tmp_path)
    empty_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="expected at least 1 row in its Parquet files, found 0"):
        open_vectors(tmp_path)


def test_damaged_files_in_a_folder_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    for name in "ab":
        parquet(tmp_path / f"{name}.parquet", make(3))
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-1])
    with pytest.raises(FileError, match="b.parquet: at offset"):
        open_vectors(tmp_path)
    parquet(tmp_path / "b.parquet", make(3, d=6))
    with pytest.raises(InputError, match=r"a.parquet has 5 features, \S*b.parquet has 6"):
        open_vectors(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc tells the open files")
def test_few_files_are_open(tmp_path: Path) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    pytest.importorskip("pyarrow", reason="a folder of Parquet needs the extra parquet")
    for number in range(40):
        parquet(tmp_path / f"{number:02}.parquet", make(3, seed=number))
    before = n_open()
    rows = open_vectors(tmp_path)
    for start in range(0, len(rows), 7):
        rows[start : start + 7]
        assert n_open() <= before + 3


# --- memory -------------------------------------------------------------------------------


def test_headers_of_all_rows_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vecs, "_CHECKED_AT_ONCE", 100)  # bytes: 4 rows
    whole = make(50)
    path = tmp_path / "a.fvecs"
    write_vectors(path, whole)
    np.testing.assert_array_equal(open_vectors(path), whole)
    content = path.read_bytes()
    for row in range(1, 50):
        damaged = bytearray(content)
        damaged[24 * row] = 6
        path.write_bytes(damaged)
        expected = (
            f"at offset {24 * row}, expected dimension 5 for row {row}, as for row 0, found 6"
        )
        with pytest.raises(FileError, match=expected):
            open_vectors(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells the memory in use")
def test_many_files_do_not_stay_in_memory(tmp_path: Path) -> None:
    code = """
import sys
import numpy as np
from densehash.datasets import open_vectors
from densehash.rows import Rows

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024

Rows([[0.0]]).for_each(lambda *_: None)  # all is loaded
before = peak()
vecs = open_vectors(sys.argv[1])
opened = peak() - before
rows = open_vectors(sys.argv[2:])
total = Rows(rows).map_reduce(lambda block, start: int(block.sum()), int.__add__)
rows[np.arange(0, len(rows), 999)]
print(total, opened, peak() - before)
"""
    zeros = np.zeros((10_000, 1000), np.uint8)
    write_vectors(tmp_path / "a.bvecs", lambda: [zeros] * 15)  # 150 MB, each row with a header
    paths = [tmp_path / f"{number}.npy" for number in range(8)]
    for path in paths:  # 30 MB each, less than what a map holds before it gives pages back
        shape = (30_000, 1000)
        np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)[:100] = 1
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", code, str(tmp_path / "a.bvecs"), *map(str, paths)]
    child = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    total, opened, held = map(int, child.stdout.split())
    assert opened < 80e6  # of 150 MB
    assert total == 8 * 100 * 1000
    assert held < 130e6  # of 240 MB
