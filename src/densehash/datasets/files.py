"""Vectors in common file formats: reads them, mapped or on demand, and writes them in blocks.

The suffix decides the format; ``FORMATS`` lists them all. No file is trusted: its header is
compared with the size of the file before any memory is allocated for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from densehash.checks import VectorsLike, check_vectors
from densehash.datasets.arrow import arrow_blocks, arrow_names, open_arrow
from densehash.datasets.bins import open_bins, write_bins
from densehash.datasets.columnar import write_arrow, write_codes, write_parquet
from densehash.datasets.delimited import delimited_blocks, delimited_names, open_delimited
from densehash.datasets.hdf5 import open_hdf5, write_hdf5
from densehash.datasets.joined import JoinedRows
from densehash.datasets.jsonl import jsonl_blocks, jsonl_names, open_jsonl
from densehash.datasets.mat import open_mat, write_mat
from densehash.datasets.npy import open_npy, open_npz, write_npy, write_npz
from densehash.datasets.parquet import (
    n_parquet_rows,
    open_parquet,
    parquet_blocks,
    parquet_files,
    parquet_names,
)
from densehash.datasets.reading import Vectors, reason
from densehash.datasets.vecs import open_vecs, write_vecs
from densehash.errors import DensehashError, FileError, InputError
from densehash.mapped import unmapped

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "WRITABLE",
    "Format",
    "column_names",
    "open_vectors",
    "read_columns",
    "write_vectors",
]

AnyPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    suffixes : suffixes of its files, in lower case
    holds : the types of numbers that it can hold
    reading : how rows get from the file into memory
    named : whether its arrays have names, so that ``key`` chooses one
    extra : the extra of densehash that it needs; "" if none
    open_file, write_file : called with a path, with the vectors to write, and with the key if
        arrays have names; formats that can only be read have no ``write_file``
    columns, blocks : for formats with columns: ``columns`` returns all names in a file, ``blocks``
        some of the columns as dictionaries of blocks of rows. ``open_file`` then also takes the
        name of the column of ids, which does not belong to the vectors
    write_codes : for formats that hold binary: called with a path, codes, blocks of other columns,
        and the name of the column of codes
    """

    suffixes: tuple[str, ...]
    holds: str
    reading: str
    open_file: Callable[..., Vectors]
    write_file: Callable[..., None] | None
    named: bool = False
    extra: str = ""
    columns: Callable[[Path], list[str]] | None = None
    blocks: Callable[[Path, list[str]], Iterator[dict[str, Any]]] | None = None
    write_codes: Callable[..., None] | None = None


_MAPPED, _ON_DEMAND = "mapped", "on demand"
_ANY = "any real type"
_TEXT, _ONCE = "text, read as float64", "once, into a temporary file that is mapped"

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
        columns=parquet_names,
        blocks=parquet_blocks,
        write_codes=write_codes,
    ),
    Format(
        (".arrow", ".feather"),
        _ANY,
        "mapped; on demand if compressed",
        open_arrow,
        write_arrow,
        named=True,
        extra="parquet",
        columns=arrow_names,
        blocks=arrow_blocks,
        write_codes=write_codes,
    ),
    Format(
        (".csv", ".tsv"),
        _TEXT,
        _ONCE,
        open_delimited,
        None,
        named=True,
        columns=delimited_names,
        blocks=delimited_blocks,
    ),
    Format(
        (".jsonl", ".ndjson"),
        _TEXT,
        _ONCE,
        open_jsonl,
        None,
        named=True,
        columns=jsonl_names,
        blocks=jsonl_blocks,
    ),
)
"""All formats."""

SUFFIXES: tuple[str, ...] = tuple(suffix for form in FORMATS for suffix in form.suffixes)
"""All suffixes, in lower case."""

WRITABLE: tuple[str, ...] = tuple(
    suffix for form in FORMATS if form.write_file is not None for suffix in form.suffixes
)
"""Suffixes of formats that can be written."""

# How files of some formats begin; only for hints in errors.
_SIGNATURES = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"\x89HDF\r\n\x1a\n": ".hdf5",
    b"MATLAB ": ".mat",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
}


def open_vectors(
    path: AnyPath | Iterable[AnyPath], *, key: str | None = None, ids: str | None = None
) -> Vectors:
    """Open a file of vectors, or of neighbours, or several; rows are read when they are used.

    Files of the formats vecs, bin and npy are mapped, and so are npz and MATLAB 5 if they are not
    compressed: they take no memory of their own, and must not change while they are in use. HDF5,
    MATLAB 7.3, Parquet and Arrow are read on demand, from any thread. Only compressed arrays of
    npz and of MATLAB 5 are unpacked into memory as a whole. CSV, TSV and JSON lines are read once,
    when they are opened, into a temporary file of numbers; errors in them are found then.

    Opening reads headers only, with two exceptions: every row of the vecs formats has a header of
    its own, and all are compared; compressed Arrow files are read once to count rows. Numbers that
    are not finite are found later, when they are used.

    Several files are read as one: the rows of the first, then those of the next. All are opened
    once, to compare their widths and types; after that, one is open at a time, while its rows are
    read.

    Parameters
    ----------
    path : a file with one of ``SUFFIXES``, in upper or lower case. Or a folder: it stands for the
        Parquet files in it and in folders below it, in the order of their names; files without
        rows, and names that begin with a dot or ``_``, are skipped. Or several paths, each with its
        own format, in the order of their rows.
    key : name of the array in npz, HDF5 and MATLAB files, or of the column of vectors in Parquet,
        Arrow, CSV, TSV and JSONL files. If each number has a column of its own, give several names
        with commas between them; ``*`` stands for any letters. By default, ``train`` of an HDF5
        file, the only array or column that can be vectors, or all columns if all are numbers.
    ids : name of the column of ids in a file with columns, which does not belong to the vectors

    Returns
    -------
    array (n, d), read-only, or a :class:`~densehash.source.Source` of that shape (for several
    files, always a Source); both have the type that the file has

    Raises
    ------
    FileError : the file is missing, cut, of another format, or has an impossible header
    InputError : the suffix is not known, the key does not say which array is meant, or several
        files differ in width or type

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
        return _open_joined(list(path), key, ids)
    if _is_folder(path):
        return _open_joined([path], key, ids)
    return _open_file(path, key, ids)


def _open_file(path: AnyPath, key: str | None, ids: str | None = None) -> Vectors:
    where, form = _format_of(path)
    arguments = _with_key(form, where, key)
    if ids is not None and form.columns is not None:
        arguments = (*arguments, ids)
    try:
        return form.open_file(where, *arguments)
    except FileError as error:
        raise FileError(f"{error}{_hint(where, form)}") from None
    except OSError as error:  # for example, a disk that fails
        if isinstance(error, DensehashError):
            raise
        raise FileError(f"{where} cannot be read: {reason(error)}") from error


def _open_joined(paths: list[AnyPath], key: str | None, ids: str | None) -> JoinedRows:
    """The rows of several files, and of all Parquet files in folders, as one."""
    files: list[Path] = []
    for path in paths:
        files += _files_in(Path(path)) if _is_folder(path) else [_format_of(path)[0]]
    files = [path.absolute() for path in files]  # opened again later, maybe from another folder
    if not files:
        raise InputError("path must be one or several files, got an empty list")
    named = {path: _format_of(path)[1].named for path in files}
    if not any(named.values()):  # no format among them has names of arrays
        _with_key(_format_of(files[0])[1], files[0], key)
    return JoinedRows(files, lambda path: _open_file(path, key if named[path] else None, ids))


def column_names(path: AnyPath) -> list[str]:
    """Names of all columns of a file; an empty list if its format has no columns.

    Parameters
    ----------
    path : as in :func:`open_vectors`; for a folder, its first Parquet file is read

    Examples
    --------
    >>> column_names("vectors.npy")
    []
    """
    where, form = _format_of(_files_in(Path(path))[0] if _is_folder(path) else path)
    return [] if form.columns is None else form.columns(where)


def read_columns(path: AnyPath, names: list[str]) -> Iterator[dict[str, Any]]:
    r"""Columns of a file by their names, one block of rows after the other.

    Parameters
    ----------
    path : a Parquet, Arrow, CSV, TSV or JSONL file, or a folder of Parquet files
    names : names of columns

    Yields
    ------
    a dict for each block of rows: names and values, as pyarrow.Array from Parquet and Arrow files,
    as lists from text and JSON

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("id,x,y\na,1,2\nb,3,4\n")
    ...     list(read_columns(path, ["id"])), open_vectors(path, ids="id").tolist()
    ([{'id': ['a', 'b']}], [[1.0, 2.0], [3.0, 4.0]])
    """
    for file in _files_in(Path(path)) if _is_folder(path) else [path]:
        where, form = _format_of(file)
        if form.blocks is None:
            raise InputError(f"{where} has no columns: {where.suffix} holds numbers alone")
        yield from form.blocks(where, names)


def _is_folder(path: AnyPath) -> bool:
    try:
        return Path(path).is_dir()
    except (
        OSError,
        TypeError,
        ValueError,
    ):  # not a path, too long or with zeros: refused later
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

    The file appears under its name only when it is complete and on the disk; after an error, an
    earlier file is unchanged. Numbers are little-endian. A type is converted only if the new type
    holds all its values: uint8 is converted to float32, float64 is not.

    Parameters
    ----------
    path : a file with one of ``WRITABLE``, in upper or lower case
    X : real array (n, d), a memory map, a Source, an h5py.Dataset, a callable that yields blocks,
        or anything that numpy can turn into an array
    key : name of the array in npz, HDF5 and MATLAB files, or of the column in Parquet and Arrow
        files; default ``train`` for HDF5 and ``vectors`` for the others

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
    if form.write_file is None:
        raise InputError(
            f"{where.suffix} is read, but not written: path must end in one of "
            f"{', '.join(WRITABLE)}, got {str(where)!r}"
        )
    form.write_file(where, unmapped(check_vectors(X, "X")), *arguments)


def _format_of(path: AnyPath) -> tuple[Path, Format]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be a str or a Path, got {type(path).__name__}")
    where = Path(path)
    if "\0" in str(where):
        raise InputError(f"path must have no NUL characters, got {str(where)!r}")
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
    """What a file seems to be, if it does not match its suffix."""
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
