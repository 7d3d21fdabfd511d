"""Names and values as SQL takes them."""

from __future__ import annotations

from typing import Any

from densehash.errors import InputError
from densehash.index.columns import arrow

__all__ = ["as_float32", "iso_times", "quoted"]


def quoted(name: str) -> str:
    """A name of a table or a column, as SQL takes any.

    Examples
    --------
    >>> print(quoted('my "own" title'))
    "my ""own"" title"
    """
    if not name.isprintable():
        raise InputError(f"a name in SQL must have printable characters only, got {name!r}")
    return '"' + name.replace('"', '""') + '"'


def as_float32(column: Any) -> Any:
    """float16 of Arrow as float32, which old versions of pyarrow do not cast.

    Examples
    --------
    >>> import numpy as np
    >>> as_float32(arrow().array([np.float16(0.5), None], arrow().float16())).to_pylist()
    [0.5, None]
    """
    pa = arrow()
    values = [None if value is None else float(value) for value in column.to_pylist()]
    return pa.array(values, pa.float32())


def iso_times(column: Any) -> Any:
    """Timestamps of Arrow as texts in ISO 8601; those with a time zone are in UTC.

    Examples
    --------
    >>> import datetime as dt
    >>> iso_times(arrow().array([dt.datetime(2020, 1, 31, 12), None])).to_pylist()
    ['2020-01-31T12:00:00.000000', None]
    """
    pa = arrow()
    kind = column.type
    # Arrow counts from 1970 in UTC whatever the zone: no table of time zones is needed.
    plain = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    text = pa.compute.replace_substring(plain.cast(pa.string()), " ", "T")
    if kind.tz is None:
        return text
    return pa.compute.binary_join_element_wise(text, "Z", "")
