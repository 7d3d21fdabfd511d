"""Columns of vectors that pyarrow reads piece by piece; shared by Parquet and Arrow files.

Vectors are a column of lists of numbers, all of one length: fixed-size lists, which densehash
writes, or other lists that have the same length. Or they have a column for each number. Codes are
fixed-size binary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import LazyRows, Reader, broken, choose, import_extra, reason
from densehash.datasets.tables import NUMBER, vector_places
from densehash.errors import DensehashError, FileError

__all__ = [
    "PieceRows",
    "by_name",
    "check_frame",
    "list_type",
    "places_of_vectors",
    "reading_by_pyarrow",
]

_KEPT = 2  # pieces; several threads may read across the border of two pieces


class PieceRows(LazyRows):
    """Rows of a column in several pieces, each of which is read as a whole.

    A format derives from this class and writes ``_column``.

    Parameters
    ----------
    path : the file
    key : name of the column
    kind : type of the column in pyarrow, lists of numbers
    n_rows : how many rows each piece has
    """

    def __init__(self, path: Path, key: str, kind: Any, n_rows: Sequence[int]) -> None:
        super().__init__(path, key)
        if min(n_rows, default=0) < 0 or not 0 < sum(n_rows) < 2**62:
            raise FileError(f"{path}: expected at least 1 row, found {sum(n_rows)}")
        self._limits = np.concatenate([[0], np.cumsum(n_rows, dtype=np.int64)])
        self._kept: dict[int, NDArray[Any]] = {}
        self.dtype = np.dtype(kind.value_type.to_pandas_dtype())
        self.shape = sum(n_rows), getattr(kind, "list_size", 0)
        if self.shape[1] == 0:  # take the length of the first list
            first = int(np.flatnonzero(n_rows)[0])
            column = self._column(first)
            self.shape = self.shape[0], _first_length(column)
            if self.shape[1] < 1:
                raise FileError(f"{path}: expected at least 1 number in row 0 of {key!r}, found 0")
            self._kept[first] = self._decode(first, column)

    @abstractmethod
    def _column(self, piece: int) -> list[Any]:
        """The lists of a piece, in one or several pyarrow.Arrays."""

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        piece = int(np.searchsorted(self._limits, start, side="right")) - 1
        parts = []
        while start < stop:
            first, end = int(self._limits[piece]), min(int(self._limits[piece + 1]), stop)
            if start < end:  # the piece is not empty
                parts.append(self._piece(piece)[start - first : end - first])
            start, piece = end, piece + 1
        return self._join(parts)

    def _pick(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        cuts = np.searchsorted(positions, self._limits)
        parts = []
        for piece in np.flatnonzero(np.diff(cuts)).tolist():
            some = positions[cuts[piece] : cuts[piece + 1]] - self._limits[piece]
            parts.append(self._piece(piece)[some])
        return self._join(parts)

    def _join(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def _piece(self, piece: int) -> NDArray[Any]:
        """Numbers (m, d) of a piece, from memory if it was read lately."""
        if piece not in self._kept:
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            with reading_by_pyarrow(self._path):
                self._kept[piece] = self._decode(piece, self._column(piece))
        self._kept[piece] = self._kept.pop(piece)  # the newest is dropped last
        return self._kept[piece]

    def _decode(self, piece: int, column: list[Any]) -> NDArray[Any]:
        row, stop = self._limits[piece : piece + 2].tolist()
        found = sum(map(len, column))
        if found != stop - row:
            raise FileError(
                f"{self._path}: expected {stop - row} rows from row {row} on, found {found}"
            )
        parts = []
        for lists in column:
            values = self._values(lists, row)
            parts.append(values.to_numpy(zero_copy_only=False).reshape(-1, self.shape[1]))
            row += len(lists)
        return self._join(parts)

    def _values(self, lists: Any, row: int) -> Any:
        """All numbers of some lists, each of d numbers; the first list is row ``row``."""
        lists.validate()
        if lists.null_count:
            self._refuse(row + _first_null(lists), "null")
        if not hasattr(lists.type, "list_size"):
            lengths = np.diff(lists.offsets.to_numpy())
            wrong = np.flatnonzero(lengths != self.shape[1])
            if wrong.size:
                self._refuse(row + int(wrong[0]), lengths[wrong[0]])
        values = lists.flatten()
        if values.null_count:
            self._refuse(row + _first_null(values) // self.shape[1], "a null among them")
        return values

    def _as_lists(self, batch: Any, names: list[str], row: int) -> Any:
        """The columns of these names as one column of lists; the batch begins at row ``row``."""
        columns = [batch.column(batch.schema.names.index(name)) for name in names]
        columns = [getattr(column, "storage", column) for column in columns]
        pa = import_extra("pyarrow", "parquet")
        if pa.types.is_fixed_size_binary(columns[0].type):
            return _bytes_as_lists(pa, columns[0])
        if hasattr(columns[0].type, "value_type"):
            return columns[0]
        for name, column in zip(names, columns, strict=True):
            column.validate()
            if column.null_count:
                at = row + _first_null(column)
                raise FileError(
                    f"{self._path}: expected a number in row {at} of {name!r}, found null"
                )
        numbers = np.empty((len(batch), len(columns)), self.dtype)
        for at, column in enumerate(columns):
            numbers[:, at] = column.to_numpy(zero_copy_only=False)
        return pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), len(columns))

    def _refuse(self, row: int, found: object) -> NoReturn:
        expected = f"{self.shape[1]} numbers in row {row} of {self._key!r}"
        raise FileError(f"{self._path}: expected {expected}, found {found}")


@contextmanager
def reading_by_pyarrow(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow about damaged files into errors that name the file."""
    pa = import_extra("pyarrow", "parquet")
    try:
        yield
    except DensehashError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} cannot be read by pyarrow: {reason(error)}") from None


def check_frame(file: Reader, head: bytes, tail: bytes) -> None:
    """Check the signatures at both ends, and the length of the footer before the last one."""
    found = file.read(0, len(head), "a signature")
    if found != head:
        raise broken(file.path, 0, f"the signature {head!r}", repr(found))
    at = file.size - len(tail) - 4
    file.need(0, len(head) + len(tail) + 4, "signatures and a footer")
    end = file.read(at, 4 + len(tail), "a signature")
    if end[4:] != tail:
        raise broken(file.path, at + 4, f"the signature {tail!r}", repr(end[4:]))
    length = int.from_bytes(end[:4], "little", signed=True)
    if not 0 < length <= at - len(head):
        raise broken(file.path, at, f"a footer of 1 to {at - len(head)} bytes", length)


def places_of_vectors(
    pa: Any, path: Path, key: str | None, fields: list[Any], ids: str | None = None
) -> list[int]:
    """Positions of the vectors in a schema: one column of lists, or several of numbers."""
    names = [field.name for field in fields]
    types = pa.types

    def is_number(kind: Any) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    def describe(name: str) -> tuple[str, bool]:
        kind = _storage(fields[names.index(name)].type)
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        fits = types.is_fixed_size_binary(kind) or (
            lists and getattr(kind, "list_size", 1) > 0 and is_number(kind.value_type)
        )
        return str(kind), bool(fits) and names.count(name) == 1

    kinds = [NUMBER if is_number(_storage(field.type)) else str(field.type) for field in fields]
    if key is None:
        numbers = [name for name, kind in zip(names, kinds, strict=True) if kind == NUMBER]
        in_numbers = len(numbers) > 1 and not any(describe(name)[1] for name in names)
    else:
        in_numbers = key not in names and any(sign in key for sign in "*,")
    if in_numbers:
        return vector_places(path, key, names, kinds, ids)
    return [names.index(choose(path, key, names, describe))]


def list_type(pa: Any, kinds: list[Any]) -> Any:
    """The type of lists as which columns are read."""
    first = _storage(kinds[0])
    if pa.types.is_fixed_size_binary(first):
        return pa.list_(pa.uint8(), first.byte_width)
    if hasattr(first, "value_type"):
        return first
    common = np.result_type(*(kind.to_pandas_dtype() for kind in map(_storage, kinds)))
    return pa.list_(pa.from_numpy_dtype(common), len(kinds))


def _bytes_as_lists(pa: Any, column: Any) -> Any:
    """Fixed-size binary as lists of its bytes."""
    column.validate(full=True)
    width, n = column.type.byte_width, len(column)
    if column.null_count:  # lists, so that the error about nulls names the row
        return pa.array([None if one is None else list(one) for one in column.to_pylist()],
                        pa.list_(pa.uint8(), width))  # fmt: skip
    buffer = column.buffers()[1]
    size = n * width
    numbers = np.frombuffer(buffer, np.uint8, size, column.offset * width) if size else b""
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers, pa.uint8()), width)


def by_name(batch: Any, names: list[str]) -> dict[str, Any]:
    """Columns by name, checked by pyarrow, because others read them without checks."""
    found = {name: batch.column(batch.schema.names.index(name)) for name in names}
    for column in found.values():
        column.validate(full=True)
    return found


def _storage(kind: Any) -> Any:
    """A type of pyarrow; for an extension type, its storage type."""
    return getattr(kind, "storage_type", kind)


def _first_length(column: list[Any]) -> int:
    for lists in column:
        if len(lists) > 0:
            lists.validate()
            return int(np.diff(lists.offsets.to_numpy()[:2])[0])
    return 0


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
