"""Shared by files with columns: which columns are vectors, and how text becomes numbers.

Vectors are one column of lists, or several columns of one number each. Text is read once, from the
first line to the last, in blocks, into a temporary file of numbers. That file is mapped, so that a
fit can read it in any order and as often as it needs. Errors name the line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Reader, reason
from densehash.errors import FileError, InputError

__all__ = [
    "NUMBER",
    "VECTOR",
    "TextTable",
    "column_blocks",
    "kind_of",
    "lines_of",
    "names_beside",
    "open_text",
    "place_of",
    "vector_places",
    "wrong_line",
]

VECTOR, NUMBER = "a vector", "a number"
"""The kinds of columns that can be vectors; any other kind is described in words."""

_LONGEST_LINE = 1 << 26  # in bytes
_BLOCK_NUMBERS = 1 << 17
_BLOCK_ROWS = 8192
_MOST_LISTED = 20
_BRACKETS = {"[": "]", "(": ")"}


class TextTable(NamedTuple):
    """Rows of a text file.

    Attributes
    ----------
    names : names of the columns
    rows : for each row the number of its first line, and its cells: numbers, lists or strings

    Examples
    --------
    >>> TextTable(["a"], iter([(2, ["1.5"])])).names
    ['a']
    """

    names: list[str]
    rows: Iterator[tuple[int, list[Any]]]


Open = Callable[[Path], TextTable]


# --- which columns ------------------------------------------------------------------------


def vector_places(
    path: Path, key: str | None, names: Sequence[str], kinds: Sequence[str], ids: str | None = None
) -> list[int]:
    """Positions of the columns that are vectors: one column of lists, or several of numbers.

    Parameters
    ----------
    path : the file
    key : name of a column, or several names with commas between them, in which ``*`` stands for any
        letters; default the only column of vectors, or all columns if all are numbers
    names : names of all columns
    kinds : what each column holds: ``VECTOR``, ``NUMBER``, or something else in words
    ids : name of the column of ids, which does not belong to the vectors

    Examples
    --------
    >>> vector_places(Path("a.csv"), None, ["id", "x", "y"], [NUMBER] * 3, ids="id")
    [1, 2]
    >>> vector_places(Path("a.csv"), "x*", ["id", "x1", "x2"], ["text", NUMBER, NUMBER])
    [1, 2]
    """
    there = f"it has {_listed(names, kinds)}"
    if key is not None:
        chosen = _matching(path, key, names, there)
        if len(chosen) == 1 and kinds[chosen[0]] == VECTOR:
            return chosen
        wrong = [at for at in chosen if kinds[at] != NUMBER]
        if wrong:
            raise InputError(
                f"{names[wrong[0]]!r} of {path} must be {NUMBER if len(chosen) > 1 else VECTOR}, "
                f"got {kinds[wrong[0]]}"
            )
        return chosen
    lists = [at for at, kind in enumerate(kinds) if kind == VECTOR]
    if len(lists) == 1:
        return lists
    if lists:
        raise InputError(f"{path} has several columns of vectors: name one of them; {there}")
    # A column without a name is the index of a pandas frame.
    numbers = [at for at, name in enumerate(names) if name not in ("", ids)]
    if len(numbers) < 2 or any(kinds[at] != NUMBER for at in numbers):
        raise InputError(
            f"{path} has no column of vectors, nor two or more columns, all of numbers: name the "
            f"columns of the vectors, as in 'x*' or 'x,y,z'; {there}"
        )
    return numbers


def place_of(path: Path, name: str, names: Sequence[str]) -> int:
    """The position of a column.

    Examples
    --------
    >>> place_of(Path("a.csv"), "y", ["x", "y"])
    1
    """
    if list(names).count(name) != 1:
        how = "two columns" if name in names else "no column"
        raise InputError(f"{path} has {how} named {name!r}; it has {_listed(names)}")
    return list(names).index(name)


def _matching(path: Path, key: str, names: Sequence[str], there: str) -> list[int]:
    if key in names:
        return [place_of(path, key, names)]
    found: list[int] = []
    for part in key.split(","):
        some = [at for at, name in enumerate(names) if fnmatchcase(name, part)]
        if not some:
            raise InputError(f"{path} has nothing named {part!r}; {there}")
        found += some
    if len(set(found)) != len(found):
        raise InputError(f"{key!r} names a column of {path} twice; {there}")
    return found


def _listed(names: Sequence[str], kinds: Sequence[str] = ()) -> str:
    shown = [
        f"{name!r}" + (f" ({kinds[at]})" if kinds else "")
        for at, name in enumerate(names[:_MOST_LISTED])
    ]
    more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
    return ", ".join([*shown, *more]) or "nothing"


# --- text ---------------------------------------------------------------------------------


def wrong_line(path: Path, line: int, expected: str, found: object) -> FileError:
    """The error for a line that is not as expected.

    Examples
    --------
    >>> raise wrong_line(Path("a.csv"), 7, "3 fields", 2)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: a.csv: line 7: expected 3 fields, found 2
    """
    return FileError(f"{path}: line {line}: expected {expected}, found {found}")


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, with their line ends; a byte order mark is left out.

    Examples
    --------
    >>> next(lines_of(Path("no-such-file.csv")))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.csv does not exist
    """
    with Reader(path):  # refuses what is not a regular file: a pipe would wait
        pass
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    raise wrong_line(path, number, f"at most {_LONGEST_LINE} bytes", "more")
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise wrong_line(
                        path, number, "UTF-8", f"byte {line[error.start]:#x}"
                    ) from None
                yield text
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be read: {reason(error)}") from None


def open_text(path: Path, key: str | None, ids: str | None, opened: Open) -> NDArray[np.float64]:
    """Read the vectors of a text file, once: float64 (n, d), mapped from a temporary file.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`vector_places`
    opened : returns its rows

    Examples
    --------
    >>> def opened(path):
    ...     return TextTable(["v"], iter([(2, ["[1, 2]"]), (3, ["[3, 4]"])]))
    >>> open_text(Path("a.csv"), None, None, opened).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    names, rows = opened(path)
    line, cells = _first(path, rows)
    places = vector_places(path, key, names, [kind_of(cell) for cell in cells], ids)
    convert = _Numbers(path, names, places)
    first = convert(line, cells)
    n, d = 1, len(first)
    step = max(_BLOCK_NUMBERS // d, 1)
    lines, block = [line], [first]
    try:
        with tempfile.TemporaryFile() as file:
            for line, cells in rows:
                row = convert(line, cells)
                if len(row) != d:
                    raise wrong_line(path, line, f"{d} numbers, as in line {lines[0]}", len(row))
                if len(block) == step:
                    file.write(_finite(path, lines[-len(block) :], block).data)
                    block, lines = [], lines[:1]
                block.append(row)
                lines.append(line)
                n += 1
            file.write(_finite(path, lines[-len(block) :], block).data)
            file.flush()
            return np.memmap(file, np.float64, mode="r", shape=(n, d))
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"the numbers of {path} cannot be written to {tempfile.gettempdir()}: {reason(error)}; "
            "the environment variable TMPDIR names another folder"
        ) from None


def column_blocks(path: Path, names: Sequence[str], opened: Open) -> Iterator[dict[str, list[Any]]]:
    """Columns of a text file by name, a few thousand rows at a time.

    Examples
    --------
    >>> def opened(path):
    ...     return TextTable(["id", "v"], iter([(2, ["a", "[1]"]), (3, ["b", "[2]"])]))
    >>> list(column_blocks(Path("a.csv"), ["id"], opened))
    [{'id': ['a', 'b']}]
    """
    there, rows = opened(path)
    places = [place_of(path, name, there) for name in names]
    block: list[list[Any]] = []
    for _, cells in rows:
        block.append([cells[at] for at in places])
        if len(block) == _BLOCK_ROWS:
            yield dict(zip(names, map(list, zip(*block, strict=True)), strict=True))
            block = []
    if block:
        yield dict(zip(names, map(list, zip(*block, strict=True)), strict=True))


def names_beside(path: Path, key: str | None, ids: str | None, opened: Open) -> list[str]:
    """Names of the columns beside the vectors; a column without a name is skipped.

    The parameters are those of :func:`open_text`.

    Examples
    --------
    >>> def opened(path):
    ...     return TextTable(["id", "v"], iter([(2, ["a", "[1]"])]))
    >>> names_beside(Path("a.csv"), None, None, opened)
    ['id']
    """
    names, rows = opened(path)
    _, cells = _first(path, rows)
    places = vector_places(path, key, names, [kind_of(cell) for cell in cells], ids)
    return [name for at, name in enumerate(names) if name and at not in places]


def _first(path: Path, rows: Iterator[tuple[int, list[Any]]]) -> tuple[int, list[Any]]:
    found = next(rows, None)
    if found is None:
        raise FileError(f"{path}: expected at least 1 row, found none")
    return found


def kind_of(cell: Any) -> str:
    """What a cell is: ``VECTOR``, ``NUMBER``, or something else in words.

    Examples
    --------
    >>> kind_of("[1, 2]"), kind_of("0.5"), kind_of("red"), kind_of(None)
    ('a vector', 'a number', 'text', 'nothing')
    """
    if isinstance(cell, list) or (isinstance(cell, str) and cell.strip()[:1] in _BRACKETS):
        return VECTOR
    if isinstance(cell, str):
        try:
            _number(cell)
        except ValueError:
            return "text"
        return NUMBER
    if type(cell) in (int, float):
        return NUMBER
    return "nothing" if cell is None else type(cell).__name__


class _Numbers:
    """Turns the cells of a row into numbers; errors name the line."""

    def __init__(self, path: Path, names: Sequence[str], places: Sequence[int]) -> None:
        self._path, self._names, self._places = path, names, places

    def __call__(self, line: int, cells: Sequence[Any]) -> NDArray[np.float64]:
        try:
            if len(self._places) > 1:
                numbers = _all_numbers([cells[at] for at in self._places])
            else:
                cell = cells[self._places[0]]
                numbers = _vector(cell) if kind_of(cell) == VECTOR else [_number(cell)]
            return np.array(numbers, np.float64)
        except (ValueError, OverflowError) as error:
            self._refuse(line, cells, error)

    def _refuse(self, line: int, cells: Sequence[Any], error: Exception) -> NoReturn:
        name, found = self._names[self._places[0]], str(error)
        for at in self._places if len(self._places) > 1 else ():
            try:
                _number(cells[at])
            except (ValueError, OverflowError) as other:
                name, found = self._names[at], str(other)
                break
        what = "a number" if len(self._places) > 1 else "numbers"
        raise wrong_line(self._path, line, f"{what} in {name!r}", found) from None


def _vector(cell: Any) -> list[float]:
    if isinstance(cell, list):
        if not set(map(type, cell)) <= {int, float}:
            other = next(value for value in cell if type(value) not in (int, float))
            raise ValueError(_shown(other))
        numbers = cell
    else:
        text = cell.strip()
        if len(text) < 2 or text[-1] != _BRACKETS.get(text[0]):
            raise ValueError(f"no bracket at the end, {_shown(text[-20:])}")
        inside = text[1:-1]
        numbers = _all_numbers(inside.split("," if "," in inside else None))
    if not numbers:
        raise ValueError("none")
    return numbers


def _all_numbers(cells: list[Any]) -> list[float]:
    if set(map(type, cells)) == {str} and "_" not in "".join(cells):
        try:
            return list(map(float, cells))  # fast; if it fails, the slow way names the error
        except ValueError:
            pass
    return [_number(cell) for cell in cells]


def _number(cell: Any) -> float:
    if isinstance(cell, str):
        try:
            if "_" not in cell:  # Python allows it between digits, we do not
                return float(cell)
        except ValueError:
            pass
        raise ValueError(_shown(cell))
    if type(cell) not in (int, float):
        raise ValueError(_shown(cell))
    return float(cell)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _finite(path: Path, lines: list[int], block: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    numbers = np.array(block)
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(bad.any(axis=1).argmax())
        raise wrong_line(path, lines[row], "finite numbers", numbers[row][bad[row]][0])
    return numbers
