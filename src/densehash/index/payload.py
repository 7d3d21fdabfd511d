"""The payload, which users keep beside their vectors: columns of a table, in Arrow's file format.

The payload of a segment is the bytes of one Arrow IPC file, with rows by rank. These bytes are an
array of the segment, and are written, checked, mapped and merged like its other arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import DensehashError, FileError, InputError
from densehash.index.columns import Columns, arrow, schema_of
from densehash.index.frames import check_frame, damaged_payload
from densehash.locks import cached_property
from densehash.source import Source
from densehash.store.maps import check_unchanged

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "Payload", "PayloadRows", "converting"]

BATCH_ROWS = 1 << 16
"""The most rows of a record batch."""

BATCH_BYTES = 1 << 24
"""About the most bytes of a record batch, if rows are long."""

_FEW = 64  # rows that are read one by one, which takes less time than finding them in a batch
_MASKS = 4  # kept for the next search with the same filter


class PayloadRows:
    """Rows of a payload in any order, which are read when they are written.

    Parameters
    ----------
    batches : record batches, in which strings may be in dictionaries
    columns : names and types
    order : integers (m,), numbers of rows, counted over all batches; None: all rows, in their order

    Examples
    --------
    >>> from densehash.index.given import payload_rows
    >>> rows = payload_rows([{"year": 2019}, {"year": 2020}, {"year": 2021}], 3)
    >>> rows.take(np.array([2, 0])).table().to_pydict()
    {'year': [2021, 2019]}
    """

    def __init__(
        self, batches: Sequence[Any], columns: Columns, order: NDArray[np.integer] | None = None
    ) -> None:
        self._batches, self.columns, self._order = batches, columns, order
        self._limits = np.cumsum([0, *(batch.num_rows for batch in batches)])

    def __len__(self) -> int:
        return int(self._limits[-1]) if self._order is None else len(self._order)

    @property
    def nbytes(self) -> int:
        """About how many bytes the rows take."""
        whole: int = sum(batch.nbytes for batch in self._batches)
        return whole * len(self) // max(int(self._limits[-1]), 1)

    def take(self, numbers: NDArray[np.integer]) -> PayloadRows:
        """Some of the rows, in any order."""
        order = numbers if self._order is None else self._order[numbers]
        return PayloadRows(self._batches, self.columns, order)

    def part(self, start: int, stop: int) -> PayloadRows:
        """Rows that follow each other; nothing is copied."""
        if self._order is not None:
            return self.take(np.arange(start, stop))
        return PayloadRows(list(self._run(start, stop)), self.columns)

    @staticmethod
    def joined(parts: Sequence[PayloadRows]) -> PayloadRows:
        """Rows of several payloads, one after the other."""
        batches = [batch for part in parts for batch in part._batches]
        if all(part._order is None for part in parts):
            return PayloadRows(batches, parts[0].columns)
        starts = np.cumsum([0, *(part._limits[-1] for part in parts)])
        orders = [
            (np.arange(len(part)) if part._order is None else part._order.astype(np.int64)) + start
            for part, start in zip(parts, starts, strict=False)
        ]
        return PayloadRows(batches, parts[0].columns, np.concatenate(orders))

    def table(self, missing: NDArray[np.bool_] | None = None) -> Any:
        """All rows in memory, as users see them.

        Parameters
        ----------
        missing : bool (n,), rows whose columns are all null, whatever the order says
        """
        pa = arrow()
        schema = schema_of(self.columns)
        if missing is None or not missing.any():
            few = self._order if self._order is not None and 0 < len(self) <= _FEW else None
            pieces = self._pieces() if few is None else [self._some(few)]
            return pa.Table.from_batches([_plain(pa, batch, schema) for batch in pieces], schema)
        there = np.flatnonzero(~missing)
        places = np.zeros(len(missing), np.int64)
        places[there] = np.arange(len(there))
        found = self.take(there).table() if len(there) else schema.empty_table()
        return found.combine_chunks().take(pa.array(places, mask=missing))

    def file(self) -> Source:
        """The bytes of an Arrow file, uint8 (n_bytes,), which are made when they are read."""
        with converting():
            return _File(self)

    def _run(self, start: int, stop: int) -> Iterator[Any]:
        for at, (first, last) in enumerate(pairwise(self._limits.tolist())):
            low, high = max(start, first), min(stop, last)
            if low < high:
                yield self._batches[at].slice(low - first, high - low)

    def _pieces(self) -> Iterator[Any]:
        """Record batches of all rows, one after the other, of moderate size."""
        widest = max((batch.nbytes // max(batch.num_rows, 1) for batch in self._batches), default=0)
        step = max(min(BATCH_BYTES // max(widest, 1), BATCH_ROWS), 1)
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            if self._order is not None:
                yield self._some(self._order[start:stop])
            else:
                yield self._joined([*self._run(start, stop)])

    def _some(self, numbers: NDArray[np.integer]) -> Any:
        """Rows of any numbers, in one batch; if there are many, each batch is read once."""
        pa = arrow()
        if bool((np.diff(numbers.astype(np.int64)) == 1).all()):  # true for most merges
            return self._joined([*self._run(int(numbers[0]), int(numbers[-1]) + 1)])
        if len(numbers) <= _FEW:
            which = np.searchsorted(self._limits, numbers, side="right") - 1
            inside = numbers - self._limits[which]
            places = zip(which.tolist(), inside.tolist(), strict=True)
            return self._joined([self._batches[at].slice(row, 1) for at, row in places])
        order = np.argsort(numbers, kind="stable")
        rising = numbers[order]
        ends = np.searchsorted(rising, self._limits)
        parts = []
        for at in np.flatnonzero(np.diff(ends)).tolist():
            inside = rising[ends[at] : ends[at + 1]].astype(np.int64) - self._limits[at]
            parts.append(self._batches[at].take(pa.array(inside)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        whole = self._joined(parts)
        return whole if bool((back[:-1] < back[1:]).all()) else whole.take(pa.array(back))

    def _joined(self, parts: list[Any]) -> Any:
        """One batch of several."""
        if len(parts) == 1:
            return parts[0]
        pa = arrow()
        schema = schema_of(self.columns)
        columns = zip(*(part.columns for part in parts), strict=True)
        arrays = [
            pa.concat_arrays([*_without_words(pa, column, field.type)])
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(pa: Any, batch: Any, schema: Any) -> Any:
    """A batch without dictionaries."""
    arrays = [
        _of_type(array, field.type) for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _of_type(array: Any, kind: Any) -> Any:
    """An array of the type that users see; strings may come in a dictionary."""
    if array.type == kind:
        return array
    if hasattr(array, "dictionary_decode"):
        array = array.dictionary_decode()  # a tenth of the time of a cast
    return array if array.type == kind else array.cast(kind)


def _without_words(pa: Any, arrays: Sequence[Any], kind: Any) -> Iterator[Any]:
    """Arrays of a type; those that follow each other and share a dictionary become one array."""
    for words, group in groupby(arrays, _words_of):
        same = [*group]
        if words is not None and len(same) > 1:
            places = pa.concat_arrays([array.indices for array in same])
            same = [pa.DictionaryArray.from_arrays(places, same[0].dictionary)]
        yield from (_of_type(array, kind) for array in same)


def _words_of(array: Any) -> tuple[Any, ...] | None:
    """What the dictionaries of two arrays have in common if they are the same bytes."""
    if not hasattr(array, "dictionary"):
        return None
    words = array.dictionary
    places = (None if part is None else part.address for part in words.buffers())
    return (array.type, words.offset, len(words), *places)


@contextmanager
def converting(column: str | None = None) -> Iterator[None]:
    """Turn an error of pyarrow about values into an InputError.

    Examples
    --------
    >>> with converting("year"):
    ...     arrow().array([1, "x"])
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: column 'year' of the payload cannot be kept: Could not convert \
'x' with type str: tried to convert to int64
    """
    pa = arrow()
    where = "the payload" if column is None else f"column {column!r} of the payload"
    try:
        yield
    except DensehashError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{where} cannot be kept: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# --- files --------------------------------------------------------------------------------


class _File(Source):
    """The bytes of an Arrow file of rows, read from the first to the last.

    The file is made twice: once to count its bytes, and once, batch by batch, while it is read. So
    no more than a batch is in memory.
    """

    def __init__(self, rows: PayloadRows) -> None:
        pa = arrow()
        self._rows = rows
        self._words = _repeated(pa, rows)
        schema = schema_of(rows.columns)
        kind = pa.dictionary(pa.int32(), pa.string())
        self._schema = pa.schema(
            [field.with_type(kind) if field.name in self._words else field for field in schema]
        )
        counted = pa.MockOutputStream()
        for _ in self._written(counted):
            pass
        self.shape = (counted.size(),)  # type: ignore[assignment]
        self.dtype = np.dtype(np.uint8)
        self._parts: Iterator[bytes] = iter(())
        self._at, self._left = 0, memoryview(b"")

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[Any]:
        """Bytes of a slice. Slices in order are fast; any other begins again from the first."""
        if not isinstance(rows, slice):
            raise TypeError("bytes of a payload are read in slices")
        start, stop, _ = rows.indices(self.shape[0])
        if start == 0 or start < self._at:
            self._parts, self._at, self._left = self._chunks(), 0, memoryview(b"")
        kept = []
        while self._at < stop:
            part = self._left if len(self._left) else memoryview(next(self._parts, b""))
            if not len(part):
                raise InputError("the payload has changed while it was written")
            kept.append(part[max(start - self._at, 0) : stop - self._at])
            self._left = part[stop - self._at :]
            self._at += len(part) - len(self._left)
        return np.frombuffer(b"".join(kept), np.uint8)

    def _chunks(self) -> Iterator[bytes]:
        sink = _Sink()
        for _ in self._written(sink):
            yield from sink.taken()
        yield from sink.taken()

    def _written(self, sink: Any) -> Iterator[None]:
        """Write to a sink, a batch at a time."""
        pa = arrow()
        options = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
        with pa.ipc.new_file(sink, self._schema, options=options) as writer:
            for batch in self._rows._pieces():
                arrays = [
                    self._as_written(pa, array, field)
                    for array, field in zip(batch.columns, self._schema, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
                yield

    def _as_written(self, pa: Any, array: Any, field: Any) -> Any:
        words = self._words.get(field.name)
        if words is None:
            return _of_type(array, field.type)
        places = pa.compute.index_in(_of_type(array, pa.string()), value_set=words)
        return pa.DictionaryArray.from_arrays(places, words)


class _Sink:
    """A file that is written and read in turns."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> list[bytes]:
        """What was written since the last call."""
        parts, self._parts = [part for part in self._parts if part], []
        return parts


def _repeated(pa: Any, rows: PayloadRows) -> dict[str, Any]:
    """The different strings of each column that is smaller if each of them is kept once.

    A column is left out as soon as more than half of its strings are different.
    """
    words = {name: pa.array([], pa.string()) for name, kind in rows.columns if kind == "string"}
    counts, sizes = dict.fromkeys(words, 0), dict.fromkeys(words, 0)
    for batch in rows._pieces() if words else ():
        for name in [*words]:
            array = batch.column(batch.schema.get_field_index(name))
            array = _of_type(array, pa.string()).drop_null()
            counts[name] += len(array)
            sizes[name] += _n_letters(pa, array)
            words[name] = pa.concat_arrays([words[name], array.unique()]).unique()
            if 2 * len(words[name]) > counts[name]:
                del words[name]
        if not words:
            break
    return {
        name: array
        for name, array in words.items()
        if _n_letters(pa, array) + 4 * len(array) < sizes[name]
    }


def _n_letters(pa: Any, array: Any) -> int:
    return int(pa.compute.sum(pa.compute.binary_length(array)).as_py() or 0)


class Payload:
    """The payload of a segment: the bytes of an Arrow file, and the rows in it.

    Parameters
    ----------
    array : uint8 (n_bytes,)
    columns : names and types that it must have
    n_rows : how many rows it must have

    Examples
    --------
    >>> from densehash.index.given import payload_rows
    >>> rows = payload_rows([{"year": 2019}, {"year": 2020}], 2)
    >>> payload = Payload(rows.file()[:], rows.columns, 2)
    >>> payload.rows().table().to_pydict()
    {'year': [2019, 2020]}
    """

    def __init__(self, array: NDArray[np.uint8], columns: Columns, n_rows: int) -> None:
        self.array, self.columns, self.n_rows = array, columns, n_rows
        self._masks: dict[object, NDArray[np.bool_]] = {}
        self._is_unchanged = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Payload, (self.array, self.columns, self.n_rows)

    def rows(self, order: NDArray[np.integer] | None = None) -> PayloadRows:
        """The rows, or some of them."""
        return PayloadRows(self.batches, self.columns, order)

    @cached_property
    def batches(self) -> list[Any]:
        """Record batches that were fully checked: they read no byte outside the array.

        Raises
        ------
        FileError : if the bytes are not those of a file that densehash writes
        """
        pa = arrow()
        try:
            check_frame(self.array, self.n_rows)
            reader = pa.ipc.open_file(
                pa.py_buffer(self.array), options=pa.ipc.IpcReadOptions(use_threads=False)
            )
            _check_schema(pa, reader.schema, schema_of(self.columns))
            batches = [reader.get_batch(at) for at in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate(full=True)
                _check_words(pa, batch)
        except FileError:
            raise
        except (
            *(pa.ArrowException, struct.error, OSError, MemoryError, LookupError, TypeError),
            *(ValueError, OverflowError),
        ) as error:
            raise damaged_payload(_first_line(error)) from None
        if sum(batch.num_rows for batch in batches) != self.n_rows:
            raise damaged_payload("it has another number of rows than its segment")
        return batches

    def check(self) -> None:
        """Read and check the bytes, once; raises an error if anything is wrong."""
        _ = self.batches

    def kept_mask(self, chosen: object) -> NDArray[np.bool_] | None:
        """What an equal filter has found before, bool (n,), by rank."""
        return self._masks.get(chosen)

    def keep_mask(self, chosen: object, mask: NDArray[np.bool_]) -> None:
        """Keep what a filter has found, and drop the oldest if there are too many."""
        mask.flags.writeable = False
        masks = {**self._masks, chosen: mask}
        self._masks = dict([*masks.items()][-_MASKS:])  # one assignment, for other threads

    def check_unchanged(self) -> None:
        """Compare the file with its checksum, once, before its rows are copied."""
        if not self._is_unchanged:
            check_unchanged(self.array)
        self._is_unchanged = True


def _check_schema(pa: Any, found: Any, expected: Any) -> None:
    words = pa.dictionary(pa.int32(), pa.string())
    names = [field.name for field in found]
    if names != expected.names or not all(
        came.type == want.type or (want.type == pa.string() and came.type == words)
        for came, want in zip(found, expected, strict=True)
    ):
        raise damaged_payload("its columns are not those of the index")


def _check_words(pa: Any, batch: Any) -> None:
    for array in batch.columns:
        if pa.types.is_dictionary(array.type):
            if array.dictionary.null_count:
                raise damaged_payload("there is a null among repeated strings")
            array.dictionary.validate(full=True)
