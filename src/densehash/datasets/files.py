"""Vectors in the field's file formats: read them, mapped or on demand, and write them in blocks.

The suffix decides the format; ``FORMATS`` lists them all. No format is trusted: what a header
says is compared with the size of the file before anything is allocated for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from densehash.checks import VectorsLike, check_vectors
from densehash.datasets.arrow import (
    n_parquet_rows,
    open_arrow,
    open_parquet,
    parquet_files,
    write_arrow,
    write_parquet,
)
from densehash.datasets.bins import open_bins, write_bins
from densehash.datasets.hdf5 import open_hdf5, write_hdf5
from densehash.datasets.joined import JoinedRows
from densehash.datasets.mat import open_mat, write_mat
from densehash.datasets.npy import open_npy, open_npz, write_npy, write_npz
from densehash.datasets.reading import Vectors, reason
from densehash.datasets.vecs import open_vecs, write_vecs
from densehash.errors import DensehashError, FileError, InputError
from densehash.rows.mapped import unmapped

__all__ = ["FORMATS", "SUFFIXES", "Format", "open_vectors", "write_vectors"]

AnyPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    suffixes : of its files, in lower case
    holds : types of numbers
    reading : how rows get from the file into memory
    named : whether its arrays have names, so that ``key`` chooses one
    extra : which extra of densehash it needs; "" for none
    open_file, write_file : called with a path, the vectors to write, and the key if it has names
    """

    suffixes: tuple[str, ...]
    holds: str
    reading: str
    open_file: Callable[..., Vectors]
    write_file: Callable[..., None]
    named: bool = False
    extra: str = ""


_MAPPED, _ON_DEMAND = "mapped", "on demand"
_ANY = "any real type"

FORMATS = (
    Format((".fvecs",), "float32", _MAPPED, open_vecs, write_vecs),
    Format((".bvecs",), "uint8", _MAPPED, open_vecs, write_vecs),
    Format((".ivecs",), "int32", _MAPPED, open_vecs, write_vecs),
    Format((".fbin",), "float32", _MAPPED, open_bins, write_bins),
    Format((".u8bin",), "uint8", _MAPPED, open_bins, write_bins),
    Format((".i8bin",), "int8", _MAPPED, open_bins, write_bins),
    Format((".ibin",), "int32", _MAPPED, open_bins, write_bins),
    Format((".npy",), _ANY, _MAPPED, open_npy, write_npy),
    Format((".npz",), _ANY, "mapped; in memory if compressed", open_npz, write_npz, named=True),
    Format((".hdf5", ".h5"), _ANY, _ON_DEMAND, open_hdf5, write_hdf5, named=True, extra="hdf5"),
    Format(
        (".mat",),
        _ANY,
        "version 5: mapped, in memory if compressed; 7.3: on demand, with the extra hdf5",
        open_mat,
        write_mat,
        named=True,
    ),
    Format(
        (".parquet",),
        _ANY,
        "on demand, a row group at a time",
        open_parquet,
        write_parquet,
        named=True,
        extra="parquet",
    ),
    Format(
        (".arrow", ".feather"),
        _ANY,
        "mapped; on demand if compressed",
        open_arrow,
        write_arrow,
        named=True,
        extra="parquet",
    ),
)
"""All formats."""

SUFFIXES: tuple[str, ...] = tuple(suffix for form in FORMATS for suffix in form.suffixes)
"""All suffixes, in lower case."""

# How files of some formats begin; none of them is read by this.
_SIGNATURES = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"\x89HDF\r\n\x1a\n": ".hdf5",
    b"MATLAB ": ".mat",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
}


def open_vectors(path: AnyPath | Iterable[AnyPath], *, key: str | None = None) -> Vectors:
    """Open a file of vectors, or of neighbours, or several; rows are read when they are used.

    Files of the formats vecs and bin, of npy, and of npz and MATLAB 5 where not compressed, are
    mapped: they take no memory of their own, and must not change while they are in use. HDF5,
    MATLAB 7.3, Parquet and Arrow are read on demand, from any thread. Only compressed arrays of
    npz and of MATLAB 5 are unpacked into memory as a whole.

    Opening reads headers only, with two exceptions: every row of the vecs formats has a header of
    its own, and all are compared; compressed Arrow files are read once to count rows. Numbers that
    are not finite are found later, by what uses them.

    Several files are read as one, their rows one below the other. All are opened once, to compare
    their widths and types, and one at a time after that, when their rows are used.

    Parameters
    ----------
    path : with one of ``SUFFIXES``, in upper or lower case. Or a folder: the Parquet files in it
        and in folders below it, by their names, without those that have no rows and those whose
        names begin with a dot or ``_``. Or several paths, in the order in which their rows are to
        come, each of its own format.
    key : name of the array in npz, HDF5 and MATLAB files, or of the column in Parquet and Arrow
        files. None takes ``train`` of an HDF5 file, or the only array that can be vectors.

    Returns
    -------
    array (n, d), read-only, or a :class:`~densehash.source.Source` of that shape, as which several
    files always come; both of the type that the file has

    Raises
    ------
    FileError : the file is missing, cut, of another format, or says of itself what cannot be
    InputError : the suffix is not known, the key does not say which array is meant, or files that
        are to be read as one differ in width or type

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "base.fvecs")
    ...     write_vectors(path, np.eye(3, dtype=np.float32))
    ...     X = open_vectors(path)
    ...     X.shape, X.dtype.name, X[1].tolist()
    ((3, 3), 'float32', [0.0, 1.0, 0.0])
    """
    if isinstance(path, Iterable) and not isinstance(path, (str, bytes)):
        return _open_joined(list(path), key)
    if _is_folder(path):
        return _open_joined([path], key)
    return _open_file(path, key)


def _open_file(path: AnyPath, key: str | None) -> Vectors:
    where, form = _format_of(path)
    arguments = _with_key(form, where, key)
    try:
        return form.open_file(where, *arguments)
    except FileError as error:
        raise FileError(f"{error}{_hint(where, form)}") from None
    except OSError as error:  # a disk that fails, for instance
        if isinstance(error, DensehashError):
            raise
        raise FileError(f"{where} cannot be read: {reason(error)}") from error


def _open_joined(paths: list[AnyPath], key: str | None) -> JoinedRows:
    """The rows of files, and of all Parquet files in folders, as one."""
    files: list[Path] = []
    for path in paths:
        files += _files_in(Path(path)) if _is_folder(path) else [_format_of(path)[0]]
    files = [path.absolute() for path in files]  # they are opened again, wherever we stand then
    if not files:
        raise InputError("path must be one or several files, got an empty list")
    named = {path: _format_of(path)[1].named for path in files}
    if not any(named.values()):  # an array has a name in some of them, at least
        _with_key(_format_of(files[0])[1], files[0], key)
    return JoinedRows(files, lambda path: _open_file(path, key if named[path] else None))


def _is_folder(path: AnyPath) -> bool:
    try:
        return Path(path).is_dir()
    except (
        OSError,
        TypeError,
        ValueError,
    ):  # no path, or one too long or with zeros: refused later
        return False


def _files_in(folder: Path) -> list[Path]:
    """The Parquet files in a folder that have rows."""
    expected = "a file, or a folder with Parquet files (*.parquet) in it or below it"
    found = parquet_files(folder)
    if not found:
        raise FileError(f"{folder} is a directory, expected {expected}")
    filled = [path for path in found if n_parquet_rows(path) > 0]
    if not filled:
        raise FileError(f"{folder}: expected at least 1 row in its Parquet files, found 0")
    return filled


def write_vectors(path: AnyPath, X: VectorsLike, *, key: str | None = None) -> None:
    """Write vectors to a file, a block at a time.

    The file appears under its name only when it is whole and on the disk; after an error, what
    was there before is untouched. Numbers are little-endian. A type is converted only where the
    new one holds all its values: uint8 to float32 is, float64 to float32 is not.

    Parameters
    ----------
    path : with one of ``SUFFIXES``, in upper or lower case
    X : real array (n, d), a memory map, a Source, an h5py.Dataset, a callable that yields blocks,
        or what numpy makes an array of
    key : name of the array in npz, HDF5 and MATLAB files, or of the column in Parquet and Arrow
        files; None is ``train`` for HDF5 and ``vectors`` for the others

    Raises
    ------
    FileError : the file cannot be written
    InputError : the suffix is not known, the format has no names, or it does not hold the type

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_vectors(Path(folder, "base.bvecs"), np.array([[1, 2, 255]], np.uint8))
    ...     write_vectors(Path(folder, "base.bvecs"), np.array([[1.5, 2.0, 255.0]]))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: X is float64, which .bvecs would not keep: it holds uint8. \
Write .npy, or convert X
    """
    where, form = _format_of(path)
    arguments = _with_key(form, where, key)
    form.write_file(where, unmapped(check_vectors(X, "X")), *arguments)


def _format_of(path: AnyPath) -> tuple[Path, Format]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be a str or a Path, got {type(path).__name__}")
    where = Path(path)
    if "\0" in str(where):
        raise InputError(f"path must be a name without zeros, got {str(where)!r}")
    for form in FORMATS:
        if where.suffix.lower() in form.suffixes:
            return where, form
    raise InputError(f"path must end in one of {', '.join(SUFFIXES)}, got {str(where)!r}")


def _with_key(form: Format, where: Path, key: str | None) -> tuple[str | None, ...]:
    if key is not None and not isinstance(key, str):
        raise InputError(f"key must be a str, got {key!r} of type {type(key).__name__}")
    if form.named:
        return (key,)
    if key is not None:
        raise InputError(f"key must be None for {where.suffix}, which has no names, got {key!r}")
    return ()


def _hint(where: Path, form: Format) -> str:
    """What a file seems to be, if it is not what its suffix says."""
    try:
        if not where.is_file():  # opening a pipe would wait
            return ""
        with where.open("rb") as file:
            head = file.read(8)
    except OSError:
        return ""
    for signature, suffix in _SIGNATURES.items():
        if head.startswith(signature) and suffix not in form.suffixes:
            return f" (it begins like a file of {suffix})"
    return ""
