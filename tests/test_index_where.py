"""Filters by the columns of a payload, against the same questions asked of dicts."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from index_cases import build, every_kind, names, rows
from payload_cases import DAY, dicts, pa, table
from where_cases import filters, in_words, truth

from densehash.errors import InputError
from densehash.index import Index, matching, payload
from densehash.index.columns import Columns
from densehash.index.where import where_of

N = 120
ROWS = dicts(N)
UTC = DAY.replace(tzinfo=dt.timezone.utc)

# Values to compare each column with, and whether it has an order.
VALUES: dict[str, tuple[list[Any], bool]] = {
    "lang": (["en", "de", "日本語", "", "x' \"y"], True),
    "text": ([ROWS[1]["text"] or "", "text 3", "a"], True),
    "year": ([1990, 2001, 2001.5, 2**70, -(2**70), float("inf")], True),
    "small": ([-100, 0, 5.0, 127, 128, -129, 0.5], True),
    "count": ([0, -1, 7, 2**63 + 5, 2**64 - 1, 2**64], True),
    "price": ([0, 0.25, 1.75, -3, 10**400, float("-inf")], True),
    "weight": ([0.5, 1, 1.5, 2**60], True),
    "good": ([True, False], False),
    "day": ([DAY.date(), DAY.date() + dt.timedelta(days=20), "2019-12-24"], True),
    "time": ([DAY, DAY + dt.timedelta(hours=5, microseconds=1), "2019-12-30T12:00:00"], True),
    "zoned": ([UTC, UTC + dt.timedelta(microseconds=7), "2020-01-02T03:00:00Z"], True),
    "raw": ([b"", b"\x05", b"\x05\x05"], False),
    "tags": (["en", "fr", "x"], False),
}


@pytest.fixture(scope="module")
def index() -> Index:
    """Three segments, of which one has more than one batch; some rows are gone."""
    with mock.patch.object(payload, "BATCH_ROWS", 23):
        made = build("flat", rows(70), payload=table(ROWS[:70]))
        made.add(rows(30), payload=table(ROWS[70:100]))
        made.add(rows(20), payload=table(ROWS[100:]))
    made.remove([3, 50, 75, 119])
    return made


LIVE = [at for at in range(N) if at not in (3, 50, 75, 119)]


def found(index: Index, chosen: Any) -> list[int]:
    hits = index.search(rows(1), N, filter=chosen)
    return sorted(hits.ids[hits.ids >= 0].tolist())


def expected(chosen: Mapping[str, Any]) -> list[int]:
    return [at for at in LIVE if truth(chosen, ROWS[at]) is True]


def columns_of(index: Index) -> Columns:
    assert index._state.payload is not None
    return index._state.payload


quick = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@quick
@given(chosen=filters(VALUES))
@example({"year": {"$not": {"$in": []}}})
@example({"lang": {"$ne": "en"}, "$not": {"lang": {"$exists": True}}})
@example({"$or": [{"lang": "en"}, {"$not": {"year": 2001.5}}]})
def test_a_filter_finds_what_the_same_question_finds_in_dicts(
    index: Index, chosen: dict[str, Any]
) -> None:
    assert found(index, chosen) == expected(chosen)


@quick
@given(chosen=filters({name: VALUES[name] for name in VALUES if name != "raw"}))
def test_words_say_the_same_as_dicts(index: Index, chosen: dict[str, Any]) -> None:
    assume(not re.search(r"\[\]|inf|1000000000000", repr(chosen)))
    said = in_words(chosen)
    assert found(index, said) == found(index, chosen) == expected(chosen)


def test_all_columns_and_operators_once(index: Index) -> None:
    for name, (values, has_order) in VALUES.items():
        asked: list[Any] = [{"$exists": True}, {"$exists": False}, {"$in": values}]
        asked += [{"$nin": values[:2]}, {"$not": {"$eq": values[0]}}, {"$in": set(values[:1])}]
        asked += [
            {how: value}
            for value in values
            for how in ("$eq", "$ne", *("$gt", "$gte", "$lt", "$lte") * has_order)
        ]
        for one in [*values, *asked]:
            assert found(index, {name: one}) == expected({name: one}), (name, one)


@every_kind
@pytest.mark.parametrize("k", [1, 7])
def test_k_rows_are_found_where_k_match(kind: str, k: int) -> None:
    ids = names(N, "string")
    index = build(kind, rows(N), ids, payload=table(ROWS))
    chosen = {"year": {"$lt": 1996}}
    match = [name for name, row in zip(ids, ROWS, strict=True) if truth(chosen, row)]
    hits = index.search(rows(4, seed=5), k, filter=chosen)
    assert hits.ids.tolist() == index.search(rows(4, seed=5), k, filter=match).ids.tolist()
    assert hits.ids.tolist() == index.search(rows(4, seed=5), k, filter={*match}).ids.tolist()
    ranges = index.search(rows(4, seed=5), radius=1e9, filter=chosen)
    assert sorted(set(ranges.ids.tolist())) == sorted(match)


def test_signs_are_filtered_too() -> None:
    X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
    index = Index.build(X, payload=[{"n": at} for at in range(400)], random_state=0)
    hits = index.search(X[:3], 5, filter="n >= 100 and n < 110")
    assert ((hits.ids >= 100) & (hits.ids < 110)).all()
    assert hits.payload["n"].to_pylist() == hits.ids.reshape(-1).tolist()


def test_an_empty_filter_finds_all_and_sets_are_ids(index: Index) -> None:
    assert found(index, {}) == LIVE
    assert found(index, {1, 3, 7}) == [1, 7]
    assert found(index, frozenset()) == []
    assert found(index, {"lang": {"$in": []}}) == []


@pytest.mark.parametrize(
    "chosen",
    [
        None,
        {"year": {"$gte": 2005}},
        "lang is null",
        {5, 3, 80, 4000},
        np.arange(len(LIVE)) % 3 == 0,
        lambda ids: ids % 2 == 1,
        {"year": -1},
    ],
    ids=["all", "dict", "words", "set", "mask", "function", "none"],
)
def test_ids_that_match_are_those_that_a_search_finds(index: Index, chosen: Any) -> None:
    ids = index.matching(chosen)
    found = index.search(rows(1), len(LIVE), filter=chosen).ids[0]
    assert ids.tolist() == sorted(found[found >= 0].tolist())
    ids[:] = 0  # a copy
    assert index.ids.tolist() == LIVE


def test_expressions_of_pyarrow(index: Index) -> None:
    field = pa.compute.field
    for expression, chosen in (
        (field("lang") == "en", {"lang": "en"}),
        (field("lang").isin(["en", "de"]), {"lang": {"$in": ["en", "de"]}}),
        ((field("year") > 2000) & ~(field("good")), {"year": {"$gt": 2000}, "good": False}),
        (field("day") < DAY.date(), {"day": {"$lt": DAY.date()}}),
        (field("tags").is_null(), {"tags": {"$exists": False}}),
    ):
        assert found(index, expression) == expected(chosen)
    for wrong in (field("name") == 1, field("year") + 1, field("year") > pa.scalar("x")):
        with pytest.raises(InputError, match="filter: pyarrow cannot find rows by this expression"):
            found(index, wrong)
    row = Index.build(np.eye(3), n_bits=8, payload=[{"row": 3}, {"row": 4}, {"row": 5}])
    assert found_in(row, field("row") == 4) == [1]


def found_in(index: Index, chosen: Any) -> list[int]:
    hits = index.search(np.eye(3)[:1], 3, filter=chosen)
    return sorted(hits.ids[hits.ids >= 0].tolist())


# --- kept for the next search -------------------------------------------------------------


def test_a_mask_is_kept_for_the_same_filter(tmp_path: Path) -> None:
    index = build("flat", rows(N), payload=table(ROWS), path=tmp_path / "a")
    chosen = {"year": {"$gte": 2000}}
    before = expected(chosen)
    with mock.patch.object(matching, "_found", wraps=matching._found) as asked:
        first = found(index, chosen)
        count = asked.call_count
        assert count > 0
        assert found(index, "year >= 2000") == first
        assert found(index, {"year": {"$gte": 2000.0}}) == first
        index.remove([before[0]])  # which no filter speaks of
        assert found(index, chosen) == first[1:] if first[0] == before[0] else first
        assert asked.call_count == count
        index.update([before[1]], rows(1), payload=table([{**ROWS[0], "year": 1990}]))
        assert before[1] not in found(index, chosen)
        assert asked.call_count > count
    for year in range(20):
        found(index, {"year": year})
    kept = [one.payload._masks for one in index._state.segments if one.payload]
    assert max(map(len, kept)) <= 4


def test_a_mask_is_kept_for_the_same_expression() -> None:
    pa, pc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.compute")
    index = build("flat", rows(N), payload=table(ROWS))
    year = pc.field("year")
    with mock.patch.object(matching, "_by_expression", wraps=matching._by_expression) as asked:
        first = found(index, year >= 2000)
        assert first == [at for at in range(N) if (ROWS[at]["year"] or 0) >= 2000]
        assert found(index, pc.field("year") >= 2000) == first
        assert asked.call_count == 1
        # What is written the same may be another question.
        for pattern, ignore in (("EN", True), ("EN", False)):
            like = pc.match_substring(pc.field("lang"), pattern, ignore_case=ignore)
            assert found(index, like) == [
                at for at in range(N) if ignore and "en" in (ROWS[at]["lang"] or "")
            ]
        many = [*range(1990, 2020)]
        for values in (many, [*many[:-1], 2025], many[::-1]):
            assert found(index, year.isin(pa.array(values))) == [
                at for at in range(N) if ROWS[at]["year"] in values
            ]
        assert asked.call_count == 6


def test_and_and_or_of_the_same_parts_are_two_filters(index: Index) -> None:
    parts = [{"lang": "en"}, {"year": {"$gt": 2000}}]
    for _ in range(2):
        for how in ("$and", "$or"):
            assert found(index, {how: parts}) == expected({how: parts})


# --- refused ------------------------------------------------------------------------------

DEEP: Any = {"year": 1}
for _ in range(60):
    DEEP = {"$and": [DEEP]}

WRONG: list[tuple[Any, str]] = [
    ({"name": 1}, "no column 'name'; the columns are lang \\(string\\), text \\(string\\), year"),
    ("name = 1", "no column 'name'; the columns are lang"),
    ({"year": "en"}, "column 'year' is int64, got 'en'"),
    ("year = 'en'", "column 'year' is int64, got 'en'"),
    ({"year": True}, "column 'year' is int64, got True"),
    ({"year": float("nan")}, "column 'year' is int64, got nan"),
    ({"good": 1}, "column 'good' is bool, got 1"),
    ({"lang": 3}, "column 'lang' is string, got 3"),
    ({"lang": "\ud800"}, "column 'lang' is string, got"),
    ({"lang": ["en"]}, "column 'lang' is string, got \\['en'\\]"),
    ({"tags": ["en"]}, "column 'tags' is list of strings, got \\['en'\\]"),
    ({"raw": "en"}, "column 'raw' is binary, got 'en'"),
    ({"day": DAY}, "column 'day' is date, got datetime"),
    ({"day": "today"}, "column 'day' is date, got 'today'"),
    ({"time": UTC}, "column 'time' is timestamp\\[us\\], got datetime"),
    ({"zoned": DAY}, "column 'zoned' is timestamp\\[ms, UTC\\], got datetime"),
    ({"zoned": "2020-01-01"}, "column 'zoned' is timestamp\\[ms, UTC\\], got"),
    ({"lang": None}, "compared with None: use {'\\$exists': False}, or in words is null"),
    ({"lang": {"$in": ["en", None]}}, "compared with None"),
    ({"good": {"$gt": False}}, "column 'good' is bool, which has no order"),
    ({"tags": {"$lt": "x"}}, "column 'tags' is list of strings, which has no order"),
    ({"year": {"$above": 3}}, "'\\$above' of column 'year' is not an operator; these are \\$eq"),
    ({"year": {"gte": 3}}, "'gte' of column 'year' is not an operator"),
    ({"year": {}}, "expected operators of column 'year', got {}"),
    ({"year": {"$in": 3}}, "\\$in of column 'year' takes a list, got 3"),
    ({"year": {"$exists": 1}}, "\\$exists takes True or False, got 1"),
    ({"year": {"$not": 3}}, "\\$not of column 'year' takes operators, got 3"),
    ({"$and": []}, "\\$and takes a list of filters, got \\[\\]"),
    ({"$or": {"year": 3}}, "\\$or takes a list of filters"),
    (
        {"$nor": [{"year": 3}]},
        "'\\$nor' is not an operator that joins filters; these are \\$and, ",
    ),
    ({"$not": 3}, "expected a dict of columns and values, got 3"),
    ({3: 3}, "columns have names, got 3"),
    (DEEP, "more than 50 levels of dicts"),
    ("", "expected a column, found the end at position 0 of ''"),
    ("year", "expected =, .*, found the end at position 4"),
    ("year >", "expected a value .*, found the end at position 6"),
    ("year > and", "expected a value .*, found 'and' at position 7 of 'year > and'"),
    ("year = 3 or", "expected a column, found the end at position 11"),
    ("year = 3 lang = 'en'", "expected 'and', 'or' or the end, found 'lang' at position 9"),
    ("(year = 3", "expected '\\)', found the end at position 9"),
    ("year = 3)", "expected 'and', 'or' or the end, found '\\)' at position 8"),
    ("year in 3", "expected '\\(', found '3' at position 8"),
    ("year in ()", "expected a value .*, found '\\)' at position 9"),
    ("year in (3 4)", "expected '\\)', found '4' at position 11"),
    ("year not = 3", "expected 'in', found '=' at position 9"),
    ("year is 3", "expected 'null', found '3' at position 8"),
    ("year = null", "expected a value .*, found 'null' at position 7"),
    ("year == 3", "expected a value .*, found '=' at position 6"),
    ("year = 3x", "it cannot be read, found '3x' at position 7"),
    ("lang = 'en", 'it cannot be read, found "\'en" at position 7'),
    ("3 = year", "expected a column, found '3' at position 0"),
    ("year ~ 3", "it cannot be read, found '~ 3' at position 5"),
    ("(" * 99 + "year = 3" + ")" * 99, "nested deeper than 50 levels"),
    ("not " * 99 + "year = 3", "nested deeper than 50 levels"),
]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_what_is_wrong_with_a_filter_is_named(index: Index, at: int) -> None:
    chosen, message = WRONG[at]
    with pytest.raises(InputError, match="filter: .*" + message):
        found(index, chosen)


def test_words_of_any_case_and_names_in_quotes() -> None:
    columns: Columns = (("in", "int64"), ("my col", "string"), ("a.b", "bool"))
    tree = where_of('`in` IN (1, +2, -3) AND (`my col` = "a""b" Or a.b = TRUE)', columns)
    assert tree == where_of(
        {"in": {"$in": [1, 2, -3]}, "$or": [{"my col": 'a"b'}, {"a.b": True}]}, columns
    )
    assert where_of("`in` = 1e3", columns) == where_of({"in": 1000.0}, columns)


@given(st.text(alphabet="ab`'\"()<>=!, 1.5-andornotinisnull\n", max_size=40))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_text_is_a_filter_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(InputError):
        where_of(text, (("a", "int64"), ("b", "string")))


def test_an_index_without_a_payload_or_rows() -> None:
    bare = build("flat", rows(9))
    for chosen in ("year = 3", {"year": 3}, {}, pa.compute.field("year") == 3):
        with pytest.raises(InputError, match="this index has no payload"):
            bare.search(rows(1), 3, filter=chosen)
    empty = build("flat", rows(9), payload=[{"year": 1}] * 9)
    empty.remove(range(9))
    assert empty.search(rows(1), 3, filter="year = 3").ids.tolist() == [[-1, -1, -1]]
    with pytest.raises(InputError, match="no column 'jahr'"):
        empty.search(rows(1), 3, filter="jahr = 3")
