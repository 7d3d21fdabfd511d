"""Files of MATLAB: version 5 (``-v6`` and ``-v7`` in MATLAB), and 7.3, which is HDF5.

MATLAB writes arrays column by column. A variable of version 5 that is not compressed is mapped, in
Fortran order. A compressed variable, the default of MATLAB, cannot be read in part: it is unpacked
into memory, after its sizes are compared with each other. A variable of 7.3 is read when it is
used.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.hdf5 import Hdf5Rows
from densehash.datasets.reading import Reader, Vectors, broken, choose, in_words, n_bytes
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import FileError, InputError

__all__ = ["open_mat", "write_mat"]

Endian: TypeAlias = Literal["little", "big"]

_HEADER = 128
_HDF5 = b"\x89HDF\r\n\x1a\n"
_MOST_DEFLATED = 1032  # how many times smaller zlib can make something
_CHUNK = 1 << 20
_LONGEST_NAME = 4096
_MOST_DIMENSIONS = 64
_LARGEST = 2**31 - 1  # bytes that a variable may have

# Numbers that the format uses for types of elements and classes of variables.
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_NUMBERS |= {12: "i8", 13: "u8"}
_CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 6: "double", 7: "single"}
_CLASSES |= {8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32"}
_CLASSES |= {14: "int64", 15: "uint64", 16: "function", 17: "opaque"}
_REAL = {name for code, name in _CLASSES.items() if 6 <= code <= 15}
_OPAQUE = 17
_LOGICAL, _COMPLEX = 0x200, 0x800

_VARIABLE = re.compile("[A-Za-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class _Variable:
    """The header of a variable.

    `offset` and `size` say where its element is in the file, without the tag. Its `n_stored` bytes
    of numbers begin at `start` within the element, or within the unpacked element.
    """

    offset: int
    size: int
    compressed: bool
    logical: bool
    shape: tuple[int, ...]
    kind: str
    stored: int = 0
    n_stored: int = 0
    start: int = 0

    @property
    def fits(self) -> bool:
        """Whether it can be vectors."""
        return self.stored in _NUMBERS and len(self.shape) == 2 and min(self.shape) > 0


def open_mat(path: Path, key: str | None = None) -> Vectors:
    """Open a variable.

    Parameters
    ----------
    path : a file of version 5, or of 7.3
    key : name of the variable; default the only one that can be vectors

    Returns
    -------
    array (n, d), read-only, of the stored type, which may be smaller than the type in MATLAB; a
    Source for 7.3
    """
    with Reader(path) as file:
        head = file.read(0, _HEADER, "a header")
        signature = file.read(512, 8, "HDF5") if file.size >= 520 else b""
        if not head.startswith(_HDF5) and signature != _HDF5:
            return _open_5(file, head, key)
    return Hdf5Rows(path, key, transposed=True)


def write_mat(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows as the only variable of a file of version 5, one block at a time.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source, below 2 GiB; its type is kept, except that float16 becomes
        single and bool becomes logical
    key : name of the variable; default ``vectors``
    """
    name = check_key(key, "vectors")
    if not _VARIABLE.fullmatch(name):
        raise InputError(
            f"key must be a name of MATLAB, a letter and up to 62 letters, digits or _, "
            f"got {name!r}"
        )
    dtype = stored_type(X.dtype, ".mat")
    if dtype == np.float16:
        dtype = np.dtype("<f4")
    header = _header_5(name, X.shape, dtype)
    n, d = X.shape
    with replacing(path) as part, part.open("wb") as file:
        file.write(header)
        column, start = n * dtype.itemsize, 0
        for block in blocks(X, dtype):
            for number, values in enumerate(np.ascontiguousarray(block.T)):
                file.seek(len(header) + number * column + start * dtype.itemsize)
                file.write(values.data)
            start += len(block)
        end = len(header) + d * column
        file.seek(end)
        file.write(bytes(-end % 8))


def _header_5(name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """All bytes before the numbers."""
    size = n_bytes(dtype, shape)
    if max(size + 1024, *shape) > _LARGEST:
        raise InputError(
            f"X has shape {shape} and {size} bytes, but .mat counts up to {_LARGEST}: write .hdf5"
        )
    # In MATLAB, a bool is a uint8 with a flag.
    flags = _LOGICAL if dtype.kind == "b" else 0
    number = "u1" if dtype.kind == "b" else dtype.str[1:]
    kind = {"f8": "double", "f4": "single"}.get(number, np.dtype(number).name)
    letters = name.encode("ascii")
    inside = [
        _words(6, 8, flags | _code(_CLASSES, kind), 0),
        _words(5, 8, *shape),
        *(_words(1, len(letters)), letters, bytes(-len(letters) % 8)),
        _words(_code(_NUMBERS, number), size),
    ]
    length = sum(map(len, inside)) + size + -size % 8
    text = b"MATLAB 5.0 MAT-file, written by densehash".ljust(124) + b"\x00\x01IM"
    return b"".join([text, _words(_MATRIX, length), *inside])


def _words(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


def _code(codes: dict[int, str], name: str) -> int:
    return next(code for code, known in codes.items() if known == name)


def _open_5(file: Reader, head: bytes, key: str | None) -> NDArray[Any]:
    if head[126:128] not in (b"IM", b"MI"):
        expected = "b'IM' or b'MI', as in MATLAB's files of version 5"
        raise broken(file.path, 126, expected, repr(head[126:128]))
    endian: Endian = "little" if head[126:128] == b"IM" else "big"
    variables = _list_5(file, endian)

    def describe(name: str) -> tuple[str, bool]:
        return f"{variables[name].kind} {variables[name].shape}", variables[name].fits

    variable = variables[choose(file.path, key, list(variables), describe)]
    shape = (variable.shape[0], variable.shape[1])
    dtype = np.dtype(_NUMBERS[variable.stored]).newbyteorder(endian)
    size = n_bytes(dtype, shape)
    if variable.n_stored != size:
        at, text = variable.offset + variable.start, f"{size} bytes of {in_words(dtype, shape)}"
        raise broken(file.path, at, text, variable.n_stored)
    if variable.compressed:
        found = _unpack(file, variable, dtype)
    else:
        found = file.map(dtype, shape, variable.offset + variable.start, "F")
    return found.view(np.bool_) if variable.logical and dtype.itemsize == 1 else found


def _list_5(file: Reader, endian: Endian) -> dict[str, _Variable]:
    """All variables by name, from the headers of their elements; nothing large is read."""
    variables: dict[str, _Variable] = {}
    offset = _HEADER
    file.need(offset, 8, "a variable")
    while offset < file.size:
        code, size = _tag(file.read(offset, 8, "a tag"), endian)
        offset += 8
        file.need(offset, size, "an element")
        if code not in (_MATRIX, _COMPRESSED):
            expected = f"an element of type {_MATRIX} or {_COMPRESSED}"
            raise broken(file.path, offset - 8, expected, code)
        stream = _Stored(file, offset, size)
        if code == _COMPRESSED:
            stream = _Unpacked(file, offset, size)
            most = _MOST_DEFLATED * size
            code, length = _tag(stream.take(8, "a tag"), endian)
            if code != _MATRIX or length > most:
                expected = f"type {_MATRIX} and at most {most} bytes in {size} compressed ones"
                raise broken(file.path, offset, expected, f"type {code} and {length} bytes")
            stream.stop = 8 + length
        name, variable = _describe_5(stream, endian)
        if name:  # variables without a name are internal to MATLAB
            variables[name] = variable
        offset += size
    return variables


class _Stored:
    """The bytes of an element, read in order.

    Attributes
    ----------
    offset, size : where it is in the file
    used : how many bytes were read
    stop : how many bytes there are
    """

    def __init__(self, file: Reader, offset: int, size: int) -> None:
        self.file, self.offset, self.size = file, offset, size
        self.used, self.stop = 0, size

    def need(self, count: int, what: str) -> None:
        """Refuse an element that has fewer than ``count`` bytes left."""
        if self.used + count > self.stop:
            at, left = self.offset + self.used, self.stop - self.used
            raise broken(self.file.path, at, f"{count} bytes of {what}", left)

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes."""
        self.need(count, what)
        taken = self._next(count, what)
        self.used += count
        return taken

    def _next(self, count: int, what: str) -> bytes:
        return self.file.read(self.offset + self.used, count, what)


class _Unpacked(_Stored):
    """The unpacked bytes of a compressed element; `used` and `stop` count unpacked bytes."""

    def __init__(self, file: Reader, offset: int, size: int) -> None:
        super().__init__(file, offset, size)
        self.stop = 8  # until the tag says more
        self._read = 0
        self._zlib = zlib.decompressobj()

    def _next(self, count: int, what: str) -> bytes:
        taken = b""
        while len(taken) < count:
            more = self._some(count - len(taken))
            if not more:
                at = self.offset + self._read
                raise broken(self.file.path, at, f"{count} bytes of {what}", len(taken))
            taken += more
        return taken

    def _some(self, most: int) -> bytes:
        """Between one and ``most`` bytes; none at the end."""
        while not self._zlib.eof:
            packed = self._zlib.unconsumed_tail
            if not packed:
                count = min(_CHUNK, self.size - self._read)
                packed = self.file.read(self.offset + self._read, count, "a compressed element")
                self._read += count
            try:
                unpacked = self._zlib.decompress(packed, most)
            except zlib.error as error:
                where = f"{self.file.path}: near offset {self.offset + self._read}"
                raise FileError(f"{where}, a compressed element is damaged: {error}") from None
            if unpacked or not packed:
                return unpacked
        return b""

    def finish(self) -> None:
        """Unpack the rest, so that the checksum at the end is checked."""
        while self._some(_CHUNK):
            pass
        if not self._zlib.eof:
            at = self.offset + self._read
            raise broken(self.file.path, at, "the end of a compressed element", "more of it")


def _tag(words: bytes, endian: Endian) -> tuple[int, int]:
    return int.from_bytes(words[:4], endian), int.from_bytes(words[4:8], endian)


def _element(stream: _Stored, endian: Endian, most: int, what: str) -> bytes:
    """The data of a small element."""
    words = stream.take(8, f"the tag of {what}")
    code, count = _tag(words, endian)
    if code >> 16:  # up to four bytes of data are in the tag itself
        return words[4 : 4 + (code >> 16)]
    if count > most:
        at = stream.offset + stream.used - 4
        raise broken(stream.file.path, at, f"at most {most} bytes of {what}", count)
    return stream.take(count + -count % 8, what)[:count]


def _describe_5(stream: _Stored, endian: Endian) -> tuple[str, _Variable]:
    """Name and header of a matrix, after its tag; the stream then stands before its numbers."""
    flags = int.from_bytes(_element(stream, endian, 8, "array flags")[:4], endian)
    code, shape = flags & 0xFF, ()
    if code != _OPAQUE:
        order = "<" if endian == "little" else ">"
        lengths = _element(stream, endian, 4 * _MOST_DIMENSIONS, "dimensions")
        shape = tuple(np.frombuffer(lengths[: len(lengths) // 4 * 4], f"{order}i4").tolist())
    name = _element(stream, endian, _LONGEST_NAME, "a name").decode("utf-8", "replace")
    kind = f"{'complex ' if flags & _COMPLEX else ''}{_CLASSES.get(code, f'class {code}')}"
    variable = _Variable(
        offset=stream.offset,
        size=stream.size,
        compressed=isinstance(stream, _Unpacked),
        logical=bool(flags & _LOGICAL),
        shape=shape,
        kind=kind,
    )
    if kind not in _REAL:
        return name, variable
    words = stream.take(8, f"the tag of the numbers of {name!r}")
    stored, count = _tag(words, endian)
    start = stream.used
    if stored >> 16:
        stored, count, start = stored & 0xFFFF, stored >> 16, start - 4
    else:
        stream.need(count, f"numbers of {name!r}")
    return name, replace(variable, stored=stored, n_stored=count, start=start)


def _unpack(file: Reader, variable: _Variable, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read the numbers of a compressed variable into memory."""
    stream = _Unpacked(file, variable.offset, variable.size)
    stream.stop = variable.start + variable.n_stored
    stream.take(variable.start, "a head")
    numbers = np.empty(variable.n_stored // dtype.itemsize, dtype)
    goal = numbers.view(np.uint8)
    for at in range(0, len(goal), _CHUNK):
        count = min(_CHUNK, len(goal) - at)
        goal[at : at + count] = np.frombuffer(stream.take(count, "numbers"), np.uint8)
    stream.finish()
    numbers.flags.writeable = False
    return numbers.reshape(variable.shape, order="F")
