"""Indexes that change, are saved and opened, copied and sent: what they are at each moment."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import (
    KINDS,
    RERANKS,
    D,
    asked_of,
    build,
    compare,
    every_id_type,
    every_kind,
    hasher,
    leftovers,
    model_of,
    names,
    no_fsync,
    pair,
    rows,
    same,
    unchanged,
)
from sklearn.base import clone

from densehash.errors import FileError, InputError
from densehash.hashers import DSH, ITQ, LSH, Hasher
from densehash.hashers.refined import Refined
from densehash.hashers.registry import NAMES
from densehash.index import Index, Settings

Q = rows(5, seed=5)


@pytest.fixture(params=["in memory", "opened"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Gives an index as it is, or one that was opened from a folder."""

    def placed(index: Index) -> Index:
        if request.param == "in memory":
            return index
        index.save(tmp_path / "a.dh")
        return Index.open(tmp_path / "a.dh")

    with no_fsync():
        yield placed


# --- add, remove, update ------------------------------------------------------------------


@every_kind
def test_numbers_go_on_after_the_largest_there_ever_was(kind: str, place: Any) -> None:
    index = place(build(kind, rows(10)))
    assert index.add(rows(3)).tolist() == [10, 11, 12]
    assert index.remove([12, 11]) == 2
    assert index.add(rows(2)).tolist() == [13, 14]
    index.add(rows(1), ids=[100])
    assert index.remove([100]) == 1
    if index.path:
        index = Index.open(index.path)
    index = pickle.loads(pickle.dumps(index))
    assert index.add(rows(1)).tolist() == [101]
    index.remove(index.ids)
    index.compact()
    assert index.add(rows(1)).tolist() == [102]


def test_numbers_may_run_out(place: Any) -> None:
    index = place(build("flat", rows(3), [1, 2, 2**63 - 1]))
    with unchanged(index), pytest.raises(InputError, match="no number left"):
        index.add(rows(1))
    index.add(rows(1), ids=[7])
    assert index.ids.tolist() == [1, 2, 7, 2**63 - 1]


@every_kind
@every_id_type
def test_rows_come_and_go(kind: str, id_type: str, place: Any) -> None:
    ids = names(60, id_type)
    index = build(kind, rows(20), ids[:20])
    model = model_of(index)
    model.put(ids[:20], rows(20))
    index = place(index)
    rng = np.random.default_rng(0)
    for step in range(12):
        there = set(model.ids)
        new = [name for name in rng.permutation(np.array(ids, object)) if name not in there][:5]
        X = rows(len(new), seed=step)
        assert index.add(X, ids=new).tolist() == new
        model.put(new, X)
        gone = [str(name) if id_type == "string" else int(name) for name in rng.choice(ids, 9)]
        assert index.remove(gone) == model.remove(gone)
        changed = model.ids[::4]
        X = rows(len(changed), seed=100 + step)
        index.update(changed, X)
        model.put(changed, X)
        compare(index, model, Q, 7, probes=2 if kind == "grouped" else None)
        compare(index, model, Q, 70, rerank=None)
        assert index.ids.tolist() == model.ids
        assert len(index) == len(model)
    assert index.get(model.ids[::-1]).tolist() == [
        model.rows[n][0].tolist() for n in index.ids[::-1]
    ]


def test_removing_counts_each_row_once(place: Any) -> None:
    index = place(build("flat", rows(10)))
    assert index.remove([3, 3, 99, 4]) == 2
    assert index.remove([3, 4]) == 0
    assert index.remove([]) == 0
    assert index.remove(np.array([], np.int64)) == 0
    assert index.remove([5] * 100) == 1
    assert len(index) == 7


def test_strings_are_not_cut(place: Any) -> None:
    """Longer strings than those of a segment are other strings."""
    index = place(build("flat", rows(3), ["a", "b", "c"]))
    assert index.remove(["aa", "b" * 50]) == 0
    assert "aa" not in index
    index.add(rows(2, seed=1), ids=["aa", "ä" * 512])
    assert index.ids.tolist() == ["a", "aa", "b", "c", "ä" * 512]
    assert index.search(rows(2, seed=1)[:1], 1).ids[0, 0] == "aa"
    with unchanged(index), pytest.raises(InputError, match="'aa' is in the index already"):
        index.add(rows(1), ids=["aa"])
    assert index.remove(["ä" * 512, "ä" * 511]) == 1


@every_kind
def test_an_empty_index_can_be_filled_again(kind: str, place: Any) -> None:
    index = place(build(kind, rows(20)))
    assert index.remove(index.ids) == 20
    assert len(index) == 0
    assert repr(index)
    assert index.info()["bytes_a_row"] >= 0
    if index.path:
        index.verify()
        index = Index.open(index.path)
    index.compact()
    model = model_of(index)
    assert index.add(rows(9, seed=1)).tolist() == list(range(20, 29))
    model.put(range(20, 29), rows(9, seed=1))
    compare(index, model, Q, 5)


@every_kind
def test_there_are_never_many_segments(kind: str) -> None:
    index = build(kind, rows(100))
    for at in range(200):
        index.add(rows(1, seed=at))
    assert len(index.info()["segments"]) < 10
    assert sum(index.info()["segments"]) == 300


@every_kind
def test_a_change_writes_what_it_touches(kind: str, tmp_path: Path) -> None:
    with no_fsync():
        build(kind, rows(300)).save(tmp_path / "a")
        index = Index.open(tmp_path / "a")

        def files() -> dict[str, int]:
            return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}

        def written(before: dict[str, int]) -> int:
            """Bytes, without the manifest."""
            new = files().items() - before.items()
            return sum((tmp_path / "a" / name).stat().st_size for name, _ in new if "-" in name)

        before = files()
        index.add(rows(2))
        arrays = 3 + len(index._state.kind.extra_names)
        assert 0 < written(before) < arrays * 128 + 2000 + (2**9 * 8 if kind == "multi" else 0)
        before = files()
        index.remove([5])
        assert 0 < written(before) <= 128 + 4
        before = files()
        index.remove([5])
        assert files() == before
        before = files()
        index.compact()
        assert not {name for name in files() if "segments" in name} & set(before)
        before = files()
        index.compact()
        assert files() == before
    assert leftovers(tmp_path / "a") == set()


@every_kind
def test_compacting(kind: str, place: Any) -> None:
    index, model = pair(kind)
    index = place(index)
    index.add(rows(7, seed=3), ids=range(1000, 1007))
    model.put(range(1000, 1007), rows(7, seed=3))
    gone = model.ids[::3]
    index.remove(gone)
    model.remove(gone)
    info = index.info()
    assert len(info["segments"]) > 1
    assert info["removed"] > 0
    before = asked_of(index)
    index.compact()
    info = index.info()
    assert info["segments"] == [len(model)]
    assert info["removed"] == 0
    assert asked_of(index) == before
    compare(index, model, Q, 9)


# --- what it is ---------------------------------------------------------------------------


@every_kind
@every_id_type
def test_membership(kind: str, id_type: str) -> None:
    index, model = pair(kind, id_type)
    index.remove(model.ids[:2])
    for name in model.ids:
        assert (name in index) == (name not in model.ids[:2])
    others = (7.5, None, -1, True, "0", 0, (1, 2), [3], np.nan, 2**70, b"a", "\0", "x" * 9999)
    for other in others:
        assert (other in index) == (type(other) in (int, str) and other in model.ids[2:])


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    index = Index.build(rows(60), hasher=hasher(), kind="grouped", n_groups=4, random_state=0)
    assert repr(index) == "Index(grouped, 60 rows, 16 bits of LSH, float32 vectors, l2)"
    assert index.path is None
    assert (index.kind, index.metric) == ("grouped", "l2")
    assert repr(index.hasher) == repr(hasher())
    assert index.settings == Settings(None, None)
    assert index.reason == "grouped, as was asked for"
    index.remove([1])
    info = index.info()
    expected = {
        "path": None, "rows": 59, "removed": 1, "features": D, "kind": "grouped",
        "hasher": "LSH", "bits": 16, "metric": "l2", "ids": "int64", "vectors": "float32",
        "segments": [60], "bytes_on_disk": None, "candidates": None, "probes": None,
        "generation": None, "bytes_of_vectors": 60 * D * 4,
    }  # fmt: skip
    assert expected.items() <= info.items()
    index.save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    index.remove([2])
    info = index.info()
    assert index.path == tmp_path / "a"
    assert info["path"] == str(tmp_path / "a")
    assert info["generation"] == 2
    on_disk = sum(p.stat().st_size for p in (tmp_path / "a").iterdir() if p.suffix != ".lock")
    assert info["bytes_on_disk"] == on_disk
    bare = build("flat", rows(10), keep_vectors=False, metric="cosine")
    assert repr(bare) == "Index(flat, 10 rows, 16 bits of LSH, no vectors, cosine)"
    assert bare.info()["bytes_of_vectors"] == 0


def test_memory_of_long_codes() -> None:
    """At 256 bits, at most 48 bytes a row, ids included."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 16), dtype=np.float32)
    learnt = LSH(256, random_state=0).fit(X[:1000])
    index = Index.build(X, hasher=learnt, kind="grouped", random_state=0, keep_vectors=False)
    assert 44 < index.info()["bytes_a_row"] <= 48
    state = index._state
    segment = state.segments[0]
    arrays = [segment.ids, segment.columns["codes"], segment.removed, *segment.extra.values()]
    assert index.info()["bytes_without_vectors"] >= sum(array.nbytes for array in arrays)


def test_the_kind_is_chosen_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.build(rows(60), hasher=hasher())
    assert index.kind == "flat"
    assert "60 rows" in index.reason
    monkeypatch.setattr("densehash.index.building._FEW_ROWS", 60)
    index = Index.build(rows(60), hasher=hasher(), random_state=0)
    assert index.kind == "grouped"
    assert "60 rows" in index.reason
    monkeypatch.undo()
    assert Index.build(rows(60), hasher=hasher(), n_groups=3).kind == "grouped"


# --- hashers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_hashers_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Refined.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "n_steps", 5)  # instead of 3,000
    X = np.random.default_rng(0).standard_normal((400, 12)).astype(np.float32)
    index = Index.build(X, hasher=name.upper(), n_bits=8, random_state=3)
    again = Index.build(X, hasher=name, n_bits=8, random_state=3)
    assert index.hasher.n_bits_ == 8
    assert type(index.hasher).__name__ == re.split("[ (]", name)[0]
    for rerank in ("exact", "asymmetric", None):
        found = index.search(X[:9], 5, rerank=rerank)
        assert same(again.search(X[:9], 5, rerank=rerank), found)
        assert found.ids[:, 0].tolist() == list(range(9)) or rerank != "exact"
    with no_fsync():
        index.save(tmp_path / "a")
        opened = Index.open(tmp_path / "a")
        index.add(X[:20] + 1)
        opened.add(X[:20] + 1)
    for rerank in RERANKS:
        asked = X[:9] + 0.5
        assert same(opened.search(asked, 5, rerank=rerank), index.search(asked, 5, rerank=rerank))
    opened.verify()


@pytest.mark.parametrize(
    "made",
    [DSH(8, random_state=0), ITQ(8), Refined(LSH(8, random_state=0), n_steps=5)],
    ids=lambda made: type(made).__name__,
)
def test_a_hasher_is_not_changed(made: Hasher) -> None:
    X = np.random.default_rng(0).standard_normal((400, 12)).astype(np.float32)
    index = Index.build(X, hasher=made, n_bits=8)
    assert not hasattr(made, "n_bits_")
    assert index.hasher.n_bits_ == 8
    learnt = clone(made).fit(X)
    before = {name: np.asarray(value).copy() for name, value in vars(learnt).items()}
    other = Index.build(X[:50], hasher=learnt)
    assert list(vars(learnt)) == list(before)
    assert (other.hasher.transform(X[:50]) == learnt.transform(X[:50])).all()
    answers = other.search(X[:9], 5)
    learnt.fit(X + 100)  # another one, from now on
    assert same(other.search(X[:9], 5), answers)
    assert other.search(X[:3], 1, rerank=None).distances.tolist() == [[0]] * 3


def test_a_hasher_is_chosen() -> None:
    assert Index.build(rows(60), sketch="codes").hasher.n_bits_ >= 64
    assert Index.build(rows(60), sketch="codes", n_bits=24).hasher.n_bits_ == 24
    assert Index.build(rows(60), n_bits=20).hasher.n_bits_ == 20  # no multiple of 8
    assert Index.build(rows(60), hasher="lsh").hasher.n_bits_ >= 64
    assert Index.build(rows(60), kind="multi").sketch == "codes"
    assert Index.build(rows(60)).sketch == "signs"


# --- saved and opened ---------------------------------------------------------------------


@every_kind
@every_id_type
@pytest.mark.parametrize("keep", [True, "float16", "uint8", False])
def test_a_saved_index_is_the_same(kind: str, id_type: str, keep: Any, tmp_path: Path) -> None:
    index, model = pair(kind, id_type, keep_vectors=keep)
    index.add(
        rows(7, seed=2), ids=[f"new {i}" if id_type == "string" else i for i in range(700, 707)]
    )
    index.remove(model.ids[:4])
    with no_fsync():
        index.save(tmp_path / "a.dh")
        opened = Index.open(str(tmp_path / "a.dh"))
        assert asked_of(opened) == asked_of(index)
        assert repr(opened) == repr(index)
        assert opened.reason == index.reason
        opened.verify()
        opened.save(tmp_path / "b.dh")
        assert asked_of(Index.open(tmp_path / "b.dh")) == asked_of(index)
        with unchanged(opened):
            opened.save(tmp_path / "a.dh")  # its own folder
            (tmp_path / "link").symlink_to(tmp_path / "a.dh")
            opened.save(tmp_path / "link")
    assert index.path is None
    assert leftovers(tmp_path / "a.dh") == leftovers(tmp_path / "b.dh") == set()


def test_saving_over_an_index(tmp_path: Path) -> None:
    one, two = build("flat", rows(10)), build("multi", rows(20, seed=1), names(20, "string"))
    one.save(tmp_path / "a")
    reader = Index.open(tmp_path / "a")
    two.save(tmp_path / "a")
    assert asked_of(reader) == asked_of(one)  # what it has opened
    assert asked_of(Index.open(tmp_path / "a")) == asked_of(two)
    assert reader.refresh()
    assert asked_of(reader) == asked_of(two)
    assert not reader.refresh()
    assert leftovers(tmp_path / "a") == set()


def test_saving_where_something_else_is(tmp_path: Path) -> None:
    index = build("flat", rows(10))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("folder", "file", "file/x", "none/x"):
        with pytest.raises(FileError):
            index.save(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "letter.txt"]
    (tmp_path / "empty").mkdir()
    index.save(tmp_path / "empty")
    assert len(Index.open(tmp_path / "empty")) == 10


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file", "."):
        with pytest.raises(FileError, match=str(tmp_path / name)):
            Index.open(tmp_path / name)


def test_an_index_whose_folder_goes_away(tmp_path: Path) -> None:
    build("flat", rows(60)).save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    before = asked_of(index)
    shutil.rmtree(tmp_path / "a")
    for change in (lambda: index.add(rows(1)), index.refresh, index.verify):
        with pytest.raises(FileError):
            change()
        assert asked_of(index) == before
    assert not (tmp_path / "a").exists()


@every_kind
def test_another_index_takes_the_place_of_an_opened_one(kind: str, tmp_path: Path) -> None:
    """The folder was removed and made anew: a change is a change of what is there now."""
    build(kind, rows(60)).save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    shutil.rmtree(tmp_path / "a")
    other = Index.build(rows(30, seed=1), hasher=LSH(8, random_state=5), kind="flat")
    other.save(tmp_path / "a")
    assert Index.open(tmp_path / "a").info()["generation"] == index.info()["generation"]
    index.add(rows(2, seed=2), ids=[500, 501])
    other.add(rows(2, seed=2), ids=[500, 501])
    assert asked_of(index) == asked_of(other)
    assert asked_of(Index.open(tmp_path / "a")) == asked_of(other)


@every_kind
def test_changes_of_others_are_seen_by_changes(kind: str, tmp_path: Path) -> None:
    index, model = pair(kind)
    index.save(tmp_path / "a")
    one, two = Index.open(tmp_path / "a"), Index.open(tmp_path / "a")
    before = asked_of(two)
    one.add(rows(5, seed=1), ids=range(1000, 1005))
    model.put(range(1000, 1005), rows(5, seed=1))
    assert asked_of(two) == before
    assert two.remove([1000, model.ids[0]]) == 2
    model.remove([1000, model.ids[0]])
    compare(two, model, Q, 9)
    assert one.refresh()
    compare(one, model, Q, 9)
    with pytest.raises(InputError, match="1001 is in the index already"):
        two.add(rows(1), ids=[1001])
    one.compact()
    two.update([1002], rows(1, seed=7))
    model.put([1002], rows(1, seed=7))
    assert one.refresh()
    for opened in (one, two, Index.open(tmp_path / "a")):
        compare(opened, model, Q, 70)


def test_verify_is_for_files(tmp_path: Path) -> None:
    index = build("flat", rows(10))
    with pytest.raises(InputError, match="in memory only"):
        index.verify()
    index.save(tmp_path / "a")
    opened = Index.open(tmp_path / "a")
    victims = [path for path in (tmp_path / "a").iterdir() if "segments" in path.name]
    for path in victims:
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
    with pytest.raises(FileError) as error:
        opened.verify()
    assert all(path.name in str(error.value) for path in victims)


# --- copied and sent ----------------------------------------------------------------------


@every_kind
@every_id_type
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_their_own_way(kind: str, id_type: str, how: Any) -> None:
    index, model = pair(kind, id_type)
    index.remove(model.ids[:1])
    other = how(index)
    assert asked_of(other) == asked_of(index)
    before = asked_of(index)
    other.remove(model.ids[:9])
    assert asked_of(index) == before
    assert len(other) == len(index) - 8
    other.add(rows(2), ids=model.ids[:2])
    assert asked_of(index) == before


@every_kind
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_an_opened_index_share_its_folder(kind: str, how: Any, tmp_path: Path) -> None:
    build(kind, rows(60)).save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    other = how(index)
    assert other.path == index.path
    assert asked_of(other) == asked_of(index)
    other.add(rows(3))
    assert len(index) == 60
    assert index.refresh()
    assert asked_of(other) == asked_of(index)
    assert len(pickle.dumps(index)) < 1000


def test_get(tmp_path: Path) -> None:
    for kind in KINDS:
        for dtype in (np.float32, np.float16, np.uint8, np.int8):
            X = rows(60, dtype=dtype)
            ids = names(60, "string")
            index = build(kind, X, ids)
            index.update(ids[:5], X[5:10])
            found = index.get([ids[0], ids[50], ids[0], ids[7]])
            assert found.dtype == dtype
            assert found.tolist() == X[[5, 50, 5, 7]].tolist()
            found[:] = 0
            assert index.get([ids[50]]).tolist() == X[50:51].tolist()
            assert index.get([]).shape == (0, D)
