"""Parquet, and Arrow's own files (IPC, Feather version 2), through pyarrow.

Vectors are a column of lists of numbers, all of one length: fixed-size lists, which densehash
writes, or lists that happen to be; or a column for each number; or binary of a fixed size, as which
codes are kept. Parquet is read a row group at a time. An Arrow file that is
not compressed is mapped. Of a compressed one, a record batch is unpacked at a time, each once when
it is opened, to count the rows; if it is a stream, which knows no way back, all stays unpacked in
memory.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from densehash.datasets.tables import NUMBER, place_of, vector_places
from densehash.datasets.typed import TEXTS, text_table
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import DensehashError, FileError, InputError

__all__ = [
    "ArrowRows",
    "ParquetRows",
    "PieceRows",
    "arrow_blocks",
    "arrow_names",
    "n_parquet_rows",
    "open_arrow",
    "open_parquet",
    "parquet_blocks",
    "parquet_files",
    "parquet_names",
    "read_table",
    "write_arrow",
    "write_codes",
    "write_parquet",
]

_SUFFIXES = (".parquet", ".arrow", ".feather")
_KEPT = 2  # pieces; several threads cross the border between two of them back and forth
_LONGEST = 2**31 - 1
_CODES_AT_ONCE = 1 << 16
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

    def _as_lists(self, batch: Any, names: list[str], row: int) -> Any:
        """The columns of these names as one of lists; the first row of the batch is ``row``."""
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
    key, ids : as in :func:`open_parquet`

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : that of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None, ids: str | None = None) -> None:
        self._file = _open_parquet_file(path)
        pa = import_extra("pyarrow", "parquet")
        with _reading(path):
            fields = list(self._file.schema_arrow)
            places = _choose(pa, path, key, fields, ids)
            self._names = [fields[at].name for at in places]
            kind = _list_type(pa, [fields[at].type for at in places])
            # Of each group no more is asked: on what is wrong with its columns, some versions of
            # pyarrow end the process.
            metadata = self._file.metadata
            n_rows = [metadata.row_group(at).num_rows for at in range(self._file.num_row_groups)]
            super().__init__(path, ", ".join(self._names), kind, n_rows)

    def _column(self, piece: int) -> list[Any]:
        found, row = [], int(self._limits[piece])
        for batch in self._file.read_row_group(piece, columns=self._names).to_batches():
            found.append(self._as_lists(batch, self._names, row))
            row += len(batch)
        return found


class ArrowRows(PieceRows):
    """Rows of a column of an Arrow file or stream, which stays mapped.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`open_parquet`

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : that of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None, ids: str | None = None) -> None:
        streamed = _is_stream(path)
        pa = import_extra("pyarrow", "parquet")
        with _reading(path):
            mapped = pa.memory_map(str(path))
            opened = pa.ipc.open_stream if streamed else pa.ipc.open_file
            fields = list(opened(mapped).schema)
            places = _choose(pa, path, key, fields, ids)
            names = [fields[at].name for at in places]
            kind = _list_type(pa, [fields[at].type for at in places])
            mapped.seek(0)
            reader = opened(mapped, options=pa.ipc.IpcReadOptions(included_fields=sorted(places)))
            self._names = names
            self._batch: Callable[[int], Any]
            if streamed:
                every = list(reader)
                self._batch, n_rows = every.__getitem__, [len(batch) for batch in every]
            else:
                self._batch = reader.get_batch
                n_rows = [len(reader.get_batch(at)) for at in range(reader.num_record_batches)]
            super().__init__(path, ", ".join(names), kind, n_rows)

    def _column(self, piece: int) -> list[Any]:
        return [self._as_lists(self._batch(piece), self._names, int(self._limits[piece]))]


def open_parquet(path: Path, key: str | None = None, ids: str | None = None) -> ParquetRows:
    """Open a column, or several of numbers; rows are read when they are asked for.

    Parameters
    ----------
    path : the file
    key : name of a column of lists, or names of columns of numbers; None takes the only one that
        can be vectors
    ids : name of the column of ids, which is no part of vectors

    Examples
    --------
    >>> open_parquet(Path("no-such-file.parquet"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    return ParquetRows(path, key, ids)


def parquet_names(path: Path) -> list[str]:
    """Names of the columns.

    Examples
    --------
    >>> parquet_names(Path("no-such-file.parquet"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = _open_parquet_file(path)
    with _reading(path):
        return list(file.schema_arrow.names)


def parquet_blocks(path: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Columns by their names, a row group at a time.

    Examples
    --------
    >>> next(parquet_blocks(Path("no-such-file.parquet"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.parquet does not exist
    """
    file = _open_parquet_file(path)
    with _reading(path):
        for name in names:
            place_of(path, name, file.schema_arrow.names)
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group, columns=names).to_batches():
                yield _by_name(batch, names)


def arrow_names(path: Path) -> list[str]:
    """Names of the columns.

    Examples
    --------
    >>> arrow_names(Path("no-such-file.arrow"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    with _arrow_reader(path) as reader:
        return list(reader.schema.names)


def arrow_blocks(path: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Columns by their names, a record batch at a time.

    Examples
    --------
    >>> next(arrow_blocks(Path("no-such-file.arrow"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    with _arrow_reader(path) as reader:
        for name in names:
            place_of(path, name, reader.schema.names)
        if hasattr(reader, "num_record_batches"):
            for at in range(reader.num_record_batches):
                yield _by_name(reader.get_batch(at), names)
        else:
            for batch in reader:
                yield _by_name(batch, names)


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files in a folder and in the folders below it, by their names.

    Names that begin with a dot or ``_`` are passed over, as those who write such folders agreed.
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


def open_arrow(path: Path, key: str | None = None, ids: str | None = None) -> ArrowRows:
    """Open a column, or several of numbers; rows are read when they are asked for.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`open_parquet`

    Examples
    --------
    >>> open_arrow(Path("no-such-file.arrow"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    return ArrowRows(path, key, ids)


def read_table(
    path: Path,
    names: Sequence[str] | None,
    *,
    key: str | None = None,
    ids: str | None = None,
    texts: Collection[str] = (),
) -> Any:
    """Columns of a file, or of a folder of Parquet files, beside its vectors.

    Parameters
    ----------
    path : the file, or the folder
    names : of the columns; None takes all but that of the vectors
    key : name of the column of vectors; None is the only one that can be vectors
    ids : name of the column of ids, which is no part of vectors
    texts : as in :func:`~densehash.datasets.typed.text_table`

    Returns
    -------
    pyarrow Table

    Examples
    --------
    >>> read_table(Path("base.npy"), ["title"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: base.npy has no columns beside its vectors: only .parquet, \
.arrow, .feather, .csv, .tsv, .jsonl and .ndjson files have
    """
    pa = import_extra("pyarrow", "payload")
    if path.is_dir():
        tables = [read_table(file, names, key=key, ids=ids) for file in parquet_files(path)]
        with _reading(path):
            return pa.concat_tables(tables)
    suffix = path.suffix.lower()
    if suffix in TEXTS:
        return text_table(path, names, key=key, ids=ids, texts=texts)
    if suffix not in _SUFFIXES:
        *others, last = *_SUFFIXES, *TEXTS
        raise InputError(
            f"{path} has no columns beside its vectors: only {', '.join(others)} and {last} files "
            "have"
        )
    with _reading(path):
        if suffix == ".parquet":
            file = _open_parquet_file(path)
            schema, read = file.schema_arrow, file.read
        else:
            opened = _mapped(pa, path, streamed=_is_stream(path))
            schema, read = opened.schema, lambda columns: opened.read_all().select(columns)
        if names is None:
            vectors = _choose(pa, path, key, list(schema), ids)
            names = [name for at, name in enumerate(schema.names) if at not in vectors]
        for name in names:
            if schema.names.count(name) != 1:
                listed = ", ".join(map(repr, schema.names))
                raise InputError(f"{path} has no single column {name!r}; it has {listed}")
        table = read(columns=list(names))
        table.validate(full=True)  # it is read by whoever gets it
        return table


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
    _write(path, X, key)


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
    _write(path, X, key)


def write_codes(
    path: Path,
    codes: Vectors,
    columns: Iterator[Mapping[str, Any]] | None = None,
    key: str = "codes",
) -> None:
    """Write codes as binary of a fixed size, with other columns before them, to Parquet or Arrow.

    Parameters
    ----------
    path : the file
    codes : uint8 (n, width), read once, from the first to the last
    columns : blocks of rows of other columns, by name: pyarrow.Array, numpy arrays or lists, of n
        rows in all
    key : name of the column of codes
    """
    pa = import_extra("pyarrow", "parquet")
    n, at = len(codes), 0
    nothing: Iterator[Mapping[str, Any]] = ({} for _ in range(0, n, _CODES_AT_ONCE))
    schema, writer = None, None
    with replacing(path) as part, ExitStack() as stack:
        for block in nothing if columns is None else columns:
            arrays = _as_arrays(pa, path, block, schema)
            count = min(_CODES_AT_ONCE, n - at)
            if arrays:
                count = len(next(iter(arrays.values())))
            if at + count > n:
                raise FileError(f"there are {n} codes, but more other rows")
            binary = _as_binary(pa, codes[at : at + count])
            if writer is None:
                fields = [(name, array.type) for name, array in arrays.items()]
                schema = pa.schema([*fields, (key, binary.type)])
                writer = stack.enter_context(_begin(path, part, schema, use_dictionary=True))
            batch = pa.RecordBatch.from_arrays([*arrays.values(), binary], schema=schema)
            writer.write_batch(batch)
            at += count
        if at != n:
            raise FileError(f"there are {n} codes, but {at} other rows")


def _as_arrays(pa: Any, path: Path, block: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    """Columns of a block in the types of those before."""
    found = {}
    for name, values in block.items():
        array = values
        if not isinstance(values, pa.Array):
            try:
                array = pa.array(values, None if schema is None else schema.field(name).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise FileError(
                    f"{name!r} cannot be written to {path}: its values differ in type, {error}"
                ) from None
            if pa.types.is_null(array.type):
                array = array.cast(pa.string())
        elif pa.types.is_dictionary(array.type):  # another one in each block, which Arrow refuses
            array = array.dictionary_decode()
        found[name] = array
    return found


def _as_binary(pa: Any, codes: NDArray[np.uint8]) -> Any:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(codes).tobytes())]
    return pa.Array.from_buffers(pa.binary(codes.shape[1]), len(codes), buffers)


def _begin(path: Path, part: Path, schema: Any, *, use_dictionary: bool = False) -> Any:
    """A writer of record batches, whose file lies at ``part`` until it is whole."""
    if path.suffix.lower() == ".parquet":
        parquet = import_extra("pyarrow.parquet", "parquet")
        return parquet.ParquetWriter(str(part), schema, use_dictionary=use_dictionary)
    return import_extra("pyarrow", "parquet").ipc.new_file(str(part), schema)


def _write(path: Path, X: Vectors, key: str | None) -> None:
    name, suffix = check_key(key, "vectors"), path.suffix.lower()
    dtype = stored_type(X.dtype, suffix)
    d = X.shape[1]
    if d > _LONGEST:
        raise InputError(f"X has {d} features, but {suffix} counts them up to {_LONGEST}")
    pa = import_extra("pyarrow", "parquet")
    schema = pa.schema([(name, pa.list_(pa.from_numpy_dtype(dtype), d))])
    with replacing(path) as part, _begin(path, part, schema) as writer:
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


def _choose(
    pa: Any, path: Path, key: str | None, fields: list[Any], ids: str | None = None
) -> list[int]:
    """The places of columns among the fields of a schema: one of lists, or several of numbers."""
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


def _list_type(pa: Any, kinds: list[Any]) -> Any:
    """The type of lists that columns are read as."""
    first = _storage(kinds[0])
    if pa.types.is_fixed_size_binary(first):
        return pa.list_(pa.uint8(), first.byte_width)
    if hasattr(first, "value_type"):
        return first
    common = np.result_type(*(kind.to_pandas_dtype() for kind in map(_storage, kinds)))
    return pa.list_(pa.from_numpy_dtype(common), len(kinds))


def _bytes_as_lists(pa: Any, column: Any) -> Any:
    """Binary of a fixed size as lists of its bytes."""
    column.validate(full=True)
    width, n = column.type.byte_width, len(column)
    if column.null_count:  # as lists, which are refused with their row
        return pa.array([None if one is None else list(one) for one in column.to_pylist()],
                        pa.list_(pa.uint8(), width))  # fmt: skip
    buffer = column.buffers()[1]
    size = n * width
    numbers = np.frombuffer(buffer, np.uint8, size, column.offset * width) if size else b""
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers, pa.uint8()), width)


def _by_name(batch: Any, names: list[str]) -> dict[str, Any]:
    """Columns whose offsets and lengths do not lie: they are read by whoever gets them."""
    found = {name: batch.column(batch.schema.names.index(name)) for name in names}
    for column in found.values():
        column.validate(full=True)
    return found


@contextmanager
def _arrow_reader(path: Path) -> Iterator[Any]:
    streamed = _is_stream(path)
    pa = import_extra("pyarrow", "parquet")
    with _reading(path):
        yield _mapped(pa, path, streamed=streamed)


def _is_stream(path: Path) -> bool:
    """Whether an Arrow file is a stream; an error if it is not whole."""
    with Reader(path) as file:
        streamed = file.read(0, 4, "a signature") == _STREAM
        if streamed:
            _check_end(file)
        else:
            _check_frame(file, b"ARROW1", b"ARROW1")
    return streamed


def _mapped(pa: Any, path: Path, *, streamed: bool) -> Any:
    return (pa.ipc.open_stream if streamed else pa.ipc.open_file)(pa.memory_map(str(path)))


def _storage(kind: Any) -> Any:
    """A type of pyarrow, or what an extension type is stored as."""
    return getattr(kind, "storage_type", kind)


def _first_length(column: list[Any]) -> int:
    for lists in column:
        if len(lists) > 0:
            lists.validate()
            return int(np.diff(lists.offsets.to_numpy()[:2])[0])
    return 0


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
