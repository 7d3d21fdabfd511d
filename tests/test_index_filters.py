"""Filters that are kept for the next search, and the short way that they take.

A filter that is a function takes the general way, and nothing of it is kept: it is the oracle.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from index_cases import STRINGS, same
from numpy.typing import NDArray

from densehash.errors import FileError, InputError
from densehash.index import Hits, Index
from densehash.index.queries import Reach
from densehash.index.sketches import Signs, sign_search
from densehash.index.sketches.sign_search import _MANY
from densehash.index.state import Settings

N, D, K = 900, 16, 7
KINDS: dict[str, dict[str, Any]] = {
    "flat": {"kind": "flat"},
    "grouped": {"kind": "grouped", "n_groups": 20},
    "in two groups": {"kind": "grouped", "n_groups": 20, "groups_a_row": 2},
}
SIGNS: dict[str, Any] = {"sketch": "signs", "n_bits": 32, "random_state": 0}


def rows(n: int = N, seed: int = 0) -> NDArray[np.float32]:
    """Small whole numbers: many distances are equal."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 9, (n, D)).astype(np.float32)


def leaving(index: Index, share: float) -> NDArray[np.bool_]:
    return np.random.default_rng(5).random(len(index)) < share


def by_function(index: Index, mask: NDArray[np.bool_], Q: NDArray[Any], k: int = K) -> Hits:
    wanted = index.ids[mask]
    return index.search(Q, k, filter=lambda ids: np.isin(ids, wanted))


def forms_of(index: Index, mask: NDArray[np.bool_]) -> Iterator[Any]:
    wanted = index.ids[mask]
    yield mask
    yield wanted
    if len(wanted):
        yield wanted.tolist()
        yield set(wanted.tolist())


def check(index: Index, mask: NDArray[np.bool_], k: int = K) -> None:
    """All forms, asked so often that everything is made of them that can be."""
    Q = rows(_MANY + 1, seed=3)
    expected = by_function(index, mask, Q, k)
    for form in forms_of(index, mask):
        for n in (1, 3, len(Q), 1, 5):
            found = index.search(Q[:n], k, filter=form)
            assert same(found, Hits(expected.ids[:n], expected.distances[:n]))
            assert found.distances.dtype == expected.distances.dtype
            if expected.effort is not None:
                assert found.effort is not None
                for ours, theirs in zip(found.effort, expected.effort, strict=True):
                    assert ours.tolist() == theirs[:n].tolist()
        assert same(index.search(Q[0], k, filter=form), expected.first)


NAMES = [*STRINGS, *(f"row {i * 7919 % 9973}" for i in range(N))][:N]
CASES = (
    "strings",
    "segments",
    "strings in segments",
    "updated",
    "no vectors",
    "strings in segments, no vectors",
)


def some_index(case: str, X: NDArray[Any]) -> Index:
    """An index of some ids; in segments, it has three of them, and rows were removed."""
    ids: Any = NAMES if "strings" in case else [*range(N)]
    n = N if "segments" not in case else 600
    kept = "no vectors" not in case
    index = Index.build(X[:n], ids=ids[:n], keep_vectors=kept, **SIGNS, **KINDS["grouped"])
    if n < N:
        index.add(X[n:830], ids=ids[n:830])
        index.add(X[830:], ids=ids[830:])
        index.remove(ids[5::9])
        assert len(index._state.segments) == 3
    if case == "updated":  # these rows go to another segment, with their ids
        index.update(ids[100:300], X[100:300][::-1])
        assert len(index._state.segments) == 2
    return index


def generally(index: Index, Q: NDArray[Any], k: int = K) -> Hits:
    """What the general way finds: it is told what it would do anyway."""
    bare = index._state.vector_type is None
    return index.search(Q, k, rerank=None if bare else "exact")


# --- the same as the general way ----------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_finds_what_a_function_finds(kind: str, metric: Any) -> None:
    index = Index.build(rows(), metric=metric, **SIGNS, **KINDS[kind])
    for change in ("none", "removed", "a second segment"):
        if change == "removed":
            index.remove(index.ids[5::9])
        if change == "a second segment":
            index.add(rows(40, seed=1))
        for share in (0.0, 0.005, 0.08, 0.4, 1.0):
            check(index, leaving(index, share))


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int8", "scaled"])
def test_types_of_vectors(dtype: str) -> None:
    X = rows() if dtype != "scaled" else rows() * np.float32(0.37)
    kept: Any = "int8" if dtype == "scaled" else True
    X = X if dtype == "scaled" else X.astype(dtype)
    index = Index.build(X, keep_vectors=kept, **SIGNS, **KINDS["grouped"])
    assert index._state.sketch.scaled == (dtype == "scaled")
    for share in (0.08, 0.4):
        check(index, leaving(index, share))


@pytest.mark.parametrize("case", CASES)
def test_ids_segments_and_vectors(case: str) -> None:
    """Many distances are equal, so the order of ids matters, and often decides what is found."""
    index = some_index(case, rows())
    for share in (0.0, 0.005, 0.08, 0.4, 1.0):
        check(index, leaving(index, share))


@pytest.mark.parametrize("case", CASES)
def test_ids_segments_and_vectors_without_a_filter(case: str) -> None:
    index = some_index(case, rows())
    Q = rows(90, seed=3)
    expected = generally(index, Q)
    for n in (1, 5, len(Q)):  # up to 64 and more, where ids do not rise
        assert same(index.search(Q[:n], K), Hits(expected.ids[:n], expected.distances[:n]))
    assert same(index.search(Q[0], K), expected.first)
    for k in (1, N - 1, N, N + 1):
        assert same(index.search(Q[:3], k), generally(index, Q[:3], k))


@pytest.mark.parametrize("case", CASES)
def test_the_short_way_is_taken_by(case: str) -> None:
    index = some_index(case, np.random.default_rng(0).random((N, D), np.float32))
    Q = np.random.default_rng(1).random((20, D), np.float32)
    expected = generally(index, Q)
    masks = [leaving(index, share) for share in (0.005, 0.08, 0.4)]
    found = [by_function(index, mask, Q) for mask in masks]
    for mask in masks:
        index.search(Q, K, filter=mask)
    with mock.patch.object(Signs, "at_once", side_effect=AssertionError):
        assert same(index.search(Q, K), expected)
        assert same(index.search(Q[0], K), expected.first)
        for mask, hits in zip(masks, found, strict=True):
            assert same(index.search(Q, K, filter=mask), hits)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float64"])
@pytest.mark.parametrize("kept", [True, False, "int8", "uint8"])
def test_queries_that_are_converted(kept: Any, dtype: str) -> None:
    X = rows().astype(np.uint8) if kept == "uint8" else rows() * np.float32(0.37)
    keep_vectors: Any = True if kept == "uint8" else kept
    index = Index.build(X, keep_vectors=keep_vectors, **SIGNS, **KINDS["grouped"])
    Q = rows(9, seed=3).astype(dtype)
    expected = generally(index, Q)
    with mock.patch.object(Signs, "at_once", side_effect=AssertionError):
        assert same(index.search(Q, K), expected)
        assert same(index.search(np.asfortranarray(Q), K), expected)


@pytest.mark.parametrize("second", ["shorter", "longer", "of other bytes", "numbers"])
def test_equal_rows_of_several_segments_are_ordered_by_id(second: str) -> None:
    """The same rows again, in a segment whose ids come before or after those of the first."""
    X = np.random.default_rng(0).random((300, D), np.float32)
    Q = X[:60]
    ids: Any = [f"{i:03} is its number" for i in range(len(X))]
    more: Any = {
        "shorter": [name[:-1] for name in ids],
        "longer": [f"{name}!" for name in ids],
        "of other bytes": [f"{name[:3]}\x01ä" for name in ids],
        "numbers": np.arange(len(X)) * 2,
    }[second]
    if second == "numbers":
        ids = np.arange(len(X)) * 2 + 1
    index = Index.build(X, ids=ids, **SIGNS, **KINDS["grouped"])
    index.add(Q, ids=more[: len(Q)])
    assert len(index._state.segments) == 2
    with mock.patch.object(Signs, "at_once", side_effect=AssertionError):
        found = index.search(Q, 2)
    twins = list(zip(ids, more, strict=True))[: len(Q)]
    assert found.ids.tolist() == [sorted(names) for names in twins]
    assert not found.distances.any()


def test_a_string_that_is_damaged_is_refused() -> None:
    index = some_index("strings", rows())
    index._state.segments[0].ids[:] = b"\xff"
    with pytest.raises(FileError, match="an id is not UTF-8"):
        index.search(rows(1), K)


@pytest.mark.parametrize("kind", ["flat", "grouped", "multi"])
def test_codes(kind: Any) -> None:
    index = Index.build(rows(), kind=kind, sketch="codes", n_bits=32, random_state=0)
    index.remove(index.ids[5::9])
    for share in (0.0, 0.05, 0.4):
        check(index, leaving(index, share))


def test_a_reach_that_leaves_out_rows() -> None:
    """Recall below one: the two ways must miss the same rows."""
    index = Index.build(rows(2000), **{**SIGNS, "n_bits": 8}, kind="grouped", n_groups=60)
    Q, mask = rows(80, seed=3), leaving(index, 0.3)
    wanted = index.ids[mask]
    for recall in (0.5, 0.9, 1.0):
        expected = index.search(Q, K, recall=recall, filter=lambda ids: np.isin(ids, wanted))
        for _ in range(3):
            assert same(index.search(Q, K, recall=recall, filter=mask), expected)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_as_many_neighbours_as_match_and_more(metric: Any) -> None:
    X = rows(3000)
    index = Index.build(X, metric=metric, **SIGNS, **KINDS["grouped"])
    few = leaving(index, 0.07)
    assert 128 < few.sum() < 250  # more than are looked at together
    for k in (1, 60, 128, 250, len(X), len(X) + 5):
        check(index, few, k)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_rows_of_length_zero_and_equal_ones(metric: Any) -> None:
    X = rows() - 4
    X[::3] = 0
    X[1::3] = X[1]
    index = Index.build(X, metric=metric, **SIGNS, **KINDS["flat"])
    check(index, leaving(index, 0.1), 30)


def test_the_short_way_is_taken() -> None:
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    index.remove([1, 2])
    Q = rows(20, seed=3)
    for share in (0.005, 0.08, 0.4):
        mask = leaving(index, share)
        expected = by_function(index, mask, Q)
        index.search(Q, K, filter=mask)
        with mock.patch.object(Signs, "at_once", side_effect=AssertionError):
            assert same(index.search(Q, K, filter=mask), expected)
    with mock.patch.object(Signs, "at_once", side_effect=AssertionError):
        expected = index.search(Q, K)
        assert same(index.search(Q.view(np.memmap), K), expected)  # as copies of maps are


def test_too_few_in_the_groups_visited_are_looked_for_everywhere() -> None:
    X = rows()
    index = Index.build(X, **SIGNS, **KINDS["grouped"])
    far = ((X - X[:1]) ** 2).sum(axis=1)
    mask = far > np.quantile(far, 0.8)
    reach = Reach(0.5, 1.0, 1.0, 1, 0.5)
    index._state = replace(index._state, settings=Settings(reach=reach))
    check(index, mask, 60)


# --- what is kept -------------------------------------------------------------------------


def test_a_filter_that_has_changed_finds_other_rows() -> None:
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    Q = rows(20, seed=3)
    for share in (0.05, 0.4):
        mask = leaving(index, share)
        original = mask.copy()
        ids = index.ids[mask]
        listed = ids.tolist()
        for form in (mask, ids, listed):
            before = index.search(Q, K, filter=form)
            gone = int(before.ids[0, 0])
            if form is mask:
                mask[gone] = False
            elif form is ids:
                ids[ids == gone] = ids[0] if ids[0] != gone else ids[1]
            else:
                listed.remove(gone)
            after = index.search(Q, K, filter=form)
            assert gone in before.ids
            assert gone not in after.ids
            if form is mask:
                assert same(index.search(Q, K, filter=original), before)
                mask[gone] = True


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="a payload needs pyarrow")
def test_a_dict_that_has_changed_finds_other_rows() -> None:
    payload = [{"n": i, "even": i % 2 == 0} for i in range(N)]
    index = Index.build(rows(), payload=payload, **SIGNS, **KINDS["grouped"])
    Q = rows(60, seed=3)
    chosen: dict[str, Any] = {"n": {"$lt": 300}}
    for least in (0, 200, 290, 0):
        chosen["n"]["$gte"] = least
        words = f"n < 300 and n >= {least}"
        mask = np.isin(index.ids, np.arange(least, 300))
        expected = by_function(index, mask, Q)
        for _ in range(3):
            assert same(index.search(Q, K, filter=chosen), expected)
            assert same(index.search(Q, K, filter=words), expected)
    index.search(Q, K, filter={"even": True})
    with pytest.raises(InputError, match="is bool, got 1"):  # though 1 == True
        index.search(Q, K, filter={"even": 1})


def test_what_looks_alike_is_told_apart() -> None:
    index = Index.build(rows(8), **SIGNS, **KINDS["flat"])
    Q = rows(10, seed=3)
    numbers = [1, 0, 1, 0, 0, 0, 0, 0]
    mask = np.array(numbers, bool)
    for _ in range(3):
        assert set(index.search(Q, 2, filter=mask).ids.ravel().tolist()) == {0, 2}
        assert set(index.search(Q, 2, filter=mask.tolist()).ids.ravel().tolist()) == {0, 2}
        assert set(index.search(Q, 2, filter=numbers).ids.ravel().tolist()) == {0, 1}
        assert set(index.search(Q, 2, filter=mask.view(np.int8)).ids.ravel().tolist()) == {0, 1}
        assert set(index.search(Q, 2, filter=mask[::-1]).ids.ravel().tolist()) == {5, 7}
        with pytest.raises(InputError, match=r"got shape \(1, 8\)"):
            index.search(Q, 2, filter=mask[np.newaxis])
        with pytest.raises(InputError, match="one dimension"):
            index.search(Q, 2, filter=np.array([[1, 0]]))
    twice = Index.build(rows(8), ids=[f"{i}" for i in range(8)], **SIGNS, **KINDS["flat"])
    assert set(twice.search(Q, 2, filter=["1", "2"]).ids.ravel().tolist()) == {"1", "2"}
    with pytest.raises(InputError, match="without the character NUL"):
        twice.search(Q, 2, filter=["1\0", "2"])


def test_strings_are_told_apart() -> None:
    index = some_index("strings", rows())
    Q = rows(3, seed=3)
    names = NAMES[20:60]
    expected = by_function(index, np.isin(index.ids, names), Q)
    forms: list[Any] = [names, tuple(names), names[::-1], [*names, names[0]], {*names}]
    forms += [
        frozenset(names),
        np.array(names),
        np.array(names, object),
        dict.fromkeys(names).keys(),
    ]
    for form in forms * 2:
        assert same(index.search(Q, K, filter=form), expected)
    gone = str(expected.ids[0, 0])
    names.remove(gone)
    assert gone not in index.search(Q, K, filter=names).ids
    assert gone in index.search(Q, K, filter={*names, gone}).ids
    kept = index._state.segments[0].ids[:40]
    wrong: Any
    for wrong in (["row 0", 1], ["row 0", np.zeros(2)], ["row 0", None], ["row 0\0"], kept, [1, 2]):
        for _ in range(2):
            with pytest.raises(InputError):
                index.search(Q, K, filter=wrong)
    numbered = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    for _ in range(2):
        with pytest.raises(InputError, match="ids of type string, the index int64"):
            numbered.search(Q, K, filter=["1", "2"])


def test_what_is_kept_belongs_to_one_state() -> None:
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    Q, wanted = rows(10, seed=3), np.arange(40, 60)
    found = index.search(Q, K, filter=wanted)
    gone = int(found.ids[0, 0])
    index.remove([gone])
    assert gone not in index.search(Q, K, filter=wanted).ids
    index.add(Q[:1], ids=[gone])
    assert index.search(Q[:1], K, filter=wanted).ids[0, 0] == gone


def test_few_filters_are_kept_and_none_travels() -> None:
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    Q, few, many = rows(_MANY + 1, seed=3), leaving(index, 0.05), leaving(index, 0.4)
    for at in range(20):
        index.search(Q[:1], K, filter=[at, at + 1])
    assert len(index._state.matches._kept) == 4
    size = len(pickle.dumps(Index.build(rows(), **SIGNS, **KINDS["grouped"])))
    expected = [index.search(Q, K, filter=mask) for mask in (few, many)]
    index.remove([])
    for other in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        assert not other._state.matches._kept
        for mask, hits in zip((few, many), expected, strict=True):
            assert same(other.search(Q, K, filter=mask), hits)
    assert len(pickle.dumps(index)) < size + 1000


def test_a_function_is_asked_each_time_and_once() -> None:
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    asked = mock.Mock(side_effect=lambda ids: ids < 300)
    for _ in range(3):
        index.search(rows(10, seed=3), K, filter=asked)
    assert asked.call_count == 3


def test_numbers_of_rows_that_are_damaged_are_refused() -> None:
    """By each thing that is made of a filter."""
    index = Index.build(rows(), **SIGNS, **KINDS["grouped"])
    mask = leaving(index, 0.4)
    index.search(rows(1), K, filter=mask)
    index._state.segments[0].columns["entry_rows"][N // 2 :] = N + 7
    with pytest.raises(FileError, match="a row number is beyond the last row"):
        index.search(rows(_MANY + 1, seed=3), K, filter=mask)
    with pytest.raises(FileError, match="a row number is beyond the last row"):
        index.search(rows(1), K, filter=index.ids >= 150)


def test_the_few_are_those_that_are_compared() -> None:
    """The limit that this file's shares are made for."""
    assert 0.08 * N < sign_search.few_of(N) < 0.4 * N
