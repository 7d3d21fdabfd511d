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
    path : where it was when it was mapped
    sha256 : of all its bytes, as the manifest has it
    """

    path: Path
    sha256: str

    def damaged(self) -> FileError:
        """What to say where the bytes are others."""
        return FileError(f"{self.path} is damaged: its checksum is not the one in the manifest")


# A map is read as it is needed, so nobody has compared it with its checksum.
_origins: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()


def map_file(descriptor: int, size: int, origin: Origin) -> Buffer:
    """The bytes of an open file, read-only; the file may be closed afterwards.

    A file that others cut shorter ends the process when the missing part is read: that is how
    systems do it (SIGBUS).

    Parameters
    ----------
    descriptor : of a file open for reading
    size : of the file, at least 1
    origin : what it must be, for those who copy it

    Raises
    ------
    OSError : if the system refuses

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
    """The file that an array is a map of, the whole of it; None for others.

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
    """Compare a mapped array with the checksum of its file, before it is copied; pass others over.

    Damage that is copied would get a checksum of its own, and nobody would find it any more.

    Raises
    ------
    FileError : if a single bit differs; it names the file

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
