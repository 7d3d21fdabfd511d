"""Parquet, and Arrow's own files (IPC, Feather version 2), through pyarrow.

Vectors are a column of lists of numbers, all of one length: fixed-size lists, which densehash
writes, or lists that happen to be. Parquet is read a row group at a time. An Arrow file that is
not compressed is mapped. Of a compressed one, a record batch is unpacked at a time, each once when
it is opened, to count the rows; if it is a stream, which knows no way back, all stays unpacked in
memory.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import (
    LazyRows,
    Reader,
    Vectors,
    broken,
    choose,
    import_extra,
    reason,
)
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import DensehashError, FileError, InputError

__all__ = [
    "ArrowRows",
    "ParquetRows",
    "PieceRows",
    "n_parquet_rows",
    "open_arrow",
    "open_parquet",
    "parquet_files",
    "read_table",
    "write_arrow",
    "write_parquet",
]

_KEPT = 2  # pieces; several threads cross the border between two of them back and forth
_LONGEST = 2**31 - 1
_STREAM = b"\xff\xff\xff\xff"  # how a stream begins, and, with four zeros, how it ends


class PieceRows(LazyRows):
    """Rows of a column that lies in pieces, each of which is read as a whole.

    A format derives from this class and writes ``_column``.

    Parameters
    ----------
    path : the file
    key : name of the column
    kind : type of the column in pyarrow, lists of numbers
    n_rows : of each piece
    """

    def __init__(self, path: Path, key: str, kind: Any, n_rows: Sequence[int]) -> None:
        super().__init__(path, key)
        if min(n_rows, default=0) < 0 or not 0 < sum(n_rows) < 2**62:
            raise FileError(f"{path}: expected at least 1 row, found {sum(n_rows)}")
        self._limits = np.concatenate([[0], np.cumsum(n_rows, dtype=np.int64)])
        self._kept: dict[int, NDArray[Any]] = {}
        self.dtype = np.dtype(kind.value_type.to_pandas_dtype())
        self.shape = sum(n_rows), getattr(kind, "list_size", 0)
        if self.shape[1] == 0:  # as many as the first list has
            first = int(np.flatnonzero(n_rows)[0])
            column = self._column(first)
            self.shape = self.shape[0], _first_length(column)
            if self.shape[1] < 1:
                raise FileError(f"{path}: expected at least 1 number in row 0 of {key!r}, found 0")
            self._kept[first] = self._decode(first, column)

    @abstractmethod
    def _column(self, piece: int) -> list[Any]:
        """The lists of a piece, in one pyarrow.Array or several."""

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        piece = int(np.searchsorted(self._limits, start, side="right")) - 1
        parts = []
        while start < stop:
            first, end = int(self._limits[piece]), min(int(self._limits[piece + 1]), stop)
            if start < end:  # or the piece is empty
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
        """Numbers (m, d) of a piece, from memory if it was among the last ones."""
        if piece not in self._kept:
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            with _reading(self._path):
                self._kept[piece] = self._decode(piece, self._column(piece))
        self._kept[piece] = self._kept.pop(piece)  # now the last one to be dropped
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
        """All numbers of some lists, the first of which is this row; each must have d numbers."""
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

    def _refuse(self, row: int, found: object) -> NoReturn:
        expected = f"{self.shape[1]} numbers in row {row} of {self._key!r}"
        raise FileError(f"{self._path}: expected {expected}, found {found}")


def _open_parquet_file(path: Path) -> Any:
    """What pyarrow makes of a Parquet file, if it is whole."""
    with Reader(path) as file:
        _check_frame(file, b"PAR1", b"PAR1")
    parquet = import_extra("pyarrow.parquet", "parquet")
    with _reading(path):
        return parquet.ParquetFile(path)


class ParquetRows(PieceRows):
    """Rows of a column of a Parquet file, read a row group at a time.

    Parameters
    ----------
    path : the file
    key : name of the column; None takes the only one that can be vectors

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : that of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None) -> None:
        self._file = _open_parquet_file(path)
        pa = import_extra("pyarrow", "parquet")
        with _reading(path):
            fields = list(self._file.schema_arrow)
            field = _choose(pa, path, key, fields)
            kind = _storage(fields[field].type)
            # Of each group no more is asked: on what is wrong with its columns, some versions of
            # pyarrow end the process.
            metadata = self._file.metadata
            n_rows = [metadata.row_group(at).num_rows for at in range(self._file.num_row_groups)]
            super().__init__(path, fields[field].name, kind, n_rows)

    def _column(self, piece: int) -> list[Any]:
        table = self._file.read_row_group(piece, columns=[self._key])
        return [getattr(lists, "storage", lists) for lists in table.column(self._key).chunks]


class ArrowRows(PieceRows):
    """Rows of a column of an Arrow file or stream, which stays mapped.

    Parameters
    ----------
    path : the file
    key : name of the column; None takes the only one that can be vectors

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : that of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None) -> None:
        with Reader(path) as file:
            streamed = file.read(0, 4, "a signature") == _STREAM
            if streamed:
                _check_end(file)
            else:
                _check_frame(file, b"ARROW1", b"ARROW1")
        pa = import_extra("pyarrow", "parquet")
        with _reading(path):
            mapped = pa.memory_map(str(path))
            opened = pa.ipc.open_stream if streamed else pa.ipc.open_file
            fields = list(opened(mapped).schema)
            field = _choose(pa, path, key, fields)
            kind = _storage(fields[field].type)
            mapped.seek(0)
            reader = opened(mapped, options=pa.ipc.IpcReadOptions(included_fields=[field]))
            self._lists: Callable[[int], Any]
            if streamed:
                every = [_lists_of(batch) for batch in reader]
                self._lists, n_rows = every.__getitem__, [len(lists) for lists in every]
            else:
                self._lists = lambda piece: _lists_of(reader.get_batch(piece))
                n_rows = [len(self._lists(at)) for at in range(reader.num_record_batches)]
            super().__init__(path, fields[field].name, kind, n_rows)

    def _column(self, piece: int) -> list[Any]:
        return [self._lists(piece)]


def open_parquet(path: Path, key: str | None = None) -> ParquetRows:
    """Open a column; its rows are read when they are asked for.

    Parameters
    ----------
    path : the file
    key : name of a column of lists; None takes the only one that can be vectors

    Examples
    --------
    >>> open_parquet(Path("no-such-file.parquet"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    return ParquetRows(path, key)


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files in a folder and in the folders below it, by their names.

    Names that begin with a dot or ``_`` are passed over, as those who write such folders agreed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("year=2024/b.parquet", "year=2023/a.parquet", "_old/c.parquet"):
    ...         Path(folder, name).parent.mkdir()
    ...         Path(folder, name).touch()
    ...     [path.name for path in parquet_files(Path(folder))]
    ['a.parquet', 'b.parquet']
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
    """How many rows a Parquet file says to have; its columns are not looked at.

    Examples
    --------
    >>> n_parquet_rows(Path("no-such-file.parquet"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = _open_parquet_file(path)
    with _reading(path):
        return int(file.metadata.num_rows)


def open_arrow(path: Path, key: str | None = None) -> ArrowRows:
    """Open a column; its rows are read when they are asked for.

    Parameters
    ----------
    path : the file
    key : name of a column of lists; None takes the only one that can be vectors

    Examples
    --------
    >>> open_arrow(Path("no-such-file.arrow"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    return ArrowRows(path, key)


def read_table(path: Path, names: Sequence[str] | None, *, key: str | None = None) -> Any:
    """Columns of a Parquet or Arrow file, or of a folder of Parquet files, beside its vectors.

    Parameters
    ----------
    path : the file, or the folder
    names : of the columns; None takes all but that of the vectors
    key : name of the column of vectors; None is the only one that can be vectors

    Returns
    -------
    pyarrow Table

    Examples
    --------
    >>> read_table(Path("base.npy"), ["title"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: base.npy has no columns beside its vectors: only .parquet, \
.arrow and .feather files have
    """
    pa = import_extra("pyarrow", "payload")
    if path.is_dir():
        tables = [read_table(file, names, key=key) for file in parquet_files(path)]
        with _reading(path):
            return pa.concat_tables(tables)
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".arrow", ".feather"):
        raise InputError(
            f"{path} has no columns beside its vectors: only .parquet, .arrow and .feather files "
            "have"
        )
    with _reading(path):
        if suffix == ".parquet":
            file = _open_parquet_file(path)
            schema, read = file.schema_arrow, file.read
        else:
            opened = _open_arrow_file(pa, path)
            schema, read = opened.schema, lambda columns: opened.read_all().select(columns)
        if names is None:
            vectors = _choose(pa, path, key, list(schema))
            names = [name for at, name in enumerate(schema.names) if at != vectors]
        for name in names:
            if schema.names.count(name) != 1:
                listed = ", ".join(map(repr, schema.names))
                raise InputError(f"{path} has no single column {name!r}; it has {listed}")
        table = read(columns=list(names))
        table.validate(full=True)  # it is read by whoever gets it
        return table


def _open_arrow_file(pa: Any, path: Path) -> Any:
    """What pyarrow makes of an Arrow file or stream, mapped, if it is whole."""
    with Reader(path) as file:
        streamed = file.read(0, 4, "a signature") == _STREAM
        if streamed:
            _check_end(file)
        else:
            _check_frame(file, b"ARROW1", b"ARROW1")
    return (pa.ipc.open_stream if streamed else pa.ipc.open_file)(pa.memory_map(str(path)))


def write_parquet(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows, a block and a row group at a time, as the only column of a file.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept
    key : name of the column; None is ``vectors``

    Examples
    --------
    >>> write_parquet(Path("a.parquet"), np.zeros((2, 3)), key="")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: key must be a printable name, got ''
    """

    def begin(part: Path, schema: Any) -> Any:
        parquet = import_extra("pyarrow.parquet", "parquet")
        return parquet.ParquetWriter(str(part), schema, use_dictionary=False)

    _write(path, X, key, ".parquet", begin)


def write_arrow(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows, a block and a record batch at a time, as the only column of a file.

    The file is not compressed, so that it can be mapped.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept
    key : name of the column; None is ``vectors``

    Examples
    --------
    >>> write_arrow(Path("a.arrow"), np.zeros((2, 3)), key="")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: key must be a printable name, got ''
    """

    def begin(part: Path, schema: Any) -> Any:
        return import_extra("pyarrow", "parquet").ipc.new_file(str(part), schema)

    _write(path, X, key, path.suffix.lower(), begin)


def _write(
    path: Path, X: Vectors, key: str | None, suffix: str, begin: Callable[[Path, Any], Any]
) -> None:
    name = check_key(key, "vectors")
    dtype = stored_type(X.dtype, suffix)
    d = X.shape[1]
    if d > _LONGEST:
        raise InputError(f"X has {d} features, but {suffix} counts them up to {_LONGEST}")
    pa = import_extra("pyarrow", "parquet")
    schema = pa.schema([(name, pa.list_(pa.from_numpy_dtype(dtype), d))])
    with replacing(path) as part, begin(part, schema) as writer:
        for block in blocks(X, dtype):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), d)
            writer.write_batch(pa.RecordBatch.from_arrays([lists], schema=schema))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises where a file is damaged into an error that names the file."""
    pa = import_extra("pyarrow", "parquet")
    try:
        yield
    except DensehashError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} cannot be read by pyarrow: {reason(error)}") from None


def _check_frame(file: Reader, head: bytes, tail: bytes) -> None:
    """Compare the signatures at both ends, and the length of the footer before the last one."""
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


def _check_end(file: Reader) -> None:
    """Refuse a stream without its last mark: cut between two batches, it would look whole."""
    at = max(0, file.size - 8)
    end, mark = file.read(at, file.size - at, "a mark"), _STREAM + bytes(4)
    if end != mark:
        raise broken(file.path, at, f"the mark {mark!r} at the end of a stream", repr(end))


def _choose(pa: Any, path: Path, key: str | None, fields: list[Any]) -> int:
    """The place of a column among the fields of a schema."""
    names = [field.name for field in fields]

    def describe(name: str) -> tuple[str, bool]:
        kind = _storage(fields[names.index(name)].type)
        lists = pa.types
        fits = (
            names.count(name) == 1
            and (lists.is_list(kind) or lists.is_large_list(kind) or lists.is_fixed_size_list(kind))
            and getattr(kind, "list_size", 1) > 0
            and (
                lists.is_integer(kind.value_type)
                or lists.is_floating(kind.value_type)
                or lists.is_boolean(kind.value_type)
            )
        )
        return str(kind), fits

    return names.index(choose(path, key, names, describe))


def _storage(kind: Any) -> Any:
    """A type of pyarrow, or what an extension type is stored as."""
    return getattr(kind, "storage_type", kind)


def _lists_of(batch: Any) -> Any:
    return getattr(batch.column(0), "storage", batch.column(0))


def _first_length(column: list[Any]) -> int:
    for lists in column:
        if len(lists) > 0:
            lists.validate()
            return int(np.diff(lists.offsets.to_numpy()[:2])[0])
    return 0


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
