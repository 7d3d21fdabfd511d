"""Shards of signs: the answers of one index of signs, wherever rows lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from index_cases import fast_folder, hasher, names, no_fsync, rows
from numpy.typing import NDArray
from typer.testing import CliRunner

from densehash.cli import commands  # noqa: F401  they add themselves to the app
from densehash.cli.app import app
from densehash.errors import FileError, InputError
from densehash.index import Index, candidates
from densehash.index.building import learnt
from densehash.index.changes import with_rows
from densehash.index.ids import check_ids
from densehash.store import reading

dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")

from densehash.distributed import ShardedIndex, batches, by_worker, shards  # noqa: E402
from densehash.distributed.building import most_groups  # noqa: E402
from densehash.distributed.chunks import Chunks  # noqa: E402

CHUNKS = (9, 0, 20, 1, 14)
KINDS: dict[str, dict[str, Any]] = {"flat": {}, "grouped": {"n_groups": 12}}

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"), no_fsync():
        yield


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory(dir=fast_folder()) as folder:
        yield Path(folder, "rows.dh")


def build(
    path: Path, kind: str = "grouped", chunks: tuple[int, ...] = CHUNKS, **options: Any
) -> tuple[ShardedIndex, NDArray[Any], list[Any]]:
    n = sum(chunks)
    X, ids = (
        rows(n, dtype=options.pop("dtype", np.float32)),
        names(n, options.pop("id_type", "int64")),
    )
    told = {"kind": kind, "n_bits": 32, "random_state": 0, **KINDS[kind], **options}
    spread = da.from_array(X, chunks=(chunks, X.shape[1]))
    return ShardedIndex.build(spread, path, ids=ids, **told), X, ids


def one_index(index: ShardedIndex, X: Any, ids: Any) -> Index:
    """All rows in one segment, with the same decoder, groups and reach."""
    state = replace(index._catalog.state, segments=(), next_id=0)
    return Index(with_rows(state, X, check_ids(ids)))


def check(index: ShardedIndex, whole: Index, Q: Any, k: int | None, **asked: Any) -> None:
    """Ask both: the answers are the same, to the bit."""
    *found, missing = index.search(Q, k, **asked)
    assert missing == ()
    for ours, theirs in zip(found, whole.search(Q, k, **asked), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tolist() == theirs.tolist()


def check_all(index: ShardedIndex, whole: Index, ids: list[Any]) -> None:
    """All that may be asked for, where every row is compared."""
    X = rows(12)
    Q = np.concatenate([X[:6], rows(5, seed=3) + np.float32(index.metric == "cosine")])
    own = ids[: len(Q)]
    some = set(ids[::4])
    radius = 0.1 if index.metric == "cosine" else -100.0 if index.metric == "ip" else 7.0
    for k in (1, 7, 70):
        check(index, whole, Q, k)
        check(index, whole, Q, k, exclude_self=own)
        check(index, whole, Q, k, exclude_self=True)
        check(index, whole, Q, k, radius=radius)
        check(index, whole, Q, k, filter=sorted(some), exclude_self=True, radius=radius)
        check(index, whole, Q, k, filter=lambda found: np.array([i in some for i in found], bool))
    check(index, whole, Q, 3, filter=[])
    check(index, whole, Q, 3, filter=[], radius=radius)
    check(index, whole, Q, None, radius=radius)
    check(index, whole, Q, None, radius=radius, exclude_self=own)
    check(index, whole, Q, None, radius=radius, exclude_self=True, filter=sorted(some))
    check(index, whole, Q, 5, candidates=100)
    check(index, whole, Q, 5, rerank=None)


# --- the answers of one index -----------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("metric", "id_type"), [("l2", "int64"), ("cosine", "int64"), ("ip", "string")]
)
def test_answers_are_those_of_one_index(path: Path, kind: str, metric: str, id_type: str) -> None:
    index, X, ids = build(path, kind, metric=metric, id_type=id_type)
    assert (index.sketch, index.kind, len(index.shards)) == ("signs", kind, 4)
    whole = one_index(index, X, ids)
    check_all(index, whole, ids)
    gone = ids[::3]
    for name in index.shards:
        Index.open(path / name).remove(gone)
    whole.remove(gone)
    check_all(index, whole, ids)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.float64])
def test_every_type_of_vectors(path: Path, dtype: Any) -> None:
    index, X, ids = build(path, dtype=dtype)
    whole = one_index(index, X, ids)
    for of_queries in (dtype, np.float32):
        check(index, whole, rows(5, seed=3, dtype=of_queries), 6, exclude_self=True)


@every_kind
def test_floats_in_whole_numbers_with_scales(path: Path, kind: str) -> None:
    """The scales of rows are theirs: an index of its own of the same rows tells the answers."""
    index, X, ids = build(path, kind, keep_vectors="int8")
    whole = Index.build(X, ids=ids, keep_vectors="int8", random_state=0)
    assert "vectors are kept with scales" in index.reason
    assert Index.open(path / index.shards[0]).info()["vectors"] == "int8"
    for asked in ({}, {"exclude_self": True}, {"radius": 7.0}):
        check(index, whole, rows(5, seed=3), 6, recall=1, **asked)


@every_kind
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_all_is_learnt_as_one_index_learns_it(path: Path, kind: str, metric: Any) -> None:
    index, X, ids = build(path, kind, metric=metric)
    told = {"kind": kind, "n_bits": 32, "random_state": 0, **KINDS[kind]}
    whole = Index.build(X, ids=ids, metric=metric, **told)
    expected = shards.marks_of(whole._state)
    assert index._catalog.home.marks == expected
    assert index.reason == whole.reason


def test_reach_is_measured_over_all_shards(path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((2500, 16), dtype=np.float32)
    Q = np.random.default_rng(1).standard_normal((100, 16), dtype=np.float32)
    spread = da.from_array(X, chunks=(500, 16))
    index = ShardedIndex.build(spread, path, n_groups=100, random_state=0)
    assert index.recall is not None
    assert 0.95 < index.recall <= 1
    one = Index.build(X, n_groups=100, random_state=0)
    ours, theirs = index._catalog.state.settings, one.settings
    assert [reach.recall for reach in ours.reaches] == [reach.recall for reach in theirs.reaches]
    assert ours.reach is not None
    assert theirs.reach is not None
    assert ours.reach.stop == pytest.approx(theirs.reach.stop, rel=0.3)
    truth = one.search(Q, 10, recall=1.0)
    assert index.search(Q, 10, recall=1.0).ids.tolist() == truth.ids.tolist()

    def share(found: Any) -> float:
        return float((found.ids[:, :, np.newaxis] == truth.ids[:, np.newaxis]).any(axis=1).mean())

    usual, less = share(index.search(Q, 10)), share(index.search(Q, 10, recall=0.7))
    assert usual > 0.93
    assert less < usual
    again = ShardedIndex.open(path)
    assert again.recall == index.recall
    assert again.search(Q, 10).ids.tolist() == index.search(Q, 10).ids.tolist()
    shard = again.add_shard(X[:300] + 9)[0]
    assert again.recall == index.recall
    assert Index.open(path / shard).recall == index.recall


def test_a_group_has_rows_enough_in_each_shard(path: Path) -> None:
    X = rows(2400)
    for chunk, expected in ((2400, 98), (800, 50), (4, 2)):
        many = da.from_array(X, chunks=(chunk, X.shape[1]))
        state = learnt(
            many,
            X.dtype,
            metric="l2",
            id_type="int64",
            vector_type="float32",
            n_bits=8,
            random_state=0,
            most_groups=most_groups(Chunks(many)),
        )
        assert state.kind.settings()["centers"].shape[0] == expected


def test_too_few_rows_are_all_compared(path: Path) -> None:
    index, *_ = build(path)
    assert index.recall is None
    assert "44 rows are too few" in index.reason


def test_without_vectors(path: Path) -> None:
    index, X, ids = build(path, chunks=(200, 100), keep_vectors=False)
    assert index.recall is None
    assert "every estimate is looked at" in index.reason
    whole = one_index(index, X, ids)
    check(index, whole, X[:5], 6)
    check(index, whole, X[:5], 6, exclude_self=ids[:5])
    with pytest.raises(InputError, match="exclude_self=True compares vectors"):
        index.search(X[:5], 6, exclude_self=True)


def test_only_the_first_row_that_equals_the_query_is_left_out(path: Path) -> None:
    """Equal rows lie in three shards: the one of the least id goes."""
    X = np.repeat(np.arange(6, dtype=np.float32)[:, np.newaxis] * 10, 4, axis=1)
    X[[3, 5]] = X[0]
    index = ShardedIndex.build(
        da.from_array(X, chunks=(2, 4)), path, ids=[7, 1, 2, 3, 4, 9], n_bits=8, random_state=0
    )
    assert index.search(X[:1], 2, exclude_self=True).ids.tolist() == [[7, 9]]
    assert index.search(X[:1], radius=1.0, exclude_self=True).ids.tolist() == [7, 9]
    assert index.search(X[:1], 2, exclude_self=[9]).ids.tolist() == [[3, 7]]


def test_batches_do_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, ids = build(path)
    whole = one_index(index, X, ids)
    monkeypatch.setattr(batches, "_MOST_SENT", 1)  # a query at a time
    check_all(index, whole, ids)


def test_shards_are_searched_in_one_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, _ = build(path)
    counts = []
    plain = candidates.nearest

    def counted(state: Any, *args: Any) -> Any:
        counts.append(state)
        return plain(state, *args)

    monkeypatch.setattr(by_worker, "nearest", counted)
    index.search(X[:5])
    index.search(X[5:])
    assert [len(state.segments) for state in counts] == [4, 4]
    assert counts[0].segments is counts[1].segments  # what searches them is made once


# --- shards that change, or are lost ----------------------------------------------------------


def test_shards_are_added_replaced_and_changed(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 15, 12))
    other = ShardedIndex.open(path)
    assert other._store.version == 2
    more = rows(8, seed=9)
    index.add_shard(more, ids=range(10**6, 10**6 + 8))
    assert ShardedIndex.open(path)._store.version == 2
    every, every_id = np.concatenate([X, more]), [*ids, *range(10**6, 10**6 + 8)]
    assert other.refresh()
    for one in (index, other):
        check(one, one_index(index, every, every_id), X[:6], 9, exclude_self=True)
    shard = Index.open(path / index.shards[0])
    shard.update(ids[:1], X[5:6])
    every[0] = X[5]
    check(index, one_index(index, every, every_id), X[:6], 9)
    index.verify()
    index.remove_shard(index.shards[0])
    check(index, one_index(index, every[10:], every_id[10:]), X[:6], 9)


def test_old_manifests_are_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, ids = build(path)
    looks: list[Path] = []
    plain = reading.find_manifest

    def looked(folder: Path) -> bytes | None:
        looks.append(folder)
        return plain(folder)

    monkeypatch.setattr(shards, "find_manifest", looked)
    index.search(X[:2])
    index.search(X[:2])
    assert len(looks) == 8  # a change within the same tick of the clock would leave no trace
    monkeypatch.setattr(shards, "_SETTLED", -(10**9))
    index.search(X[:2])
    index.search(X[:2])
    assert len(looks) == 12
    Index.open(path / index.shards[1]).remove(ids[10:12])
    whole = one_index(index, X, ids)
    whole.remove(ids[10:12])
    check(index, whole, X[9:14], 6)
    index.search(X[:2])
    assert looks[12:] == [path / index.shards[1]]
    shutil.rmtree(path / index.shards[0])
    with pytest.raises(FileError, match="is not there"):
        index.search(X[:2])


def test_a_shard_that_changes_between_batches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, ids = build(path)
    whole = one_index(index, X, ids)
    monkeypatch.setattr(batches, "_MOST_SENT", 1)
    count, plain = 0, candidates.nearest

    def changing(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            for name in index.shards:
                Index.open(path / name).remove(ids[:1])
        return plain(*args)

    monkeypatch.setattr(by_worker, "nearest", changing)
    found = index.search(X[:4], 3)
    whole.remove(ids[:1])
    assert found.ids.tolist() == whole.search(X[:4], 3).ids.tolist()
    assert count > 4


def test_a_lost_shard(path: Path) -> None:
    index, X, ids = build(path, chunks=(10, 15, 12))
    lost = index.shards[1]
    shutil.rmtree(path / lost)
    left = np.r_[:10, 25:37]
    whole = one_index(index, X[left], [ids[at] for at in left])
    for asked in ({"k": 4}, {"radius": 8.0}, {"k": 40, "exclude_self": True}):
        with pytest.raises(FileError, match=rf"1 of 3 shards .*{lost}.*allow_partial=True"):
            index.search(X[:3], **asked)
        *found, missing = index.search(X[:3], **asked, allow_partial=True)
        assert missing == (lost,)
        expected = whole.search(X[:3], **asked)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    for name in index.shards:
        shutil.rmtree(path / name, ignore_errors=True)
    assert index.search(X[:3], 2, allow_partial=True).ids.tolist() == [[-1, -1]] * 3
    nothing = index.search(X[:3], radius=2.0, allow_partial=True)
    assert (nothing.limits.tolist(), len(nothing.ids)) == ([0, 0, 0, 0], 0)


def test_another_decoder_is_no_shard(path: Path) -> None:
    index, X, _ = build(path, "flat")
    other = path.with_name("other.dh")
    Index.build(X, kind="flat", n_bits=32, random_state=1).save(other)
    with pytest.raises(FileError, match="its decoder is another one"):
        index.add_shard(other)
    Index.build(X, kind="flat", hasher=hasher()).save(other)
    with pytest.raises(FileError, match="its sketch is 'codes', expected 'signs'"):
        index.add_shard(other)


# --- what does not go together ----------------------------------------------------------------


def test_bad_requests(path: Path) -> None:
    X = rows(44)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"kind": "multi", "sketch": "signs"}, "works with the kinds flat and grouped"),
        ({"hasher": "lsh", "sketch": "signs"}, "takes no hasher"),
        ({"sketch": "x"}, "sketch must be"),
    ]
    for options, message in refused:
        with pytest.raises(InputError, match=message):
            ShardedIndex.build(X, path, **options)
        assert not path.exists()
    index, X, _ = build(path)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"metric": "ip"}, "metric must be 'l2' here"),
        ({"recall": 2.0}, "recall must be"),
        ({"radius": np.nan}, "radius must be a number"),
        ({"exclude_self": [1, 2]}, "exclude_self has 2 ids but there are 1 queries"),
        ({"exclude_self": ["a"]}, "exclude_self must be of type int64"),
    ]
    for asked, message in bad:
        with pytest.raises(InputError, match=message):
            index.search(X[:1], **asked)
    with pytest.raises(InputError, match="keeps signs, not codes"):
        _ = index.hasher


def test_codes_take_a_radius_too(path: Path) -> None:
    index, X, ids = build(path, "flat", sketch="codes", hasher=hasher(), n_bits=None)
    assert (index.sketch, index._store.version) == ("codes", 1)
    whole, Q = one_index(index, X, ids), X[:9]
    for rerank in ("exact", "asymmetric", None):
        check(index, whole, Q, 5, rerank=rerank, exclude_self=True)
        check(index, whole, Q, 5, rerank=rerank, exclude_self=ids[:9], radius=6)
        check(index, whole, Q, None, rerank=rerank, radius=6, exclude_self=True)
    with pytest.raises(InputError, match="recall is for an index of signs"):
        index.search(Q, recall=0.9)


# --- workers, and the command line ------------------------------------------------------------


def test_workers(path: Path) -> None:
    """Each worker searches its shards together; what they find is put in one order."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    index, X, ids = build(path)
    whole = one_index(index, X, ids)
    codes, *_ = build(path.with_name("codes"), "flat", hasher=hasher(), n_bits=None)
    with (
        dask.config.set(scheduler=None),
        distributed.Client(
            processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ),
    ):
        check(index, whole, X[:9], 7)
        check(index, whole, X[:9], 7, exclude_self=True)
        check(index, whole, X[:9], 70, exclude_self=ids[:9])
        check(index, whole, X[:9], None, radius=7.0, exclude_self=True)
        built, *_ = build(path.with_name("b"), chunks=(150, 150))
        assert built.recall is not None
        with pytest.raises(InputError, match="do not work on the workers of a cluster"):
            codes.search(X[:9], radius=7.0)


def test_the_command_line(path: Path) -> None:
    index, X, ids = build(path)
    queries = path.with_name("queries.npy")
    np.save(queries, X[:4])

    def found(*told: Any) -> Any:
        arguments = ["search", path, queries, "--json", *told]
        result = CliRunner().invoke(app, [str(one) for one in arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    whole = one_index(index, X, ids)
    ranges = whole.search(X[:4], radius=7.0)
    told = found("--radius", 7)
    assert [len(some) for some in told["ids"]] == np.diff(ranges.limits).tolist()
    assert list(chain(*told["ids"])) == ranges.ids.tolist()
    others = whole.search(X[:4], 3, exclude_self=True)
    assert found("-k", 3, "--exclude-self")["ids"] == others.ids.tolist()
