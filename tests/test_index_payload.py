"""Payloads: columns beside the vectors, kept, changed and found with them."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from index_cases import build, every_id_type, every_kind, names, rows
from payload_cases import SCHEMA, dicts, pa, table

from densehash.errors import FileError, InputError, MissingExtraError
from densehash.index import Hits, Index, payload, placing
from densehash.index.columns import check_columns
from densehash.index.state import content_of, state_from
from densehash.store import manifest

N = 60
ROWS = dicts(N)
QUERIES = rows(4, seed=5)


def indexed(kind: str = "flat", id_type: str = "int64", given: Any = None) -> tuple[Index, Any]:
    """An index of all columns, and its ids."""
    ids = names(N, id_type)
    return build(kind, rows(N), ids, payload=table(ROWS) if given is None else given), ids


# --- given and read back ------------------------------------------------------------------


@every_kind
@every_id_type
def test_what_was_given_comes_back(kind: str, id_type: str) -> None:
    index, ids = indexed(kind, id_type)
    assert index.payload(ids).to_pylist() == ROWS
    assert index.payload(ids).schema == SCHEMA
    some = [ids[at] for at in (7, 3, 3, 59)]
    assert index.payload(some).to_pylist() == [ROWS[at] for at in (7, 3, 3, 59)]
    assert index.payload([]).num_rows == 0
    hits = index.search(QUERIES, 5)
    expected = [ROWS[ids.index(name)] for name in hits.ids.reshape(-1).tolist()]
    assert hits.payload.to_pylist() == expected


def test_signs_bring_the_payload_on_every_path() -> None:
    X = np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32)
    numbers = [{"number": at} for at in range(300)]
    index = Index.build(X, payload=numbers, random_state=0)
    for hits in (index.search(X[5:6], 3), index.search(X[:4], 3, filter=np.arange(150))):
        assert hits.payload["number"].to_pylist() == hits.ids.reshape(-1).tolist()
    index.remove([5])
    assert index.search(X[5:6], 3).payload["number"].to_pylist()[0] != 5


@pytest.mark.parametrize("n", [1, 2, 10, 64, 65, 300])
def test_few_rows_and_many_of_several_files(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment has several batches, and repeats other strings, or none."""
    monkeypatch.setattr(payload, "BATCH_ROWS", 50)
    words = [f"{at % 7}" if at < 400 else f"{at % 3}" if at < 570 else f"{at}" for at in range(620)]
    given = [{"word": None if at % 11 == 0 else word, "n": at} for at, word in enumerate(words)]
    index = build("flat", rows(400), [*range(400)], payload=given[:400])
    index.add(rows(170), ids=[*range(400, 570)], payload=given[400:570])
    index.add(rows(50), ids=[*range(570, 620)], payload=given[570:])
    assert len(index._state.segments) == 3
    wanted = np.random.default_rng(n).integers(0, 620, n).tolist()
    for ids in (wanted, sorted(wanted), wanted[:1] * n):
        assert index.payload(ids).to_pylist() == [given[at] for at in ids]


def frames() -> dict[str, Callable[[], Any]]:
    import_ = pytest.importorskip
    large = pa.schema(
        [
            field.with_type(
                {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(
                    field.type, field.type
                )
            )
            for field in SCHEMA
        ]
    )
    whole = table(ROWS)
    lang = whole["lang"].dictionary_encode()
    return {
        "batch": lambda: whole.to_batches()[0],
        "chunks": lambda: pa.concat_tables([whole.slice(0, 7), whole.slice(7, 40), whole[47:]]),
        "large": lambda: whole.cast(large),
        "dictionary": lambda: whole.set_column(0, "lang", lang),
        "polars": lambda: import_("polars").from_arrow(whole),
        "pandas": lambda: import_("pandas").DataFrame(
            {name: whole[name].to_pandas(date_as_object=True) for name in ("lang", "text", "day")}
        ),
    }


@pytest.mark.parametrize("form", ["batch", "chunks", "large", "dictionary", "polars", "pandas"])
def test_every_form_of_a_payload(form: str) -> None:
    given = frames()[form]()
    index, ids = indexed(given=given)
    found = index.payload(ids)
    assert found.to_pylist() == [{name: row[name] for name in found.column_names} for row in ROWS]
    assert len(found.column_names) == (3 if form == "pandas" else len(SCHEMA))
    assert all(SCHEMA.field(field.name).type == field.type for field in found.schema)


def test_dicts_have_keys_in_the_order_in_which_they_come() -> None:
    given = [{"b": 1}, {"a": "x", "b": 2}, {}]
    index = Index.build(np.eye(3), n_bits=8, payload=given)
    assert index.payload([0, 1, 2]).to_pydict() == {"b": [1, 2, None], "a": [None, "x", None]}


def test_where_there_are_fewer_the_payload_is_null() -> None:
    index, ids = indexed()
    index.remove(ids[2:])
    hits = index.search(QUERIES[:2], 3)
    found = hits.payload.to_pylist()
    assert found[2] == found[5] == dict.fromkeys(SCHEMA.names)
    assert [len(one) for one in hits.to_dicts()] == [2, 2]
    assert hits.to_arrow().num_rows == 4
    index.remove(ids)
    none = index.search(QUERIES[:1], 2)
    assert none.payload.to_pylist() == [dict.fromkeys(SCHEMA.names)] * 2
    assert none.to_dicts() == [[]]


@every_id_type
def test_hits_in_other_forms(id_type: str) -> None:
    index, ids = indexed(id_type=id_type)
    hits = index.search(QUERIES, 3)
    rows_ = [
        {
            "query": query,
            "rank": rank + 1,
            "id": name,
            "distance": float(hits.distances[query, rank]),
            **ROWS[ids.index(name)],
        }
        for query, found in enumerate(hits.ids.tolist())
        for rank, name in enumerate(found)
    ]
    assert hits.to_arrow().to_pylist() == rows_
    plain = [{key: row[key] for key in row if key not in ("query", "rank")} for row in rows_]
    assert hits.to_dicts() == [plain[at : at + 3] for at in range(0, len(plain), 3)]
    frame = hits.to_pandas()
    assert frame["id"].tolist() == hits.ids.reshape(-1).tolist()
    ids_alone, distances = hits  # still two
    assert ids_alone is hits.ids
    assert distances is hits.distances


def test_a_column_may_be_called_as_one_of_the_hits() -> None:
    given = [{"id": f"n{at}", "rank": at, "title": "t"} for at in range(4)]
    hits = Index.build(np.eye(4), n_bits=8, payload=given).search(np.eye(4)[1:2], 1)
    assert hits.to_arrow().column_names == [
        *("query", "rank", "id", "distance", "payload.id", "payload.rank", "title"),
    ]
    assert hits.to_dicts() == [
        [{"id": 1, "distance": 0.0, "payload.id": "n1", "rank": 1, "title": "t"}]
    ]


def test_hits_stay_what_they_were_when_the_index_changes(tmp_path: Path) -> None:
    index, ids = indexed()
    index.save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    hits = index.search(QUERIES, 3)
    expected = [ROWS[ids.index(name)] for name in hits.ids.reshape(-1).tolist()]
    index.update(ids, rows(N, seed=1), payload=table(dicts(N, seed=1)))
    index.remove(ids[:30])
    index.compact()
    assert hits.payload.to_pylist() == expected


TRAVELS: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda hits: pickle.loads(pickle.dumps(hits)),
    "pickled twice": lambda hits: pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(hits, 2)))),
    "copied": copy.copy,
    "copied with all in it": copy.deepcopy,
}


@every_id_type
@pytest.mark.parametrize("travel", TRAVELS.values(), ids=TRAVELS)
def test_hits_that_travel_keep_their_payload(id_type: str, travel: Any) -> None:
    index, ids = indexed(id_type=id_type)
    few = index.search(QUERIES, 5, filter=ids[:3])  # two are missing of each query
    for hits in (index.search(QUERIES, 3), few, index.search(QUERIES[0], 3)):
        again = travel(hits)
        assert isinstance(again, Hits)
        assert again.ids.tolist() == hits.ids.tolist()
        assert again.payload.equals(hits.payload)
        assert again.to_arrow().equals(hits.to_arrow())
        assert again.to_dicts() == hits.to_dicts()
        assert again.to_pandas().equals(hits.to_pandas())
        if hits.ids.ndim == 2:
            assert again.first.payload.equals(hits.payload.slice(0, hits.ids.shape[1]))
    index.remove(ids)
    assert again.payload.equals(hits.payload)


def test_hits_travel_without_their_index() -> None:
    index, _ = indexed()
    assert len(pickle.dumps(index.search(QUERIES, 3))) < len(pickle.dumps(index)) / 2
    signs = Index.build(np.random.default_rng(0).standard_normal((300, 8)), random_state=0)
    hits = signs.search(np.zeros((2, 8)), 3)
    for travel in TRAVELS.values():
        again = travel(hits)
        assert again.looked_at is not None
        assert hits.looked_at is not None
        assert again.looked_at.tolist() == hits.looked_at.tolist()
        assert again.to_dicts() == hits.to_dicts()
        with pytest.raises(InputError, match="these hits have no payload"):
            _ = again.payload


def test_hits_travel_where_nobody_can_read_the_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = indexed()[0].search(QUERIES, 3)
    monkeypatch.setattr("densehash.index.hits.find_spec", lambda _: None)
    again = pickle.loads(pickle.dumps(hits))
    assert again.ids.tolist() == hits.ids.tolist()
    assert again.to_dicts()[0][0].keys() == {"id", "distance"}


def test_hits_without_a_payload() -> None:
    hits = build("flat", rows(9)).search(QUERIES, 2)
    assert hits.searched is None
    assert hits.to_arrow().column_names == ["query", "rank", "id", "distance"]
    with pytest.raises(InputError, match="build the index with payload"):
        _ = hits.payload


def test_an_index_in_memory_is_pickled_with_its_payload() -> None:
    index, ids = indexed()
    index.payload(ids)  # what was read does not travel
    again = pickle.loads(pickle.dumps(index))
    assert again.payload(ids).to_pylist() == ROWS


# Values of columns, by type.
COLUMNS_DRAWN: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    "word": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "ä"])),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "time": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(dt.timezone.utc))),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "list": (pa.list_(pa.string()), st.lists(st.sampled_from(["a", "", None]), max_size=3)),
}


@given(data=st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_columns_come_back_after_any_changes(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from([*COLUMNS_DRAWN]), min_size=1, max_size=4))
    kinds = {f"{name} {at}": COLUMNS_DRAWN[name] for at, name in enumerate(drawn)}
    row = st.fixed_dictionaries({name: st.none() | kinds[name][1] for name in kinds})
    given_ = data.draw(st.lists(row, min_size=9, max_size=9))
    ids = data.draw(st.permutations(range(9)))
    schema = pa.schema([(name, kinds[name][0]) for name in kinds])
    whole = pa.table({name: pa.array([r[name] for r in given_], schema.field(name).type)
                      for name in kinds})  # fmt: skip
    index = build("flat", rows(5), ids[:5], payload=whole[:5])
    index.add(rows(4), ids=ids[5:], payload=whole[5:])
    assert index.payload(ids).to_pylist() == given_
    index.update(ids[3:6], rows(3, seed=1))
    index.remove(ids[:1])
    index.compact()
    assert index.payload(ids[1:]).to_pylist() == given_[1:]


# --- changed ------------------------------------------------------------------------------


@every_kind
def test_changes_move_the_payload_with_the_rows(kind: str, tmp_path: Path) -> None:
    index, ids = indexed(kind)
    index.save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    known = dict(zip(ids, ROWS, strict=True))
    more = dicts(9, seed=3)
    added = index.add(rows(9, seed=3), ids=range(10**6, 10**6 + 9), payload=more)
    known |= dict(zip(added.tolist(), more, strict=True))
    index.update(ids[:4], rows(4, seed=4))  # they keep theirs
    others = dicts(3, seed=5)
    index.update(ids[4:7], rows(3, seed=4), payload=table(others))
    known |= dict(zip(ids[4:7], others, strict=True))
    index.remove(ids[10:20])
    for name in ids[10:20]:
        del known[name]
    for _ in range(2):
        assert index.payload([*known]).to_pylist() == [*known.values()]
        index.verify()
        again = Index.open(tmp_path / "a", mmap=False)
        assert again.payload([*known]).to_pylist() == [*known.values()]
        index.compact()
    assert index.info()["segments"] == [len(known)]


def test_a_build_in_pieces_is_the_build_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = names(N, "int64")
    monkeypatch.setattr(placing, "PIECE_BYTES", 2000)
    index = build("grouped", rows(N), ids, payload=table(ROWS), path=tmp_path / "a")
    assert len(index.info()["segments"]) > 3
    assert index.payload(ids).to_pylist() == ROWS
    index.compact()
    assert index.payload(ids).to_pylist() == ROWS


def test_long_payloads_make_pieces_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by a piece, payload included; pieces are not merged on the way."""
    monkeypatch.setattr(placing, "PIECE_BYTES", 1 << 16)
    long = [{"text": chr(97 + at % 26) * 4000 + str(at)} for at in range(N)]
    index = build("flat", rows(N), payload=long, path=tmp_path / "a")
    assert max(index.info()["segments"]) <= 16
    assert index.payload(range(N)).to_pylist() == long


def test_many_small_additions_leave_no_small_batches(tmp_path: Path) -> None:
    index = build("flat", rows(4), payload=[{"n": at} for at in range(4)], path=tmp_path / "a")
    for at in range(4, 24):
        index.add(rows(1, seed=at), payload=[{"n": at}])
    segments = index._state.segments
    assert [len(one.payload.batches) for one in segments if one.payload] == [1] * len(segments)
    assert index.payload(range(24))["n"].to_pylist() == [*range(24)]


def test_batches_are_written_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "BATCH_ROWS", 7)
    index, ids = indexed()
    found = index._state.segments[0].payload
    assert found is not None
    assert [batch.num_rows for batch in found.batches] == [7] * 8 + [4]
    assert index.payload(ids).to_pylist() == ROWS
    file = found.rows().file()
    whole = file[:]
    parts = [file[at : at + 100] for at in range(0, len(whole), 100)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert file[50:60].tolist() == whole[50:60].tolist()


def test_repeated_strings_are_kept_once() -> None:
    n = 3000
    given = pa.table({"lang": ["en", "de", None] * (n // 3), "text": [f"t{i}" for i in range(n)]})
    index = Index.build(np.eye(2)[np.arange(n) % 2], n_bits=8, payload=given, hasher="lsh")
    found = index._state.segments[0].payload
    assert found is not None
    kinds = {field.name: str(field.type) for field in found.batches[0].schema}
    assert "dictionary" in kinds["lang"]
    assert kinds["text"] == "string"
    assert found.array.nbytes < given.nbytes
    assert index.payload(range(n)).to_pylist() == given.to_pylist()


def test_what_was_read_is_not_read_again_after_a_change(tmp_path: Path) -> None:
    index, ids = indexed()
    index.save(tmp_path / "a")
    index, other = Index.open(tmp_path / "a"), Index.open(tmp_path / "a")
    index.payload(ids)
    with mock.patch.object(payload, "check_frame", side_effect=AssertionError):
        index.remove(ids[:2])
        index.payload(ids[2:])
        other.remove(ids[2:4])
        assert index.refresh()
        index.payload(ids[4:])


@pytest.mark.parametrize("others", [[{"b": "x"}] * 4, None])
@pytest.mark.parametrize("adds", [True, False])
def test_an_index_that_was_replaced_meanwhile_gets_no_other_columns(
    tmp_path: Path, others: Any, adds: bool
) -> None:
    """They are looked at again when nobody else can write."""
    index = build("flat", rows(4), payload=[{"a": 1}] * 4, path=tmp_path / "a")
    build("flat", rows(4), payload=others, path=tmp_path / "a")
    change = index.add if adds else partial(index.update, [1])
    with pytest.raises(InputError, match="another process has changed the columns"):
        change(rows(1), payload=[{"a": 2}])
    now = Index.open(tmp_path / "a")
    now.verify()
    assert len(now) == 4


def test_an_update_that_keeps_payloads_reads_their_file_once(tmp_path: Path) -> None:
    index = build("flat", rows(N), payload=table(ROWS), path=tmp_path / "a")
    with mock.patch.object(payload, "check_unchanged") as compared:
        for at in range(3):
            index.update([at], rows(1, seed=at))
    assert compared.call_count == 1
    assert index.payload(range(N)).to_pylist() == ROWS


# --- refused ------------------------------------------------------------------------------

struct = pa.struct([("a", pa.int64())])
WRONG: dict[str, tuple[Any, str]] = {
    "rows": (table(ROWS[1:]), "X has 60 rows but the payload has 59"),
    "struct": (pa.table({"s": pa.array([{"a": 1}] * N, struct)}), "'s' .* struct<a: int64>"),
    "nested": ([{"s": [["a"]]}] * N, "'s' of the payload is list<.*cannot be kept: a payload has"),
    "numbers": ([{"s": [1, 2]}] * N, "column 's' of the payload is list<"),
    "map": (pa.table({"m": pa.array([[(1, 2)]] * N, pa.map_(pa.int8(), pa.int8()))}), "'m'.*map<"),
    "time": ([{"t": dt.time(3)}] * N, "column 't' of the payload is time64"),
    "decimal": (pa.table({"d": pa.array([1] * N).cast(pa.decimal128(20, 0))}), "'d' .* decimal"),
    "null": ([{"a": None, "b": 1}] * N, "column 'a' of the payload has nulls only"),
    "mixed": ([{"a": "x"}] * (N - 1) + [{"a": 3}], "the payload cannot be kept: "),
    "double": (pa.table([[1] * N, [2] * N], ["a", "a"]), "must differ, but 'a' is there twice"),
    "unnamed": (pa.table([[1] * N], [""]), "must have names, got ''"),
    "numbered": ([{1: 1}] * N, "must have names, got 1"),
    "nothing": ([{}] * N, "has no columns"),
    "text": ("text", "payload must be a pyarrow Table .* got a str"),
    "array": (np.zeros((N, 2)), "payload must be a pyarrow Table .* got a ndarray"),
    "dictionary": (
        pa.table({"a": pa.array([1] * N).dictionary_encode()}),
        "column 'a' of the payload is dictionary<values=int64",
    ),
}


def test_what_would_not_be_read_back_is_not_written() -> None:
    """Such tables come of casts and of files that lie; what they hold must not be looked at."""
    text = pa.py_buffer(b"\xff" * N)
    ends = np.arange(N + 1, dtype=np.int32)
    no_text = pa.Array.from_buffers(pa.string(), N, [None, pa.py_buffer(ends), text])
    words = pa.array(["a", "b"])
    beyond = pa.DictionaryArray.from_arrays(pa.array(np.full(N, 7, np.int32)), words, safe=False)
    falling = pa.Array.from_buffers(
        pa.string(), N, [None, pa.py_buffer(np.r_[0, 30, ends[2:]].astype(np.int32)), text]
    )
    for array in (no_text, beyond, falling):
        with pytest.raises(InputError, match="the payload cannot be kept: "):
            indexed(given=pa.table({"a": array}))


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused_is_named(case: str) -> None:
    given, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        indexed(given=given)


def test_other_columns_than_those_of_the_index_are_refused() -> None:
    given = [{"lang": "en", "year": at} for at in range(4)]
    index = Index.build(np.eye(4), n_bits=8, payload=given)
    X = np.ones((1, 4))
    columns = "the columns of the index are lang \\(string\\), year \\(int64\\)"
    for wrong, message in (
        (None, "so pass payload=... with the columns lang \\(string\\), year \\(int64\\)"),
        ([{"lang": "en"}], f"lacks 'year'; {columns}"),
        ([{"lang": "en", "year": 1, "more": 2}], f"has 'more'; {columns}"),
        ([{"lang": "en", "jahr": 1}], f"lacks 'year' and has 'jahr'; {columns}"),
        ([{"lang": "en", "year": "x"}], "the payload cannot be kept"),
        (pa.table({"lang": ["en"], "year": ["1"]}), "'year' of the payload is int64 .* got string"),
        (pa.table({"lang": ["en"], "year": [1.5]}), "column 'year' of the payload cannot be kept"),
        ([{"lang": "en", "year": 1}] * 2, "X has 1 rows but the payload has 2"),
    ):
        with pytest.raises(InputError, match=message):
            index.add(X, payload=wrong)
        if wrong is not None:
            with pytest.raises(InputError, match=message):
                index.update([1], X, payload=wrong)
    assert index.payload(index.ids).to_pylist() == given
    index.add(X, payload=pa.table({"year": pa.array([3], pa.int8()), "lang": ["x"]}))
    assert index.payload([4]).to_pylist() == [{"lang": "x", "year": 3}]
    index.add(X, payload=[{"year": None, "lang": None}])
    with pytest.raises(InputError, match="id 99 is not in the index"):
        index.payload([1, 99])


def test_an_index_without_a_payload_says_so() -> None:
    index = build("flat", rows(9))
    for call in (
        lambda: index.payload([1]),
        lambda: index.add(rows(1), payload=[{"a": 1}]),
        lambda: index.update([1], rows(1), payload=[{"a": 1}]),
    ):
        with pytest.raises(InputError, match="this index has no payload.* build it with payload="):
            call()
    assert index.info()["payload"] is None
    assert "payload" not in content_of(index._state)


def test_what_python_cannot_hold_is_an_error_of_ours() -> None:
    far = pa.table({"t": pa.array([2**60] * 4, pa.timestamp("s"))})
    hits = Index.build(np.eye(4), n_bits=8, payload=far).search(np.eye(4)[:1], 1)
    with pytest.raises(InputError, match="use hits.to_arrow"):
        hits.to_dicts()
    assert hits.to_arrow()["t"].cast(pa.int64()).to_pylist() == [2**60]


def test_searches_need_no_pyarrow(tmp_path: Path) -> None:
    index, ids = indexed()
    index.save(tmp_path / "a")
    np.save(tmp_path / "q.npy", QUERIES)
    code = """
import importlib.machinery
import sys

class WithoutArrow(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *where):
        return None if name.startswith("pyarrow") else super().find_spec(name, *where)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = WithoutArrow
import numpy as np
from densehash import Index, MissingExtraError
index = Index.open(sys.argv[1])
hits = index.search(np.load(sys.argv[2]), 3)
print(hits.ids.tolist())
print(index.info()["payload"]["lang"], "lang" in repr(index))
print([[row["id"] for row in found] for found in hits.to_dicts()])
for call in (lambda: hits.payload, lambda: index.payload([0]), hits.to_arrow,
             lambda: index.search(np.ones((1, 6)), 3, filter="year = 3"),
             lambda: index.add(np.ones((1, 6)), payload=[{}])):
    try:
        call()
    except MissingExtraError as error:
        print(error)
index.remove([hits.ids[0, 0]])
"""
    told = [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "q.npy")]
    done = subprocess.run(told, capture_output=True, text=True, check=True)
    found, about, again, *errors = done.stdout.splitlines()
    assert json.loads(found) == json.loads(again) == index.search(QUERIES, 3).ids.tolist()
    assert about == "string True"
    needed = "pyarrow is needed for payloads: pip install densehash[payload]"
    assert errors == [needed] * 5
    assert issubclass(MissingExtraError, ImportError)
    assert len(Index.open(tmp_path / "a")) == len(ids) - 1


# --- on disk ------------------------------------------------------------------------------


def test_it_is_of_version_3_and_readers_of_2_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, ids = indexed()
    index.save(tmp_path / "a")
    build("flat", rows(N), ids).save(tmp_path / "without")
    index = Index.open(tmp_path / "a")
    index.remove(ids[:1])
    versions = [
        json.loads((tmp_path / name / "manifest.json").read_bytes())["version"]
        for name in ("a", "without")
    ]
    assert versions == [3, 1]
    monkeypatch.setitem(manifest.VERSIONS, manifest.INDEX, (1, 2))
    Index.open(tmp_path / "without")
    with pytest.raises(FileError, match="version 3 .* reads version 1 and 2: install a newer"):
        Index.open(tmp_path / "a")


def test_pyarrow_reads_the_file_as_the_format_has_it(tmp_path: Path) -> None:
    """As docs/format.md has it, by nothing but numpy, JSON and pyarrow."""
    index, ids = indexed()
    index.save(tmp_path / "a")
    content = json.loads((tmp_path / "a" / "manifest.json").read_bytes())["content"]
    assert [name for name, _ in content["payload"]] == SCHEMA.names
    entry = content["segments"][0]
    found = np.load(tmp_path / "a" / entry["payload"]["file"])
    by_rank = np.load(tmp_path / "a" / entry["ids"]["file"]).tolist()
    rows_ = pa.ipc.open_file(found).read_all().to_pylist()
    assert rows_ == [ROWS[ids.index(name)] for name in by_rank]


def edited(**new: Any) -> Index:
    """An index of which some of the content is another."""
    content = content_of(indexed()[0]._state)
    part = dict(content["segments"][0])
    if "bytes" in new:
        part["payload"] = new.pop("bytes")
    if new.pop("without", False):
        del part["payload"]
    return Index(state_from({**content, **new, "segments": [part]}))


def test_columns_that_cannot_be_are_refused_when_it_is_opened() -> None:
    whole = content_of(indexed()[0]._state)["payload"]
    wrong: list[Any] = [
        *(None, [], {}, "lang", [["lang"]], [["lang", "string", 1]], [["", "string"]]),
        *([["lang", "struct"]], [["lang", 3]], [*whole, ["lang", "string"]], [["t", "timestamp"]]),
        *([["t", "timestamp[us, " + "x" * 99 + "]"]], [("a" * 3)]),
    ]
    for columns in wrong:
        with pytest.raises(FileError, match="payload"):
            edited(payload=columns)
    for array in (np.zeros(3, np.int8), np.zeros((3, 3), np.uint8), "x", None):
        with pytest.raises(FileError, match="payload must be uint8"):
            edited(bytes=array)
    with pytest.raises(FileError, match="a segment has codes, ids, vectors"):
        edited(without=True)


def file_of(given: Any, **options: Any) -> Any:
    sink = pa.BufferOutputStream()
    told = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(sink, given.schema, options=told) as writer:
        writer.write_table(given)
    return np.frombuffer(sink.getvalue(), np.uint8)


def lies() -> dict[str, tuple[Any, str]]:
    """Files that pyarrow may like, and that are not the payload of this segment."""
    whole = table(ROWS)
    steps = np.arange(N + 1, dtype=np.int32)
    true = file_of(whole.set_column(1, "text", pa.array(["x"] * N))).tobytes()

    def patched(old: bytes, new: bytes) -> Any:
        assert true.count(old) == 1
        return np.frombuffer(true.replace(old, new), np.uint8)

    words = pa.array(["a", "b"])
    beyond = pa.DictionaryArray.from_arrays(pa.array(np.full(N, 7, np.int32)), words, safe=False)
    below = pa.DictionaryArray.from_arrays(pa.array(np.full(N, -1, np.int32)), words, safe=False)
    with_null = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(N, np.int32)), pa.array([None, "b"])
    )
    found = {
        "rows": (file_of(whole[1:]), "it has 59 rows, its segment 60"),
        "more rows": (file_of(pa.concat_tables([whole, whole])), "it has 120 rows"),
        "columns": (file_of(whole.select(SCHEMA.names[1:])), "its columns are not those"),
        "order": (file_of(whole.select(SCHEMA.names[::-1])), "its columns are not those"),
        "types": (
            file_of(whole.set_column(2, "year", whole["year"].cast(pa.int32()))),
            "its columns are not those",
        ),
        "nested": (
            file_of(whole.set_column(2, "year", pa.array([[[1]]] * N))),
            "its columns are not those",
        ),
        "empty": (np.zeros(0, np.uint8), "does not begin and end"),
        "short": (np.frombuffer(b"ARROW1ARROW1", np.uint8), "damaged"),
        "stream": (np.frombuffer(bytes(whole.to_batches()[0].serialize()), np.uint8), "begin and"),
    }
    for name, ends in (("far", steps * 10**6), ("negative", -steps), ("falling", steps[::-1])):
        found[name] = patched(steps.tobytes(), ends.tobytes()), "the payload of a segment is dama"
    found["no UTF-8"] = patched(b"x" * N, b"\xff" * N), "the payload of a segment is damaged: .*UTF"
    for name, array in (("beyond", beyond), ("below", below), ("null", with_null)):
        found[name] = file_of(whole.set_column(0, "lang", array)), "the payload of a segment is da"
    for codec in ("lz4", "zstd"):
        if pa.Codec.is_available(codec):
            found[codec] = file_of(whole, compression=codec), "it is compressed"
    return found


def test_a_true_file_is_read() -> None:
    index = edited(bytes=file_of(table(ROWS)))
    assert index.payload(index.ids).to_pylist() == ROWS


@pytest.mark.parametrize("case", [*lies()])
def test_files_that_lie_are_refused_before_use(case: str) -> None:
    array, message = lies()[case]
    index = edited(bytes=array)
    index.search(QUERIES, 3)  # which does not look at it
    for call in (
        lambda: index.payload(index.ids),
        lambda: index.search(QUERIES, 3).payload,
        lambda: index.search(QUERIES, 3).to_dicts(),
        lambda: index.update([index.ids[0]], rows(1)),
        lambda: index.add(rows(60), ids=range(10**6, 10**6 + 60), payload=table(ROWS)),
    ):
        with pytest.raises(FileError, match=message):
            call()


def test_files_damaged_at_random_are_refused_or_read() -> None:
    """Whatever comes of it is an error of ours, or rows of the right types."""
    whole = content_of(indexed()[0]._state)["segments"][0]["payload"]
    rng = np.random.default_rng(0)
    n_refused = 0
    for _ in range(400):
        array = whole.copy()
        at = int(rng.integers(len(array)))
        if rng.random() < 0.5:  # in the head of a message, or in the footer
            at = int(rng.choice([rng.integers(0, 1200), len(array) - rng.integers(1, 1200)]))
        size = int(rng.choice([1, 4, 8]))
        new = rng.choice([0, 255, 127, 1, int(rng.integers(256))])
        array[at : at + size] = new
        found = payload.Payload(array, check_columns(COLUMNS), N)
        try:
            rows_ = found.rows().table()
        except FileError as error:
            n_refused += 1
            assert "the payload of a segment is damaged" in str(error)  # noqa: PT017
        else:
            assert rows_.num_rows == N
            rows_.validate(full=True)
    assert n_refused > 100


COLUMNS = [[*pair] for pair in indexed()[0]._state.payload or ()]


def test_damage_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that was flipped is a value, too: the checksum finds it."""
    monkeypatch.setattr("densehash.store.changing._SMALL", 0)
    index = build("flat", rows(N), payload=[{"n": at} for at in range(N)], path=tmp_path / "a")
    file = next((tmp_path / "a").glob("*payload.npy"))
    raw = bytearray(file.read_bytes())
    at = raw.index(np.int64(33).tobytes() + np.int64(34).tobytes())
    raw[at] = 99
    file.write_bytes(raw)
    index = Index.open(tmp_path / "a")
    index.remove([1])
    for call in (
        lambda: index.update([3], rows(1)),
        lambda: index.add(rows(N), payload=[{"n": 1}] * N),
        lambda: index.save(tmp_path / "b"),
        index.compact,
        index.verify,
    ):
        with pytest.raises(FileError, match="payload.npy is damaged"):
            call()
