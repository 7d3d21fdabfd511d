"""Files that are cut, damaged or lie: one error that names the file, and nothing allocated."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from densehash import DSH
from densehash.datasets import vecs
from densehash.datasets.files import FORMATS, WRITABLE, open_vectors, write_vectors
from densehash.errors import FileError, InputError

HUGE = 2**31 - 1
LITTLE = 1 << 20  # bytes that looking at a header may take
PACKAGES = {"hdf5": "h5py", "parquet": "pyarrow"}
TYPES = {".bvecs": np.uint8, ".u8bin": np.uint8, ".i8bin": np.int8, ".ivecs": np.int32}
TYPES |= {".ibin": np.int32}


@pytest.fixture(params=WRITABLE)
def suffix(request: pytest.FixtureRequest) -> str:
    extra = next(form.extra for form in FORMATS if request.param in form.suffixes)
    if extra:
        pytest.importorskip(PACKAGES[extra], reason=f"{request.param} needs the extra {extra}")
    return str(request.param)


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason="HDF5 needs the extra hdf5")


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow", reason="Parquet and Arrow need the extra parquet")


def make(suffix: str, n: int = 9, d: int = 4) -> NDArray[Any]:
    values = np.random.default_rng(0).integers(1, 120, (n, d))
    return values.astype(TYPES.get(suffix, np.float32))


def refuse(path: Path, *parts: object, key: str | None = None, kinds: Any = FileError) -> None:
    """Opening must fail with an error of all these parts, and with little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(kinds) as error:
            open_vectors(path, key=key)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(error.value)
    assert peak < LITTLE
    assert message.count(str(path)) == 1
    for part in parts:
        assert str(part) in message, message
    assert "\n" not in message


# --- cut ----------------------------------------------------------------------------------


def test_a_file_cut_anywhere(tmp_path: Path, suffix: str) -> None:
    whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    X = make(suffix)
    write_vectors(whole, X)
    raw = whole.read_bytes()
    lengths = {*range(0, min(len(raw), 160), 5), *range(len(raw) - 9, len(raw))}
    lengths |= {*range(0, len(raw), max(1, len(raw) // 15))}
    row = 4 + X[0].nbytes
    for length in sorted(lengths):
        cut.unlink(missing_ok=True)
        cut.write_bytes(raw[:length])
        if suffix in vecs.TYPES and length and length % row == 0:
            # Nothing in the file says how many rows there should be.
            np.testing.assert_array_equal(open_vectors(cut)[:], X[: length // row])
            continue
        with pytest.raises(FileError, match=f"cut{suffix}"):
            open_vectors(cut)


@pytest.mark.parametrize("suffix", [".fvecs", ".bvecs", ".ivecs"])
def test_where_a_vecs_file_was_cut(tmp_path: Path, suffix: str) -> None:
    X = make(suffix)
    path, row = tmp_path / f"a{suffix}", 4 + X[0].nbytes
    write_vectors(path, X)
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    refuse(path, f"at offset {8 * row}, expected {row} bytes of row 8", f"found {row - 1}")
    path.write_bytes(raw[: 5 * row + 2])
    refuse(path, f"at offset {5 * row}, expected 4 bytes of the dimension of row 5, found 2")
    path.write_bytes(raw[:3])
    refuse(path, "at offset 0, expected 4 bytes of the dimension of row 0, found 3")
    path.write_bytes(raw + b"\0\0")
    refuse(path, f"at offset {9 * row}, expected 4 bytes of the dimension of row 9, found 2")


def test_where_other_files_were_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.fbin"
    write_vectors(path, make(".fbin"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    refuse(path, "at offset 8, expected 144 bytes of numbers (float32 (9, 4)), found 143")
    path.write_bytes(raw[:7])
    refuse(path, "at offset 0, expected 8 bytes of the header n, d, found 7")
    path.write_bytes(raw + b"more")
    refuse(path, "at offset 152, expected the end of the file after 9 rows of 4", "found 4 bytes")
    path = tmp_path / "a.npy"
    write_vectors(path, make(".npy"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    refuse(path, "at offset 128, expected 144 bytes of numbers", "found 143 bytes")
    path.write_bytes(raw + b"more")
    refuse(path, "at offset 128, expected 144 bytes of numbers", "found 148 bytes")
    path.write_bytes(raw[:50])
    refuse(path, "at offset 10, expected 118 bytes of an npy header, found 40")
    path = tmp_path / "a.mat"
    write_vectors(path, make(".mat"))
    path.write_bytes(path.read_bytes()[:-1])
    refuse(path, "at offset 136, expected", "bytes of an element, found")
    path.write_bytes(path.read_bytes()[:128])
    refuse(path, "at offset 128, expected 8 bytes of a variable, found 0")


def test_an_empty_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").touch()
    refuse(tmp_path / f"a{suffix}")


# --- no file ------------------------------------------------------------------------------


def test_what_is_no_file(tmp_path: Path, suffix: str) -> None:
    refuse(tmp_path / f"none{suffix}", "does not exist")
    (tmp_path / f"folder{suffix}").mkdir()
    refuse(tmp_path / f"folder{suffix}", "is a directory, expected a file")
    (tmp_path / "file").touch()
    refuse(tmp_path / "file" / f"a{suffix}", "cannot be read: Not a directory")
    refuse(tmp_path / f"{'a' * 300}{suffix}", "cannot be read: File name too long")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe{suffix}")
    refuse(tmp_path / f"pipe{suffix}", "is not a regular file, expected a file")
    with pytest.raises(FileError, match="is not a regular file, expected a file or nothing"):
        write_vectors(tmp_path / f"pipe{suffix}", make(suffix))
    assert stat.S_ISFIFO((tmp_path / f"pipe{suffix}").stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_no_permission(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write_vectors(path, make(suffix))
    path.chmod(0o000)
    refuse(path, "cannot be read: Permission denied")
    with pytest.raises(FileError, match="write-protected"):
        write_vectors(path, make(suffix))


# --- another format -----------------------------------------------------------------------


def test_a_file_of_another_format(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"whole{suffix}"
    write_vectors(whole, make(suffix))
    families = [(".hdf5", ".h5"), (".arrow", ".feather"), *((name,) for name in WRITABLE[:9])]
    family = next((names for names in families if suffix in names), (suffix,))
    signed = WRITABLE.index(suffix) >= WRITABLE.index(".npy")
    for other in WRITABLE:
        path = tmp_path / f"other{other}"
        path.unlink(missing_ok=True)
        path.write_bytes(whole.read_bytes())
        alike = {suffix, other} <= {".fvecs", ".ivecs"} or {suffix, other} <= {".fbin", ".ibin"}
        alike |= {suffix, other} <= {".u8bin", ".i8bin"}
        if other in family or alike:
            assert open_vectors(path).shape == (9, 4)
        elif (suffix, other) in {(".hdf5", ".mat"), (".h5", ".mat")}:  # 7.3 is HDF5
            assert open_vectors(path).shape == (4, 9)
        else:
            hint = f"(it begins like a file of {family[0]})" if signed else ""
            refuse(path, hint)


@pytest.mark.parametrize("text", [b"hello, world", b"1,2,3\n4,5,6\n" * 50, bytes(4096)])
def test_text_and_zeros(tmp_path: Path, suffix: str, text: bytes) -> None:
    (tmp_path / f"a{suffix}").write_bytes(text)
    refuse(tmp_path / f"a{suffix}")


# --- headers that lie ---------------------------------------------------------------------


@pytest.mark.parametrize("d", [0, -1, -(2**31), HUGE, 25, 10**9])
@pytest.mark.parametrize("suffix", [".fvecs", ".bvecs", ".ivecs"])
def test_dimensions_that_cannot_be(tmp_path: Path, suffix: str, d: int) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(struct.pack("<i", d) + bytes(20))
    width = 4 + d * np.dtype(TYPES.get(suffix, np.float32)).itemsize
    found = f"expected {width} bytes of row 0 of dimension {d}, found 24"
    refuse(
        path, "at offset 0", found if d > 0 else f"a dimension of at least 1 for row 0, found {d}"
    )


@pytest.mark.parametrize("row", [1, 4, 7, 8])
@pytest.mark.parametrize("d", [3, 5, 0, -4, HUGE])
@pytest.mark.parametrize("suffix", [".fvecs", ".bvecs", ".ivecs"])
def test_a_row_of_another_dimension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, d: int, row: int
) -> None:
    monkeypatch.setattr(vecs, "_CHECKED_AT_ONCE", 3)
    X = make(suffix)
    path, item = tmp_path / f"a{suffix}", X.itemsize
    write_vectors(path, X)
    raw, at = path.read_bytes(), row * (4 + 4 * item)
    inside = bytes(max(0, min(d, 9)) * item)
    path.write_bytes(raw[:at] + struct.pack("<i", d) + inside + raw[at + 4 + 4 * item :])
    refuse(path, f"at offset {at}, expected dimension 4 for row {row}, as for row 0, found {d}")


@pytest.mark.parametrize(
    ("n", "d"),
    [(0, 4), (9, 0), (0, 0), (HUGE, 4), (9, HUGE), (HUGE, HUGE), (2**32 - 1, 2**32 - 1), (10, 4)],
)
@pytest.mark.parametrize("suffix", [".fbin", ".u8bin", ".i8bin", ".ibin"])
def test_sizes_of_bins_that_cannot_be(tmp_path: Path, suffix: str, n: int, d: int) -> None:
    path = tmp_path / f"a{suffix}"
    X = make(suffix)
    path.write_bytes(struct.pack("<II", n, d) + X.tobytes())
    if n * d == 0:
        refuse(path, f"at offset 0, expected 2 dimensions (n, d) of at least 1, found shape ({n},")
    else:
        refuse(path, f"at offset 8, expected {n * d * X.itemsize} bytes", f"found {X.nbytes}")


def npy(descr: object, shape: object, data: bytes = b"", *, version: int = 1) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (npy("<f4", (10**6, 10**6), bytes(16)), "expected 4000000000000 bytes of numbers"),
        (npy("<f8", (2**62, 2**62), bytes(16)), f"expected {2**127} bytes"),
        (npy("<f4", (HUGE, HUGE), version=2), f"expected {4 * HUGE**2} bytes"),
        (npy("<f4", (2, 3), bytes(23)), "expected 24 bytes of numbers (float32 (2, 3)), found 23"),
        (npy("<f4", (0, 3)), "at least 1, found shape (0, 3)"),
        (npy("<f4", (-1, 3)), "at least 1, found shape (-1, 3)"),
        (npy("<f4", (6,), bytes(24)), "2 dimensions (n, d) of at least 1, found shape (6,)"),
        (npy("<f4", (1, 2, 3), bytes(24)), "found shape (1, 2, 3)"),
        (npy("<f4", (), bytes(4)), "found shape ()"),
        (npy("|O", (2, 2), b"\x80\x04."), "'|O' (pickled objects are never read)"),
        (npy([("a", "|O")], (2, 2)), "(pickled objects are never read)"),
        (npy([("a", "<f4")], (2, 2), bytes(16)), "a type of real numbers, found [('a', '<f4')]"),
        (npy("<c8", (2, 2), bytes(32)), "a type of real numbers, found '<c8'"),
        (npy("<U4", (2, 2), bytes(64)), "a type of real numbers"),
        (npy("<M8[s]", (2, 2), bytes(32)), "a type of real numbers"),
        (npy("<f7", (2, 2), bytes(32)), "a type of real numbers"),
        (npy("<f4", [2, 2], bytes(16)), "an npy header with descr, fortran_order and shape"),
        (npy("<f4", (2.0, 2), bytes(16)), "an npy header with"),
        (npy("<f4", (True, 2), bytes(8)), "an npy header with"),
        (npy("<f4", "x"), "an npy header with"),
        (b"\x93NUMPY\x01\x00\x05\x00hello", "an npy header with"),
        (b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000, "an npy header with"),
        (b"\x93NUMPY\x01\x00\x02\x00{}", "an npy header with"),
        (b"\x93NUMPY\x01\x00\x08\x00[1,2,3,]", "an npy header with"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "a header of at most 10000 bytes, found 42949672"),
        (b"\x93NUMPY\x01\x00\xff\x00{}", "expected 255 bytes of an npy header, found 2"),
        (b"\x93NUMPY\x09\x00\x02\x00{}", "a version from 1 to 3"),
        (b"\x93NUMPX\x01\x00\x02\x00{}", "a version from 1 to 3"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_npy_headers(tmp_path: Path, suffix: str, raw: bytes, expected: str) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        path.write_bytes(raw)
        refuse(path, "at offset", expected)
        return
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("X.npy", raw)
        refuse(path, kinds=(FileError, InputError))  # an array of another kind, to be listed


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_no_pickle_is_read(tmp_path: Path, suffix: str) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    path = tmp_path / f"a{suffix}"
    objects = np.array([[Trap(), 1], [2, 3]], dtype=object)
    with path.open("wb") as file:
        (np.savez if suffix == ".npz" else np.save)(file, objects, allow_pickle=True)
    with pytest.raises((FileError, InputError)):
        open_vectors(path)
    assert not (tmp_path / "sprung").exists()


def patched(raw: bytes, old: bytes, new: bytes) -> bytes:
    assert raw.count(old) >= 1
    return raw.replace(old, new)


def test_members_of_npz_that_lie_about_their_size(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    lie = npy("<f4", (10**6, 10**6), bytes(64))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("X.npy", lie)
        refuse(path, "expected 4000000000000 bytes of numbers", "found 64 bytes")
        # The archive's own directory supports the lie as far as it can.
        raw = path.read_bytes()
        size = struct.pack("<I", len(lie))
        path.write_bytes(patched(raw, size, struct.pack("<I", 2**32 - 2)))
        refuse(path)


def test_a_directory_that_promises_more_than_deflate_can(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    rows = 10**8
    header = npy("<f4", (rows, 10))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header + bytes(4000))
    raw = path.read_bytes()
    real, lie = (struct.pack("<I", len(header) + size) for size in (4000, 4 * 10 * rows))
    path.write_bytes(patched(raw, real, lie))
    refuse(path, "from", "compressed ones, found", len(header) + 40 * rows)


def test_a_compressed_member_with_a_wrong_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=make(".npz", 500))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    refuse(path, "cannot be read as an npz archive")


def test_an_archive_without_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(InputError, match="it has 'readme.txt' no array"):
        open_vectors(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("X.npy", npy("<f4", (1, 1), bytes(4)))
    refuse(path, "is compressed, but not by deflate")


# --- MATLAB -------------------------------------------------------------------------------


def variable(
    shape: tuple[int, ...], n_stored: int, *, name: bytes = b"X", n_name: int | None = None
) -> bytes:
    """The element of a variable of doubles, without its numbers."""
    inside = struct.pack("<IIII", 6, 8, 6, 0)
    inside += struct.pack(f"<II{len(shape)}i", 5, 4 * len(shape), *shape)
    inside += bytes(-len(inside) % 8)
    inside += struct.pack("<II", 1, len(name) if n_name is None else n_name)
    inside += name + bytes(-len(name) % 8)
    return inside + struct.pack("<II", 9, n_stored)


def mat(element: bytes, size: int | None = None, *, packed: bool = False) -> bytes:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    tagged = struct.pack("<II", 14, len(element) if size is None else size) + element
    if not packed:
        return head + tagged
    squeezed = zlib.compress(tagged)
    return head + struct.pack("<II", 15, len(squeezed)) + squeezed


@pytest.mark.parametrize("packed", [False, True])
def test_variables_that_lie(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.mat"
    for element, size, expected in (
        (variable((10**6, 10**6), 16) + bytes(16), None, "expected 8000000000000 bytes"),
        (variable((HUGE, HUGE), 16) + bytes(16), None, f"expected {8 * HUGE**2} bytes"),
        (variable((2, 1), 2**32 - 8) + bytes(16), None, "expected 4294967288 bytes of numbers of"),
        (variable((2, 1), 16) + bytes(16), 2**32 - 8, "4294967288" if not packed else "at most"),
        (variable((2, 1), 16, n_name=2**32 - 8), None, "at most 4096 bytes of a name, found 4294"),
        (variable((2, 1), 16)[:20], None, "bytes of"),
        (variable((2, 1), 24) + bytes(24), None, "expected 16 bytes of float64 (2, 1), found 24"),
        (variable((1,) * 80, 8) + bytes(8), None, "at most 256 bytes of dimensions, found 320"),
    ):
        path.write_bytes(mat(element, size, packed=packed))
        refuse(path, "at offset", expected, "found")
    for shape in ((0, 3), (-1, -1), (4,), (1, 2, 2), ()):
        path.write_bytes(mat(variable(shape, 32) + bytes(32), packed=packed))
        with pytest.raises(InputError, match="it has 'X' double \\("):
            open_vectors(path)


def test_compressed_variables_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"X": np.random.default_rng(0).random((50, 4))}, do_compression=True)
    raw = bytearray(path.read_bytes())
    for at in (140, 300, len(raw) - 2):
        damaged = bytearray(raw)
        damaged[at] ^= 255
        path.write_bytes(damaged)
        refuse(path, "offset")


def test_a_bomb_of_zeros_is_no_larger_than_it_says(tmp_path: Path) -> None:
    """Small sizes in the header, and much more behind them."""
    path = tmp_path / "a.mat"
    path.write_bytes(mat(variable((2, 1), 16) + bytes(16) + bytes(30_000_000), packed=True))
    tracemalloc.start()
    found = open_vectors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (2, 1)
    assert peak < 8 * LITTLE


def test_other_versions_of_mat(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.ones((50, 4))}, format="4")
    refuse(tmp_path / "a.mat", "at offset 126, expected b'IM' or b'MI', as in", "version 5, found")


# --- HDF5 ---------------------------------------------------------------------------------


def test_a_dataset_that_was_never_written(tmp_path: Path, h5py: Any) -> None:
    path = tmp_path / "a.h5"
    for shape, options, expected in (
        ((10**6, 10**6), {}, "expected 4000000000000 bytes of 'train', float32"),
        ((1, 10**12), {}, "expected 4000000000000 bytes"),
        ((10**6, 10**6), {"chunks": (1000, 1000)}, "expected 1000000 chunks of 'train', found 0"),
        ((10**12, 4), {"chunks": (10**6, 4)}, "expected 1000000 chunks of 'train', found 0"),
    ):
        path.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            file.create_dataset("train", shape=shape, dtype="f4", **options)
        refuse(path, "at offset", expected, "found 0")
    path.unlink()
    with h5py.File(path, "w") as file:
        file.create_dataset("train", shape=(100, 4), dtype="f4", chunks=(10, 4))[:35] = 1
    refuse(path, "expected 10 chunks of 'train', found 4: not all was written")


def test_a_header_of_hdf5_that_was_changed(tmp_path: Path, h5py: Any) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["train"] = np.ones((123, 4), np.float32)
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(patched(raw, struct.pack("<Q", 123), struct.pack("<Q", 10**12)))
    refuse(path)


def test_numbers_in_other_files_are_not_read(tmp_path: Path, h5py: Any) -> None:
    secret, path = tmp_path / "secret.bin", tmp_path / "a.h5"
    secret.write_bytes(bytes(64))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["train"] = np.ones((4, 4), np.float32)
    with h5py.File(path, "w") as file:
        file.create_dataset("train", shape=(4, 4), dtype="f4", external=[(str(secret), 0, 64)])
        layout = h5py.VirtualLayout((4, 4), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "train", (4, 4))
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "train")
        file["group"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        file["dangling"] = h5py.SoftLink("/nowhere")
    refuse(path, "the numbers of 'train' lie in other files, which are not read")
    refuse(path, "the numbers of 'virtual' lie in other files", key="virtual")
    for key in ("link", "group/train", "dangling"):
        with pytest.raises(InputError, match=f"nothing named '{key}'; it has 'train' float32"):
            open_vectors(path, key=key)


def test_a_file_that_is_not_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for raw in (b"", b"short", b"no HDF5 at all" * 500):
        path.write_bytes(raw)
        refuse(path, "at offset 0, expected the signature", f"of HDF5, found {raw[:8]!r}")


def test_a_chunk_that_is_damaged_is_found_when_it_is_read(tmp_path: Path, h5py: Any) -> None:
    path = tmp_path / "a.h5"
    X = np.random.default_rng(0).random((1000, 8))
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=X, chunks=(100, 8), compression="gzip", fletcher32=True)
        at = file["train"].id.get_chunk_info(7).byte_offset + 50
    raw = bytearray(path.read_bytes())
    raw[at] ^= 255
    path.unlink()
    path.write_bytes(raw)
    found: Any = open_vectors(path)
    np.testing.assert_array_equal(found[:700], X[:700])
    with pytest.raises(FileError, match="a.h5 cannot be read as HDF5: "):
        found[690:710]
    with pytest.raises(FileError, match="a.h5 cannot be read as HDF5: "):
        DSH(8, random_state=0).fit(found)


# --- Parquet and Arrow --------------------------------------------------------------------


def tables(pa: Any, tmp_path: Path, column: Any, rows: int = 3) -> Iterator[Path]:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"v": column})
    with contextlib.suppress(pa.ArrowNotImplementedError):  # of pyarrow 15, lists that are null
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=rows)
        yield tmp_path / "a.parquet"
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    yield tmp_path / "a.arrow"


def read_all(path: Path) -> None:
    found = open_vectors(path)
    for start in range(0, len(found), 2):
        assert found[start : start + 2].size


@pytest.mark.parametrize("wrong", [0, 1, 4, 7])
def test_lists_of_different_lengths(tmp_path: Path, pa: Any, wrong: int) -> None:
    rows: list[Any] = [[1.0, 2.0]] * 8
    for odd, found in (([1.0], 1), ([1.0, 2.0, 3.0], 3), ([], 0), (None, "null")):
        rows[wrong] = odd
        for path in tables(pa, tmp_path, pa.array(rows, pa.list_(pa.float32()))):
            if wrong == 0:  # the first row says how long all must be
                d = len(odd or [])
                expected = f"{d} numbers in row 1 of 'v', found 2" if d else "1 number in row 0"
            else:
                expected = f"expected 2 numbers in row {wrong} of 'v', found {found}"
            with pytest.raises(FileError, match=expected):
                read_all(path)


@pytest.mark.parametrize("wrong", [0, 4, 7])
@pytest.mark.parametrize("size", [-1, 2])
def test_nulls(tmp_path: Path, pa: Any, wrong: int, size: int) -> None:
    rows: list[Any] = [[1.0, 2.0]] * 8
    rows[wrong] = [1.0, None]
    for path in tables(pa, tmp_path, pa.array(rows, pa.list_(pa.float32(), size))):
        with pytest.raises(FileError, match=f"row {wrong} of 'v', found a null among them"):
            read_all(path)
    if size == 2:
        rows[wrong] = None
        # Before version 26, pyarrow cannot read such a column of Parquet at all.
        told = f"expected 2 numbers in row {wrong} of 'v', found|pyarrow: Expected all lists"
        for path in tables(pa, tmp_path, pa.array(rows, pa.list_(pa.float32(), size))):
            with pytest.raises(FileError, match=told):
                read_all(path)


def test_tables_without_rows_or_lists(tmp_path: Path, pa: Any) -> None:
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), 3)):
        for path in tables(pa, tmp_path, pa.array([], kind)):
            refuse(path, "expected at least 1 row, found 0")
    for column in ([1.0, 2.0], ["a"], [["a"]], [[[1.0]]], [{"a": 1}]):
        for path in tables(pa, tmp_path, pa.array(column)):
            with pytest.raises(InputError, match="no real numbers .*; it has 'v' "):
                open_vectors(path)


def test_footers_that_lie(tmp_path: Path, pa: Any) -> None:
    for path in tables(pa, tmp_path, pa.array([[1.0, 2.0]] * 4)):
        raw, tail = path.read_bytes(), 4 if path.suffix == ".parquet" else 6
        for length in (HUGE, -1, 0, len(raw)):
            lie = struct.pack("<i", length)
            path.write_bytes(raw[: -tail - 4] + lie + raw[-tail:])
            refuse(path, f"at offset {len(raw) - tail - 4}, expected a footer of 1 to", length)
        path.write_bytes(raw[:-1] + b"E")
        refuse(path, f"at offset {len(raw) - tail}, expected the signature")
        path.write_bytes(b"FEA1" + raw[4:])
        refuse(path, "at offset 0, expected the signature", "found b'FEA1")


def test_a_stream_cut_between_two_batches(tmp_path: Path, pa: Any) -> None:
    path, table = tmp_path / "a.arrow", pa.table({"v": pa.array([[1.0, 2.0]] * 4)})
    lengths = []
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for _ in range(3):
            writer.write_table(table)
            lengths.append(sink.tell())
    path.write_bytes(sink.getvalue())
    assert open_vectors(path).shape == (12, 2)
    for length in lengths:
        path.write_bytes(sink.getvalue()[:length])
        refuse(path, f"at offset {length - 8}, expected the mark", "at the end of a stream")


# --- damage anywhere ----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".fvecs", ".bvecs", ".fbin", ".npy", ".npz", ".mat"])
@pytest.mark.parametrize("compressed", [False, True])
def test_any_wrong_byte_is_an_error_or_a_number(
    tmp_path: Path, suffix: str, compressed: bool
) -> None:
    """No other exception, no large allocation, no other shape than the file has room for."""
    path, X = tmp_path / f"a{suffix}", make(suffix)
    write_vectors(path, X)
    if compressed and suffix == ".npz":
        np.savez_compressed(path, X=X, y=X[0])
    elif compressed and suffix == ".mat":
        scipy.io.savemat(path, {"X": X, "text": "words"}, do_compression=True)
    elif compressed:
        return
    raw, random = path.read_bytes(), np.random.default_rng(0)
    words = [struct.pack("<i", word) for word in (0, -1, HUGE, -HUGE, 1, 255)]
    tracemalloc.start()
    try:
        for _ in range(100):
            damaged = bytearray(raw)
            at = int(random.integers(min(len(raw) - 4, 600)))
            if random.integers(2):
                damaged[at : at + 4] = words[random.integers(len(words))]
            else:
                damaged[at] = random.integers(256)
            path.unlink()
            path.write_bytes(damaged)
            try:
                found = open_vectors(path)
                assert found[: len(found)].nbytes <= 1032 * len(raw)
            except (FileError, InputError):
                pass
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()
