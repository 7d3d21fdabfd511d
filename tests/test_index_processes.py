"""An index among threads and processes: every answer is that of one published state."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import index_children
import numpy as np
import pytest
from index_cases import KINDS, build, every_kind, everywhere, no_fsync, rows, same
from index_children import MOVED, Server, look, move, moved, start_moving
from soak import SOAK

from densehash.index import Index

HANG = 120.0

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


# --- readers and writers ------------------------------------------------------------------


@pytest.mark.slow
@posix
@every_kind
def test_readers_see_what_was_published(kind: str, server: Server, tmp_path: Path) -> None:
    seconds = SOAK
    (*seen, published), status = server.run("readers", kind, tmp_path / "a", 8, seconds)
    assert status == 0
    assert len(seen) == 8
    assert sum(answers for answers, _, _ in seen) > 8
    assert min(generations for _, generations, _ in seen) > 1
    assert max(last for _, _, last in seen) <= published
    Index.open(tmp_path / "a").verify()


@posix
def test_writers_take_turns(server: Server, tmp_path: Path) -> None:
    build("flat", rows(100)).save(tmp_path / "a")
    told, status = server.run("writers", tmp_path / "a", 4, 10)
    assert status == 0
    given = [name for names, _ in told for name in names]
    assert len(given) == len(set(given)) == 4 * 10 * 2
    won = sorted(at for _, some in told for at in some)
    assert won == list(range(10))  # each was added by one of them
    index = Index.open(tmp_path / "a")
    index.verify()
    there = {*range(40, 100), *given, *range(10**6 - 9, 10**6 + 1)}
    assert set(index.ids.tolist()) == there
    assert index.info()["generation"] == 1 + 4 * 10 * 2 + 10


@every_kind
@pytest.mark.parametrize("opened", [False, True], ids=["in memory", "opened"])
def test_threads_search_while_one_changes(kind: str, opened: bool, tmp_path: Path) -> None:
    X = np.concatenate([moved(1), rows(60) + 100_000])
    index = build(kind, X)
    if opened:
        index.save(tmp_path / "a")
        index = Index.open(tmp_path / "a")
    done = threading.Event()
    asked: dict[str, Any] = {"candidates": 200, "n_threads": 1, **everywhere(kind)}

    seen: set[int] = set()

    def search() -> None:
        while not done.is_set():
            found = index.search(np.zeros((2, 6)), MOVED, **asked)
            # Rows of one state all say the same number.
            value = round(float(found.distances[0, 0]))
            expected = np.sqrt(value**2 + np.arange(MOVED) ** 2).astype(np.float32)
            assert found.ids.tolist() == [list(range(MOVED))] * 2
            assert found.distances.tolist() == [expected.tolist()] * 2
            seen.add(value)

    with no_fsync(), ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(search) for _ in range(4)]
        try:
            for value in range(2, 1000):
                if value > 8 * SOAK and len(seen) > 2:
                    break
                index.update(np.arange(MOVED), moved(value))
                if value % 7 == 0:
                    index.compact()
                if value % 5 == 0:
                    index.remove(index.add(rows(3) + 90_000))
        finally:
            done.set()
        for task in tasks:
            task.result(HANG)
    assert len(seen) > 2


def test_threads_that_change_one_index(tmp_path: Path) -> None:
    for path in (None, tmp_path / "a"):
        index = build("flat", rows(10))
        if path is not None:
            index.save(path)
            index = Index.open(path)
        with no_fsync(), ThreadPoolExecutor(4) as pool:
            tasks = [pool.submit(index.add, rows(1, seed=at)) for at in range(40)]
            given = [task.result(HANG).tolist() for task in tasks]
        assert sorted(name for some in given for name in some) == list(range(10, 50))
        assert index.ids.tolist() == list(range(50))
        for at, (name,) in enumerate(given):
            assert index.get([name]).tolist() == rows(1, seed=at).tolist()


# --- children -----------------------------------------------------------------------------


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@every_kind
def test_forked_children_search(kind: str, tmp_path: Path) -> None:
    index = build(kind, rows(300))
    index.save(tmp_path / "a")
    context = multiprocessing.get_context("fork")
    for one in (index, Index.open(tmp_path / "a")):
        expected = [part.tolist() for part in one.search(rows(9, seed=5), 5, n_threads=2)]
        report = context.SimpleQueue()
        process = context.Process(
            target=index_children.answers, args=(one, rows(9, seed=5), report)
        )
        process.start()
        process.join(HANG)
        assert process.exitcode == 0
        assert report.get() == expected


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_changes_an_opened_index(tmp_path: Path) -> None:
    build("grouped", rows(60)).save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    process = multiprocessing.get_context("fork").Process(target=index.add, args=(rows(3),))
    process.start()
    process.join(HANG)
    assert process.exitcode == 0
    assert len(index) == 60
    assert index.add(rows(1)).tolist() == [63]


@pytest.mark.slow
def test_spawned_children_search(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    indexes = []
    for kind in KINDS:
        index = build(kind, rows(300))
        index.save(tmp_path / kind)
        indexes += [index, Index.open(tmp_path / kind)]
    with context.Pool(1) as pool:
        found = pool.map(search, indexes)
    for index, answer in zip(indexes, found, strict=True):
        assert same(index.search(rows(9, seed=5), 5), answer)


def search(index: Index) -> Any:
    return index.search(rows(9, seed=5), 5)


def test_a_snapshot_is_kept(tmp_path: Path) -> None:
    for kind in KINDS:
        with no_fsync():
            writer = start_moving(kind, tmp_path / kind)
            reader = Index.open(tmp_path / kind)
            for _ in range(25):
                move(writer)
                assert look(reader) == 1
            assert look(Index.open(tmp_path / kind)) == 26
            assert reader.refresh()
            assert look(reader) == 26
