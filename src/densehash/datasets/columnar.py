"""Writes vectors and codes to Parquet and Arrow files, with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.datasets.reading import Vectors, import_extra
from densehash.datasets.writing import blocks, check_key, stored_type
from densehash.disk import replacing
from densehash.errors import FileError, InputError

__all__ = ["write_arrow", "write_codes", "write_parquet"]

_LONGEST = 2**31 - 1
_CODES_AT_ONCE = 1 << 16


def write_parquet(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows as the only column of a file, one block and one row group at a time.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept
    key : name of the column; default ``vectors``

    Examples
    --------
    >>> write_parquet(Path("a.parquet"), np.zeros((2, 3)), key="")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: key must be a printable name, got ''
    """
    _write(path, X, key)


def write_arrow(path: Path, X: Vectors, key: str | None = None) -> None:
    """Write rows as the only column of a file, one block and one record batch at a time.

    The file is not compressed, so that it can be mapped.

    Parameters
    ----------
    path : the file
    X : real array (n, d) or a Source; its type is kept
    key : name of the column; default ``vectors``

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
    """Write codes as fixed-size binary to Parquet or Arrow, after other columns.

    Parameters
    ----------
    path : the file
    codes : uint8 (n, width), read once, from the first to the last
    columns : the other columns in blocks of rows, by name: pyarrow.Array, numpy arrays or lists,
        with n rows in total
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
    """Columns of a block, in the types of the first block."""
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
        elif pa.types.is_dictionary(array.type):  # they differ by block, which Arrow refuses
            array = array.dictionary_decode()
        found[name] = array
    return found


def _as_binary(pa: Any, codes: NDArray[np.uint8]) -> Any:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(codes).tobytes())]
    return pa.Array.from_buffers(pa.binary(codes.shape[1]), len(codes), buffers)


def _begin(path: Path, part: Path, schema: Any, *, use_dictionary: bool = False) -> Any:
    """A writer of record batches, to the file ``part`` until it is complete."""
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
