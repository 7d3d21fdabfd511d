"""Processes that are killed, disks that fail, files that are damaged: the old index, or the new."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from index_cases import (
    KINDS,
    D,
    Disk,
    asked_of,
    build,
    compare,
    every_kind,
    everywhere,
    fast_folder,
    leftovers,
    model_of,
    names,
    no_fsync,
    payload_for,
    rows,
    same,
)
from index_children import Server, planned, save_next, step
from soak import SOAK

from densehash.errors import FileError
from densehash.index import Index
from densehash.store import verify

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


# --- kill -9 ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder that costs little."""
    with TemporaryDirectory(prefix="densehash-", dir=fast_folder()) as folder:
        yield Path(folder)


def whole(path: Path, generations: tuple[int, ...]) -> int:
    """The generation in a folder, one of some, after looking at every byte and row of it."""
    verify(path)
    index = Index.open(path)
    generation = int(index.info()["generation"])
    assert generation in generations
    now = planned(generation)
    model = model_of(index)
    model.put([*now], np.array([*now.values()]))
    assert index.ids.tolist() == model.ids
    assert index.get(index.ids).tolist() == [now[name].tolist() for name in model.ids]
    compare(index, model, rows(3, seed=5), 9, **everywhere(index.kind))
    beside = payload_for(index.kind, index.get(index.ids))
    if beside is not None:
        assert index.payload(index.ids).to_pylist() == beside
        assert any("payload" in file.name for file in path.iterdir())
    return generation


def every_call(kind: str) -> int:
    """Of how many calls of the disk one is tried: kinds differ in what they write, not how."""
    return 1 if kind == "flat" or SOAK > 1 else 5


@posix
@every_kind
def test_killed_at_a_random_moment(kind: str, server: Server, in_memory: Path) -> None:
    path, chance = in_memory / "a.dh", random.Random(kind)
    save_next(kind, path)
    generation, dirty = 1, 0
    for number in range(-(-36 * SOAK // len(KINDS))):
        what = "save" if number % 3 == 0 else "change"
        if number % 6 == 3:  # a folder that is made from nothing
            shutil.rmtree(path)
            generation = 0
        said, status = server.run(what, kind, path, 0, 10**6, kill_after=chance.uniform(0.0, 0.06))
        assert status == -signal.SIGKILL
        done = max([generation, *said])
        if done == 0 and not (path / "manifest.json").exists():
            with pytest.raises(FileError):
                Index.open(path)
            generation = save_next(kind, path)
            assert whole(path, (1,)) == 1
        else:
            dirty += bool(leftovers(path))
            generation = whole(path, (done, done + 1))
        if number % 4 == 1:  # else the next child finds what this one has left
            generation = step(Index.open(path))
            whole(path, (generation,))
            assert leftovers(path) == set()
    step(Index.open(path))
    assert leftovers(path) == set()


@pytest.mark.slow
@posix
@every_kind
def test_killed_at_every_call_of_the_disk(kind: str, server: Server, in_memory: Path) -> None:
    path = in_memory / "a.dh"
    save_next(kind, path)
    before, tried = {}, 0
    every = every_call(kind)
    for generation in range(1, 6):  # each kind of change
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        for what in ("change", "save")[: 2 if generation == 1 else 1]:
            outcomes = []
            for at in range(1, 200, every):
                shutil.rmtree(path)
                path.mkdir()
                for name, raw in before.items():
                    (path / name).write_bytes(raw)
                said, status = server.run(what, kind, path, at, 1)
                if status == 0:
                    assert said == [generation + 1]
                    assert leftovers(path) == set()
                    break
                assert status == -signal.SIGKILL
                outcomes.append(whole(path, (generation, generation + 1)))
            assert outcomes == sorted(outcomes)
            assert {*outcomes} == {generation, generation + 1} or every > 1
            tried += every * len(outcomes)
            if what == "change":
                after = path.rename(in_memory / "after")
                path.mkdir()
        shutil.rmtree(path)
        after.rename(path)
    assert tried > 100


@posix
@every_kind
def test_killed_while_the_first_files_are_written(
    kind: str, server: Server, in_memory: Path
) -> None:
    path, there, every = in_memory / "a.dh", [], every_call(kind)
    for at in range(1, 200, every):
        shutil.rmtree(path, ignore_errors=True)
        _, status = server.run("save", kind, path, at, 1)
        if status == 0:
            break
        there.append((path / "manifest.json").exists())
        if there[-1]:
            whole(path, (1,))
        else:
            with pytest.raises(FileError):
                Index.open(path)
        if at % 4 == 0:
            save_next(kind, path)
            whole(path, (1, 2))
            assert leftovers(path) == set()
    assert there == sorted(there)
    assert {*there} == {False, True} or every > 1


@posix
@pytest.mark.parametrize("told", [{}, {"hasher": "lsh", "n_bits": 16}], ids=["signs", "codes"])
def test_killed_while_it_learns(told: dict[str, Any], server: Server, in_memory: Path) -> None:
    """The change that brings enough rows: the index as it was, or one that has learnt from all."""
    path, X = in_memory / "a.dh", rows(40)
    index = Index.create(D, learn_at=60, random_state=0, path=path, **told)
    with no_fsync():
        index.add(X, payload=payload_for("grouped", X))
        index.remove([7])
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    outcomes = []
    for at in range(1, 200, (4 if told else 2) if SOAK == 1 else 1):
        said, status = server.run("learn", path, at)
        if status == 0:
            assert leftovers(path) == set()
            break
        assert status == -signal.SIGKILL
        verify(path)
        found = Index.open(path)
        now = np.concatenate([rows(30, seed=1)[:5], X[5:7], X[8:], rows(30, seed=1)[5:]])
        has_learnt = found.sketch != "vectors"
        assert len(found) == (64 if has_learnt else 39)
        expected = now if has_learnt else np.delete(X, 7, axis=0)
        assert found.get(found.ids).tolist() == expected.tolist()
        if found.info()["payload"]:
            beside = found.payload(found.ids).to_pylist()
            assert [row["sum"] for row in beside] == expected.sum(axis=1).tolist()
        outcomes.append(has_learnt)
        shutil.rmtree(path)
        path.mkdir()
        for name, raw in before.items():
            (path / name).write_bytes(raw)
    assert said == ["codes" if told else "signs"]
    assert outcomes == sorted(outcomes)
    assert {*outcomes} == {False, True}
    assert len(outcomes) > (5 if told else 15)


# --- a disk that fails --------------------------------------------------------------------

# A short run tries each kind, error and length with some of the others; a soak all with all.
FAILING = [
    (kind, error, for_good)
    for at, kind in enumerate(KINDS)
    for error in (errno.ENOSPC, errno.EIO)
    for for_good in (False, True)
    if SOAK > 1 or (error == errno.ENOSPC) == (for_good ^ (at == 1))
]


@pytest.mark.parametrize(("kind", "error", "for_good"), FAILING)
def test_a_disk_that_fails(kind: str, error: int, for_good: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.dh"
    made = build(kind, rows(60))
    made.save(path)
    changes: dict[str, Callable[[Index], object]] = {
        "add": lambda index: index.add(rows(7, seed=1)),
        "remove": lambda index: index.remove([3, 4]),
        "update": lambda index: index.update([8, 9], rows(2, seed=2)),
        "upsert": lambda index: index.upsert([9, 999], rows(2, seed=2)),
        "compact": lambda index: index.compact(),
        "tune": lambda index: index.tune(rows(9, seed=3) + 0.5, recall=0.5, k=2),
        "save": lambda index: build(kind, rows(30, seed=4)).save(path),
    }
    for name, change in changes.items():
        index = Index.open(path)
        before, found = asked_of(index), index.search(rows(2), 5)
        files = _files(path)
        for at in range(1, 51):
            disk = Disk(at, error, for_good=for_good)
            try:
                with no_fsync(), disk.at_work():
                    change(index)
            except FileError:
                assert disk.failed
            else:
                assert not disk.failed, name
                break
            assert same(index.search(rows(2), 5), found)
            if not for_good:
                assert _files(path) == files, f"{name}: something is left of call {at}"
            elif _files(path) != files:
                # Nothing could be put back; what is there is whole all the same.
                verify(path)
                assert asked_of(Index.open(path)) == before or disk.calls[at - 2] == "rename"
                shutil.rmtree(path)
                path.mkdir()
                for file, raw in files.items():
                    (path / file).write_bytes(raw)
                index = Index.open(path)
        assert at > 4
        assert (asked_of(index) == before) == (name in ("compact", "save"))
        verify(path)
        assert leftovers(path) == set()


@every_kind
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_disk_that_fails_where_nothing_was(kind: str, error: int, tmp_path: Path) -> None:
    path, index = tmp_path / "a.dh", build(kind, rows(60))
    for at in range(1, 51):
        disk = Disk(at, error)
        try:
            with disk.at_work():
                index.save(path)
        except FileError:
            assert list(tmp_path.iterdir()) == []
        else:
            break
    assert at > 10
    assert asked_of(Index.open(path)) == asked_of(index)


def test_a_change_that_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C at any call: the old index, or, after the last one, the new."""
    path = tmp_path / "a.dh"
    build("flat", rows(60)).save(path)
    index = Index.open(path)
    before = asked_of(index)

    def interrupt() -> None:
        raise KeyboardInterrupt

    for at in range(1, 51):
        disk = Disk(at, instead=interrupt)
        try:
            with disk.at_work():
                index.add(rows(3, seed=1))
        except KeyboardInterrupt:
            assert asked_of(Index.open(path)) == before
            assert leftovers(path) == set()
        else:
            break
    assert at > 4


# --- damage -------------------------------------------------------------------------------


def saved(
    kind: str, path: Path, id_type: str, monkeypatch: pytest.MonkeyPatch, *, mapped: bool
) -> None:
    """A small index with all that there can be; mapped arrays are not checked when it is opened."""
    ids = names(70, id_type)
    X, more = rows(50), rows(20, seed=1)
    index = build(kind, X, ids[:50], metric="l2", payload=payload_for(kind, X))
    index.add(more, ids=ids[50:], payload=payload_for(kind, more))
    index.remove(ids[5:9])
    with monkeypatch.context() as patch:
        if mapped:
            patch.setattr("densehash.store.changing._SMALL", 0)
        index.save(path)
    verify(path)


@pytest.mark.slow
@posix
@every_kind
def test_files_damaged_at_random(
    kind: str, server: Server, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = (600 if SOAK == 1 else 10_000 * SOAK) // len(KINDS)
    for number, (id_type, mapped, share) in enumerate(
        (("int64", True, 0.6), ("string", True, 0.35), ("string", False, 0.06))
    ):
        path, n = in_memory / str(number), int(count * share)
        saved(kind, path, id_type, monkeypatch, mapped=mapped)
        said, status = server.run("mutate", path, number, n)
        assert status == 0, f"died at {said[-1]}"
        found = said[-1]
        assert found["opened"] + found["refused"] == n
        assert found["refused"] > n / 10
        # Of what is not mapped, every bit is looked at when it is opened.
        assert (found["opened"] > n / 4) == mapped


@pytest.mark.slow
@posix
@every_kind
def test_manifests_that_lie(
    kind: str, server: Server, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = in_memory / "a"
    saved(kind, path, "string" if kind == "flat" else "int64", monkeypatch, mapped=True)
    every = 9 if SOAK == 1 else 1  # each question is asked of some: they are eight
    said, status = server.run("lie", path, every)
    assert status == 0, f"died at {said[-1]}"
    assert said[-1]["refused"] > 1000 / every
    verify(path)


@every_kind
def test_a_manifest_cut_anywhere(kind: str, in_memory: Path) -> None:
    build(kind, rows(9)).save(in_memory / "a")
    path = in_memory / "a" / "manifest.json"
    raw = path.read_bytes()
    for length in range(len(raw) - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(FileError, match=str(path)):
            Index.open(in_memory / "a")
    path.write_bytes(raw + b"\n")
    with pytest.raises(FileError, match=str(path)):
        Index.open(in_memory / "a")


@posix
@every_kind
def test_a_manifest_with_any_bit_flipped(kind: str, in_memory: Path) -> None:
    build(kind, rows(9)).save(in_memory / "a")
    path = in_memory / "a" / "manifest.json"
    raw = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(raw):
            for bit in range(8) if SOAK > 1 else (at % 8,):
                os.pwrite(file.fileno(), bytes([byte ^ (1 << bit)]), at)
                with pytest.raises(FileError):
                    Index.open(in_memory / "a")
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert len(Index.open(in_memory / "a")) == 9


@every_kind
def test_every_flipped_bit_of_the_rows_is_found(
    kind: str, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(kind, in_memory / "a", "int64", monkeypatch, mapped=True)
    chance = random.Random(0)
    for path in (in_memory / "a").glob("*.npy"):
        raw = path.read_bytes()
        for at in {*range(0, len(raw), 97), len(raw) - 1, 127, 128}:
            damaged = bytearray(raw)
            damaged[at] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(FileError, match=path.name):
                verify(in_memory / "a")
        path.write_bytes(raw)
    verify(in_memory / "a")


def _files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".lock"}
