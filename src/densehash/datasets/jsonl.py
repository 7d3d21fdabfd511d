"""JSON lines: each line is an object or a list of numbers.

In objects, a vector is a list of numbers under one name, or one number under each of several names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.tables import (
    TextTable,
    column_blocks,
    lines_of,
    names_beside,
    open_text,
    wrong_line,
)
from densehash.errors import FileError

__all__ = ["jsonl_beside", "jsonl_blocks", "jsonl_names", "open_jsonl"]


def open_jsonl(path: Path, key: str | None = None, ids: str | None = None) -> NDArray[np.float64]:
    """Read the vectors of JSON lines, once: float64 (n, d).

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`~densehash.datasets.tables.vector_places`; the names are those of the
        first line

    Examples
    --------
    >>> open_jsonl(Path("no-such-file.jsonl"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.jsonl does not exist
    """
    return open_text(path, key, ids, _table)


def jsonl_names(path: Path) -> list[str]:
    """Names in the first object.

    Examples
    --------
    >>> jsonl_names(Path("no-such-file.jsonl"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.jsonl does not exist
    """
    return _table(path).names


def jsonl_blocks(path: Path, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    """The values of these names, a few thousand lines at a time.

    Examples
    --------
    >>> next(jsonl_blocks(Path("no-such-file.jsonl"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.jsonl does not exist
    """
    yield from column_blocks(path, names, _table)


def jsonl_beside(path: Path, key: str | None = None, ids: str | None = None) -> list[str]:
    """Names in the first object beside the vectors; parameters as in :func:`open_jsonl`.

    Examples
    --------
    >>> jsonl_beside(Path("no-such-file.jsonl"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.jsonl does not exist
    """
    return names_beside(path, key, ids, _table)


def _table(path: Path) -> TextTable:
    values = _values(path)
    first = next(values, None)
    if first is None:
        raise FileError(f"{path}: expected a JSON object a line, found an empty file")
    names = list(first[1]) if isinstance(first[1], dict) else [""]
    return TextTable(names, _rows(path, names, first, values))


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    """The number and value of each line; empty lines are skipped."""
    for line, text in enumerate(lines_of(path), start=1):
        if text.isspace():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise wrong_line(path, line, "JSON", f"a mistake: {error}") from None
        if not isinstance(value, (dict, list)):
            raise wrong_line(path, line, "a JSON object or a list", type(value).__name__)
        yield line, value


def _rows(
    path: Path, names: list[str], first: tuple[int, Any], others: Iterator[tuple[int, Any]]
) -> Iterator[tuple[int, list[Any]]]:
    kind = type(first[1])
    line, value = first
    while True:
        if type(value) is not kind:
            what = "an object" if kind is dict else "a list"
            raise wrong_line(path, line, f"{what}, as in line {first[0]}", type(value).__name__)
        yield line, [value.get(name) for name in names] if kind is dict else [value]
        following = next(others, None)
        if following is None:
            return
        line, value = following
