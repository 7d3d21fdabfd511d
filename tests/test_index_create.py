"""An index that is made empty: it compares every row until it has enough to learn from."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import (
    METRICS,
    D,
    Disk,
    every_id_type,
    leftovers,
    names,
    no_fsync,
    rows,
    same,
)
from index_edits import check_refused
from index_model import true_distances
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import ITQ
from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.index.learning import LEARN_AT
from densehash.index.state import content_of, state_from

N = 300
X = np.random.default_rng(0).standard_normal((N, D), dtype=np.float32)
Q = np.random.default_rng(1).standard_normal((9, D), dtype=np.float32)

needs_arrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

LEARNT: dict[str, dict[str, Any]] = {
    "signs": {},
    "signs in groups": {"n_groups": 20},
    "signs in two groups": {"n_groups": 20, "groups_a_row": 2, "n_bits": 64},
    "signs without vectors": {"keep_vectors": False},
    "signs, int8 with scales": {"keep_vectors": "int8"},
    "signs, float16": {"keep_vectors": "float16", "kind": "grouped"},
    "signs for cosines": {"metric": "cosine"},
    "signs for products": {"metric": "ip", "n_groups": 20},
    "codes": {"hasher": "itq", "n_bits": 24},
    "codes in groups": {"sketch": "codes", "kind": "grouped", "n_groups": 9},
    "codes in tables": {"hasher": "dsh", "n_bits": 24, "kind": "multi", "n_tables": 2},
    "codes without vectors": {"hasher": "lsh", "n_bits": 24, "keep_vectors": False},
}


def flat_content(index: Index) -> dict[str, Any]:
    """All that the files of an index would say, arrays as lists."""

    def plain(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: plain(one) for name, one in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [plain(one) for one in tree]
        return tree.tolist() if isinstance(tree, np.ndarray) else tree

    found: dict[str, Any] = plain(content_of(index._state))
    return found


# --- it learns what an index learns that is built ---------------------------------------------


@pytest.mark.parametrize("told", LEARNT.values(), ids=LEARNT)
def test_it_learns_as_an_index_that_is_built(told: dict[str, Any], tmp_path: Path) -> None:
    """Whatever way the rows came: all that is kept is that of an index built from them by id."""
    ids = sorted(names(N, "string" if "codes" in str(told) else "int64"))
    order = RandomState(0).permutation(N)
    index = Index.create(D, learn_at=N, random_state=7, path=tmp_path / "a.dh", **told)
    beside = index if told.get("metric") else Index.open(tmp_path / "a.dh")
    with no_fsync():
        for start in range(0, N - 100, 50):
            some = order[start : start + 50]
            index.add(X[some] + 1, ids=[ids[at] for at in some])
        index.update([ids[at] for at in order[:60]], X[order[:60]])
        index.remove([ids[at] for at in order[30:35]])
        assert index.sketch == "vectors"
        assert f"nothing learnt before {N} rows" in repr(index)
        with pytest.raises(InputError, match="no hasher yet: it learns at 300 rows, and has 195"):
            _ = index.hasher
        last = [*range(30, 35), *range(60, N)]  # 140 of which are there
        index.upsert([ids[at] for at in order[last]], X[order[last]])
    assert len(index) == N
    assert index.sketch != "vectors"
    built = Index.build(X, ids=ids, random_state=7, **told)
    if told.get("keep_vectors") == "float16":
        built = Index.build(X.astype(np.float16), ids=ids, random_state=7, **told)
    expected = flat_content(built)
    for one in (index, Index.open(tmp_path / "a.dh"), pickle.loads(pickle.dumps(index))):
        found = flat_content(one)
        assert found == expected
        assert same(one.search(Q, 5), built.search(Q, 5))
    assert beside.refresh() == (beside is not index)
    assert flat_content(beside) == expected
    index.verify()
    assert leftovers(tmp_path / "a.dh") == set()
    assert index._store is not None
    assert index._store.version == built._state.format_version


def test_rows_that_come_at_once_are_learnt_from() -> None:
    index = Index.create(D, learn_at=N, random_state=0)
    assert index.add(X).tolist() == list(range(N))
    assert flat_content(index) == flat_content(Index.build(X, random_state=0, ids=range(N)))
    index.remove(range(N))
    assert index.sketch == "signs"  # what it has learnt, it keeps
    assert index.add(X[:2]).tolist() == [N, N + 1]
    assert LEARN_AT == 8192


def test_numbers_go_on_after_it_has_learnt() -> None:
    index = Index.create(D, learn_at=50)
    index.add(X[:10])
    index.remove([9])
    assert index.add(X[:40]).tolist() == list(range(10, 50))
    assert index.sketch == "vectors"
    assert index.add(X[:1]).tolist() == [50]
    assert index.sketch == "signs"
    assert index.add(X[:1]).tolist() == [51]


def test_chance_that_is_given_as_a_generator_is_kept_as_a_number(tmp_path: Path) -> None:
    made = [
        Index.create(D, learn_at=N, random_state=RandomState(3), path=tmp_path / name)
        for name in ("a", "b")
    ]
    with no_fsync():
        for index in made:
            index.add(X)
    assert flat_content(made[0]) == flat_content(made[1])


# --- until then every row is compared ---------------------------------------------------------


def nearest(metric: str, ids: list[Any], of: NDArray[Any]) -> list[list[Any]]:
    far = true_distances(Q, of, metric)
    return [[name for _, name in sorted(zip(row, ids, strict=True))] for row in far]


@every_id_type
@pytest.mark.parametrize("metric", METRICS)
def test_every_row_is_compared(metric: Any, id_type: str) -> None:
    ids = names(120, id_type)
    index = Index.create(D, metric=metric)
    index.add(X[:70], ids=ids[:70])
    index.add(X[70:120], ids=ids[70:])
    index.remove(ids[5:15])
    left = [*range(5), *range(15, 120)]
    own, of = [ids[at] for at in left], X[left]
    for asked_by in METRICS:
        expected = nearest(asked_by, own, of)
        far = true_distances(Q, of, asked_by)
        asked: list[dict[str, Any]] = [{}, {"rerank": None}, {"candidates": 7}, {"recall": 0.5}]
        for told in asked:
            found = index.search(Q, 8, metric=asked_by, **told)
            assert found.ids.tolist() == [row[:8] for row in expected]
            near = np.sort(far, axis=1)[:, :8]
            np.testing.assert_allclose(found.distances, near, rtol=1e-5, atol=1e-5)
        chosen = {*own[::7]}
        found = index.search(Q, 200, metric=asked_by, filter=chosen)
        few = [[name for name in row if name in chosen] for row in expected]
        assert [row[: len(chosen)] for row in found.ids.tolist()] == few
        assert (found.distances[:, len(chosen) :] == np.inf).all()
        radius = float(np.sort(far)[:, 30].mean())
        ranges = index.search(Q, radius=radius, metric=asked_by)
        assert np.diff(ranges.limits).tolist() == (far <= np.float32(radius)).sum(axis=1).tolist()
    assert index.search(of[:4], 3, exclude_self=own[:4]).ids.shape == (4, 3)
    assert own[2] not in index.search(of[2], 3, exclude_self=True).ids
    usual = index.search(Q[1], 4)
    assert usual.ids.tolist() == nearest(metric, own, of)[1][:4]
    assert index.get(own[:3]).tolist() == of[:3].tolist()
    graph = index.neighbors_graph(2, mode="distance")
    among = true_distances(of, of, metric)
    np.fill_diagonal(among, np.inf)
    sums = np.sort(among, axis=1)[:, :2].sum()
    np.testing.assert_allclose(graph.sum(), sums, rtol=1e-4, atol=1e-4)
    radius = float(np.quantile(among[among < np.inf], 0.01))
    n_near = np.count_nonzero(np.triu(among <= np.float32(radius), 1))
    pairs = index.near_duplicates(radius, rerank="exact")
    assert len(pairs.ids) == n_near
    with pytest.raises(InputError, match="nothing to tune yet"):
        index.tune(Q)
    with pytest.raises(InputError, match="probes are for"):
        index.search(Q, probes=3)
    with pytest.raises(InputError, match="rerank must be"):
        index.search(Q, rerank="asymmetric")
    with pytest.raises(InputError, match="recall must be"):
        index.search(Q, recall=1.5)
    with pytest.raises(InputError, match="too large"):
        index.search(Q * np.float32(1e25), metric="l2")
    with pytest.raises(InputError, match="5 features, the index 6"):
        index.search(Q[:, :5])


def test_many_queries_and_rows_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.create(D)
    index.add(rows(200))
    index.add(rows(90, seed=3), ids=range(1000, 1090))
    whole = index.search(rows(40, seed=5), 12)
    monkeypatch.setattr("densehash.index.candidates._COMPARED", 600)
    monkeypatch.setattr("densehash.index.search._BATCH", 1)
    assert same(index.search(rows(40, seed=5), 12), whole)
    assert same(index.search(rows(40, seed=5), 12, n_threads=1), whole)


def test_an_index_of_no_rows(tmp_path: Path) -> None:
    index = Index.create(D, path=tmp_path / "a.dh", metric="cosine")
    assert repr(index) == "Index(empty, nothing learnt before 8,192 rows, 6 features, cosine)"
    for one in (index, Index.open(tmp_path / "a.dh"), pickle.loads(pickle.dumps(index))):
        assert len(one) == 0
        assert one.ids.tolist() == []
        assert one.search(Q, 3).ids.tolist() == [[-1] * 3] * len(Q)
        filters: list[Any] = [["a"], [3], {"lang": "en"}, "year > 3", [], lambda ids: ids == 3]
        for chosen in filters:
            assert one.search(Q[0], 2, filter=chosen).ids.tolist() == [-1, -1]
        assert one.search(Q, radius=3.0).limits.tolist() == [0] * 10
        assert one.search(Q[:2], exclude_self=["a", "b"]).ids.shape == (2, 10)
        assert one.remove(["a", "b"]) == one.remove([3]) == 0
        assert "a" not in one
        one.compact()
        assert (one.info()["ids"], one.info()["learn_at"]) == (None, 8192)
        with pytest.raises(InputError, match="not in the index"):
            one.update(["a"], X[:1])
        with pytest.raises(InputError, match="not in the index"):
            one.get([1])
    assert "until there are 8,192" in index.reason
    index.verify()


# --- the first rows decide --------------------------------------------------------------------


def test_the_first_rows_decide_what_types_there_are(tmp_path: Path) -> None:
    kinds: list[tuple[Any, Any, dict[str, Any], str, str]] = [
        (["b", "a"], np.uint8, {}, "string", "uint8"),
        ([4, 2], np.float64, {}, "int64", "float32"),
        (None, np.float16, {}, "int64", "float16"),
        (None, np.int8, {"keep_vectors": "int8"}, "int64", "int8"),
        (None, np.float32, {"keep_vectors": "int8"}, "int64", "float32"),
        (None, np.float32, {"keep_vectors": "int8", "sketch": "codes"}, "int64", "int8"),
        (["a", "b"], np.uint8, {"keep_vectors": False}, "string", "uint8"),
        (None, np.uint8, {"keep_vectors": "float32"}, "int64", "float32"),
    ]
    for ids, dtype, told, id_type, vector_type in kinds:
        index = Index.create(D, **told)
        index.add(rows(2, dtype=dtype), ids=ids)
        assert (index.info()["ids"], index.info()["vectors"]) == (id_type, vector_type)
        assert index.get(index.ids[:1]).dtype == vector_type
    whole = Index.create(D, keep_vectors="int8", sketch="codes")
    with pytest.raises(InputError, match="which int8 does not hold"):
        whole.add(X[:5])
    assert whole.info()["ids"] is None


@needs_arrow
def test_the_first_rows_decide_what_columns_there_are(tmp_path: Path) -> None:
    index = Index.create(D, learn_at=40, path=tmp_path / "a.dh", random_state=0)
    beside = [{"year": 2000 + at, "lang": "en" if at % 3 else None} for at in range(60)]
    with no_fsync():
        index.add(X[:20], payload=beside[:20])
        assert index._store is not None
        assert index._store.version == 3
        with pytest.raises(InputError, match="pass payload="):
            index.add(X[:1])
        with pytest.raises(InputError, match="'title'"):
            index.upsert([99], X[:1], payload=[{"title": "a"}])
        for n in (20, 60):
            for one in (index, Index.open(tmp_path / "a.dh")):
                assert one.payload(one.ids).to_pylist() == beside[:n]
                hits = one.search(X[:4], 50, filter={"lang": "en", "year": {"$lt": 2030}})
                there = {at for at in range(min(n, 30)) if at % 3}
                assert [{*row} - {-1} for row in hits.ids.tolist()] == [there] * 4
                found = [row["year"] for row in hits.to_dicts()[0]]
                assert sorted(found) == [2000 + at for at in sorted(there)]
            if n == 20:
                index.update([3], X[3:4])  # keeps its payload
                index.add(X[20:60], payload=beside[20:])
    assert index.sketch == "signs"
    bare = Index.create(D)
    bare.add(X[:3])
    with pytest.raises(InputError, match="has no payload"):
        bare.add(X[:1], payload=beside[:1])


def test_an_index_that_is_empty_again_is_open_again() -> None:
    index = Index.create(D)
    index.add(X[:3], ids=["a", "b", "c"])
    with pytest.raises(InputError, match="ids must be of type string, as in the index, got int64"):
        index.add(X[:1], ids=[7])
    with pytest.raises(InputError, match="ids of this index are strings"):
        index.add(X[:1])
    with pytest.raises(InputError, match="5 features, the index 6"):
        index.add(X[:1, :5], ids=["d"])
    with pytest.raises(InputError, match="'a' is in the index already"):
        index.add(X[:1], ids=["a"])
    assert index.upsert(["c", "d"], X[:2]) == (1, 1)
    assert index.remove(["a", "b", "c", "d"]) == 4
    assert index.add(rows(2, dtype=np.uint8)).tolist() == [0, 1]
    assert index.info()["vectors"] == "uint8"


def test_another_process_decides_first(tmp_path: Path) -> None:
    """What was looked at before the lock was taken may be old."""
    one = Index.create(D, path=tmp_path / "a.dh", learn_at=20)
    changes: list[Callable[[Index], object]] = [
        lambda index: index.add(X[:2]),
        lambda index: index.add(X[:2], ids=[3, 4]),
        lambda index: index.upsert([3, 4], X[:2]),
    ]
    with no_fsync():
        others = [Index.open(tmp_path / "a.dh") for _ in changes]
        one.add(X[:3], ids=["a", "b", "c"])
        for other, change in zip(others, changes, strict=True):
            with pytest.raises(InputError, match="ids (of this index are|must be)"):
                change(other)
            assert other.ids.tolist() == ["a", "b", "c"]
        others[0].add(X[3:30], ids=[f"r{at}" for at in range(27)])  # learns
        assert others[1].upsert(["a", "z"], X[:2]) == (1, 1)
        one.add(X[:1], ids=["y"])
    assert [index.sketch for index in (one, others[0], others[1])] == ["signs"] * 3
    assert len(one) == 32


# --- refused ----------------------------------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "metric must be": {"metric": "l1"},
    "learn_at must be": {"learn_at": 1},
    "sketch must be": {"sketch": "bits"},
    "kind must be": {"kind": "cloudy"},
    "takes no hasher": {"sketch": "signs", "hasher": "itq"},
    "there is no hasher 'cloud'": {"hasher": "cloud"},
    "must be the name of a method here, .* got a ITQ": {"hasher": ITQ(16)},
    "kinds flat and grouped": {"sketch": "signs", "kind": "multi"},
    "a multiple of 8 for signs, got 12": {"sketch": "signs", "n_bits": 12},
    "n_bits must be": {"n_bits": 0},
    "n_bits must .* 6": {"hasher": "pcah", "n_bits": 64},
    "n_groups must be from 1 to 500": {"n_groups": 501, "learn_at": 500},
    "n_groups is for the grouped kind": {"kind": "flat", "n_groups": 5},
    "n_tables is for the multi kind": {"n_tables": 5},
    "n_tables must be": {"kind": "multi", "n_bits": 16, "n_tables": 17},
    "groups_a_row=2 is for the grouped kind": {"learn_at": 500, "groups_a_row": 2},
    "groups_a_row=2 is for an index that": {"groups_a_row": 2, "keep_vectors": False},
    "groups_a_row is for sketch='signs'": {"groups_a_row": 2, "sketch": "codes"},
    "keep_vectors must be": {"keep_vectors": "float64"},
    "random_state cannot be used": {"random_state": -1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_could_not_be_learnt_is_refused_when_it_is_made(message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        Index.create(D, path=tmp_path / "a.dh", **REFUSED[message])
    assert not (tmp_path / "a.dh").exists()


@pytest.mark.parametrize("d", [0, -1, 2.5, "8", None])
def test_the_number_of_features_is_looked_at(d: Any) -> None:
    with pytest.raises(InputError, match="d must be"):
        Index.create(d)


def test_a_folder_that_is_something_else_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileError):
        Index.create(D, path=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "tables": (lambda c: c.update(kind="multi", kind_settings={"n_tables": None}), "is flat"),
    "without vectors": (lambda c: c.update(vectors=None), "flat, with vectors and 0 bits"),
    "with bits": (lambda c: c.update(n_bits=8), "flat, with vectors and 0 bits"),
    "for bits": (lambda c: c.update(metric="hamming"), "metric hamming is for bits"),
    "no plan": (lambda c: c.update(sketch_settings={}), "a plan has"),
    "more in it": (lambda c: c["sketch_settings"].update(more=1), "a plan has"),
    "at one row": (lambda c: c["sketch_settings"].update(learn_at=1), "learn_at"),
    "at many": (lambda c: c["sketch_settings"].update(learn_at="many"), "learn_at"),
    "sketch": (lambda c: c["sketch_settings"].update(sketch="bits"), "sketch"),
    "kind": (lambda c: c["sketch_settings"].update(kind=["flat"]), "kind"),
    "hasher": (lambda c: c["sketch_settings"].update(hasher={"class": "ITQ"}), "hasher"),
    "bits": (lambda c: c["sketch_settings"].update(n_bits=-8), "n_bits"),
    "groups": (lambda c: c["sketch_settings"].update(n_groups=2.5), "n_groups"),
    "kept": (lambda c: c["sketch_settings"].update(keep_vectors="object"), "keep_vectors"),
    "chance": (lambda c: c["sketch_settings"].update(random_state=2**32), "random_state"),
    "codes": (lambda c: c["segments"][0].update(codes=np.zeros((9, 1), np.uint8)), "a segment has"),
}


@pytest.mark.parametrize(("edit", "message"), EDITS.values(), ids=EDITS)
def test_files_that_lie_are_refused(edit: Any, message: str) -> None:
    index = Index.create(D)
    index.add(X[:9])
    check_refused(index, edit, message)


def test_what_has_learnt_has_bits() -> None:
    for index in (Index.build(X), Index.build(X, sketch="codes"), Index.from_codes(X > 0)):
        content = content_of(index._state)
        state_from(content)
        with pytest.raises(FileError, match="n_bits"):
            state_from({**content, "n_bits": 0})


# --- a disk that fails ------------------------------------------------------------------------


@pytest.mark.parametrize("told", [{}, {"hasher": "lsh", "n_bits": 16}], ids=["signs", "codes"])
def test_the_change_that_learns_fails_at_any_call(told: dict[str, Any], tmp_path: Path) -> None:
    index = Index.create(D, learn_at=50, path=tmp_path / "a.dh", random_state=0, **told)
    with no_fsync():
        index.add(X[:40])
        before = flat_content(index)
        for at in range(1, 200):
            disk = Disk(at)
            try:
                with disk.at_work():
                    index.upsert([3, *range(100, 120)], X[:21])
            except FileError:
                assert disk.failed
                for one in (index, Index.open(tmp_path / "a.dh")):
                    assert flat_content(one) == before
                index.verify()
                assert leftovers(tmp_path / "a.dh") == set()
            else:
                break
    assert at > 10
    assert len(index) == 60
    assert index.sketch == ("codes" if told else "signs")
    assert flat_content(Index.open(tmp_path / "a.dh")) == flat_content(index)
