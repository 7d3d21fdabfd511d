"""Random filters by columns, and a short and slow way to apply them to a dict."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis.strategies as st

Row = Mapping[str, Any]
Truth = bool | None  # None: unknown, as in SQL

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_SIGNS = {"$eq": "=", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def truth(chosen: Mapping[str, Any], row: Row) -> Truth:
    """Whether a row matches a filter: true, false, or unknown, as in SQL."""
    found: list[Truth] = []
    for name, said in chosen.items():
        if name == "$and":
            found.append(_all([truth(part, row) for part in said]))
        elif name == "$or":
            found.append(_not(_all([_not(truth(part, row)) for part in said])))
        elif name == "$not":
            found.append(_not(truth(said, row)))
        else:
            found.append(_of_value(said, row[name]))
    return _all(found)


def _of_value(said: Any, value: Any) -> Truth:
    if not isinstance(said, Mapping):
        said = {"$eq": said}
    return _all([_asked(how, one, value) for how, one in said.items()])


def _asked(how: str, said: Any, value: Any) -> Truth:
    if how == "$exists":
        return (value is not None) is bool(said)
    if how == "$not":
        return _not(_of_value(said, value))
    if value is None:
        return None
    if isinstance(value, list):  # of strings: whether one of them matches
        wanted = said if how in ("$in", "$nin") else [said]
        return any(one in wanted for one in value) is (how in ("$eq", "$in"))
    if how in ("$in", "$nin"):
        return any(value == _like(one, value) for one in said) == (how == "$in")
    return _COMPARED[how](value, _like(said, value))


def _like(said: Any, value: Any) -> Any:
    """A time that is given as a date or as a string."""
    if isinstance(value, dt.datetime) and isinstance(said, str):
        return dt.datetime.fromisoformat(said.replace("Z", "+00:00"))
    if isinstance(value, dt.date) and isinstance(said, str):
        return dt.date.fromisoformat(said)
    return said


def _all(parts: list[Truth]) -> Truth:
    return False if False in parts else None if None in parts else True


def _not(part: Truth) -> Truth:
    return None if part is None else not part


# --- drawn --------------------------------------------------------------------------------

ORDERED = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")
EQUAL = ("$eq", "$ne")


def filters(values: Mapping[str, tuple[list[Any], bool]]) -> st.SearchStrategy[dict[str, Any]]:
    """Filters by some columns: for each, values to compare with, and whether it has an order."""

    def of_column(name: str) -> st.SearchStrategy[dict[str, Any]]:
        known, has_order = values[name]
        one = st.sampled_from(known)
        compared = st.dictionaries(
            st.sampled_from(ORDERED if has_order else EQUAL), one, min_size=1, max_size=2
        )
        listed = st.dictionaries(st.sampled_from(["$in", "$nin"]), st.lists(one), min_size=1)
        exists = st.fixed_dictionaries({"$exists": st.booleans()})
        asked = st.one_of(compared, listed, exists)
        negated = st.fixed_dictionaries({"$not": asked})
        return st.fixed_dictionaries({name: st.one_of(one, asked, negated)})

    simple = st.one_of([of_column(name) for name in values])
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"$not": inner}),
            st.tuples(simple, inner).map(lambda both: {**both[0], **both[1]}),
        ),
        max_leaves=4,
    )


def in_words(chosen: Mapping[str, Any]) -> str:
    """The same filter in words; without empty lists and without bytes."""
    parts = []
    for name, said in chosen.items():
        if name in ("$and", "$or"):
            word = f" {name[1:]} "
            parts.append("(" + word.join(in_words(part) for part in said) + ")")
        elif name == "$not":
            parts.append(f"not ({in_words(said)})")
        else:
            parts.append(_column_in_words(name, said))
    return " and ".join(parts)


def _column_in_words(name: str, said: Any) -> str:
    if not isinstance(said, Mapping):
        said = {"$eq": said}
    parts = []
    for how, one in said.items():
        if how == "$exists":
            parts.append(f"`{name}` IS {'NOT ' * one}NULL")
        elif how == "$not":
            parts.append(f"not ({_column_in_words(name, one)})")
        elif how in ("$in", "$nin"):
            listed = ", ".join(map(_literal, one))
            parts.append(f"{name} {'not ' * (how == '$nin')}in ({listed})")
        else:
            parts.append(f"{name}{_SIGNS[how]}{_literal(one)}")
    return " and ".join(parts)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    text = value if isinstance(value, str) else value.isoformat()
    return "'" + text.replace("'", "''") + "'"
