"""Filters by columns: a dict or words become a tree, which is checked against the columns.

As in SQL, a comparison with a null is neither true nor false, and a row matches only if the whole
filter is true. So ``$ne``, ``$nin`` and ``$not`` do not match nulls, either; only
``{"$exists": False}`` does, in words ``is null``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from densehash.errors import InputError
from densehash.index.columns import NUMBERS, TIMESTAMP, Columns, in_words

__all__ = ["Asked", "Combined", "where_of"]

_COMPARED = {"$eq": "=", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_OPERATORS = (*_COMPARED, "$in", "$nin", "$not", "$exists")
_JOINED = {"$and": "and", "$or": "or"}
_DEEPEST = 50  # levels of parentheses, or of dicts


@dataclass(frozen=True)
class Asked:
    """One test of a column.

    Attributes
    ----------
    column : its name
    how : one of ``= != > >= < <= in null``; only ``null`` is true or false for nulls, too
    values : the values to compare with, of the type of the column; several only for ``in``
    """

    column: str
    how: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Combined:
    """Tests that must all be true (``and``), or one of them (``or``); or one, false (``not``)."""

    how: str
    parts: tuple[Where, ...]


Where: TypeAlias = "Asked | Combined"


def where_of(chosen: str | Mapping[str, Any], columns: Columns) -> Where:
    """A filter as a tree, in which values have the types of their columns.

    Parameters
    ----------
    chosen : a dict, as ``{"lang": "en", "year": {"$gte": 2020}}``, or the same in words, as
        ``lang = "en" and year >= 2020``
    columns : the columns of the index

    Raises
    ------
    InputError : if the filter cannot be understood, or does not fit the columns

    Examples
    --------
    >>> columns = (("lang", "string"), ("year", "int64"))
    >>> where_of("year >= 2020", columns)
    Asked(column='year', how='>=', values=(2020,))
    >>> where_of({"lang": "en", "year": {"$gte": 2020}}, columns) == where_of(
    ...     "lang = 'en' and year >= 2020", columns
    ... )
    True
    """
    if isinstance(chosen, str):
        return _of_words(chosen, columns)
    return _checked(_of_dict(chosen, 0), dict(columns), columns)


@lru_cache(maxsize=32)  # with one query a call, the same words come again and again
def _of_words(chosen: str, columns: Columns) -> Where:
    return _checked(_Words(chosen).tree(), dict(columns), columns)


# --- dicts --------------------------------------------------------------------------------


def _of_dict(chosen: Any, depth: int) -> Where:
    if not isinstance(chosen, Mapping):
        raise InputError(f"filter: expected a dict of columns and values, got {_shown(chosen)}")
    if depth > _DEEPEST:
        raise InputError(f"filter: it has more than {_DEEPEST} levels of dicts")
    parts = []
    for name, value in chosen.items():
        if name in _JOINED:
            if not isinstance(value, (list, tuple)) or not value:
                raise InputError(f"filter: {name} takes a list of filters, got {_shown(value)}")
            joined = tuple(_of_dict(part, depth + 1) for part in value)
            parts.append(_combined(_JOINED[name], joined))
        elif name == "$not":
            parts.append(Combined("not", (_of_dict(value, depth + 1),)))
        elif not isinstance(name, str):
            raise InputError(f"filter: columns have names, got {_shown(name)}")
        elif name.startswith("$"):
            known = ", ".join((*_JOINED, "$not"))
            raise InputError(
                f"filter: {name!r} is not an operator that joins filters; these are {known}"
            )
        else:
            parts.append(_of_column(name, value, depth))
    return _combined("and", tuple(parts))


def _of_column(name: str, value: Any, depth: int) -> Where:
    """The part of a dict about one column: a value that it must have, or operators."""
    if not isinstance(value, Mapping):
        return Asked(name, "=", (value,))
    if not value or depth > _DEEPEST:
        raise InputError(f"filter: expected operators of column {name!r}, got {_shown(value)}")
    parts: list[Where] = []
    for operator, said in value.items():
        if operator in _COMPARED:
            parts.append(Asked(name, _COMPARED[operator], (said,)))
        elif operator in ("$in", "$nin"):
            if isinstance(said, (set, frozenset)):
                said = [*said]  # noqa: PLW2901
            if not isinstance(said, (list, tuple, np.ndarray)):
                raise InputError(
                    f"filter: {operator} of column {name!r} takes a list, got {_shown(said)}"
                )
            found: Where = Asked(name, "in", tuple(said))
            parts.append(found if operator == "$in" else Combined("not", (found,)))
        elif operator == "$exists":
            if not isinstance(said, bool):
                raise InputError(f"filter: $exists takes True or False, got {_shown(said)}")
            missing: Where = Asked(name, "null")
            parts.append(Combined("not", (missing,)) if said else missing)
        elif operator == "$not":
            if not isinstance(said, Mapping):
                raise InputError(
                    f"filter: $not of column {name!r} takes operators, got {_shown(said)}"
                )
            parts.append(Combined("not", (_of_column(name, said, depth + 1),)))
        else:
            known = ", ".join(_OPERATORS)
            raise InputError(
                f"filter: {operator!r} of column {name!r} is not an operator; these are {known}"
            )
    return _combined("and", tuple(parts))


def _combined(how: str, parts: tuple[Where, ...]) -> Where:
    return parts[0] if len(parts) == 1 else Combined(how, parts)


# --- words --------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"]|"")*"|'(?:[^']|'')*')
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    | (?P<sign><=|>=|!=|=|<|>|\(|\)|,)
    | `(?P<column>[^`]+)`
    | (?P<word>[^\W\d][\w.]*)
    | (?P<end>$)
    )""",
    re.VERBOSE,
)
_KEYWORDS = {"and", "or", "not", "in", "is", "null", "true", "false"}


class _Words:
    """A filter in words.

    ::

        either = both {"or" both}
        both   = one {"and" one}
        one    = "not" one | "(" either ")" | test
        test   = column ("=" | "!=" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value {"," value} ")"
               | column "is" ["not"] "null"
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at, kind = 0, ""
        while kind != "end":
            found = _TOKEN.match(text, at)
            if found is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self._wrong("it cannot be read", text[at : at + 20], at)
            kind = str(found.lastgroup)
            word = found[kind]
            if kind == "word" and word.lower() in _KEYWORDS:
                self._tokens.append(("sign", word.lower(), found.start(kind)))
            else:
                self._tokens.append((kind, word, found.start(kind)))
            at = found.end()
        self._at, self._depth = 0, 0

    def tree(self) -> Where:
        """The whole filter."""
        found = self._either()
        kind, word, at = self._tokens[self._at]
        if kind != "end":
            raise self._wrong("expected 'and', 'or' or the end", word, at)
        return found

    def _either(self) -> Where:
        return self._list_of("or", lambda: self._list_of("and", self._one))

    def _list_of(self, how: str, make: Callable[[], Where]) -> Where:
        parts = [make()]
        while self._takes(how):
            parts.append(make())
        return _combined(how, tuple(parts))

    def _one(self) -> Where:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(f"filter: it is nested deeper than {_DEEPEST} levels")
        if self._takes("not"):
            found: Where = Combined("not", (self._one(),))
        elif self._takes("("):
            found = self._either()
            self._expect(")")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Where:
        column = self._next("a column", "word", "column")[1]
        if self._takes("is"):
            negated = self._takes("not")
            self._expect("null")
            found = Asked(column, "null")
        else:
            negated = self._takes("not")
            if negated:
                self._expect("in")
            if negated or self._takes("in"):
                self._expect("(")
                values = [self._value()]
                while self._takes(","):
                    values.append(self._value())
                self._expect(")")
                found = Asked(column, "in", tuple(values))
            else:
                _, sign, at = self._next("=, !=, <, <=, >, >=, in or is", "sign")
                if sign not in _COMPARED.values():
                    raise self._wrong("expected =, !=, <, <=, >, >=, in or is", sign, at)
                found = Asked(column, sign, (self._value(),))
        return Combined("not", (found,)) if negated else found

    def _value(self) -> Any:
        what = "a value (a number, 'text', true or false)"
        kind, word, at = self._next(what, "text", "number", "sign")
        if kind == "text":
            return word[1:-1].replace(word[0] * 2, word[0])
        if kind == "number":
            return int(word) if word.lstrip("+-").isdigit() else float(word)
        if word not in ("true", "false"):
            raise self._wrong(f"expected {what}", word, at)
        return word == "true"

    def _takes(self, sign: str) -> bool:
        if self._tokens[self._at][:2] != ("sign", sign):
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            _, word, at = self._tokens[self._at]
            raise self._wrong(f"expected {sign!r}", word, at)

    def _next(self, what: str, *kinds: str) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        if token[0] not in kinds:
            raise self._wrong(f"expected {what}", token[1], token[2])
        self._at += 1
        return token

    def _wrong(self, expected: str, found: str, at: int) -> InputError:
        came = f"found {found!r}" if found else "found the end"
        return InputError(f"filter: {expected}, {came} at position {at} of {self._text!r}")


# --- checked against the columns ----------------------------------------------------------


def _checked(tree: Where, kinds: Mapping[str, str], columns: Columns) -> Where:
    if isinstance(tree, Combined):
        return Combined(tree.how, tuple(_checked(part, kinds, columns) for part in tree.parts))
    kind = kinds.get(tree.column)
    if kind is None:
        raise InputError(
            f"filter: there is no column {tree.column!r}; the columns are {in_words(columns)}"
        )
    if tree.how in ("<", "<=", ">", ">=") and kind in ("bool", "binary", "list of strings"):
        raise InputError(
            f"filter: column {tree.column!r} is {kind}, which has no order: use $eq, $ne, $in, "
            "$nin and $exists, or in words =, !=, in and is null"
        )
    return Asked(tree.column, tree.how, tuple(_value(v, kind, tree.column) for v in tree.values))


def _value(value: Any, kind: str, column: str) -> Any:
    """A value of the type of a column."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        raise InputError(
            f"filter: column {column!r} is compared with None: use {{'$exists': False}}, or in "
            "words is null"
        )
    found = _as_kind(value, kind)
    if found is None:
        raise InputError(f"filter: column {column!r} is {kind}, got {_shown(value)}")
    return found


def _as_kind(value: Any, kind: str) -> Any:
    stamp = TIMESTAMP.fullmatch(kind)
    if kind in NUMBERS:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_nan = isinstance(value, float) and math.isnan(value)
        return value if fits and not is_nan else None
    if kind == "date" or stamp is not None:
        return _as_time(value, stamp)
    if kind in ("bool", "binary"):
        return value if isinstance(value, bool if kind == "bool" else bytes) else None
    # Strings, and lists of strings. Lone surrogates cannot be written in UTF-8.
    is_text = isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)
    return str(value) if is_text else None


def _as_time(value: Any, stamp: re.Match[str] | None) -> dt.date | dt.datetime | None:
    """A date, if ``stamp`` is None; otherwise a time, in UTC if it has a time zone."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", value))
        except ValueError:
            return None
        if stamp is None:
            is_midnight = value.time() == dt.time() and value.tzinfo is None
            return value.date() if is_midnight else None
    is_time = isinstance(value, dt.datetime)
    if stamp is None:
        return value if isinstance(value, dt.date) and not is_time else None
    if isinstance(value, dt.date) and not is_time:
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime) or (value.tzinfo is None) != (stamp[2] is None):
        return None
    return value if value.tzinfo is None else value.astimezone(dt.timezone.utc)


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else said[:57] + "..."
