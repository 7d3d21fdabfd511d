"""Shared by all readers: reads that are checked, arrays by name, rows on demand."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError, InputError, MissingExtraError
from densehash.source import LockedRows, Source

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = [
    "LazyRows",
    "Reader",
    "broken",
    "check_shape",
    "choose",
    "import_extra",
    "in_words",
    "n_bytes",
    "reason",
]

Vectors: TypeAlias = NDArray[Any] | Source

_MOST_LISTED = 20


def broken(path: Path, offset: int, expected: object, found: object) -> FileError:
    """The error for a file that is not as expected.

    Examples
    --------
    >>> raise broken(Path("a.fvecs"), 516, "dimension 128 of row 1", 96)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: a.fvecs: at offset 516, expected dimension 128 of row 1, found 96
    """
    return FileError(f"{path}: at offset {offset}, expected {expected}, found {found}")


class Reader:
    """An open file and its size; every read is first compared with the size.

    Attributes
    ----------
    path : path of the file
    size : how many bytes it has

    Examples
    --------
    >>> with Reader(Path("no-such-file.fvecs")) as file:
    ...     file.read(0, 4, "a dimension")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.fvecs does not exist
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            mode = path.stat().st_mode
            # Checked before opening, because opening a pipe would wait for a writer.
            file = path.open("rb") if stat.S_ISREG(mode) else None
        except FileNotFoundError:
            raise FileError(f"{path} does not exist") from None
        except OSError as error:  # for example, no permission
            raise FileError(f"{path} cannot be read: {reason(error)}") from None
        if file is None:
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise FileError(f"{path} is {kind}, expected a file")
        self._file = file
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def need(self, offset: int, count: int, what: str) -> None:
        """Refuse a file that ends before ``offset + count``."""
        if offset + count > self.size:
            left = max(self.size - offset, 0)
            raise broken(self.path, offset, f"{count} bytes of {what}", left)

    def need_end(self, offset: int, what: str) -> None:
        """Refuse a file that continues after ``offset``."""
        if offset < self.size:
            raise broken(
                self.path,
                offset,
                f"the end of the file after {what}",
                f"{self.size - offset} bytes",
            )

    def read(self, offset: int, count: int, what: str) -> bytes:
        """Exactly ``count`` bytes."""
        self.need(offset, count, what)
        self._file.seek(offset)
        return self._file.read(count)

    def map(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        offset: int = 0,
        order: Literal["C", "F"] = "C",
    ) -> np.memmap[Any, np.dtype[Any]]:
        """A read-only array over a part of the file; it stays mapped after the Reader is closed.

        Parameters
        ----------
        dtype : type of the numbers, in the file's byte order
        shape : Python integers, so that their product cannot overflow
        offset : position of the first number, in bytes
        order : order of the numbers in the file, by rows ("C") or by columns ("F")
        """
        self.need(offset, n_bytes(dtype, shape), f"numbers ({in_words(dtype, shape)})")
        return np.memmap(self._file, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def check_shape(path: Path, offset: int, shape: Sequence[int]) -> tuple[int, int]:
    """The shape in a header; an error if it is not that of vectors.

    Examples
    --------
    >>> check_shape(Path("a.fbin"), 0, (10, 4))
    (10, 4)
    >>> check_shape(Path("a.fbin"), 0, (10, 0))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: a.fbin: at offset 0, expected 2 dimensions (n, d) of at least 1, \
found shape (10, 0)
    """
    if len(shape) != 2 or min(shape) < 1:
        expected = "2 dimensions (n, d) of at least 1"
        raise broken(path, offset, expected, f"shape {tuple(shape)}")
    return int(shape[0]), int(shape[1])


def choose(
    path: Path,
    key: str | None,
    names: Sequence[str],
    describe: Callable[[str], tuple[str, bool]],
    usual: str = "",
) -> str:
    """Choose one of the arrays in a file.

    Parameters
    ----------
    path : the file
    key : its name; default the usual one, or the only one that can be vectors
    names : names of all arrays in the file
    describe : returns what an array is, in words, and whether it can be vectors
    usual : the usual name in this format

    Examples
    --------
    >>> arrays = {"X": ("float32 (9, 4)", True), "y": ("int64 (9,)", False)}
    >>> choose(Path("a.npz"), None, list(arrays), arrays.__getitem__)
    'X'
    >>> choose(Path("a.npz"), "Z", list(arrays), arrays.__getitem__)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: a.npz has nothing named 'Z'; it has 'X' float32 (9, 4), \
'y' int64 (9,)
    """

    def listed() -> str:
        shown = [f"{name!r} {describe(name)[0]}" for name in names[:_MOST_LISTED]]
        more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
        return ", ".join([*shown, *more]) or "nothing"

    if key is not None:
        if key not in names:
            raise InputError(f"{path} has nothing named {key!r}; it has {listed()}")
        text, fits = describe(key)
        if not fits:
            raise InputError(
                f"{key!r} of {path} must be real numbers of shape (n, d), n and d at least 1, "
                f"got {text}"
            )
        return key
    if usual in names and describe(usual)[1]:
        return usual
    fitting = [name for name in names if describe(name)[1]]
    if not fitting:
        raise InputError(f"{path} has no real numbers of shape (n, d); it has {listed()}")
    if len(fitting) > 1:
        raise InputError(f"{path} has several arrays: give one of them as key; it has {listed()}")
    return fitting[0]


def import_extra(module: str, extra: str) -> Any:
    """Import an optional package; the error names the extra that installs it.

    Examples
    --------
    >>> import_extra("no_such_package", "hdf5")
    Traceback (most recent call last):
        ...
    densehash.errors.MissingExtraError: no_such_package is needed for this format: \
pip install densehash[hdf5]
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed for this format: pip install densehash[{extra}]"
        ) from None


def n_bytes(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """How many bytes the numbers take, as a Python integer, which cannot overflow.

    Examples
    --------
    >>> n_bytes(np.dtype(np.float32), (2**31, 2**31)) == 2**64
    True
    """
    count = dtype.itemsize
    for length in shape:
        count *= length
    return count


def in_words(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    """Type and shape in words, for errors.

    Examples
    --------
    >>> in_words(np.dtype("<f4"), (2, 3))
    'float32 (2, 3)'
    """
    return f"{dtype.name} {tuple(shape)}"


def reason(error: Exception) -> str:
    """Why something failed, without error numbers and paths.

    Examples
    --------
    >>> reason(PermissionError(13, "Permission denied", "a.fvecs"))
    'Permission denied'
    """
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class LazyRows(LockedRows):
    """Rows of a file that are read when they are used, by one thread at a time.

    A format derives from this class, sets ``shape`` and ``dtype``, and writes ``_read``.

    Parameters
    ----------
    path : the file
    key : name of the array in it
    """

    def __init__(self, path: Path, key: str) -> None:
        super().__init__()
        self._path = path
        self._key = key

    def __repr__(self) -> str:
        text = in_words(self.dtype, self.shape)
        return f"<{type(self).__name__} {str(self._path)!r}, {self._key!r}: {text}>"
