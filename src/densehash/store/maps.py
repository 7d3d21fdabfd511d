"""Files mapped into memory, without keeping them open."""

from __future__ import annotations

import hashlib
import mmap
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError
from densehash.mapped import give_back

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12 on

if sys.platform != "win32":
    from densehash._native import Map

__all__ = ["Origin", "check_unchanged", "map_file", "origin_of"]

_BLOCK = 1 << 24  # bytes in memory at a time


class Origin(NamedTuple):
    """The file behind a map.

    Attributes
    ----------
    path : the path when it was mapped
    sha256 : the checksum of all its bytes, from the manifest
    """

    path: Path
    sha256: str

    def damaged(self) -> FileError:
        """The error if the bytes have another checksum."""
        return FileError(f"{self.path} is damaged: its checksum is not the one in the manifest")


# Parts of a map are read when they are used, so the whole was not compared with its checksum.
_origins: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()


def map_file(descriptor: int, size: int, origin: Origin) -> Buffer:
    """The bytes of an open file, read-only; the file may be closed afterwards.

    If another program cuts the file short, the operating system ends the process when it reads the
    missing part (SIGBUS).

    Parameters
    ----------
    descriptor : a file that is open for reading
    size : size of the file, at least 1
    origin : path and checksum, for functions that copy the map

    Raises
    ------
    OSError : if the operating system refuses

    Examples
    --------
    >>> from tempfile import TemporaryFile
    >>> with TemporaryFile() as file:
    ...     _ = file.write(b"some")
    ...     file.flush()
    ...     found = map_file(file.fileno(), 4, Origin(Path("some.npy"), "0" * 64))
    >>> bytes(memoryview(found))
    b'some'
    """
    found: Buffer
    if sys.platform == "win32":
        found = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    else:
        found = Map(descriptor, size)
    _origins[found] = origin
    return found


def origin_of(array: object) -> Origin | None:
    """The file that an array maps as a whole; None for other arrays.

    Examples
    --------
    >>> origin_of(np.zeros(3))
    """
    if not isinstance(array, np.ndarray) or array.base is None:
        return None
    try:
        return _origins.get(array.base)
    except TypeError:  # most bases have no weak references
        return None


def check_unchanged(array: NDArray[Any]) -> None:
    """Compare a mapped array with the checksum of its file, before it is copied; ignore others.

    A copy of damaged bytes would get a new checksum, and the damage would never be found.

    Raises
    ------
    FileError : if a single bit differs; the error names the file

    Examples
    --------
    >>> check_unchanged(np.zeros(3))
    """
    origin = origin_of(array)
    if origin is None:
        return
    buffer, digest = memoryview(array.base), hashlib.sha256()  # type: ignore[arg-type]
    for start in range(0, len(buffer), _BLOCK):
        digest.update(buffer[start : start + _BLOCK])
        give_back(array)
    if digest.hexdigest() != origin.sha256:
        raise origin.damaged()
