"""File formats: every one against bytes made by hand or by another library, and round trips."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from densehash import DSH
from densehash.datasets import hdf5, parquet, writing
from densehash.datasets.files import FORMATS, SUFFIXES, WRITABLE, open_vectors, write_vectors
from densehash.errors import FileError, InputError, MissingExtraError
from densehash.rows import Rows
from densehash.source import Source
from densehash.truth import nearest

SMALL = ["bool", "int8", "uint8", "int16", "uint16"]  # what float32 and int32 hold
ALL = [*SMALL, "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]

# What a format stores of each type; what is not here it must refuse.
INTO: dict[str, dict[str, str]] = {
    ".fvecs": dict.fromkeys([*SMALL, "float16", "float32"], "float32"),
    ".bvecs": {"bool": "uint8", "uint8": "uint8"},
    ".ivecs": dict.fromkeys([*SMALL, "int32"], "int32"),
    ".i8bin": {"bool": "int8", "int8": "int8"},
    ".mat": {name: name for name in ALL} | {"float16": "float32"},
}
INTO |= {".fbin": INTO[".fvecs"], ".u8bin": INTO[".bvecs"], ".ibin": INTO[".ivecs"]}

PACKAGES = {"hdf5": "h5py", "parquet": "pyarrow"}


def need(suffix: str) -> None:
    """Skip what needs a package that is not there."""
    extra = next(form.extra for form in FORMATS if suffix in form.suffixes)
    if extra:
        pytest.importorskip(PACKAGES[extra], reason=f"{suffix} needs the extra {extra}")


@pytest.fixture(params=WRITABLE)
def suffix(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


def sample_type(suffix: str) -> str:
    """A type that a format keeps."""
    into = INTO.get(suffix, {"float32": "float32"})
    return "float32" if "float32" in into else next(iter(set(into.values())))


def make(n: int, d: int, dtype: Any, seed: int = 0) -> NDArray[Any]:
    kind = np.dtype(dtype)
    values = np.random.default_rng(seed).integers(0, 2 if kind.kind == "b" else 120, (n, d))
    return values.astype(kind)


class Counting(Source):
    """An array as a Source that remembers how much was asked for at once."""

    def __init__(self, array: NDArray[Any], fail_at: int | None = None) -> None:
        self.array, self.fail_at, self.most = array, fail_at, 0
        self.shape, self.dtype = (array.shape[0], array.shape[1]), array.dtype

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        found = self.array[rows]
        self.most = max(self.most, found.size)
        if self.fail_at is not None and isinstance(rows, slice) and rows.stop > self.fail_at:
            raise KeyboardInterrupt
        return found


# --- round trips --------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("suffix", WRITABLE)
def test_what_is_written_is_read_again(suffix: str, data: st.DataObject) -> None:
    need(suffix)
    name = data.draw(st.sampled_from(ALL))
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    X = data.draw(st.sampled_from([make(n, d, name), np.full((n, d), make(1, 1, name)[0, 0])]))
    if X.dtype.kind == "f":
        X.flat[0] = data.draw(st.sampled_from([np.nan, np.inf, -0.0, 1.5]))
    elif X.dtype.kind in "iu":
        X.flat[-1] = data.draw(st.sampled_from([np.iinfo(X.dtype).min, np.iinfo(X.dtype).max]))
    shown = data.draw(
        st.sampled_from([
            X,
            np.asfortranarray(X),
            np.repeat(X, 2, axis=1)[:, ::2],
            X.astype(X.dtype.newbyteorder(">")),
            Counting(X),
        ])
    )  # fmt: skip
    stored = INTO.get(suffix, {name: name}).get(name)
    with TemporaryDirectory() as folder:
        path = Path(folder, f"some{data.draw(st.sampled_from([suffix, suffix.upper()]))}")
        if stored is None:
            with pytest.raises(InputError, match=f"X is {name}, .*it holds .*Write \\.[a-z0-9]+"):
                write_vectors(path, shown)
            assert not list(Path(folder).iterdir())
            return
        write_vectors(path, shown)
        assert [path] == list(Path(folder).iterdir())
        found = open_vectors(path)
        assert found.shape == (n, d)
        assert found.dtype == np.dtype(stored)
        expected = X.astype(stored)
        for rows in (slice(0, n), slice(n // 3, n + 5), slice(n, n), np.arange(0, n, 3)):
            assert found[rows].tobytes() == expected[rows].tobytes()
        if isinstance(found, np.ndarray):
            assert not found.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "suffix", "better"),
    [
        ("float64", ".fvecs", ".npy"),
        ("int32", ".fvecs", ".ivecs or .ibin"),
        ("float32", ".bvecs", ".fvecs or .fbin"),
        ("int8", ".u8bin", ".i8bin"),
        ("uint8", ".i8bin", ".bvecs or .u8bin"),
        ("int64", ".ibin", ".npy"),
    ],
)
def test_a_type_that_does_not_fit_names_one_that_does(
    tmp_path: Path, dtype: str, suffix: str, better: str
) -> None:
    with pytest.raises(InputError) as error:
        write_vectors(tmp_path / f"a{suffix}", make(2, 2, dtype))
    assert f"Write {better}, or convert X" in str(error.value)
    for good in better.split(" or "):
        write_vectors(tmp_path / f"a{good}", make(2, 2, dtype))


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="longdouble is float64 here")
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
def test_types_of_one_machine_are_not_written(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="other machines cannot read"):
        write_vectors(tmp_path / f"a{suffix}", np.ones((2, 2), np.longdouble))


@pytest.mark.parametrize("X", [[[1.0, 2.0]], np.ones((1, 2))])
def test_lists_are_vectors_too(tmp_path: Path, X: Any) -> None:
    write_vectors(str(tmp_path / "a.npy"), X)
    assert open_vectors(str(tmp_path / "a.npy")).shape == (1, 2)


@pytest.mark.parametrize("X", [np.ones(3), np.ones((2, 2, 2)), np.ones((0, 3)), np.ones((3, 0))])
def test_what_are_no_vectors_is_not_written(tmp_path: Path, X: Any, suffix: str) -> None:
    with pytest.raises(InputError):
        write_vectors(tmp_path / f"a{suffix}", X.astype(np.uint8))
    assert not list(tmp_path.iterdir())


# --- bytes by hand ------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "code"), [(".fvecs", "f"), (".bvecs", "B"), (".ivecs", "i")])
def test_vecs_are_what_struct_packs(tmp_path: Path, suffix: str, code: str) -> None:
    X = make(7, 5, sample_type(suffix))
    raw = b"".join(struct.pack(f"<i5{code}", 5, *row) for row in X.tolist())
    path = tmp_path / f"a{suffix}"
    path.write_bytes(raw)
    np.testing.assert_array_equal(open_vectors(path)[:], X)
    write_vectors(path, X)
    assert path.read_bytes() == raw


@pytest.mark.parametrize(
    ("suffix", "code"), [(".fbin", "f"), (".u8bin", "B"), (".i8bin", "b"), (".ibin", "i")]
)
def test_bins_are_what_struct_packs(tmp_path: Path, suffix: str, code: str) -> None:
    X = make(7, 5, sample_type(suffix))
    raw = struct.pack(f"<II35{code}", 7, 5, *X.reshape(-1).tolist())
    path = tmp_path / f"a{suffix}"
    path.write_bytes(raw)
    np.testing.assert_array_equal(open_vectors(path)[:], X)
    write_vectors(path, X)
    assert path.read_bytes() == raw


def test_mapped_formats_are_mapped(tmp_path: Path) -> None:
    """No more than the header is read: the numbers of a file that grows under us are seen."""
    for form in FORMATS:
        if not form.reading.startswith("mapped") or form.extra:
            continue
        suffix = form.suffixes[0]
        path = tmp_path / f"a{suffix}"
        X = make(50, 4, sample_type(suffix))
        write_vectors(path, X)
        found = open_vectors(path)
        assert isinstance(found, np.memmap)
        raw = bytearray(path.read_bytes())
        at = raw.rindex(X[-1].tobytes())
        raw[at : at + X[-1].nbytes] = bytes(X[-1].nbytes)
        with path.open("r+b") as file:  # the same file, not one of the same name
            file.write(raw)
        assert not found[-1].any()


# --- numpy --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">i2", "|u1", "|b1", ">u8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_npy_of_any_version_and_order(tmp_path: Path, dtype: str, order: Any, version: Any) -> None:
    X = np.asarray(make(9, 4, dtype), order=order)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, X, version=version)
    found = open_vectors(tmp_path / "a.npy")
    assert isinstance(found, np.memmap)
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found, X)


def test_npy_of_python_2(tmp_path: Path) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }   \n"
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    (tmp_path / "a.npy").write_bytes(raw + np.arange(6, dtype="<f4").tobytes())
    np.testing.assert_array_equal(open_vectors(tmp_path / "a.npy")[:], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("key", ["vectors", "ключ", "a" * 77])
def test_numpy_reads_what_is_written(tmp_path: Path, suffix: str, key: str) -> None:
    X = make(9, 4, "float32")
    path = tmp_path / f"a{suffix}"
    named = {"key": key} if suffix == ".npz" else {}
    write_vectors(path, X, **named)
    if named:
        with np.load(path, allow_pickle=False) as archive:
            np.testing.assert_array_equal(archive[key], X)
    else:
        np.testing.assert_array_equal(np.load(path, allow_pickle=False), X)
    mapped = open_vectors(path, **named)
    assert isinstance(mapped, np.memmap)
    assert mapped.offset % 64 == 0


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_of_numpy(tmp_path: Path, save: Any, order: Any) -> None:
    X, y = np.asarray(make(300, 7, "float32"), order=order), np.arange(300)
    path = tmp_path / "a.npz"
    save(path, X=X, y=y)
    for key in (None, "X"):
        found = open_vectors(path, key=key)
        assert isinstance(found, np.ndarray)
        assert isinstance(found, np.memmap) == (save is np.savez)
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, X)
    with pytest.raises(InputError, match="'y' of .* must be real numbers .*got int64 \\(300,\\)"):
        open_vectors(path, key="y")
    with pytest.raises(InputError, match="nothing named 'Z'; it has 'X' float32 .*, 'y' int64"):
        open_vectors(path, key="Z")
    save(path, X=X, Y=X)
    with pytest.raises(InputError, match="several arrays: give one of them as key; it has 'X'"):
        open_vectors(path)
    save(path, y=y)
    with pytest.raises(InputError, match="no real numbers of shape \\(n, d\\); it has 'y'"):
        open_vectors(path)


# --- HDF5 ---------------------------------------------------------------------------------


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason="HDF5 needs the extra hdf5")


def test_a_file_of_ann_benchmarks(tmp_path: Path, h5py: Any) -> None:
    train, test = make(60, 5, "float32"), make(8, 5, "float32", seed=1)
    neighbors = make(8, 3, "int32", seed=2)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.attrs["distance"] = "euclidean"
        for name, X in (("train", train), ("test", test), ("neighbors", neighbors)):
            file[name] = X
        file["distances"] = neighbors.astype(np.float32)
    found = open_vectors(tmp_path / "a.hdf5")
    assert isinstance(found, hdf5.Hdf5Rows)
    assert found.distance == "euclidean"
    assert "'train': float32 (60, 5)" in repr(found)
    np.testing.assert_array_equal(found[:], train)
    np.testing.assert_array_equal(open_vectors(tmp_path / "a.hdf5", key="/test")[:], test)
    truth = open_vectors(tmp_path / "a.hdf5", key="neighbors")
    assert truth.dtype == np.int32
    np.testing.assert_array_equal(truth[:], neighbors)
    with pytest.raises(InputError, match="nothing named 'base'; it has 'distances' float32 .*'tra"):
        open_vectors(tmp_path / "a.hdf5", key="base")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (7, 2)},
        {"chunks": (7, 3), "compression": "gzip", "shuffle": True},
        {"chunks": (100, 5), "maxshape": (None, 5)},
        {"dtype": ">f4"},
        {"dtype": "bool"},
        {"dtype": "f2"},
    ],
)
def test_hdf5_in_any_layout(tmp_path: Path, h5py: Any, options: dict[str, Any]) -> None:
    X = make(100, 5, options.get("dtype", "float32"))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/inside", data=X, **options)
        file["labels"] = np.arange(100)
        file["train"] = np.arange(100)  # the usual name, but no vectors
    found = open_vectors(tmp_path / "a.h5")
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found[13:59], X[13:59])
    positions = np.array([0, 1, 6, 7, 50, 98, 99])
    np.testing.assert_array_equal(found[positions], X[positions])


def test_a_small_dataset_inside_its_header(tmp_path: Path, h5py: Any) -> None:
    X = make(4, 3, "float32")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(X.shape)
        h5py.h5d.create(file.id, b"train", h5py.h5t.NATIVE_FLOAT, space, layout).write(
            h5py.h5s.ALL, h5py.h5s.ALL, X
        )
    np.testing.assert_array_equal(open_vectors(tmp_path / "a.h5")[:], X)


def test_h5py_reads_what_is_written(tmp_path: Path, h5py: Any) -> None:
    X = make(30, 4, ">i8")
    write_vectors(tmp_path / "a.h5", X)
    write_vectors(tmp_path / "b.h5", X, key="one/two")
    for name, key in (("a.h5", "train"), ("b.h5", "one/two")):
        with h5py.File(tmp_path / name) as file:
            assert file[key].dtype == np.dtype("<i8")
            np.testing.assert_array_equal(file[key][:], X)
        np.testing.assert_array_equal(open_vectors(tmp_path / name, key=key)[:], X)


# --- MATLAB -------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [name for name in ALL if name != "float16"])
@pytest.mark.parametrize("shape", [(40, 7), (3, 1)])
def test_mat_of_scipy(tmp_path: Path, compressed: bool, dtype: str, shape: tuple[int, int]) -> None:
    X = make(*shape, dtype)
    everything = {"X": X, "text": "words", "cell": np.array([1, "a"], object), "z": X + 1j}
    everything |= {"deep": X[None, None], "struct": {"X": X}}
    scipy.io.savemat(tmp_path / "a.mat", everything, do_compression=compressed)
    found = open_vectors(tmp_path / "a.mat")
    assert isinstance(found, np.ndarray)
    assert isinstance(found, np.memmap) != compressed
    assert not found.flags.writeable
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found, X)
    with pytest.raises(InputError) as error:
        open_vectors(tmp_path / "a.mat", key="Y")
    for text in ("'text' char", "'cell' cell", "'z' complex", "'struct' struct", "(1, 1, "):
        assert text in str(error.value)
    with pytest.raises(
        InputError, match="'z' of .* must be real numbers .*got complex (double|single)"
    ):
        open_vectors(tmp_path / "a.mat", key="z")


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(40, 7), (1, 1), (5, 3)])
def test_scipy_reads_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, int]
) -> None:
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 20)
    X = make(*shape, dtype)
    write_vectors(tmp_path / "a.mat", X, key="my_rows")
    found = scipy.io.loadmat(tmp_path / "a.mat", mat_dtype=True)["my_rows"]
    assert scipy.io.whosmat(tmp_path / "a.mat")[0][:2] == ("my_rows", shape)
    np.testing.assert_array_equal(found, X)


def by_hand(X: NDArray[Any], stored: tuple[int, str], kind: int = 6, order: str = ">") -> bytes:
    """A MATLAB 5 file with one variable, of a class and of a type to store it as."""

    def element(code: int, data: bytes) -> bytes:
        if len(data) <= 4:
            return struct.pack(f"{order}I", len(data) << 16 | code) + data.ljust(4, b"\0")
        return struct.pack(f"{order}II", code, len(data)) + data + bytes(-len(data) % 8)

    inside = element(6, struct.pack(f"{order}II", kind, 0))
    inside += element(5, struct.pack(f"{order}ii", *X.shape)) + element(1, b"A")
    inside += element(stored[0], X.T.astype(f"{order}{stored[1]}").tobytes())
    mark = struct.pack(f"{order}HH", 0x0100, 0x4D49)
    return b"hand".ljust(124) + mark + struct.pack(f"{order}II", 14, len(inside)) + inside


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("stored", [(2, "u1"), (3, "i2"), (7, "f4"), (9, "f8"), (5, "i4")])
@pytest.mark.parametrize("shape", [(6, 5), (2, 1)])
def test_mat_of_either_order_and_small_storage(
    tmp_path: Path, order: str, stored: tuple[int, str], shape: tuple[int, int]
) -> None:
    """MATLAB stores a double as an integer where that is enough; scipy shows the same type."""
    X = make(*shape, "uint8")
    (tmp_path / "a.mat").write_bytes(by_hand(X, stored, order=order))
    found = open_vectors(tmp_path / "a.mat")
    np.testing.assert_array_equal(found[:], X)
    expected = scipy.io.loadmat(tmp_path / "a.mat")["A"]
    np.testing.assert_array_equal(expected, X)
    assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")


def test_mat_7_3(tmp_path: Path, h5py: Any) -> None:
    X = make(40, 3, "float64")
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file.create_dataset("X", data=X.T, chunks=(2, 9), compression="gzip")
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
        file["title"] = np.full((4, 1), 65, np.uint16)
        file["title"].attrs["MATLAB_class"] = np.bytes_("char")
        file["none"] = np.zeros((1, 2), np.uint64)
        file["none"].attrs["MATLAB_empty"] = 1
        file["#refs#/a"] = X
    with (tmp_path / "a.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    found = open_vectors(tmp_path / "a.mat")
    assert isinstance(found, Source)
    assert found.shape == (40, 3)
    np.testing.assert_array_equal(found[5:31], X[5:31])
    np.testing.assert_array_equal(found[np.array([0, 7, 39])], X[[0, 7, 39]])
    with pytest.raises(InputError, match="it has 'X' float64 \\(40, 3\\), 'none' empty, 'title' c"):
        open_vectors(tmp_path / "a.mat", key="Y")


# --- Parquet and Arrow --------------------------------------------------------------------


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow", reason="Parquet and Arrow need the extra parquet")


def lists(pa: Any, X: NDArray[Any], kind: str) -> Any:
    values, d = pa.array(X.reshape(-1)), X.shape[1]
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(values, d)
    if kind == "tensor":
        tensor = pa.fixed_shape_tensor(values.type, [d])
        return pa.ExtensionArray.from_storage(tensor, lists(pa, X, "fixed"))
    offsets = np.arange(0, X.size + 1, d)
    if kind == "large":
        return pa.LargeListArray.from_arrays(offsets, values)
    return pa.ListArray.from_arrays(offsets.astype(np.int32), values)


def write_table(pa: Any, path: Path, table: Any, rows: int, **options: Any) -> None:
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(table, path, row_group_size=rows, **options)
        return
    streamed = options.pop("streamed", False)
    options = {"options": pa.ipc.IpcWriteOptions(**options)}
    begin = pa.ipc.new_stream if streamed else pa.ipc.new_file
    with begin(str(path), table.schema, **options) as writer:
        writer.write_table(table.slice(0, 0), max_chunksize=rows)
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=table.schema))
        writer.write_table(table, max_chunksize=rows)


@pytest.mark.parametrize("kind", ["fixed", "list", "large", "tensor"])
@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        (".parquet", {}),
        (".parquet", {"compression": "zstd"}),
        (".arrow", {}),
        (".feather", {"compression": "lz4"}),
        (".arrow", {"streamed": True}),
        (".arrow", {"streamed": True, "compression": "zstd"}),
    ],
)
def test_lists_of_any_kind(
    tmp_path: Path, pa: Any, kind: str, suffix: str, options: dict[str, Any]
) -> None:
    X = make(50, 4, "float32")
    columns = {
        "before": pa.array([{"a": 1, "b": [1, 2]}] * 50),
        "id": pa.array(range(50)),
        "v": lists(pa, X, kind),
        "words": pa.array([["a"]] * 50),
    }
    path = tmp_path / f"a{suffix}"
    write_table(pa, path, pa.table(columns), 7, **options)
    found = open_vectors(path)
    assert isinstance(found, Source)
    assert found.shape == (50, 4)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:], X)
    np.testing.assert_array_equal(found[6:8], X[6:8])
    positions = np.array([0, 6, 7, 48, 49])
    np.testing.assert_array_equal(found[positions], X[positions])
    with pytest.raises(InputError, match="'id' of .* must be real numbers .*got int64"):
        open_vectors(path, key="id")
    with pytest.raises(InputError, match="nothing named 'w'; it has 'before' struct<.*, 'id' int"):
        open_vectors(path, key="w")
    if suffix != ".parquet":
        assert open_vectors(path, key="v").shape == (50, 4)


def test_two_columns_of_lists(tmp_path: Path, pa: Any, suffix: str) -> None:
    if suffix not in (".parquet", ".arrow"):
        return
    X = make(20, 4, "float32")
    twice = {"a": lists(pa, X, "list"), "a.b": lists(pa, X + 1, "list")}
    write_table(pa, tmp_path / f"a{suffix}", pa.table(twice), 6)
    with pytest.raises(InputError, match="several arrays"):
        open_vectors(tmp_path / f"a{suffix}")
    for key, expected in (("a", X), ("a.b", X + 1)):
        np.testing.assert_array_equal(open_vectors(tmp_path / f"a{suffix}", key=key)[:], expected)


def test_a_pass_decodes_every_row_group_once(
    tmp_path: Path, pa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = make(300, 4, "float32")
    write_table(pa, tmp_path / "a.parquet", pa.table({"v": lists(pa, X, "fixed")}), 50)
    decoded: list[int] = []
    column = parquet.ParquetRows._column

    def note(rows: parquet.ParquetRows, piece: int) -> list[Any]:
        decoded.append(piece)
        return column(rows, piece)

    monkeypatch.setattr(parquet.ParquetRows, "_column", note)
    found = open_vectors(tmp_path / "a.parquet")
    assert decoded == []
    for start in range(0, 300, 20):
        np.testing.assert_array_equal(found[start : start + 20], X[start : start + 20])
    assert decoded == list(range(6))
    np.testing.assert_array_equal(found[np.array([200, 251, 299])], X[[200, 251, 299]])
    assert decoded == list(range(6))  # the last two were still there
    np.testing.assert_array_equal(found[:1], X[:1])
    assert decoded == [*range(6), 0]


def test_pyarrow_reads_what_is_written(
    tmp_path: Path, pa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet, feather = (pytest.importorskip(f"pyarrow.{name}") for name in ("parquet", "feather"))
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 40)
    X = make(30, 4, "float32")
    for suffix, read in (
        (".parquet", parquet.read_table),
        (".arrow", feather.read_table),
        (".feather", feather.read_table),
    ):
        write_vectors(tmp_path / f"a{suffix}", X, key="v")
        table = read(tmp_path / f"a{suffix}")
        assert table.schema.field("v").type == pa.list_(pa.float32(), 4)
        assert table["v"].to_pylist() == X.tolist()
    assert parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 3


# --- use ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
def test_learning_from_a_file_is_learning_from_the_array(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 1600)  # pieces that no block agrees with
    X = make(1000, 12, sample_type(suffix))
    path = tmp_path / f"a{suffix}"
    write_vectors(path, X)
    found: Any = open_vectors(path)
    rows = Rows(found)
    assert (rows.n_rows, rows.n_features, rows.dtype) == (1000, 12, Rows(X).dtype)
    one, two = (DSH(8, random_state=0).fit(vectors) for vectors in (X, found))
    assert one.planes_.tobytes() == two.planes_.tobytes()
    assert one.thresholds_.tobytes() == two.thresholds_.tobytes()
    assert one.transform(X).tobytes() == two.transform(found).tobytes()
    np.testing.assert_array_equal(nearest(X[:5], found, k=7), nearest(X[:5], X, k=7))


def test_rows_from_many_threads(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 700)
    X = make(2000, 6, sample_type(suffix))
    write_vectors(tmp_path / f"a{suffix}", X)
    found = open_vectors(tmp_path / f"a{suffix}")

    def ask(seed: int) -> bool:
        random = np.random.default_rng(seed)
        start, stop = np.sort(random.integers(0, 2001, 2)).tolist()
        some = np.sort(random.choice(2000, 30, replace=False))
        return bool((found[start:stop] == X[start:stop]).all() and (found[some] == X[some]).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(60)))


@pytest.mark.parametrize("suffix", [".hdf5", ".parquet", ".arrow"])
def test_what_a_source_refuses(tmp_path: Path, suffix: str) -> None:
    need(suffix)
    X = make(10, 3, "float32")
    write_vectors(tmp_path / f"a{suffix}", X)
    found: Any = open_vectors(tmp_path / f"a{suffix}")
    for wrong, message in (
        (slice(0, 5, 2), "a slice of step 1 or positions, got step 2"),
        (slice(None, None, -1), "got step -1"),
        (np.array([3, 10]), "must lie in 0..9, got 10"),
        (np.array([-1]), "must lie in 0..9, got -1"),
        (np.array([0.5]), "a slice or integers of shape \\(m,\\)"),
        (np.ones(10, bool), "a slice or integers"),
        (3, "a slice or integers"),
    ):
        with pytest.raises(InputError, match=message):
            found[wrong]
    # More than it must do: any order, and the same row twice.
    mixed = np.array([7, 2, 2, 9, 0], np.uint8)
    np.testing.assert_array_equal(found[mixed], X[mixed])
    assert found[np.empty(0, int)].shape == found[5:2].shape == (0, 3)
    assert len(found) == 10


def test_ground_truth_in_ivecs(tmp_path: Path) -> None:
    truth = nearest(make(4, 3, "uint8", seed=1), make(50, 3, "uint8"), k=5).astype(np.int32)
    write_vectors(tmp_path / "groundtruth.ivecs", truth)
    found = open_vectors(tmp_path / "groundtruth.ivecs")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found[:], truth)


# --- arguments ----------------------------------------------------------------------------


def test_the_table_of_formats() -> None:
    assert len(set(SUFFIXES)) == len(SUFFIXES)
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in SUFFIXES)
    assert {form.extra for form in FORMATS} == {"", *PACKAGES}
    for form in FORMATS:
        for suffix in form.suffixes:
            stored = set(INTO.get(suffix, {"all": "any real type"}).values())
            whole = stored.pop() if len(stored) == 1 else "any real type"
            assert form.holds == (whole if suffix in WRITABLE else "text, read as float64")


@pytest.mark.parametrize("path", ["a", "a.xls", "a.npy.gz", "a.fvecs/", "fvecs", ".fvecs"])
def test_unknown_suffixes(path: str) -> None:
    if path == "a.fvecs/":  # a folder's name, to the same file
        with pytest.raises(FileError, match="a.fvecs does not exist"):
            open_vectors(path)
        return
    for call in (lambda: open_vectors(path), lambda: write_vectors(path, [[1.0]])):
        with pytest.raises(InputError, match="path must end in one of \\.fvecs, .*, got"):
            call()


@pytest.mark.parametrize("suffix", sorted({*SUFFIXES} - {*WRITABLE}))
def test_text_is_not_written(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is read, but not written: path must end in .*feather"):
        write_vectors(tmp_path / f"a{suffix}", [[1.0]])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [None, 3, b"a.npy", "a\0.npy"])
def test_what_is_no_path(path: Any) -> None:
    # Pythons differ in where they see the NUL.
    with pytest.raises(InputError, match="path must (be a|have no NUL)"):
        open_vectors(path)
    with pytest.raises(InputError, match="path must (be a|have no NUL)"):
        write_vectors(path, [[1.0]])


@pytest.mark.parametrize("suffix", [".fvecs", ".u8bin", ".npy"])
def test_a_key_where_there_are_no_names(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write_vectors(path, make(2, 2, sample_type(suffix)))
    for call in (
        lambda: open_vectors(path, key="X"),
        lambda: write_vectors(path, [[1]], key="X"),
    ):
        with pytest.raises(InputError, match=f"key must be None for {suffix}, .*got 'X'"):
            call()


@pytest.mark.parametrize("key", ["", "a\0b", "a\nb", "\ud800", 3, b"a"])
@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".mat", ".parquet", ".arrow"])
def test_keys_that_are_no_names(tmp_path: Path, suffix: str, key: Any) -> None:
    with pytest.raises(InputError, match="key must be a"):
        write_vectors(tmp_path / f"a{suffix}", [[1.0]], key=key)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("suffix", "key"),
    [(".mat", "1a"), (".mat", "a b"), (".mat", "a" * 64), (".h5", "/a"), (".h5", "a/./b")],
)
def test_keys_that_one_format_does_not_have(tmp_path: Path, suffix: str, key: str) -> None:
    with pytest.raises(InputError, match="key must be a name of"):
        write_vectors(tmp_path / f"a{suffix}", [[1.0]], key=key)


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [
        (".hdf5", "h5py", "hdf5"),
        (".parquet", "pyarrow", "parquet"),
        (".arrow", "pyarrow", "parquet"),
    ],
)
def test_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str, extra: str
) -> None:
    path = tmp_path / f"a{suffix}"
    raw = {
        ".hdf5": b"\x89HDF\r\n\x1a\n",
        ".parquet": b"PAR1xxx\3\0\0\0PAR1",
        ".arrow": b"ARROW1xxx\3\0\0\0ARROW1",
    }
    path.write_bytes(raw[suffix])
    monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: open_vectors(path), lambda: write_vectors(path, [[1.0]])):
        with pytest.raises(MissingExtraError, match=f"{module} is .*densehash\\[{extra}\\]"):
            call()
    assert path.read_bytes() == raw[suffix]
    assert list(tmp_path.iterdir()) == [path]


# --- writing ------------------------------------------------------------------------------


def test_writing_takes_little_memory(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 1 << 14)
    X = Counting(make(1 << 17, 8, sample_type(suffix)))
    write_vectors(tmp_path / f"warm{suffix}", X.array[:1])  # imports
    tracemalloc.start()
    try:
        write_vectors(tmp_path / f"a{suffix}", X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert X.most <= 1 << 14
    assert peak < X.array.nbytes / 2


def test_an_interrupt_leaves_the_old_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BLOCK_NUMBERS", 100)
    path = tmp_path / f"a{suffix}"
    X = make(1000, 8, sample_type(suffix))
    write_vectors(path, X[:3])
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_vectors(path, Counting(X, fail_at=500))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_source_that_gives_too_little(tmp_path: Path, suffix: str) -> None:
    short = Counting(make(10, 3, sample_type(suffix)))
    short.shape = 12, 3
    with pytest.raises(InputError, match=r"X has shape \(12, 3\), but its rows from 0 on came as"):
        write_vectors(tmp_path / f"a{suffix}", short)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def full_disk() -> Iterator[Callable[[], None]]:
    """A limit on the size of files: a write that goes beyond it fails as on a full disk."""
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, suffix: str, full_disk: Callable[[], None]
) -> None:
    path = tmp_path / f"a{suffix}"
    write_vectors(path, make(2, 2, sample_type(suffix)))
    before = path.read_bytes()
    full_disk()
    with pytest.raises(FileError, match=f"a{suffix} cannot be written: .*[Ff]ile too large"):
        write_vectors(path, make(9_000, 30, sample_type(suffix)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.fvecs"
    write_vectors(path, make(2, 2, "float32"))
    before = path.read_bytes()
    script = f"""
        import os, signal
        import numpy as np
        from densehash.datasets import writing
        from densehash.datasets.files import write_vectors
        from densehash.source import Source

        class Deadly(Source):
            shape, dtype = (1000, 8), np.dtype(np.float32)

            def __getitem__(self, rows):
                if rows.start > 500:
                    os.kill(os.getpid(), signal.SIGKILL)
                return np.ones((rows.stop - rows.start, 8), np.float32)

        writing._BLOCK_NUMBERS = 800
        write_vectors({str(path)!r}, Deadly())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*.fvecs")) == [path]


def test_a_file_may_be_written_over_itself(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    X = make(100, 4, sample_type(suffix))
    write_vectors(path, X)
    found = open_vectors(path)
    write_vectors(path, found)
    np.testing.assert_array_equal(found[:], X)
    np.testing.assert_array_equal(open_vectors(path)[:], X)


@pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")
def test_links_and_modes_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target.npy", tmp_path / "link.npy"
    write_vectors(target, [[1.0]])
    target.chmod(0o640)
    link.symlink_to(target)
    write_vectors(link, [[2.0]])
    assert link.is_symlink()
    assert np.load(target) == 2.0
    assert target.stat().st_mode & 0o777 == 0o640


def test_places_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    X = make(2, 2, sample_type(suffix))
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / "file").write_text("")
    for name, message in (
        (f"folder{suffix}", "is a directory, expected a file or nothing"),
        (f"none/a{suffix}", "cannot be written: No such file or directory"),
        (f"file/a{suffix}", "cannot be written: Not a directory"),
        (f"{'a' * 300}{suffix}", "cannot be written: File name too long"),
    ):
        with pytest.raises(FileError, match=message):
            write_vectors(tmp_path / name, X)
    assert len(list(tmp_path.iterdir())) == 2


def test_more_than_a_format_counts(tmp_path: Path) -> None:
    for suffix, shape, message in (
        (".fvecs", (1, 2**31), "X has 2147483648 features, but .fvecs counts them up to"),
        (".fbin", (2**32, 1), "but .fbin counts up to 4294967295"),
        (".mat", (2**30, 2), "counts up to 2147483647: write .hdf5"),
        (".mat", (2**31, 2), "counts up to 2147483647: write .hdf5"),
    ):
        with pytest.raises(InputError, match=message):
            write_vectors(tmp_path / f"a{suffix}", np.broadcast_to(np.float32(1), shape))
    assert not list(tmp_path.iterdir())
