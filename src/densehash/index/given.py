"""Payloads as users give them: tables, frames and dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from densehash.errors import InputError
from densehash.index.columns import (
    NUMBERS,
    TIMESTAMP,
    Columns,
    arrow,
    in_words,
    kind_of,
    schema_of,
    type_of,
)
from densehash.index.payload import BATCH_BYTES, BATCH_ROWS, PayloadRows, converting

__all__ = ["check_given", "kinds_of", "nulls_only", "payload_rows"]

_ALLOWED = (
    "numbers, booleans, strings, binary, dates, timestamps and lists of strings, each with nulls"
)


def payload_rows(given: Any, n_rows: int, columns: Columns | None = None) -> PayloadRows:
    """A payload as users give it, checked.

    Parameters
    ----------
    given : a pyarrow Table or RecordBatch, a pandas or polars frame, or a list of dicts
    n_rows : how many rows it must have
    columns : the columns of the index to which the rows belong; None: those of the payload

    Raises
    ------
    InputError : if the number of rows or the columns differ, or a column has a type that cannot be
        kept

    Examples
    --------
    >>> payload_rows([{"year": 2019}, {"lang": "en"}], 2).columns
    (('year', 'int64'), ('lang', 'string'))
    """
    pa = arrow()
    with converting():
        table = _table_of(pa, given, columns)
        table.validate(full=True)  # otherwise it could be written, but not read again
    if table.num_rows != n_rows:
        raise InputError(f"X has {n_rows} rows but the payload has {table.num_rows}")
    _check_names(table.column_names)
    if columns is None:
        columns = tuple((field.name, _kept_as(field)) for field in table.schema)
    else:
        table = _as_known(table, columns)
    for name, kind in columns:
        came = kind_of(table.schema.field(name).type)
        is_null = pa.types.is_null(table.schema.field(name).type)  # only nulls: they fit any type
        if came != kind and not is_null and not _converts(came, kind):
            raise InputError(
                f"column {name!r} of the payload is {kind} in the index, got "
                f"{table.schema.field(name).type}"
            )
    return PayloadRows(_converted(pa, table, columns), columns)


def check_given(payload: Any, columns: Columns | None, *, needed: bool = True) -> None:
    """Refuse a payload if the index has none, and a missing payload if rows must have one.

    Parameters
    ----------
    payload : the payload of rows that are added, or None
    columns : the columns of the index, or None
    needed : whether rows must have a payload if the index has columns

    Examples
    --------
    >>> check_given(None, (("year", "int64"),))
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: rows of this index have a payload, so pass payload=... with the \
columns year (int64)
    """
    if payload is None and columns is not None and needed:
        raise InputError(
            f"rows of this index have a payload, so pass payload=... with the columns "
            f"{in_words(columns)}"
        )
    if payload is not None and columns is None:
        raise InputError(
            "this index has no payload, so rows that you add cannot have one: build it with "
            "payload=..."
        )


def kinds_of(given: Any) -> tuple[tuple[str, str | None], ...]:
    """Names and kept types of the columns of a payload; None if a column has only nulls.

    Examples
    --------
    >>> kinds_of([{"year": 2019, "lang": None}])
    (('year', 'int64'), ('lang', None))
    """
    pa = arrow()
    with converting():
        schema = _table_of(pa, given, None).schema
    _check_names(schema.names)
    return tuple(
        (field.name, None if pa.types.is_null(field.type) else _kept_as(field)) for field in schema
    )


def _table_of(pa: Any, given: Any, columns: Columns | None) -> Any:
    """A table of whatever was given, without metadata."""
    package = type(given).__module__.partition(".")[0]
    if isinstance(given, pa.Table):
        table = given
    elif isinstance(given, pa.RecordBatch):
        table = pa.Table.from_batches([given])
    elif isinstance(given, (list, tuple)) and all(isinstance(row, Mapping) for row in given):
        names = list(dict.fromkeys(name for row in given for name in row))
        _check_names(names)
        known = {} if columns is None else dict(columns)
        table = pa.table(
            {
                name: pa.array(
                    [row.get(name) for row in given],
                    type_of(known[name]) if name in known else None,
                )
                for name in names
            }
        )
        if not names:
            raise InputError("the payload has no columns: its dicts are empty")
    elif package == "pandas" and hasattr(given, "columns"):
        _check_names(list(given.columns))
        table = pa.Table.from_pandas(given, preserve_index=False)
    elif package == "polars" and hasattr(given, "columns"):
        table = given.to_arrow()
    else:
        raise InputError(
            "payload must be a pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a "
            f"list of dicts, got a {type(given).__name__}"
        )
    return table.replace_schema_metadata(None)


def _check_names(names: Sequence[Any]) -> None:
    if not names:
        raise InputError("the payload has no columns")
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"columns of the payload must have names, got {name!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"columns of the payload must differ, but {twice!r} is there twice")


def _kept_as(field: Any) -> str:
    kind = kind_of(field.type)
    if kind is not None:
        return kind
    if arrow().types.is_null(field.type):
        raise nulls_only(field.name)
    raise InputError(
        f"column {field.name!r} of the payload is {field.type}, which cannot be kept: a payload "
        f"has {_ALLOWED}"
    )


def nulls_only(name: str) -> InputError:
    """The error for a column that has no value.

    Examples
    --------
    >>> nulls_only("year")
    InputError("column 'year' of the payload has nulls only, so its type is unknown: leave it out, \
or pass a pyarrow Table with a schema")
    """
    return InputError(
        f"column {name!r} of the payload has nulls only, so its type is unknown: leave it out, or "
        "pass a pyarrow Table with a schema"
    )


def _as_known(table: Any, columns: Columns) -> Any:
    """The columns in the order of the index; missing and unknown columns are an error."""
    known, came = [name for name, _ in columns], table.column_names
    missing = [name for name in known if name not in came]
    more = [name for name in came if name not in known]
    if missing or more:
        what = [f"lacks {', '.join(map(repr, missing))}"] * bool(missing)
        what += [f"has {', '.join(map(repr, more))}"] * bool(more)
        raise InputError(
            f"the payload {' and '.join(what)}; the columns of the index are {in_words(columns)}"
        )
    return table.select(known)


def _converts(came: str | None, kind: str) -> bool:
    """Whether values of one kind may be converted to another, if that changes no value."""
    if came is None:
        return False
    stamps = TIMESTAMP.fullmatch(came), TIMESTAMP.fullmatch(kind)
    if stamps[0] and stamps[1]:
        return stamps[0][2] == stamps[1][2]
    return came in NUMBERS and kind in NUMBERS


def _converted(pa: Any, table: Any, columns: Columns) -> list[Any]:
    """Record batches of moderate size, in the types that are kept.

    Dictionaries of strings stay as they are; the writer decides about them.
    """
    schema = schema_of(columns)
    each = max(min(BATCH_BYTES * len(table) // max(table.nbytes, 1), BATCH_ROWS), 1)
    batches = []
    for batch in table.to_batches(max_chunksize=each):
        arrays = []
        for field in schema:
            array = batch.column(batch.schema.get_field_index(field.name))
            if not pa.types.is_dictionary(array.type) and array.type != field.type:
                with converting(field.name):
                    array = array.cast(field.type)
            arrays.append(array)
        batches.append(pa.RecordBatch.from_arrays(arrays, schema.names))
    return batches
