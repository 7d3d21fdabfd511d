"""Array files in numpy's own format, with a header that the manifest determines fully.

So a reader needs no parser: it compares the header with the one for the type and shape in the
manifest, and allocates nothing because of what a file says.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import FileError, InputError
from densehash.source import Source
from densehash.store.manifest import HEADER_BYTES, Entry, item_size
from densehash.store.maps import Origin, map_file, origin_of

__all__ = [
    "check_file",
    "header_of",
    "open_array",
    "open_regular",
    "plan_array",
    "unreadable",
    "write_array",
]

Array: TypeAlias = NDArray[Any] | Source

_BLOCK = 1 << 20

_READ_FLAGS = os.O_RDONLY
for _flag in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # no links, no wait for pipes
    _READ_FLAGS |= getattr(os, _flag, 0)


def header_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    r"""The first 128 bytes of an array file.

    Parameters
    ----------
    dtype, shape : as in an Entry

    Examples
    --------
    >>> header_of("<f4", (2, 3))[:69]
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    """
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER_BYTES - 11).encode("ascii") + b"\n"


def plan_array(array: Array, file: str, *, checked: bool) -> Entry:
    """The entry of an array that will be written; only the checksum is still missing.

    Parameters
    ----------
    array : an array of any memory order and byte order, and of a type that files can hold
    file : the name of its file
    checked : as in Entry

    Examples
    --------
    >>> plan_array(np.zeros((2, 3), ">f4"), "0123456789abcdef-x.npy", checked=True)[1:4]
    ('<f4', (2, 3), 152)
    >>> plan_array(np.zeros(2, complex), "0123456789abcdef-x.npy", checked=True)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: an array of complex128 cannot be stored
    """
    dtype = array.dtype.newbyteorder("<").str
    size = item_size(dtype)
    if size is None:
        raise InputError(f"an array of {array.dtype} cannot be stored")
    shape = tuple(int(length) for length in array.shape)
    n_bytes = HEADER_BYTES + size * int(np.prod(shape, dtype=object))
    return Entry(file, dtype, shape, n_bytes, "0" * 64, checked)


def write_array(folder: Path, entry: Entry, array: Array, advance: Callable[[int], None]) -> Entry:
    """Write an array to a new file, a block at a time, and flush it to the disk.

    Parameters
    ----------
    folder : the folder
    entry : from :func:`plan_array`
    array : the array that was planned
    advance : called with the number of bytes that were written

    Returns
    -------
    The entry with the checksum

    Raises
    ------
    FileError : if it cannot be written, or the array is a map of a file that is damaged

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> array = np.arange(3)
    >>> entry = plan_array(array, "0123456789abcdef-x.npy", checked=True)
    >>> with TemporaryDirectory() as folder:
    ...     entry = write_array(Path(folder), entry, array, lambda _: None)
    ...     np.load(Path(folder, entry.file))
    array([0, 1, 2])
    """
    path = folder / entry.file
    digest = hashlib.sha256()
    with disk.writing(path), path.open("xb") as file:
        for block in _blocks(entry, array):
            disk.write(file, block)
            digest.update(block)
            advance(len(block))
        disk.sync(file)
    origin = origin_of(array)
    if origin is not None and origin.sha256 != digest.hexdigest():
        raise origin.damaged()  # a copy would hide the damage
    return entry._replace(sha256=digest.hexdigest())


def open_array(folder: Path, entry: Entry, *, mapped: bool = True) -> NDArray[Any]:
    """The array of a file: read and checked, or mapped.

    Parameters
    ----------
    folder : the folder
    entry : from a manifest that was checked
    mapped : True (default) maps the file, unless the entry is ``checked``; False reads it into
        memory and checks it

    Returns
    -------
    array of the entry's type and shape, read-only

    Raises
    ------
    FileError : if the file is missing, or does not match the entry

    Examples
    --------
    >>> entry = Entry("0123456789abcdef-x.npy", "<i8", (3,), 152, "0" * 64, True)
    >>> open_array(Path("."), entry)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: 0123456789abcdef-x.npy cannot be read: No such file or directory
    """
    path = folder / entry.file
    origin = Origin(path, entry.sha256)
    descriptor = _open_entry(path, entry)
    buffer: Any
    try:
        if entry.checked or not mapped:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                buffer = file.read(entry.n_bytes)
            if hashlib.sha256(buffer).hexdigest() != entry.sha256:
                raise origin.damaged()
        else:
            buffer = map_file(descriptor, entry.n_bytes, origin)
        if memoryview(buffer)[:HEADER_BYTES] != header_of(entry.dtype, entry.shape):
            raise _wrong_header(path, entry)
    except OSError as error:
        raise unreadable(path, error) from None
    finally:
        _close(descriptor)
    return np.ndarray(entry.shape, np.dtype(entry.dtype), buffer, HEADER_BYTES)


def check_file(folder: Path, entry: Entry, advance: Callable[[int], None]) -> None:
    """Read a whole file, and compare it with its entry.

    Parameters
    ----------
    folder : the folder
    entry : from a manifest that was checked
    advance : called with the number of bytes that were read

    Raises
    ------
    FileError : if the file is missing, or differs in a single bit
    """
    path = folder / entry.file
    digest, n_read = hashlib.sha256(), 0
    descriptor = _open_entry(path, entry)
    try:
        with os.fdopen(descriptor, "rb") as file:
            header = file.read(HEADER_BYTES)
            if header != header_of(entry.dtype, entry.shape):
                raise _wrong_header(path, entry)
            digest.update(header)
            while block := file.read(_BLOCK):
                digest.update(block)
                n_read += len(block)
                if n_read > entry.n_bytes:  # it grows while it is read
                    break
                advance(len(block))
    except OSError as error:
        raise unreadable(path, error) from None
    if digest.hexdigest() != entry.sha256:
        raise Origin(path, entry.sha256).damaged()


def open_regular(path: Path) -> tuple[int, int]:
    """Open a regular file for reading; refuse links, pipes and devices.

    Returns
    -------
    descriptor, size

    Examples
    --------
    >>> open_regular(Path("."))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: . is not a regular file
    """
    try:
        if path.is_symlink():  # for systems that cannot refuse links below
            raise FileError(f"{path} is a link, and links are not followed")
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"{path} is not a regular file")
    except OSError as error:
        _close(descriptor)
        raise unreadable(path, error) from error
    return descriptor, found.st_size


def unreadable(path: Path, error: OSError) -> FileError:
    """The error for a file that cannot be read.

    Examples
    --------
    >>> unreadable(Path("a.npy"), OSError(5, "Input/output error"))
    FileError('a.npy cannot be read: Input/output error')
    """
    if isinstance(error, FileError):
        return error
    return FileError(f"{path} cannot be read: {error.strerror or error}")


def _open_entry(path: Path, entry: Entry) -> int:
    descriptor, size = open_regular(path)
    if size != entry.n_bytes:
        _close(descriptor)
        raise FileError(f"{path} has {size} bytes, expected {entry.n_bytes}")
    return descriptor


def _close(descriptor: int) -> None:
    """Close a file that was read; an error of the disk does not matter any more."""
    with suppress(OSError):
        os.close(descriptor)


def _blocks(entry: Entry, array: Array) -> Iterator[memoryview]:
    """The bytes of a file, in pieces."""
    yield memoryview(header_of(entry.dtype, entry.shape))
    n = entry.shape[0]
    row_bytes = (entry.n_bytes - HEADER_BYTES) // max(n, 1)
    step = max(1, _BLOCK // max(row_bytes, 1))
    for start in range(0, n, step):
        part = np.ascontiguousarray(array[start : start + step], dtype=entry.dtype)
        if part.shape != (min(step, n - start), *entry.shape[1:]):  # or the file would lie
            raise InputError(
                f"an array has shape {entry.shape}, but its rows from {start} on came as "
                f"{part.shape}"
            )
        if part.size:
            yield part.reshape(-1).view(np.uint8).data


def _wrong_header(path: Path, entry: Entry) -> FileError:
    return FileError(
        f"{path} is damaged: it does not begin as an array {entry.dtype} of shape {entry.shape}"
    )
