"""CSV and TSV: text tables with the names of columns in the first line.

Vectors are a column of lists in brackets, ``"[0.5, 1.0]"``, or a column for each number. Fields may
be in quotes and contain separators and line ends; lines end in LF or CRLF. If the first line has
numbers, it is a row, and columns are named 0, 1, ... by position; unless the numbers count the
columns, as pandas writes them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.tables import (
    NUMBER,
    VECTOR,
    TextTable,
    column_blocks,
    kind_of,
    lines_of,
    names_beside,
    open_text,
    wrong_line,
)
from densehash.errors import FileError
from densehash.locks import new_lock

__all__ = ["delimited_beside", "delimited_blocks", "delimited_names", "open_delimited"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_LONGEST_FIELD = 1 << 24
_MANY = 8  # this many numbers in a row hardly ever count up by chance


class _LongFields:
    """Lets Python's csv read fields as long as vectors, while any file is being read."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._n_readers = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_readers == 0:
                self._before = csv.field_size_limit()
                csv.field_size_limit(max(_LONGEST_FIELD, self._before))
            self._n_readers += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_readers -= 1
            if self._n_readers == 0:
                csv.field_size_limit(self._before)


_LONG_FIELDS = _LongFields()


def open_delimited(
    path: Path, key: str | None = None, ids: str | None = None
) -> NDArray[np.float64]:
    """Read the vectors of a table, once: float64 (n, d).

    Parameters
    ----------
    path : the file; its suffix decides the separator
    key, ids : as in :func:`~densehash.datasets.tables.vector_places`

    Examples
    --------
    >>> open_delimited(Path("no-such-file.csv"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.csv does not exist
    """
    with _LONG_FIELDS:
        return open_text(path, key, ids, _table)


def delimited_names(path: Path) -> list[str]:
    """Names of the columns.

    Examples
    --------
    >>> delimited_names(Path("no-such-file.csv"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.csv does not exist
    """
    with _LONG_FIELDS:
        return _table(path).names


def delimited_blocks(path: Path, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    """Columns as text, a few thousand rows at a time.

    Examples
    --------
    >>> next(delimited_blocks(Path("no-such-file.csv"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.csv does not exist
    """
    with _LONG_FIELDS:
        yield from column_blocks(path, names, _table)


def delimited_beside(path: Path, key: str | None = None, ids: str | None = None) -> list[str]:
    """Names of the columns beside the vectors; parameters as in :func:`open_delimited`.

    Examples
    --------
    >>> delimited_beside(Path("no-such-file.csv"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.csv does not exist
    """
    with _LONG_FIELDS:
        return names_beside(path, key, ids, _table)


def _table(path: Path) -> TextTable:
    rows = _rows(path)
    line, fields = next(rows, (0, []))
    if not fields:
        raise FileError(f"{path}: expected names of columns and rows, found an empty file")
    if _is_header(path, fields):
        return TextTable(fields, _checked(path, rows, len(fields)))
    names = [str(at) for at in range(len(fields))]
    return TextTable(names, _with(line, fields, _checked(path, rows, len(fields))))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, and the line on which it begins; empty lines are skipped."""
    reader = csv.reader(lines_of(path), delimiter=_SEPARATORS[path.suffix.lower()], strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise wrong_line(
                path, line, "fields, with quotes in pairs", f"a mistake: {error}"
            ) from None
        if fields:
            yield line, fields


def _checked(
    path: Path, rows: Iterator[tuple[int, list[str]]], n: int
) -> Iterator[tuple[int, list[Any]]]:
    for line, fields in rows:
        if len(fields) != n:
            raise wrong_line(path, line, f"{n} fields, as in the first line", len(fields))
        yield line, list(fields)


def _with(
    line: int, fields: list[str], rows: Iterator[tuple[int, list[Any]]]
) -> Iterator[tuple[int, list[Any]]]:
    yield line, list(fields)
    yield from rows


def _is_header(path: Path, fields: list[str]) -> bool:
    """Whether the first line has names: no field is a number or a list, or they count columns."""
    numbers = [field for field in fields if kind_of(field) in (NUMBER, VECTOR)]
    if not numbers:
        return True
    n = len(numbers)
    counts = numbers in ([str(at) for at in range(n)], [str(at) for at in range(1, n + 1)])
    if counts and n < _MANY:
        raise FileError(
            f"{path}: line 1 may be a row of numbers, or number the columns: give them names, as "
            f"in {','.join(f'x{number}' for number in numbers)}"
        )
    return counts
