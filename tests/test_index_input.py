"""What an index refuses: one error of ours, and the index stays what it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import KINDS, D, build, every_kind, hasher, no_fsync, rows, unchanged
from scipy.sparse import csr_matrix

from densehash.errors import DensehashError, FileError, InputError
from densehash.hashers import LSH
from densehash.index import Index
from densehash.index.state import content_of, state_from


def with_number(number: float, dtype: Any = np.float32) -> Any:
    X = rows(2).astype(dtype)
    X[1, 2] = number
    return X


WIDE = np.zeros((2, D + 1), np.float32)
Q = rows(2, seed=5)

BAD_ROWS: dict[str, tuple[Any, str]] = {
    "nan": (with_number(np.nan), "NaN|finite"),
    "infinite": (with_number(-np.inf), "infinity|finite"),
    "infinite float64": (with_number(np.inf, np.float64), "infinity|finite|float32"),
    "beyond float32": (with_number(1e39, np.float64), "float32|large"),
    "beyond squares": (with_number(-1e300, np.float64), "float32|large"),
    "wide": (WIDE, "7 features|has 7"),
    "one dimension": (np.zeros(D), "2 dimensions"),
    "three dimensions": (np.zeros((2, D, 1)), "2 dimensions"),
    "none": (np.zeros((0, D)), "empty"),
    "no features": (np.zeros((2, 0)), "empty"),
    "complex": (np.zeros((2, D), complex), ""),
    "text": ([["a"] * D] * 2, ""),
    "ragged": ([[1.0], [1.0, 2.0]], ""),
    "sparse": (csr_matrix(np.ones((2, D))), "dense"),
    "nothing": (None, ""),
}

BAD_IDS: dict[str, tuple[Any, str]] = {
    "twice": ([70, 70], "70 is there twice"),
    "there": ([70, 5], "5 is in the index already"),
    "negative": ([70, -1], "-1"),
    "too large": (np.array([70, 2**63], np.uint64), "2\\*\\*63"),
    "larger": ([70, 2**63], "all integers"),
    "largest": ([70, 2**70], "all integers|2\\*\\*63"),
    "strings": (["a", "b"], "must be of type int64, .* got string"),
    "mixed": ([1, "b"], "all integers or all strings"),
    "floats": ([70.0, 71.0], "all integers or all strings"),
    "bools": ([True, False], "all integers or all strings"),
    "bytes": ([b"a", b"b"], "all integers or all strings"),
    "None": ([None, None], "all integers or all strings"),
    "few": ([70], "2 rows but there are 1 ids"),
    "many": ([70, 71, 72], "2 rows but there are 3 ids"),
    "none": ([], "2 rows but there are 0 ids"),
    "square": ([[70, 71]], "one dimension"),
    "scalar": (70, "one dimension"),
    "text": ("ab", "array of ids"),
    "ragged": ([[70], [71, 72]], ""),
}

BAD_STRINGS: dict[str, tuple[Any, str]] = {
    "twice": (["b", "b"], "'b' is there twice"),
    "there": (["b", "ä"], "'ä' is in the index already"),
    "NUL inside": (["b", "b\0b"], "NUL"),
    "NUL at the end": (["b", "b\0"], "NUL"),
    "too long": (["b", "ä" * 513], "1024 bytes"),
    "half a character": (["b", "\ud800"], "UTF-8"),
    "numbers": ([70, 71], "must be of type string, .* got int64"),
    "mixed": (["b", 3], "all integers or all strings"),
}


@pytest.fixture(
    params=[(kind, place) for kind in KINDS for place in ("in memory", "opened")], ids=" ".join
)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind, place = request.param
    made = build(kind, rows(60))
    made.add(rows(4, seed=2), ids=[100, 101, 102, 103])
    made.remove([3, 101])
    with no_fsync():
        if place == "opened":
            made.save(tmp_path / "a")
            made = Index.open(tmp_path / "a")
        with unchanged(made):
            yield made


def refuses(index: Index, message: str | None, call: Callable[[], object]) -> None:
    before = index._state
    with pytest.raises(InputError, match=message or None) as error:
        call()
    assert "\n" not in str(error.value)
    assert index._state is before


def test_rows_that_are_refused(index: Index) -> None:
    for bad, message in BAD_ROWS.values():
        # scikit-learn's habit: what is no number at all is a TypeError.
        with pytest.raises((InputError, TypeError), match=message or None):
            index.add(bad)
        with pytest.raises((InputError, TypeError), match=message or None):
            index.update([1, 2], bad)
        with pytest.raises((InputError, TypeError), match=message or None):
            index.upsert([1, 700], bad)


def test_queries_that_are_refused(index: Index) -> None:
    # One dimension is one query.
    for bad in (bad for name, (bad, _) in BAD_ROWS.items() if name != "one dimension"):
        for asked in ({"k": 2}, {"radius": 3.0}, {"k": 2, "rerank": None}, {"k": 2, "metric": "ip"},
                      {"k": 2, "exclude_self": True}):  # fmt: skip
            with pytest.raises((InputError, TypeError)):
                index.search(bad, **asked)
    for name in ("nan", "wide", "infinite", "none"):
        refuses(index, None, lambda name=name: index.tune(BAD_ROWS[name][0], k=2))  # type: ignore[misc]


def test_ids_that_are_refused(index: Index) -> None:
    X = rows(2)
    for bad, message in BAD_IDS.values():
        refuses(index, message, lambda bad=bad: index.add(X, ids=bad))  # type: ignore[misc]
    refuses(index, "70 is not in the index", lambda: index.update([1, 70], X))
    refuses(index, "3 is not in the index", lambda: index.update([1, 3], X))  # it was removed
    refuses(index, "1 is there twice", lambda: index.update([1, 1], X))
    refuses(index, "1 is there twice", lambda: index.upsert([1, 1], X))
    refuses(index, "70 is there twice", lambda: index.upsert([70, 70], X))
    refuses(index, "2 rows but there are 1 ids", lambda: index.upsert([1], X))
    refuses(index, None, lambda: index.update([1], X))
    refuses(index, None, lambda: index.update([], X))
    for name in ("negative", "strings", "mixed", "floats", "text", "square", "scalar"):
        bad = BAD_IDS[name][0]
        refuses(index, None, lambda bad=bad: index.update(bad, X))  # type: ignore[misc]
        if bad != [70, 5]:  # which is neither wrong nor there twice
            refuses(index, None, lambda bad=bad: index.upsert(bad, X))  # type: ignore[misc]
        refuses(index, None, lambda bad=bad: index.remove(bad))  # type: ignore[misc]
        refuses(index, None, lambda bad=bad: index.get(bad))  # type: ignore[misc]
        refuses(index, None, lambda bad=bad: index.search(X, filter=bad))  # type: ignore[misc]
        refuses(index, None, lambda bad=bad: index.search(X, exclude_self=bad))  # type: ignore[misc]
    refuses(index, "3 is not in the index", lambda: index.get([1, 3]))
    refuses(
        index,
        "exclude_self has 3 ids but there are 2",
        lambda: index.search(X, exclude_self=[1, 2, 4]),
    )


@every_kind
def test_strings_that_are_refused(kind: str) -> None:
    index = build(kind, rows(3), ["a", "ä", "z"])
    for bad, message in BAD_STRINGS.values():
        refuses(index, message, lambda bad=bad: index.add(rows(2), ids=bad))  # type: ignore[misc]
    refuses(index, "give ids for the rows that you add", lambda: index.add(rows(2)))
    for name in ("numbers", "mixed", "NUL inside", "half a character"):
        bad = BAD_STRINGS[name][0]
        refuses(index, None, lambda bad=bad: index.remove(bad))  # type: ignore[misc]
        refuses(index, None, lambda bad=bad: index.search(Q, filter=bad))  # type: ignore[misc]


def test_searches_that_are_refused(index: Index) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("k must be at least 1", {"k": 0}),
        ("k must be at least 1", {"k": -3}),
        ("k must be an integer", {"k": 2.0}),
        ("k must be an integer", {"k": True}),
        ("k must be an integer", {"k": "2"}),
        ("candidates must be at least 1", {"candidates": 0}),
        ("candidates must be an integer", {"candidates": 2.5}),
        ("candidates must be at least 1", {"candidates": 0, "rerank": None}),
        ("rerank must be", {"rerank": "l2"}),
        ("rerank must be", {"rerank": True}),
        ("metric must be", {"metric": "manhattan"}),
        ("metric must be", {"metric": 2}),
        ("metric must be", {"metric": ""}),
        ("probes must be at least 1|probes are for", {"probes": 0}),
        ("probes must be an integer|probes are for", {"probes": 1.5}),
        ("n_threads must be at least 1", {"n_threads": 0}),
        ("radius must be", {"radius": "3"}),
        ("radius must be", {"radius": np.nan}),
        ("radius must be", {"radius": [3.0]}),
        ("radius must be", {"radius": 1.5, "rerank": None}),
        ("radius must be at least 0", {"radius": -1, "rerank": None}),
        ("filter must have one boolean", {"filter": np.ones(61, np.bool_)}),
        ("filter must have one boolean", {"filter": np.ones((62, 1), np.bool_)}),
        ("filter must have one boolean", {"filter": np.True_}),
        ("filter", {"filter": ["a"]}),
        ("filter", {"filter": [0.5]}),
        ("filter", {"filter": "ab"}),
        ("filter", {"filter": {1: 2}}),
        ("filter must return booleans", {"filter": lambda ids: ids}),
        ("filter must return booleans", {"filter": lambda ids: [True]}),
        ("filter must return booleans", {"filter": lambda _: None}),
        ("what filter returns", {"filter": lambda _: [[True], [True, False]]}),
        ("exclude_self", {"exclude_self": [1]}),
        ("exclude_self", {"exclude_self": ["a", "b"]}),
        ("exclude_self", {"exclude_self": None}),
    ]
    for message, told in asked:
        refuses(index, message, lambda told=told: index.search(Q, **told))  # type: ignore[misc]


def test_a_filter_that_raises(index: Index) -> None:
    def broken(ids: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        index.search(Q, filter=broken)


def test_graphs_and_pairs_that_are_refused(index: Index) -> None:
    for message, call in (
        ("k must be less than the number of rows, 62", lambda: index.neighbors_graph(62)),
        ("k must be at least 1", lambda: index.neighbors_graph(0)),
        ("mode must be", lambda: index.neighbors_graph(2, mode="both")),  # type: ignore[arg-type]
        ("rerank must be", lambda: index.neighbors_graph(2, rerank="l2")),  # type: ignore[arg-type]
        ("n_threads must be", lambda: index.neighbors_graph(2, n_threads=0)),
        ("candidates must be", lambda: index.neighbors_graph(2, candidates=0)),
        ("radius must be", lambda: index.near_duplicates(0.5)),
        ("radius must be", lambda: index.near_duplicates(-1)),
        ("radius must be", lambda: index.near_duplicates(np.nan, rerank="exact")),
        ("rerank must be None or 'exact'", lambda: index.near_duplicates(1, rerank="asymmetric")),  # type: ignore[arg-type]
        ("n_threads must be", lambda: index.near_duplicates(1, n_threads=-1)),
    ):
        refuses(index, message, call)


def test_tuning_that_is_refused(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rows(30, seed=6) + 0.25
    for message, told in (
        ("recall must be", {"recall": 0}),
        ("recall must be at most 1", {"recall": 1.01}),
        ("recall must be", {"recall": "high"}),
        ("recall must be", {"recall": np.nan}),
        ("k must be at most the number of rows, 62", {"k": 63}),
        ("k must be at least 1", {"k": 0}),
        ("metric must be", {"metric": "l3"}),
    ):
        refuses(index, message, lambda told=told: index.tune(asked, **told))  # type: ignore[misc]
    monkeypatch.setattr("densehash.index.tuning._MOST_CANDIDATES", 11)
    refuses(
        index, "no setting reaches a recall of 1.0: the best", lambda: index.tune(asked, recall=1.0)
    )


def test_probes_are_for_kinds_that_have_them(index: Index) -> None:
    if index._state.kind.takes_probes:
        index.search(Q, probes=10**6)
    else:
        message = f"this one is {index.kind}"
        refuses(index, message, lambda: index.search(Q, probes=2))
        refuses(index, message, lambda: index.neighbors_graph(2, probes=2))


@every_kind
def test_an_index_without_vectors(kind: str) -> None:
    index = build(kind, rows(60), keep_vectors=False)
    refuses(index, "keeps no vectors to re-rank by", lambda: index.search(Q, rerank="exact"))
    refuses(index, "keeps no vectors", lambda: index.get([1]))
    refuses(index, "keeps no vectors", lambda: index.tune(Q))
    refuses(index, "keeps no vectors", lambda: index.near_duplicates(1.0, rerank="exact"))
    refuses(index, "keeps no vectors", lambda: index.neighbors_graph(3, rerank="exact"))
    refuses(index, "no margins", lambda: index.neighbors_graph(3, rerank="asymmetric"))
    assert (index.neighbors_graph(3) != index.neighbors_graph(3, rerank=None)).nnz == 0
    if kind == "multi":
        refuses(
            index,
            "^probes is 2, but buckets are chosen by the margins of vectors, and this index keeps "
            "none: leave probes out, which searches codes exactly, or build the index with "
            "keep_vectors=True$",
            lambda: index.neighbors_graph(3, probes=2),
        )


@every_kind
@pytest.mark.parametrize(
    ("dtype", "bad"),
    [
        ("uint8", 0.5), ("uint8", -1.0), ("uint8", 256.0), ("int8", 128.0), ("int8", -129.0),
        ("float16", 65520.0), ("float16", -1e5), ("uint8", 1e6),
    ],
)  # fmt: skip
def test_vectors_that_the_kept_type_does_not_hold(kind: str, dtype: str, bad: float) -> None:
    X = rows(60)
    index = build(kind, X, keep_vectors=dtype)
    more = X[:3].copy()
    more[1, 4] = bad
    number = re.escape(f"{np.float32(bad)}")
    message = f"X has {number} in row 1, column 4, which {dtype} does not hold"
    refuses(index, message, lambda: index.add(more))
    refuses(index, message, lambda: index.update([4, 5, 6], more))
    with pytest.raises(InputError, match=message):
        build(kind, more, keep_vectors=dtype, n_groups=2) if kind == "grouped" else build(
            kind, more, keep_vectors=dtype
        )
    integers = more.astype(np.int64)
    if bad == int(bad) and abs(bad) < 1e6:
        with pytest.raises(InputError, match="does not hold"):
            index.add(integers)


def test_builds_that_are_refused() -> None:
    X = rows(60)
    for message, told in (
        ("hasher must be the name", {"hasher": 3}),
        ("hasher must be the name", {"hasher": None}),
        ("there is no hasher 'dhs'", {"hasher": "dhs"}),
        ("n_bits", {"n_bits": 0}),
        ("n_bits", {"n_bits": 5000}),
        ("n_bits", {"n_bits": 8.5}),
        ("n_bits is 8, but the hasher makes 16 bits", {"hasher": hasher(), "n_bits": 8}),
        ("kind must be", {"kind": "tree"}),
        ("metric must be", {"metric": "l3"}),
        ("keep_vectors must be", {"keep_vectors": "float64"}),
        ("keep_vectors must be", {"keep_vectors": None}),
        ("keep_vectors must be", {"keep_vectors": 1}),
        ("keep_vectors must be", {"keep_vectors": np.float32}),
        ("n_groups is for the grouped kind", {"n_groups": 3, "kind": "flat"}),
        ("n_groups must be", {"n_groups": 0}),
        ("n_groups must be", {"n_groups": 61}),
        ("n_groups must be", {"n_groups": 2.5}),
        ("n_tables is for the multi kind", {"n_tables": 3}),
        ("n_tables must be", {"n_tables": 0, "kind": "multi"}),
        ("n_tables must be", {"n_tables": 999, "kind": "multi"}),
        ("X has 60 rows but there are 2 ids", {"ids": [1, 2]}),
        ("ids must differ, but 1 is there twice", {"ids": [1] * 60}),
        ("random_state", {"random_state": "x"}),
        ("random_state", {"random_state": "x", "hasher": hasher(), "kind": "grouped"}),
    ):
        with pytest.raises(InputError, match=message):
            Index.build(X, **told)
    kind: Any
    for kind in KINDS:
        for name, (bad, _) in BAD_ROWS.items():
            with pytest.raises((InputError, TypeError)):
                Index.build(bad, hasher=hasher(), kind=kind)
            if name != "wide":
                with pytest.raises((InputError, TypeError)):
                    Index.build(bad, hasher=LSH(8), kind=kind)


def test_a_hasher_of_ones_own_can_be_used_but_not_saved(tmp_path: Path) -> None:
    class Mine(LSH):
        pass

    index = Index.build(rows(60), hasher=Mine(8, random_state=0))
    assert index.search(Q, 1).ids.shape == (2, 1)
    with pytest.raises(DensehashError):
        index.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_files_of_no_groups_or_no_tables_are_refused() -> None:
    content = content_of(build("grouped", rows(60))._state)
    content["kind_settings"]["centers"] = content["kind_settings"]["centers"][:0]
    for segment in content["segments"]:
        segment["limits"] = segment["limits"][:1]
    with pytest.raises(FileError, match="^centers are none, expected at least one$"):
        state_from(content)
    content = content_of(build("multi", rows(60))._state)
    content["segments"][0]["rows"] = content["segments"][0]["rows"][:0]
    with pytest.raises(FileError, match="^a segment has 0 tables, expected 1 to 16, the bits$"):
        state_from(content)
