"""Finds the rows of a payload that match a filter, by the functions of Arrow."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash.errors import InputError
from densehash.index.columns import TIMESTAMP, arrow
from densehash.index.payload import Payload, PayloadRows
from densehash.index.where import Asked, Where

__all__ = ["is_expression", "key_of", "matching"]

_FUNCTIONS = {
    "=": "equal",
    "!=": "not_equal",
    ">": "greater",
    ">=": "greater_equal",
    "<": "less",
    "<=": "less_equal",
}
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second


def matching(payload: Payload, chosen: Any) -> NDArray[np.bool_]:
    """By rank, whether a row matches; read-only.

    Parameters
    ----------
    payload : the payload of a segment
    chosen : what :func:`densehash.index.where.where_of` returns, or an Expression of pyarrow

    Examples
    --------
    >>> from densehash.index.given import payload_rows
    >>> from densehash.index.where import where_of
    >>> rows = payload_rows([{"year": 2019}, {"year": None}, {"year": 2021}], 3)
    >>> payload = Payload(rows.file()[:], rows.columns, 3)
    >>> matching(payload, where_of("not year < 2020", rows.columns))
    array([False, False,  True])
    """
    key = key_of(chosen)
    found = payload.kept_mask(key)
    if found is None:
        found = (_by_tree if key is chosen else _by_expression)(payload, chosen)
        payload.keep_mask(key, found)
    return found


def key_of(chosen: Any) -> Any:
    """A key that can be hashed; filters with equal keys find the same rows.

    Parameters
    ----------
    chosen : as in :func:`matching`

    Examples
    --------
    >>> year = arrow().compute.field("year")
    >>> key_of(year > 2020) == key_of(year > 2020), key_of(year > 2020) == key_of(year > 2021)
    (True, False)
    """
    return _Same(chosen) if is_expression(chosen) else chosen


def is_expression(chosen: object) -> bool:
    """Whether a filter is an Expression of pyarrow, which need not be installed.

    Examples
    --------
    >>> is_expression(arrow().compute.field("year") > 2020), is_expression("year > 2020")
    (True, False)
    """
    return type(chosen).__name__ == "Expression" and type(chosen).__module__.startswith("pyarrow")


class _Same:
    """An Expression as a key; equal Expressions have values of equal types, too."""

    def __init__(self, expression: Any) -> None:
        self._expression, self._hash = expression, hash(str(expression))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and bool(self._expression.equals(other._expression))


def _by_tree(payload: Payload, chosen: Where) -> NDArray[np.bool_]:
    kinds = dict(payload.columns)
    parts = [
        _found(batch, chosen, kinds).fill_null(False).to_numpy(zero_copy_only=False)
        for batch in payload.batches
    ]
    return np.concatenate(parts)


def _by_expression(payload: Payload, chosen: Any) -> NDArray[np.bool_]:
    pa = arrow()
    table = PayloadRows(payload.batches, payload.columns).table()
    number = "row"
    while number in table.column_names:
        number += "_"
    try:
        rows = table.append_column(number, pa.array(np.arange(len(table)))).filter(chosen)
    except (pa.ArrowException, ValueError, TypeError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"filter: pyarrow cannot find rows by this expression: {said}") from None
    found = np.zeros(payload.n_rows, np.bool_)
    found[rows.column(number).to_numpy()] = True
    return found


def _found(batch: Any, where: Where, kinds: dict[str, str]) -> Any:
    """For each row: true, false or null."""
    pc = arrow().compute
    if isinstance(where, Asked):
        column = batch.column(batch.schema.get_field_index(where.column))
        return _tested(column, where, kinds[where.column])
    if where.how == "not":
        return pc.invert(_found(batch, where.parts[0], kinds))
    found = arrow().array(np.full(batch.num_rows, where.how == "and"))
    join = pc.and_kleene if where.how == "and" else pc.or_kleene
    for part in where.parts:
        found = join(found, _found(batch, part, kinds))
    return found


def _tested(array: Any, test: Asked, kind: str) -> Any:
    pa = arrow()
    pc = pa.compute
    if test.how == "null":
        return pc.is_null(array)
    if pa.types.is_dictionary(array.type):  # each different string is tested once
        return _tested(array.dictionary, test, kind).take(array.indices)
    if kind == "list of strings":
        return _in_lists(array, test)
    stamp = TIMESTAMP.fullmatch(kind)
    values = list(test.values)
    if stamp is not None:
        array, values = array.view(pa.int64()), [_ticks(v, _TICKS[stamp[1]]) for v in values]
    elif kind == "date":
        array = array.view(pa.int32())
        values = [value.toordinal() - dt.date(1970, 1, 1).toordinal() for value in values]
    elif kind.startswith("float"):
        array, values = array.cast(pa.float64()), [_as_float(value) for value in values]
    whole = pa.types.is_integer(array.type)
    if test.how == "in":
        if whole:
            values = [int(value) for value in values if _fits(value, array.type)]
        found = pc.is_in(array, value_set=pa.array(values, array.type))
        return pc.if_else(pc.is_valid(array), found, pa.scalar(None, pa.bool_()))
    if whole:
        return _compared_whole(array, test.how, values[0])
    compare = getattr(pc, _FUNCTIONS[test.how])
    return compare(array, pa.scalar(values[0], array.type))


def _in_lists(array: Any, test: Asked) -> Any:
    """Whether a list has one of some strings."""
    pa = arrow()
    inside = pa.compute.is_in(array.values, value_set=pa.array([*test.values], pa.string()))
    counts = np.concatenate([[0], np.cumsum(inside.to_numpy(zero_copy_only=False))])
    ends = array.offsets.to_numpy()
    found = counts[ends[1:]] > counts[ends[:-1]]
    if test.how == "!=":
        found = ~found
    return pa.array(found, mask=array.is_null().to_numpy(zero_copy_only=False))


def _compared_whole(array: Any, how: str, value: Any) -> Any:
    """Compares integers with any number exactly, without rounding."""
    pa = arrow()
    pc = pa.compute
    is_infinite = isinstance(value, float) and math.isinf(value)
    if not is_infinite and value != math.floor(value):
        if how in ("=", "!="):
            return _constant(array, how == "!=")
        how, value = (">=", math.ceil(value)) if how[0] == ">" else ("<=", math.floor(value))
    if not _fits(value, array.type):
        above = value > 0
        return _constant(array, how == "!=" or how[0] == ("<" if above else ">"))
    return getattr(pc, _FUNCTIONS[how])(array, pa.scalar(int(value), array.type))


def _fits(value: Any, kind: Any) -> bool:
    """Whether an integer type can hold a number."""
    limits = np.iinfo(str(kind))
    return bool(limits.min <= value <= limits.max) and value == math.floor(value)


def _constant(array: Any, truth: bool) -> Any:
    """The same truth value for all rows that are not null."""
    pa = arrow()
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.full(len(array), truth), mask=missing)


def _ticks(value: dt.datetime, a_second: int) -> Fraction:
    """A time in ticks since 1970, not rounded."""
    begin = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
    return Fraction((value - begin) // dt.timedelta(microseconds=1) * a_second, 10**6)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
