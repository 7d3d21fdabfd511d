"""numpy's formats: npy, one array, and npz, a zip archive of arrays. Nothing is unpickled."""

from __future__ import annotations

import ast
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Reader, Vectors, broken, check_shape, choose, n_bytes
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import FileError

__all__ = ["open_npy", "open_npz", "write_npy", "write_npz"]

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000  # numpy also refuses longer ones
_SIMPLE = re.compile(r"[<>=|][fiub]\d{1,2}")
_ALIGNMENT = 64
_LOCAL_HEADER = 30  # bytes of a member's header in a zip archive, before its name
_MOST_DEFLATED = 1032  # how many times smaller deflate can make something
_CHUNK = 1 << 20

# What zipfile raises if an archive is damaged.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class _Layout:
    """The header of an npy file; `start` is where the numbers begin."""

    descr: object
    shape: tuple[int, ...]
    fortran_order: bool
    start: int

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of the numbers; None if they are not real numbers."""
        if not isinstance(self.descr, str) or not _SIMPLE.fullmatch(self.descr):
            return None
        try:
            return np.dtype(self.descr)
        except TypeError:  # a size that no type has
            return None

    def __str__(self) -> str:
        name = repr(self.descr) if self.dtype is None else self.dtype.name
        return f"{name} {self.shape}"


def open_npy(path: Path) -> NDArray[Any]:
    """Map a file.

    Parameters
    ----------
    path : an array of real numbers with two dimensions, in any byte order and memory order

    Returns
    -------
    array (n, d), read-only, of the file's type
    """
    with Reader(path) as file:
        return _map(file, 0, file.size)


def open_npz(path: Path, key: str | None = None) -> NDArray[Any]:
    """Map a member of an archive; a compressed member is unpacked into memory instead.

    Parameters
    ----------
    path : a file from ``numpy.savez`` or ``numpy.savez_compressed``
    key : name of the array; default the only one that has two dimensions

    Returns
    -------
    array (n, d), read-only, of the file's type
    """
    with Reader(path) as file:
        try:
            with zipfile.ZipFile(path) as archive:
                return _open_member(file, archive, key)
        except _ZIP_ERRORS as error:
            raise FileError(f"{path} cannot be read as an npz archive: {error}") from None


def write_npy(path: Path, X: Vectors) -> None:
    """Write rows, one block at a time.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept, in little-endian order
    """
    dtype = stored_type(X.dtype, ".npy")
    with replacing(path) as part, part.open("wb") as file:
        _write(file, X, dtype, 0)


def write_npz(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows as the only member of an archive without compression, one block at a time.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept, in little-endian order
    key : name of the array; default ``vectors``
    """
    dtype = stored_type(X.dtype, ".npz")
    member = zipfile.ZipInfo(f"{check_key(key, 'vectors')}.npy")
    with (
        replacing(path) as part,
        part.open("wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        archive.open(member, "w", force_zip64=True) as stream,
    ):
        _write(cast(BinaryIO, stream), X, dtype, file.tell())


def _open_member(file: Reader, archive: zipfile.ZipFile, key: str | None) -> NDArray[Any]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    def describe(name: str) -> tuple[str, bool]:
        if not members[name].filename.endswith(".npy"):
            return "no array", False
        with archive.open(members[name]) as stream:
            layout = _read_header(file.path, _taking(file.path, cast(BinaryIO, stream)), 0)
        fits = layout.dtype is not None and len(layout.shape) == 2 and min(layout.shape) > 0
        return str(layout), fits

    member = members[choose(file.path, key, list(members), describe)]
    start = _start_of(file, member)
    if member.compress_type == zipfile.ZIP_STORED:
        return _map(file, start, start + member.compress_size)
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise FileError(f"{file.path}: {member.filename!r} is compressed, but not by deflate")
    if member.file_size > _MOST_DEFLATED * member.compress_size:
        raise broken(
            file.path,
            start,
            f"at most {_MOST_DEFLATED * member.compress_size} bytes in {member.filename!r}, "
            f"from {member.compress_size} compressed ones",
            member.file_size,
        )
    with archive.open(member) as stream:
        return _unpack(file.path, cast(BinaryIO, stream), member.file_size)


def _start_of(file: Reader, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin; they must be inside the file."""
    header = file.read(member.header_offset, _LOCAL_HEADER, f"a header of {member.filename!r}")
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = member.header_offset + _LOCAL_HEADER + lengths
    file.need(start, member.compress_size, f"{member.filename!r}")
    return start


def _map(file: Reader, start: int, stop: int) -> NDArray[Any]:
    """Map the npy array in the bytes from ``start`` to ``stop`` of a file."""
    offset = start

    def take(count: int) -> bytes:
        nonlocal offset
        taken = file.read(offset, count, "an npy header")
        offset += count
        return taken

    layout = _read_header(file.path, take, start)
    dtype, shape = _check_layout(file.path, layout, start, stop - start)
    return file.map(dtype, shape, start + layout.start, "F" if layout.fortran_order else "C")


def _unpack(path: Path, stream: BinaryIO, size: int) -> NDArray[Any]:
    """Read the npy array in a stream of ``size`` bytes into memory."""
    layout = _read_header(path, _taking(path, stream), 0)
    dtype, shape = _check_layout(path, layout, 0, size)
    numbers = np.empty(shape[0] * shape[1], dtype)
    goal = numbers.view(np.uint8)
    for at in range(0, len(goal), _CHUNK):
        some = goal[at : at + _CHUNK]
        chunk = stream.read(len(some))
        if len(chunk) < len(some):
            found = at + len(chunk)
            raise broken(path, layout.start + found, f"{len(goal)} bytes of numbers", found)
        some[:] = np.frombuffer(chunk, np.uint8)
    numbers.flags.writeable = False
    return numbers.reshape(shape, order="F" if layout.fortran_order else "C")


def _taking(path: Path, stream: BinaryIO) -> Callable[[int], bytes]:
    def take(count: int) -> bytes:
        taken = stream.read(count)
        if len(taken) < count:
            raise broken(path, 0, f"{count} bytes of an npy header in a member", len(taken))
        return taken

    return take


def _read_header(path: Path, take: Callable[[int], bytes], offset: int) -> _Layout:
    """Read a header; does not check whether the numbers are there.

    Parameters
    ----------
    path : the file, for errors
    take : returns this many of the next bytes, or raises
    offset : position of the first byte, for errors
    """
    magic = take(8)
    if not magic.startswith(_MAGIC) or magic[6] not in (1, 2, 3):
        raise broken(path, offset, f"{_MAGIC!r} and a version from 1 to 3", repr(magic))
    size = 2 if magic[6] == 1 else 4
    length = int.from_bytes(take(size), "little")
    if length > _LONGEST_HEADER:
        raise broken(path, offset + 8, f"a header of at most {_LONGEST_HEADER} bytes", length)
    text = take(length).decode("latin1")
    try:
        # Python 2 wrote long integers as 10L.
        header = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", text).strip())
        descr, order, shape = (header[name] for name in ("descr", "fortran_order", "shape"))
    except (ValueError, TypeError, SyntaxError, KeyError, MemoryError, RecursionError):
        header = shape = None
    if not isinstance(shape, tuple) or not all(type(length) is int for length in shape):
        expected = "an npy header with descr, fortran_order and shape"
        raise broken(path, offset + 8 + size, expected, repr(text[:80]))
    return _Layout(descr, shape, bool(order), 8 + size + length)


def _check_layout(
    path: Path, layout: _Layout, offset: int, size: int
) -> tuple[np.dtype[Any], tuple[int, int]]:
    """Type and shape; an error if they are not those of vectors or do not match the size."""
    if layout.dtype is None:
        pickled = " (pickled objects are never read)" if "O" in str(layout.descr) else ""
        raise broken(path, offset, "a type of real numbers", f"{layout.descr!r}{pickled}")
    shape = check_shape(path, offset, layout.shape)
    expected = n_bytes(layout.dtype, shape)
    if size - layout.start != expected:
        found = f"{size - layout.start} bytes"
        raise broken(path, offset + layout.start, f"{expected} bytes of numbers ({layout})", found)
    return layout.dtype, shape


def _write(file: BinaryIO, X: Vectors, dtype: np.dtype[Any], offset: int) -> None:
    """Write an npy array; `offset` is how many bytes of the file come before it."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {tuple(X.shape)}, }}"
    # Spaces align the numbers, so that they can be mapped.
    before = offset + len(_MAGIC) + 4 + len(text) + 1
    text += " " * (-before % _ALIGNMENT) + "\n"
    file.write(_MAGIC + bytes([1, 0]) + len(text).to_bytes(2, "little") + text.encode("latin1"))
    for block in blocks(X, dtype):
        file.write(block.data)
