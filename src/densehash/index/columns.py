"""Names and types of the columns of a payload, in manifests and in Arrow.

This is the only file of the index that imports pyarrow, and only when a payload is written or read:
without pyarrow, you can still open and search an index that has a payload.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeAlias

from densehash.errors import FileError, MissingExtraError

__all__ = [
    "NUMBERS",
    "TIMESTAMP",
    "arrow",
    "check_columns",
    "in_words",
    "kind_of",
    "schema_of",
    "type_of",
]

Columns: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and types, as they are written in a manifest."""

NUMBERS = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
}
"""Types of numbers."""

TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, ([ -~]{1,64}))?\]")
"""Types of timestamps: their unit, and their time zone if they have one."""

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_PLAIN = {*NUMBERS, "bool", "string", "binary", "date", "list of strings"}


def arrow() -> Any:
    """The package pyarrow, with its functions; if it is missing, the error names the extra.

    Examples
    --------
    >>> arrow().compute.add(1, 2).as_py()
    3
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "pyarrow is needed for payloads: pip install densehash[payload]"
        ) from None
    return pa


def check_columns(content: Any) -> Columns:
    """Names and types from a manifest, checked: they are not trusted.

    Examples
    --------
    >>> check_columns([["lang", "string"], ["year", "int64"]])
    (('lang', 'string'), ('year', 'int64'))
    """
    if not isinstance(content, list) or not content:
        raise FileError("the columns of the payload must be a list of names and types")
    for pair in content:
        if not (isinstance(pair, list) and [type(part) for part in pair] == [str, str] and pair[0]):
            raise FileError(f"a column of the payload must have a name and a type, got {pair!r}")
        if pair[1] not in _PLAIN and not TIMESTAMP.fullmatch(pair[1]):
            raise FileError(f"a column of the payload has the type {pair[1]!r}, which is unknown")
    if len({name for name, _ in content}) < len(content):
        raise FileError("the payload has a column twice")
    return tuple((name, kind) for name, kind in content)


def in_words(columns: Columns) -> str:
    """Columns in a line.

    Examples
    --------
    >>> in_words((("lang", "string"), ("year", "int64")))
    'lang (string), year (int64)'
    """
    return ", ".join(f"{name} ({kind})" for name, kind in columns)


def schema_of(columns: Columns) -> Any:
    """The schema in Arrow.

    Examples
    --------
    >>> schema_of((("lang", "string"), ("tags", "list of strings"))).types
    [DataType(string), ListType(list<item: string>)]
    """
    return _schema(columns)


@lru_cache(maxsize=32)
def _schema(columns: Columns) -> Any:
    pa = arrow()
    return pa.schema([(name, type_of(kind)) for name, kind in columns])


def type_of(kind: str) -> Any:
    """A type in Arrow.

    Examples
    --------
    >>> type_of("timestamp[us, UTC]")
    TimestampType(timestamp[us, tz=UTC])
    """
    pa = arrow()
    stamp = TIMESTAMP.fullmatch(kind)
    if stamp:
        return pa.timestamp(stamp[1], tz=stamp[2])
    others = {"bool": "bool_", "date": "date32"}
    return (
        pa.list_(pa.string())
        if kind == "list of strings"
        else getattr(pa, others.get(kind, kind))()
    )


def kind_of(found: Any) -> str | None:
    """How a type of Arrow is kept; None if it cannot be kept.

    Examples
    --------
    >>> pa = arrow()
    >>> kind_of(pa.large_string()), kind_of(pa.list_(pa.string())), kind_of(pa.list_(pa.int8()))
    ('string', 'list of strings', None)
    """
    types = arrow().types
    if types.is_dictionary(found):
        return "string" if _is_text(types, found.value_type) else None
    if types.is_integer(found) or types.is_floating(found):
        return _FLOATS.get(str(found), str(found))  # numpy's names; Arrow would import pandas
    if types.is_timestamp(found):
        said = f"timestamp[{found.unit}" + (f", {found.tz}]" if found.tz else "]")
        return said if TIMESTAMP.fullmatch(said) else None
    is_list = types.is_list(found) or types.is_large_list(found)
    kinds = {
        "bool": types.is_boolean(found),
        "string": _is_text(types, found),
        "binary": _is_bytes(types, found),
        "date": types.is_date(found),
        "list of strings": is_list and _is_text(types, found.value_type),
    }
    return next((kind for kind, fits in kinds.items() if fits), None)


def _is_text(types: Any, kind: Any) -> bool:
    views = getattr(types, "is_string_view", lambda _: False)  # since pyarrow 16
    return bool(types.is_string(kind) or types.is_large_string(kind) or views(kind))


def _is_bytes(types: Any, kind: Any) -> bool:
    views = getattr(types, "is_binary_view", lambda _: False)
    fixed = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or views(kind) or fixed)
