"""Arrow's own files (IPC, Feather version 2), through pyarrow.

A file that is not compressed is mapped. A compressed file is unpacked one record batch at a time,
and all batches once when it is opened, to count the rows. A compressed stream can only be read
from the start, so it stays unpacked in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from densehash.datasets.pieces import (
    PieceRows,
    by_name,
    check_frame,
    list_type,
    places_of_vectors,
    reading_by_pyarrow,
)
from densehash.datasets.reading import Reader, broken, import_extra
from densehash.datasets.tables import place_of

__all__ = ["ArrowRows", "arrow_blocks", "arrow_names", "open_arrow", "open_arrow_file"]

_STREAM = b"\xff\xff\xff\xff"  # a stream begins with this, and ends with this and four zeros


class ArrowRows(PieceRows):
    """Rows of a column of a mapped Arrow file or stream.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`~densehash.datasets.parquet.open_parquet`

    Attributes
    ----------
    shape : (n_rows, n_features)
    dtype : type of the numbers in the lists
    """

    def __init__(self, path: Path, key: str | None = None, ids: str | None = None) -> None:
        streamed = _is_stream(path)
        pa = import_extra("pyarrow", "parquet")
        with reading_by_pyarrow(path):
            mapped = pa.memory_map(str(path))
            opened = pa.ipc.open_stream if streamed else pa.ipc.open_file
            fields = list(opened(mapped).schema)
            places = places_of_vectors(pa, path, key, fields, ids)
            names = [fields[at].name for at in places]
            kind = list_type(pa, [fields[at].type for at in places])
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


def open_arrow(path: Path, key: str | None = None, ids: str | None = None) -> ArrowRows:
    """Open a column of vectors, or several columns of numbers; rows are read when they are used.

    Parameters
    ----------
    path : the file
    key, ids : as in :func:`~densehash.datasets.parquet.open_parquet`

    Examples
    --------
    >>> open_arrow(Path("no-such-file.arrow"), "vectors")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    return ArrowRows(path, key, ids)


def arrow_names(path: Path) -> list[str]:
    """Names of the columns.

    Examples
    --------
    >>> arrow_names(Path("no-such-file.arrow"))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    reader = open_arrow_file(path)
    with reading_by_pyarrow(path):
        return list(reader.schema.names)


def arrow_blocks(path: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Columns by name, one record batch at a time.

    Examples
    --------
    >>> next(arrow_blocks(Path("no-such-file.arrow"), ["id"]))
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.arrow does not exist
    """
    reader = open_arrow_file(path)
    with reading_by_pyarrow(path):
        for name in names:
            place_of(path, name, reader.schema.names)
        if hasattr(reader, "num_record_batches"):
            for at in range(reader.num_record_batches):
                yield by_name(reader.get_batch(at), names)
        else:
            for batch in reader:
                yield by_name(batch, names)


def open_arrow_file(path: Path) -> Any:
    """An Arrow file or stream, opened by pyarrow and mapped; an error if it is incomplete."""
    streamed = _is_stream(path)
    pa = import_extra("pyarrow", "parquet")
    with reading_by_pyarrow(path):
        return (pa.ipc.open_stream if streamed else pa.ipc.open_file)(pa.memory_map(str(path)))


def _is_stream(path: Path) -> bool:
    """Whether an Arrow file is a stream; an error if it is incomplete."""
    with Reader(path) as file:
        streamed = file.read(0, 4, "a signature") == _STREAM
        if streamed:
            _check_end(file)
        else:
            check_frame(file, b"ARROW1", b"ARROW1")
    return streamed


def _check_end(file: Reader) -> None:
    """Refuse a stream without its end mark: nothing else shows that it is cut between batches."""
    at = max(0, file.size - 8)
    end, mark = file.read(at, file.size - at, "a mark"), _STREAM + bytes(4)
    if end != mark:
        raise broken(file.path, at, f"the mark {mark!r} at the end of a stream", repr(end))
