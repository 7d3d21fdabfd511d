"""An index in shards: the answers of one index, changes that are whole, shards that are lost."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_cases import KINDS, METRICS, RERANKS, Disk, fast_folder, hasher, names, no_fsync, rows
from numpy.typing import NDArray
from row_cases import InChunks
from store_cases import failing_looks

from densehash.errors import FileError, InputError
from densehash.hashers import LSH
from densehash.index import Index
from densehash.index.changes import with_rows
from densehash.index.ids import check_ids
from densehash.index.kinds import KINDS as REGISTRY
from densehash.index.kinds import Grouped

dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")

from densehash.distributed import PartialHits, ShardedIndex, batches, doubles, shards  # noqa: E402
from densehash.distributed.building import _written  # noqa: E402
from densehash.rows.dask import Part  # noqa: E402
from densehash.store.manifest import MANIFEST  # noqa: E402

CHUNKS = (9, 0, 20, 1, 14)


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"), no_fsync():
        yield


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=fast_folder()) as path:
        yield Path(path)


@pytest.fixture
def path() -> Iterator[Path]:
    with folder() as found:
        yield found / "rows.dh"


def spread(X: NDArray[Any], chunks: tuple[int, ...]) -> Any:
    return da.from_array(X, chunks=(chunks, X.shape[1]))


def build(
    path: Path, kind: Any = "flat", chunks: tuple[int, ...] = CHUNKS, **options: Any
) -> tuple[ShardedIndex, NDArray[Any], list[Any]]:
    """Shards with the hasher that all tests share, their rows, and their ids."""
    n = sum(chunks)
    id_type = options.pop("id_type", "int64")
    dtype = options.pop("dtype", np.float32)
    X, ids = rows(n, dtype=dtype), names(n, id_type)
    told = {"hasher": hasher(options.get("metric", "l2")), "random_state": 0, **KINDS[kind]}
    if kind == "grouped":
        told["n_groups"] = min(told["n_groups"], n)
    index = ShardedIndex.build(spread(X, chunks), path, ids=ids, kind=kind, **told | options)
    return index, X, ids


def one_index(index: ShardedIndex, X: Any, ids: Any) -> Index:
    """All rows in one segment, with the same hasher and groups."""
    state = replace(index._catalog.state, segments=(), next_id=0)
    return Index(with_rows(state, X, check_ids(ids)) if len(X) else state)


def check(index: ShardedIndex, whole: Index, Q: Any, k: int, **asked: Any) -> PartialHits:
    """Ask both: the answers are the same, to the bit."""
    found, expected = index.search(Q, k, **asked), whole.search(Q, k, **asked)
    assert found.missing == ()
    for ours, theirs in zip(found[:2], expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tolist() == theirs.tolist()
    return found


# --- the answers of one index -----------------------------------------------------------------


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    asked: dict[str, Any] = {
        "rerank": draw(st.sampled_from(RERANKS)),
        "candidates": draw(st.none() | st.integers(1, 60)),
    }
    metric = draw(st.sampled_from(METRICS))
    # For products, tables are not probed.
    if REGISTRY[kind].takes_probes and not (metric == "ip" and REGISTRY[kind].probes_by_margins):
        asked["probes"] = draw(st.none() | st.integers(1, 13))
    return {
        "kind": kind,
        "chunks": tuple(draw(st.lists(st.integers(0, 25), min_size=1, max_size=6))),
        "metric": metric,
        "id_type": draw(st.sampled_from(["int64", "string"])),
        "k": draw(st.integers(1, 40)),
        "filter": draw(st.sampled_from(["none", "ids", "function", "nothing"])),
        "n_removed": draw(st.integers(0, 12)),
        "asked": asked,
    }


@settings(max_examples=40, deadline=None)
@given(searches())
def test_answers_are_those_of_one_index(case: dict[str, Any]) -> None:
    chunks = case["chunks"] if sum(case["chunks"]) >= 2 else (*case["chunks"], 2)
    options = {name: case[name] for name in ("kind", "metric", "id_type")}
    with folder() as path:
        index, X, ids = build(path / "a", chunks=chunks, **options)
        whole = one_index(index, X, ids)
        gone = [ids[at] for at in range(0, len(ids), 3)][: case["n_removed"]]
        for name in index.shards if gone else ():
            Index.open(path / "a" / name).remove(gone)
        whole.remove(gone)
        asked = dict(case["asked"])
        some = {ids[at] for at in range(0, len(ids), 4)}
        if case["filter"] == "ids":
            asked["filter"] = sorted(some)
        elif case["filter"] == "nothing":
            asked["filter"] = []
        elif case["filter"] == "function":
            asked["filter"] = lambda found: np.array([one in some for one in found.tolist()], bool)
        Q = rows(7, seed=3)
        check(index, whole, Q, case["k"], **asked)
        assert len(ShardedIndex.open(path / "a")) == len(whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int8, np.float64])
def test_every_type_of_vectors(path: Path, kind: str, dtype: Any) -> None:
    index, X, ids = build(path, kind, dtype=dtype)
    whole = one_index(index, X, ids)
    for Q in (rows(5, seed=3, dtype=dtype), rows(5, seed=3) / 3):
        check(index, whole, Q, 4, candidates=7)
        check(index, whole, Q, 4, metric="l2")
        with pytest.raises(InputError, match="metric must be 'l2' here, got 'ip'"):
            index.search(Q, 4, metric="ip")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["flat", "grouped"])
@pytest.mark.usefixtures("small_blocks")
def test_all_is_learnt_as_one_index_learns_it(path: Path, kind: str, metric: Any) -> None:
    X = np.random.default_rng(0).standard_normal((2000, 8))
    told: dict[str, Any] = {"hasher": "dsh", "n_bits": 16, "random_state": 3, "kind": kind}
    chunks = (700, 0, 1300)
    index = ShardedIndex.build(spread(X, chunks), path, metric=metric, **told)
    whole = Index.build(InChunks(X, chunks), metric=metric, **told)
    assert index.hasher.planes_.tobytes() == whole.hasher.planes_.tobytes()
    assert (index.kind, index.reason, index.metric) == (whole.kind, whole.reason, whole.metric)
    kinds = index._catalog.state.kind, whole._state.kind
    if isinstance(kinds[0], Grouped) and isinstance(kinds[1], Grouped):
        assert kinds[0].centers.centers.tobytes() == kinds[1].centers.centers.tobytes()
    check(index, whole, X[:50] + 0.1, 10)
    check(index, whole, X[:50], 10, rerank="asymmetric")


def test_queries_that_find_too_few_look_everywhere(path: Path) -> None:
    """Groups far from a query have its only matches."""
    index, X, ids = build(path, "grouped")
    whole, Q = one_index(index, X, ids), rows(9, seed=4)
    for k in (1, 5, 44, 50):
        check(index, whole, Q, k, probes=1)
    check(index, whole, Q, 3, probes=1, filter=ids[:4])


def test_batches_do_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, ids = build(path, "grouped")
    whole, Q = one_index(index, X, ids), rows(9, seed=4)
    expected = check(index, whole, Q, 5, probes=2)
    monkeypatch.setattr(batches, "_MOST_SENT", 1)  # a query at a time
    assert check(index, whole, Q, 5, probes=2).ids.tolist() == expected.ids.tolist()


def test_many_shards_are_merged_in_a_tree(path: Path) -> None:
    index, X, ids = build(path, "multi", chunks=(3,) * 25)
    whole = one_index(index, X, ids)
    for how in RERANKS:
        check(index, whole, rows(4, seed=4), 6, rerank=how, candidates=9)


def test_one_vector(path: Path) -> None:
    index, X, ids = build(path)
    whole = one_index(index, X, ids)
    for asked in ({}, {"exclude_self": ids[3]}, {"rerank": None}):
        check(index, whole, X[3], 4, **asked)
        check(index, whole, X[3].tolist(), 4, **asked)
    assert index.search(X[3], 4).ids.shape == (4,)
    assert index.search(X[3], radius=3.0).limits.shape == (2,)


def test_ties_at_the_last_candidate_go_by_id(path: Path) -> None:
    """Rows with one code in all shards: the least ids count, wherever they lie."""
    X = np.repeat(rows(2), 30, axis=0)
    ids = np.random.default_rng(0).permutation(60)
    index = ShardedIndex.build(spread(X, (13, 20, 27)), path, ids=ids, hasher=hasher())
    found = check(index, one_index(index, X, ids), X[:1], 5, candidates=7)
    assert found.ids.tolist() == [sorted(ids[:30].tolist())[:5]]
    strings = [f"{name:02}" for name in ids]
    index = ShardedIndex.build(spread(X, (13, 20, 27)), path, ids=strings, hasher=hasher())
    found = check(index, one_index(index, X, strings), X[:1], 5, candidates=7)
    assert found.ids.tolist() == [sorted(strings[:30])[:5]]


def test_threads_of_dask(path: Path) -> None:
    with dask.config.set(scheduler="threads"):
        index, X, ids = build(path, "grouped")
        check(index, one_index(index, X, ids), rows(9, seed=4), 5)


def test_without_vectors(path: Path) -> None:
    index, X, ids = build(path, keep_vectors=False)
    check(index, one_index(index, X, ids), rows(5, seed=3), 4)
    with pytest.raises(InputError, match="keeps no vectors"):
        index.search(X[:1], rerank="exact")


def test_an_index_without_rows(path: Path) -> None:
    index, X, ids = build(path, id_type="string", chunks=(3, 2))
    whole = one_index(index, X, ids)
    for name in index.shards:
        Index.open(path / name).remove(ids)
    whole.remove(ids)
    for how in RERANKS:
        check(index, whole, X[:2], 3, rerank=how)
    for name in index.shards:
        index.remove_shard(name)
    check(index, whole, X[:2], 3)
    assert (len(index), index.shards) == (0, ())


# --- where rows come from ---------------------------------------------------------------------


def test_arrays_and_sources_become_shards_by_their_chunks(path: Path) -> None:
    X = rows(40)
    for source, n_shards in ((X, 1), (X.tolist(), 1), (InChunks(X, (15, 0, 25)), 2)):
        index = ShardedIndex.build(source, path, hasher=hasher())
        assert len(index.shards) == n_shards
        check(index, one_index(index, X, np.arange(40)), X[:3], 4)
    cosines = ShardedIndex.build(
        InChunks(X, (15, 25)), path, hasher=hasher("cosine"), metric="cosine"
    )
    check(cosines, one_index(cosines, X, np.arange(40)), X[:3], 4)


def test_data_frames_with_a_column_of_ids(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    X, ids = rows(30), names(30, "string")
    frame = pandas.DataFrame({"id": ids, "embedding": list(X)})
    with dask.config.set({"dataframe.convert-string": False}):
        table = dd.from_pandas(frame, npartitions=3, sort=False)
    table = table[table["id"] != ids[11]]  # lengths are not known any more
    index = ShardedIndex.build(table["embedding"], path, ids=table["id"], hasher=hasher())
    left = np.arange(30) != 11
    whole = one_index(index, X[left], [ids[at] for at in np.flatnonzero(left)])
    check(index, whole, X[:5], 4)
    numbers = dd.from_pandas(pandas.DataFrame(X).add_prefix("x"), npartitions=2)
    check(
        ShardedIndex.build(numbers, path, hasher=hasher(), metric="ip"),
        one_index(index, X, np.arange(30)),
        X[:5],
        4,
        metric="ip",
    )


def test_unknown_lengths_and_empty_chunks(path: Path) -> None:
    X = rows(60)
    some = spread(X, (20, 20, 20))
    some = some[some[:, 0] > 4]
    index = ShardedIndex.build(some, path, hasher=hasher())
    chosen = X[X[:, 0] > 4]
    check(index, one_index(index, chosen, np.arange(len(chosen))), X[:5], 4)


def test_shards_are_ordinary_indexes(path: Path) -> None:
    index, X, ids = build(path, "grouped")
    starts = [0, *accumulate(CHUNKS)]
    parts = [slice(*pair) for pair in pairwise(starts) if pair[0] < pair[1]]
    assert len(index.shards) == len(parts) == 4
    for name, part in zip(index.shards, parts, strict=True):
        shard = Index.open(path / name)
        assert set(shard.ids.tolist()) == set(ids[part])
        np.testing.assert_array_equal(shard.get(ids[part]), X[part])
        assert shard.search(X[part][:1], 1).distances.tolist() == [[0.0]]
    with pytest.raises(FileError, match="holds a sharded index, not an index"):
        Index.open(path)
    with pytest.raises(FileError, match="holds an index, not a sharded index"):
        ShardedIndex.open(path / index.shards[0])


# --- ids --------------------------------------------------------------------------------------


def test_ids_that_are_there_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows(30)
    for within in (doubles._RANGE_ROWS, 7):  # one range of ids, and several
        monkeypatch.setattr(doubles, "_RANGE_ROWS", within)
        for one, two in [(2, 25), (12, 13), (0, 29)]:
            for id_type in ("int64", "string"):
                ids = names(30, id_type)
                ids[one] = ids[two]
                where = r"twice" if (one, two) == (12, 13) else r"twice, in chunks 0 and 2"
                for these in (ids, da.from_array(np.array(ids), chunks=10)):
                    with pytest.raises(InputError, match=f"must differ, but .* is there {where}"):
                        ShardedIndex.build(
                            spread(X, (10, 10, 10)), path, ids=these, hasher=hasher()
                        )
                    assert not path.exists()


def test_ids_that_do_not_overlap_are_not_compared(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("compared")

    monkeypatch.setattr(doubles, "_double_in", never)
    index = ShardedIndex.build(spread(rows(30), (10, 10, 10)), path, hasher=hasher())
    index.add_shard(rows(5))
    with pytest.raises(AssertionError, match="compared"):
        index.add_shard(rows(5), ids=[40, 41, 42, 43, 3])


def test_ids_that_do_not_suit_the_rows(path: Path) -> None:
    X = spread(rows(30), (10, 10, 10))
    for ids, message in [
        (np.arange(29), "X has 30 rows but there are 29 ids"),
        (da.arange(30, chunks=15), "ids must have the chunks of X, got 2 chunks, X has 3"),
        (da.arange(30, chunks=((10, 9, 11),)), "got 9 ids in chunk 1, X has 10 rows"),
        (da.ones((30, 2), chunks=10), "ids must have one dimension"),
        (da.arange(30, chunks=10) - 5, "ids must be from 0"),
        (da.ones(30, chunks=10), "must be all integers or all strings"),
    ]:
        with pytest.raises(InputError, match=message):
            ShardedIndex.build(X, path, ids=ids, hasher=hasher())
    objects = np.array([*range(10), *"abcdefghijklmnopqrst"], object)
    mixed = da.from_array(objects, chunks=10)
    with pytest.raises(
        InputError, match="chunk [12] of X, .* ids are of type string, expected int64"
    ):
        ShardedIndex.build(X, path, ids=mixed, hasher=hasher())
    assert not path.exists()


# --- bad input --------------------------------------------------------------------------------


def test_bad_rows_are_named_and_nothing_is_left(path: Path) -> None:
    X = rows(100)
    X[73, 2] = np.nan
    for learnt in (hasher(), LSH(8)):
        with pytest.raises(InputError, match="got NaN in row 73, column 2"):
            ShardedIndex.build(spread(X, (20,) * 5), path, hasher=learnt)
    X[73, 2] = 300
    with pytest.raises(
        InputError, match="begins at row 60: X has 300.0 in row 13, column 2, which"
    ):
        ShardedIndex.build(spread(X, (20,) * 5), path, hasher=hasher(), keep_vectors="uint8")
    with pytest.raises(InputError, match="X is empty"):
        ShardedIndex.build(da.ones((0, 4)), path)
    with pytest.raises(InputError, match="metric must be"):
        ShardedIndex.build(X, path, metric="l1")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="n_groups is for the grouped kind"):
        ShardedIndex.build(X, path, kind="flat", n_groups=3)
    assert not path.exists()


def test_bad_searches(path: Path) -> None:
    index, X, _ = build(path)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"Q": X[:1, :3]}, "Q has 3 features"),
        ({"Q": X[:1] * np.nan}, "Q must be finite"),
        ({"k": 0}, "k must be at least 1"),
        ({"filter": np.ones(44, bool)}, "filter must be ids, a function of ids, or"),
        ({"filter": ["a"]}, "filter has ids of type string"),
        ({"filter": lambda found: found}, "filter must return booleans"),
        ({"probes": 3}, "probes are for"),
        ({"rerank": "best"}, "rerank must be"),
        ({"candidates": 0}, "candidates must be"),
    ]
    for asked, message in bad:
        with pytest.raises(InputError, match=message):
            index.search(**{"Q": X[:1], **asked})
    for name in ("shard-0123456789abcdef", "../rows.dh"):
        with pytest.raises(InputError, match="there is no shard"):
            index.remove_shard(name)


def test_other_folders_are_left_alone(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").touch()
    with pytest.raises(FileError, match="not empty: it has 'notes.txt'"):
        build(path)
    assert [file.name for file in path.iterdir()] == ["notes.txt"]
    shutil.rmtree(path)
    Index.build(rows(5), n_bits=8).save(path)
    with pytest.raises(FileError, match="holds an index, not a sharded index"):
        build(path)
    assert len(Index.open(path)) == 5


# --- changes ----------------------------------------------------------------------------------


def test_shards_are_added_replaced_and_removed(path: Path) -> None:
    X = rows(40)
    index = ShardedIndex.build(spread(X[:20], (9, 11)), path, hasher=hasher())
    first, second = index.shards
    (third,) = index.add_shard(X[20:25])  # 20 to 24
    check(index, one_index(index, X[:25], np.arange(25)), X[:4], 5)
    others = index.add_shard(
        spread(X[25:40], (5, 0, 10)), ids=da.arange(25, 40, chunks=((5, 0, 10),))
    )
    assert len(others) == 2
    check(index, one_index(index, X, np.arange(40)), X[:4], 5)

    index.remove_shard(second)
    left = np.r_[:9, 20:40]
    check(index, one_index(index, X[left], left), X[:4], 5)
    (again,) = index.replace_shard(third, X[:3], ids=[20, 7777, 21])  # ids of its own are free
    left = np.r_[:9, 25:40]
    whole = one_index(index, np.concatenate([X[left], X[:3]]), [*left, 20, 7777, 21])
    check(index, whole, X[:4], 5)
    assert index.shards == (first, *others, again)
    assert sorted(file.name for file in path.iterdir()) == sorted(
        ["manifest.json", "writer.lock", *index.shards, *_arrays(path)]
    )
    (last,) = index.add_shard(X[:2])
    assert Index.open(path / last).ids.tolist() == [7778, 7779]
    index.verify()


def _arrays(path: Path) -> list[str]:
    return [file.name for file in path.glob("*.npy")]


def test_ids_that_are_there_already(path: Path) -> None:
    index, X, ids = build(path, id_type="string")
    before = index.shards
    with pytest.raises(InputError, match=f"id {ids[3]!r} is in {before[0]} already"):
        index.add_shard(X[:2], ids=["new", ids[3]])
    with pytest.raises(InputError, match="ids of this index are strings"):
        index.add_shard(X[:2])
    with pytest.raises(InputError, match="ids are of type int64, expected string"):
        index.add_shard(X[:2], ids=[1, 2])
    with pytest.raises(InputError, match="is in .* already"):
        index.replace_shard(before[0], X[:2], ids=["new", ids[12]])
    with pytest.raises(InputError, match="4 features"):
        index.add_shard(X[:2, :4], ids=["x", "y"])
    assert (index.shards, ShardedIndex.open(path).shards) == (before, before)
    check(index, one_index(index, X, ids), X[:4], 5)
    assert {file.name for file in path.iterdir() if file.is_dir()} == set(before)


def test_an_index_from_elsewhere_becomes_a_shard(path: Path) -> None:
    index, X, ids = build(path, "grouped")
    more, theirs = rows(6, seed=8), list(range(1000, 1006))
    other = path.with_name("other.dh")
    one_index(index, more, theirs).save(other)
    (name,) = index.add_shard(other)
    check(index, one_index(index, np.concatenate([X, more]), [*ids, *theirs]), X[:4], 5)
    assert len(Index.open(other)) == 6
    with pytest.raises(InputError, match=f"id 1000 is in {name} already"):
        index.add_shard(str(other))
    with pytest.raises(InputError, match="ids must be None"):
        index.add_shard(other, ids=[3])
    with pytest.raises(InputError, match="lies in the folder of this index"):
        index.add_shard(path / name)
    with pytest.raises(FileError, match="is not there"):
        index.add_shard(path.with_name("nothing.dh"))


def test_an_index_that_is_no_shard_says_what_differs(path: Path) -> None:
    index, X, ids = build(path, "grouped")
    other = path.with_name("other.dh")
    flat = {"hasher": index.hasher, "kind": "flat"}
    for made, messages in [
        (
            Index.build(X, ids=[f"{at}" for at in range(44)], **flat),  # type: ignore[arg-type]
            ["its kind is 'flat', expected 'grouped'", "type of ids is 'string', expected 'int64'"],
        ),
        (
            Index.build(X, hasher=LSH(16), metric="ip", kind="grouped", keep_vectors=False),
            [
                "its hasher is another one",
                "its metric is 'ip'",
                "its settings of its kind",
                "'None'",
            ],
        ),
        (
            Index.build(X, sketch="signs", kind="grouped", random_state=0),
            ["its sketch is 'signs', expected 'codes'"],
        ),
    ]:
        made.save(other)
        for message in messages:
            with pytest.raises(FileError, match=f"is no shard of this index: .*{message}"):
                index.add_shard(other)
    damaged = one_index(index, X[:5], range(500, 505))
    shutil.rmtree(other)
    damaged.save(other)
    flip(next(other.glob("*.vectors.npy")))
    with pytest.raises(FileError, match="damaged: its checksum"):
        index.add_shard(other)
    check(index, one_index(index, X, ids), X[:4], 5)


def flip(file: Path) -> None:
    """Change the last byte of a file."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_what_is_changed_in_a_shard_is_seen(path: Path) -> None:
    X = rows(30)
    index = ShardedIndex.build(spread(X, (10, 20)), path, hasher=hasher())
    other = ShardedIndex.open(path)
    assert (len(other), other.refresh()) == (30, False)
    shard = Index.open(path / index.shards[0])
    shard.remove(range(3))
    assert other.refresh()
    assert (len(other), other.refresh()) == (27, False)
    shard.add(X[:2], ids=[100, 101])
    shard.update([5], X[7:8])
    now, names_now = np.concatenate([X[3:], X[:2]]), [*range(3, 30), 100, 101]
    now[2] = X[7]
    for one in (index, other):  # without being told
        check(one, one_index(index, now, names_now), X[:6], 5)
        assert len(one) == 29
    shard.compact()
    check(index, one_index(index, now, names_now), X[:6], 5)


def test_others_see_shards_that_were_added_after_refresh(path: Path) -> None:
    index, X, ids = build(path)
    other = ShardedIndex.open(path)
    more = rows(4, seed=8)
    index.add_shard(more, ids=range(700, 704))
    check(other, one_index(index, X, ids), X[:4], 5)
    assert other.refresh()
    check(other, one_index(index, np.concatenate([X, more]), [*ids, *range(700, 704)]), X[:4], 5)


def test_a_search_goes_on_where_a_shard_was_replaced(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 10))
    other = ShardedIndex.open(path)
    other.search(X[:1])
    index.replace_shard(index.shards[0], X[:10] + 1, ids=ids[:10])
    whole = one_index(index, np.concatenate([X[:10] + 1, X[10:]]), ids)
    check(other, whole, X[:4], 5)
    build(path, "grouped", chunks=(5, 6), id_type="string")  # another one altogether
    found = other.search(X[:4], 5)
    assert found.ids.dtype == object
    assert other.kind == "grouped"


@pytest.mark.parametrize("when", ["looked", "reranked"])
def test_a_shard_that_changes_during_a_search(
    path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    from densehash.distributed import by_shard

    index, X, ids = build(path)
    whole = one_index(index, X, ids)
    monkeypatch.setattr(batches, "_MOST_SENT", 1)  # a query at a time
    count = 0
    name = "_candidates" if when == "looked" else "up_to"
    plain = getattr(by_shard, name)

    def changing(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 6:  # in the middle of the second query
            for shard in index.shards:
                Index.open(path / shard).update(ids[20:21], X[3:4]) if ids[20] in Index.open(
                    path / shard
                ) else Index.open(path / shard).remove(ids[:2])
        return plain(*args)

    monkeypatch.setattr(by_shard, name, changing)
    found = index.search(X[:5], 5)
    whole.update(ids[20:21], X[3:4])
    whole.remove(ids[:2])
    expected = whole.search(X[:5], 5)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.distances.tolist() == expected.distances.tolist()


def test_a_shard_that_never_rests(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from densehash.distributed import by_shard

    index, X, _ = build(path, chunks=(10, 10))
    monkeypatch.setattr(batches, "_MOST_SENT", 1)
    plain = by_shard._candidates

    def changing(*args: Any) -> Any:
        shard = Index.open(path / index.shards[0])
        shard.update(shard.ids[:1], X[count() % 20][np.newaxis])
        return plain(*args)

    calls: list[int] = []

    def count() -> int:
        calls.append(0)
        return len(calls)

    monkeypatch.setattr(by_shard, "_candidates", changing)
    with pytest.raises(FileError, match="change faster than they are searched"):
        index.search(X[:3])


# --- lost -------------------------------------------------------------------------------------


def _remove(shard: Path) -> None:
    shutil.rmtree(shard)


def _cut_manifest(shard: Path) -> None:
    manifest = shard / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-10])


def _cut_codes(shard: Path) -> None:
    codes = next(shard.glob("*codes.npy"))
    codes.write_bytes(codes.read_bytes()[:-1])


def _other_index(shard: Path) -> None:
    shutil.rmtree(shard)
    Index.build(rows(10), hasher=LSH(16, random_state=5), kind="grouped").save(shard)


def _no_folder(shard: Path) -> None:
    shutil.rmtree(shard)
    shard.touch()


@pytest.mark.parametrize("lose", [_remove, _cut_manifest, _cut_codes, _other_index, _no_folder])
def test_a_lost_shard(path: Path, lose: Any) -> None:
    index, X, ids = build(path, "grouped", chunks=(10, 15, 12))
    lost = index.shards[1]
    index.search(X[:3])
    lose(path / lost)
    if lose is _cut_codes:
        shards._open.clear()  # who has it open does not read it again
    left = np.r_[:10, 25:37]
    whole = one_index(index, X[left], [ids[at] for at in left])
    for one in (index, ShardedIndex.open(path)):
        with pytest.raises(FileError, match=rf"1 of 3 shards .*{lost}.*allow_partial=True"):
            one.search(X[:3], 40)
        found = one.search(X[:3], 40, allow_partial=True)
        assert found.missing == (lost,)
        expected = whole.search(X[:3], 40)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.distances.tolist() == expected.distances.tolist()
        assert len(one) == 37
        assert [one["lost"] is None for one in index.info()["shards"]] == [True, False, True]
    with pytest.raises(FileError, match=lost):
        index.verify()
    with pytest.raises(FileError, match=f"{lost} cannot be read, so its ids are not known"):
        index.add_shard(X[:1], ids=[999_999])
    index.replace_shard(lost, X[10:25], ids=ids[10:25])
    order = np.r_[:10, 25:37, 10:25]
    check(index, one_index(index, X[order], [ids[at] for at in order]), X[:3], 40)


def test_all_shards_are_lost(path: Path) -> None:
    index, X, _ = build(path, chunks=(10, 10))
    for name in index.shards:
        shutil.rmtree(path / name)
    found = index.search(X[:3], 2, allow_partial=True)
    assert (found.missing, found.ids.tolist()) == (index.shards, [[-1, -1]] * 3)
    index.remove_shard(index.shards[0])
    assert len(index.shards) == 1


def test_a_shard_that_comes_back(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 10))
    shard = path / index.shards[0]
    shard.rename(path.with_name("away"))
    assert index.search(X[:1], allow_partial=True).missing == (shard.name,)
    path.with_name("away").rename(shard)
    check(index, one_index(index, X, ids), X[:3], 4)


def test_verify_lists_all_that_is_wrong(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 15, 12))
    index.verify()
    first, second, third = index.shards
    flip(next((path / first).glob("*vectors.npy")))
    shutil.rmtree(path / second)
    Index.open(path / third).add(X[:1], ids=ids[:1])
    with pytest.raises(FileError, match="is damaged: its checksum") as caught:
        index.verify()
    for text in (f"{second} is not there", f"id {ids[0]} is in {first} and in {third}"):
        assert text in str(caught.value)


# --- whole or nothing ---------------------------------------------------------------------------


def test_a_task_that_is_run_again_does_no_harm(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 10))
    home, state = index._catalog.home, index._catalog.state
    name, part = index.shards[0], Part(0, 0, 10, X.shape[1], X.dtype, "X")
    before = {file.name: file.read_bytes() for file in (path / name).iterdir()}
    with shards.writing_shards(home) as folder:
        again = _written(home, folder, state, name, part, X[:10], check_ids(ids[:10]))
        assert (again.name, again.n_rows) == (name, 10)
        assert {file.name: file.read_bytes() for file in (path / name).iterdir()} == before
        # Two at a time: who comes second finds the folder there.
        shards.place_shard(home, folder, name, one_index(index, X[:10], ids[:10]))
        assert {file.name: file.read_bytes() for file in (path / name).iterdir()} == before
    check(index, one_index(index, X, ids), X[:3], 4)
    gone = home._replace(folder=path / "gone")
    with pytest.raises(FileError, match="shards must be on storage that all workers share"):
        _written(gone, path / "gone" / "a", state, name, part, X[:10], check_ids(ids[:10]))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_is_late_adds_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A build fails while another worker writes: the next build finds the place free."""
    index, X, ids = build(path, chunks=(10, 10))
    home, late = index._catalog.home, one_index(index, X[:10], ids[:10])
    there = sorted(path.iterdir())
    save = Index.save

    def save_at_the_end(self: Index, part: Path) -> None:
        if when == "after":
            save(self, part)
        shards.discard(part.parent)
        if when == "before":
            save(self, part)

    monkeypatch.setattr(Index, "save", save_at_the_end)
    with shards.writing_shards(home) as folder, pytest.raises(FileError, match="No such file"):
        shards.place_shard(home, folder, shards.new_name(), late)
    assert sorted(path.iterdir()) == there


def test_leftovers_of_a_build_that_was_killed(path: Path) -> None:
    path.mkdir()
    left = ["shard-0123456789abcdef", ".shards-0123456789abcdef.part"]
    for name in [*left, ".shard-0123456789abcdef-fedcba9876543210.part"]:
        (path / name).mkdir()
        (path / name / "0123456789abcdef-ids.npy").touch()
    (path / "writer.lock").touch()
    with pytest.raises(FileError, match="is no sharded index, and not empty"):
        build(path)  # nothing says that it is ours
    (path / "writer.lock").write_bytes(b"densehash: nothing was published here yet\n")
    index, X, _ = build(path)
    assert {file.name for file in path.iterdir() if file.is_dir()} == set(index.shards)
    (path / "shard-0123456789abcdef").mkdir()
    index.add_shard(X[:1], ids=[4444])
    assert {file.name for file in path.iterdir() if file.is_dir()} == set(index.shards)


@pytest.mark.parametrize("replacing", [False, True])
def test_a_disk_that_fails(path: Path, replacing: bool) -> None:
    """Whatever fails: what was there is still there, and nothing else."""
    if replacing:
        old, X, ids = build(path, chunks=(7, 5), id_type="string")
        whole = one_index(old, X, ids)
        before = {file.name for file in path.iterdir()}
        build(path.with_name("counted"), chunks=(7, 5))
    calls = Disk()
    with calls.at_work():
        build(path.with_name("counted"), chunks=(4, 6))
    assert len(calls.calls) > 20
    for fail_at in range(1, len(calls.calls) + 1, 5):
        disk = Disk(fail_at)
        with disk.at_work(), pytest.raises(FileError):
            build(path, chunks=(4, 6))
        assert disk.failed
        if replacing:
            assert {file.name for file in path.iterdir()} == before
            check(ShardedIndex.open(path), whole, X[:3], 4)
        else:
            assert not path.exists()


def test_interrupted_when_all_is_published(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the manifest is there: the new shards are not taken for leftovers."""
    from densehash.distributed import catalog, sharded
    from densehash.store import Change

    index, X, ids = build(path, chunks=(10, 10))
    plain, calls = catalog.sweep, []

    def interrupted(folder: Path, change: Change) -> None:
        calls.append(folder)
        plain(folder, change)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(sharded, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.add_shard(X[:1], ids=[4444])
    monkeypatch.undo()
    now = ShardedIndex.open(path)
    assert len(now.shards) == 3
    check(now, one_index(index, np.concatenate([X, X[:1]]), [*ids, 4444]), X[:3], 4)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_look_that_fails_costs_no_shard(path: Path, number: int) -> None:
    index, X, ids = build(path, chunks=(10, 10))
    expected = one_index(index, np.concatenate([X, X[:1]]), [*ids, 4444])
    before, at = set(index.shards), 0
    while True:
        at += 1
        with failing_looks(MANIFEST, number, at) as looks:
            try:
                index.add_shard(X[:1], ids=[4444])
            except FileError as error:
                assert os.strerror(number) in str(error)  # noqa: PT017
        now = ShardedIndex.open(path)
        assert before <= set(now.shards)
        now.verify()
        if len(now) == 21:
            check(now, expected, X[:3], 4)
            index.remove_shard(*(set(now.shards) - before))
        if len(looks) < at:
            break
    assert at > 5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("what", ["pipe", "device", "huge"])
def test_a_manifest_of_a_shard_that_is_no_file(path: Path, what: str) -> None:
    """It is refused at once: nobody waits for a pipe, or reads a device to its end."""
    index, X, _ = build(path, chunks=(10, 10))
    manifest = path / index.shards[0] / MANIFEST
    manifest.unlink()
    if what == "pipe":
        os.mkfifo(manifest)
    elif what == "device":
        manifest.symlink_to("/dev/zero")
    else:
        with manifest.open("wb") as file:
            file.truncate(1 << 40)
    opened = ShardedIndex.open(path)
    with pytest.raises(FileError, match=MANIFEST):
        opened.search(X[:2], 3)
    assert opened.search(X[:2], 3, allow_partial=True).missing == (index.shards[0],)
    with pytest.raises(FileError, match=MANIFEST):
        opened.verify()


def test_manifests_that_lie(path: Path) -> None:
    from densehash.store import Store
    from densehash.store.manifest import SHARDS

    index, _, _ = build(path)
    good = index._store.content["shards"][0]
    for bad in (
        {"name": "../../etc", "rows": 3},
        {"name": "shard-0123456789abcdeg", "rows": 3},
        {"name": good["name"], "rows": -1},
        {"name": good["name"], "rows": "3"},
        {"rows": 3},
        "shard",
    ):
        store = Store.open(path, form=SHARDS)
        with store.change() as change:
            change.publish({**change.content, "shards": [bad]})
        with pytest.raises(FileError, match="cannot be read"):
            ShardedIndex.open(path)
    with store.change() as change:
        change.publish({**change.content, "shards": [good, good]})
    with pytest.raises(FileError, match="a shard cannot be called"):
        ShardedIndex.open(path)


# --- the rest -----------------------------------------------------------------------------------


def test_what_it_says_of_itself(path: Path) -> None:
    index, X, ids = build(path, "multi")
    assert repr(index) == (
        "ShardedIndex(4 shards, multi, 44 rows, 16 bits of LSH, float32 vectors, l2)"
    )
    info = index.info()
    assert (info["rows"], info["kind"], info["generation"]) == (44, "multi", 1)
    assert [one["rows"] for one in info["shards"]] == [9, 20, 1, 14]
    on_disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert info["bytes_on_disk"] == on_disk
    again = pickle.loads(pickle.dumps(index))
    check(again, one_index(index, X, ids), X[:3], 4)


def test_opened_shards_are_shared_and_few(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_MOST_OPEN", 2)
    monkeypatch.setattr(shards, "_open", type(shards._open)())
    index, X, ids = build(path, "grouped", chunks=(5, 6, 7, 8))
    check(index, one_index(index, X, ids), X[:3], 4)
    assert len(shards._open) == 2
    one, two = (shards.open_shard(index._catalog.home, name).state for name in index.shards[:2])
    assert one.hasher is two.hasher
    assert one.kind is two.kind


def test_dask_is_imported_only_when_asked_for() -> None:
    code = """
import sys
import densehash, densehash.distributed, densehash.index
assert not {"dask", "distributed"} & set(sys.modules)
sys.modules["dask"] = None  # as if it were not installed
for name in ("ShardedIndex", "connect"):
    try:
        getattr(densehash.distributed, name)
    except densehash.MissingExtraError as error:
        assert "pip install densehash[dask]" in str(error), error
    else:
        raise AssertionError(name)
try:
    densehash.distributed.nothing
except AttributeError:
    print("good")
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert (found.stdout, found.stderr) == ("good\n", "")
