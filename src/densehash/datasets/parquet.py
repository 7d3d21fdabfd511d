"""Parquet files, read by pyarrow one row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from densehash.datasets.pieces import (
    PieceRows,
    by_name,
    check_frame,
    list_type,
    places_of_vectors,
    reading_by_pyarrow,
)
from densehash.datasets.reading import Reader, import_extra, reason
from densehash.datasets.tables import place_of
from densehash.errors import FileError

__all__ = [
    "ParquetRows",
    "n_parquet_rows",
    "open_parquet",
    "open_parquet_file",
    "parquet_blocks",
    "parquet_files",
    "parquet_names",
]


class ParquetRows(PieceRows):
    """Rows of a column of a Parquet file, read one row group at a time.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`open_parquet`

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : type of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None, ids: str | None = None) -> None:
        self._file = open_parquet_file(path)
        pa = import_extra("pyarrow", "parquet")
        with reading_by_pyarrow(path):
            fields = list(self._file.schema_arrow)
            places = places_of_vectors(pa, path, key, fields, ids)
            self._names = [fields[at].name for at in places]
            kind = list_type(pa, [fields[at].type for at in places])
            # Only the number of rows of each group is read: if its columns are damaged, some
            # versions of pyarrow end the process.
            metadata = self._file.metadata
            n_rows = [metadata.row_group(at).num_rows for at in range(self._file.num_row_groups)]
            super().__init__(path, ", ".join(self._names), kind, n_rows)

    def _column(self, piece: int) -> list[Any]:
        found, row = [], int(self._limits[piece])
        for batch in self._file.read_row_group(piece, columns=self._names).to_batches():
            found.append(self._as_lists(batch, self._names, row))
            row += len(batch)
        return found


def open_parquet(path: Path, key: str | None = None, ids: str | None = None) -> ParquetRows:
    """Open a column of vectors, or several columns of numbers; rows are read when they are used.

    Parameters
    ----------
    path : the file
    key : name of a column of lists, or names of columns of numbers; default the only one that can
        be vectors
    ids : name of the column of ids, which does not belong to the vectors

    Examples
    --------
    >>> open_parquet(Path("no-such-file.parquet"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    return ParquetRows(path, key, ids)


def open_parquet_file(path: Path) -> Any:
    """A Parquet file, opened by pyarrow; an error if it is incomplete."""
    with Reader(path) as file:
        check_frame(file, b"PAR1", b"PAR1")
    parquet = import_extra("pyarrow.parquet", "parquet")
    with reading_by_pyarrow(path):
        return parquet.ParquetFile(path)


def parquet_names(path: Path) -> list[str]:
    """Names of the columns.

    Examples
    --------
    >>> parquet_names(Path("no-such-file.parquet"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = open_parquet_file(path)
    with reading_by_pyarrow(path):
        return list(file.schema_arrow.names)


def parquet_blocks(path: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Columns by name, one row group at a time.

    Examples
    --------
    >>> next(parquet_blocks(Path("no-such-file.parquet"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = open_parquet_file(path)
    with reading_by_pyarrow(path):
        for name in names:
            place_of(path, name, file.schema_arrow.names)
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group, columns=names).to_batches():
                yield by_name(batch, names)


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files in a folder and in the folders below it, in the order of their names.

    Names that begin with a dot or ``_`` are skipped, as is usual for such folders.
    """

    def fail(error: OSError) -> NoReturn:
        raise FileError(f"{error.filename} cannot be read: {reason(error)}") from None

    found = []
    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [
            Path(place, name)
            for name in names
            if name.lower().endswith(".parquet") and not name.startswith((".", "_"))
        ]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def n_parquet_rows(path: Path) -> int:
    """How many rows a Parquet file has, from its footer; its columns are not read.

    Examples
    --------
    >>> n_parquet_rows(Path("no-such-file.parquet"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = open_parquet_file(path)
    with reading_by_pyarrow(path):
        return int(file.metadata.num_rows)
