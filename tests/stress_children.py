"""Writers that are killed while readers search: the processes of ``test_index_stress.py``."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import index_children
import numpy as np
from index_cases import D, build, everywhere, leftovers, rows
from index_children import Say, Server, together
from numpy.typing import NDArray

from densehash.index import Index
from densehash.store import verify

STILL = 40  # rows that never change
WRITERS = (1, 2)
HANG = 60.0  # seconds
SPAN = 10**6  # ids of a writer begin at its number times this

Owned = dict[int, int]  # for each row of a writer, the number of the change that wrote it


class StressServer(Server):
    """Forks the process that forks writers and readers."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


@cache
def owned(writer: int, number: int) -> Owned:
    """The rows of a writer after ``number`` changes; different for every number."""
    if number == 0:
        return {}
    now, (what, ids) = dict(owned(writer, number - 1)), _change(writer, number)
    for name in ids:
        if what == "remove":
            del now[name]
        else:
            now[name] = number
    return now


def _change(writer: int, number: int) -> tuple[str, list[int]]:
    there = [*owned(writer, number - 1)]
    first = writer * SPAN + number * 10
    return {
        0: ("remove", there[:-4]),
        1: ("add", [*range(first, first + 9)]),
        2: ("update", there[::2]),
        3: ("add", [*range(first, first + 3)]),
    }[number % 4]


def vectors(names: Owned) -> NDArray[np.float32]:
    """Vectors of some rows: each contains its id and the number of the change that wrote it."""
    X = np.zeros((len(names), D), np.float32)
    for at, (name, number) in enumerate(names.items()):
        X[at, :3] = name // SPAN * 50, name % SPAN, number
    return X


def change(index: Index, writer: int, number: int) -> None:
    """One change of a writer."""
    what, ids = _change(writer, number)
    new = vectors(dict.fromkeys(ids, number))
    if what == "remove":
        index.remove(ids)
    elif what == "add":
        index.add(new, ids=ids)
    else:
        index.update(ids, new)
    if number % 9 == 0:
        index.compact()


def seen(index: Index, since: list[int]) -> list[int]:
    """For each writer, how many of its changes are there, at least ``since``, and nothing else."""
    ids = index.ids
    found = dict(zip(ids.tolist(), index.get(ids), strict=True))
    assert [*found][:STILL] == [*range(STILL)]
    assert np.array_equal(ids[:STILL], np.arange(STILL))
    assert np.array_equal(np.array([found[at] for at in range(STILL)]), rows(STILL))
    numbers = []
    for writer, first in zip(WRITERS, since, strict=True):
        mine = {name: int(row[2]) for name, row in found.items() if name // SPAN == writer}
        assert np.array_equal(
            vectors(mine), np.array([found[name] for name in mine]).reshape(-1, D)
        )
        for number in range(first, int(index.info()["generation"]) + 1):
            if owned(writer, number) == mine:
                numbers.append(number)
                break
        else:
            raise AssertionError(f"writer {writer} never wrote this after change {first}: {mine}")
    assert len(found) == STILL + sum(name >= SPAN for name in found)
    return numbers


def stress(kind: str, folder: str, kills: int, *, say: Say) -> None:
    """Run two writers, which are killed ``kills`` times, and two readers."""
    path, chance = Path(folder, "a.dh"), random.Random(kind)
    build(kind, rows(STILL), [*range(STILL)]).save(path)
    readers = together(_read_on, str(path), n=2)
    next(readers)
    done, pids = [0, 0], {}
    try:
        for number in range(kills):
            for writer in WRITERS:
                if writer not in pids:
                    pids[writer] = _start(writer, path, done[writer - 1] + 1)
            writer = chance.choice(WRITERS)
            if number % 4:
                _wait_for_a_change(path)
            elif number % 8:  # hangs for a while, perhaps with the lock
                os.kill(pids[writer], signal.SIGSTOP)
                time.sleep(0.05)
                os.kill(pids[writer], signal.SIGCONT)
            time.sleep(chance.uniform(0.0, 0.05))
            _stop(pids.pop(writer))
            _check_acknowledged(path, writer, done)
    finally:
        for pid in pids.values():
            _stop(pid)
        _over(path).touch()
    for writer in pids:
        _check_acknowledged(path, writer, done)
    looks = [answer[0] for answer in readers]
    verify(path)
    index = Index.open(path)
    assert seen(index, done) == done
    index.remove(index.add(rows(1)))
    assert leftovers(path) == set()
    say({"kills": kills + len(pids), "changes": sum(done), "looks": looks})


def _over(path: Path) -> Path:
    """The file that tells readers to end."""
    return path.with_name("over")


def _wait_for_a_change(path: Path) -> None:
    """Wait until one of the writers has reported another change."""
    before, end = _told_bytes(path), time.monotonic() + HANG
    while _told_bytes(path) == before:
        assert time.monotonic() < end, "the writers hang"
        time.sleep(0.001)


def _told_bytes(path: Path) -> int:
    return sum(_told_by(path, writer).stat().st_size for writer in WRITERS)


def _start(writer: int, path: Path, first: int) -> int:
    told = os.open(_told_by(path, writer), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    child = os.fork()
    if child == 0:
        index_children._live(_write_on, [writer, str(path), first], told)
    os.close(told)
    return child


def _told_by(path: Path, writer: int) -> Path:
    return path.with_name(f"writer {writer}")


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _check_acknowledged(path: Path, writer: int, done: list[int]) -> None:
    """After a writer died: its last acknowledged change is there, and perhaps one more."""
    for line in _told_by(path, writer).read_text().splitlines():
        word, value = json.loads(line)
        assert word == "said", value
        done[writer - 1] = value
    now = seen(Index.open(path), done)[writer - 1]
    assert now <= done[writer - 1] + 1
    done[writer - 1] = now


def _write_on(writer: int, path: str, first: int, *, say: Say) -> None:
    index = Index.open(path)
    for number in itertools.count(first):
        change(index, writer, number)
        say(number)
        time.sleep(0.005)  # lets the other writer in: it tries the lock ten times a second


def _read_on(number: int, path: str, *, say: Say) -> None:
    since, looks, chance = [0, 0], 0, random.Random(number)
    index = Index.open(path)
    while not looks or not _over(Path(path)).exists():
        if chance.random() < 0.5:
            index.refresh()
        else:
            index = Index.open(path)
        since = seen(index, since)
        names = chance.sample(index.ids.tolist(), 5)
        asked = index.get(names)
        found = index.search(asked, 1, candidates=10**6, n_threads=1, **everywhere(index.kind))
        assert not found.distances.any()
        assert np.array_equal(index.get(found.ids[:, 0]), asked)
        if looks % 10 == 0:
            verify(path)
        looks += 1
        time.sleep(0.01)  # gives the writers time
    say(looks)


index_children.TASKS["stress"] = stress

if __name__ == "__main__":
    index_children.serve()
