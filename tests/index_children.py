"""What the tests of the index run in separate processes, which may be killed or crash.

A server that has imported everything forks a child for each task, so that a hundred children are
cheap.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import index_damage
import numpy as np
from index_cases import D, Disk, build, everywhere, payload_for, rows
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import DensehashError
from densehash.index import Index, placing
from densehash.store.manifest import MANIFEST

Say = Callable[[Any], None]

HANG = 600.0  # seconds; what takes longer hangs


class Told(NamedTuple):
    """The messages of a child, and its exit status."""

    said: list[Any]
    status: int


class Server:
    """The process that forks children, seen from outside."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, task: str, *arguments: object, kill_after: float | None = None) -> Told:
        """Run a task in a child, which may be killed after some seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        told = [task, *(str(one) if isinstance(one, Path) else one for one in arguments)]
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            word, value = json.loads(line)
            if word == "born" and kill_after is not None:
                time.sleep(kill_after)
                os.kill(value, signal.SIGKILL)
            elif word == "said":
                said.append(value)
            elif word == "failed":
                raise AssertionError(f"in a child, at {said[-1:]}:\n{value}")
            elif word == "ended":
                return Told(said, value)
        raise AssertionError("the server has ended")

    def close(self) -> None:
        """End the server."""
        self.process.communicate(timeout=HANG)
        assert self.process.returncode == 0


def serve() -> None:
    """Fork a child for each line of input, and report how it ended."""
    for line in sys.stdin:
        task, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(TASKS[task], arguments)
        _write(1, "born", child)
        _, status = os.waitpid(child, 0)
        _write(1, "ended", os.waitstatus_to_exitcode(status))


def _live(task: Callable[..., None], arguments: list[Any], out: int = 1) -> None:
    """Run a task and end the process: a child must not continue the work of its parent."""
    try:
        task(*arguments, say=lambda value: _write(out, "said", value))
        os._exit(0)
    except BaseException:  # noqa: BLE001
        _write(out, "failed", traceback.format_exc())
        os._exit(1)


def _write(out: int, word: str, value: Any) -> None:
    os.write(out, (json.dumps([word, value]) + "\n").encode())


def together(task: Callable[..., None], *arguments: Any, n: int) -> Iterator[list[Any]]:
    """Run a task in n children at the same time, each with its number; yields their messages."""
    children = []
    for number in range(n):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _live(task, [number, *arguments], write)
        os.close(write)
        children.append((child, read))
    try:
        yield []  # the children are running
    finally:
        answers = []
        for child, read in children:
            with os.fdopen(read) as lines:
                answers.append([json.loads(line) for line in lines])
            os.waitpid(child, 0)
    for answer in answers:
        for word, value in answer:
            assert word == "said", value
        yield [value for _, value in answer]


# --- a plan: what an index holds at each generation ---------------------------------------------

Rows = dict[int, Any]  # vectors by id


@cache
def planned(generation: int) -> Rows:
    """The rows at a generation; do not change them."""
    if generation == 1:
        return dict(enumerate(rows(40)))
    ids, X, _ = _step(generation - 1)
    now = dict(planned(generation - 1))
    if X is None:
        for name in ids:
            now.pop(name, None)
    else:
        now |= dict(zip(ids, X, strict=True))
    return now


def _step(generation: int) -> tuple[list[int], Any, str]:
    """The change from a generation to the next: ids, their new vectors, and its name."""
    there = sorted(planned(generation))
    kind = ("add", "remove", "update", "add", "compact")[generation % 5]
    if kind == "compact":
        return [], rows(0), kind
    if kind == "remove":
        return there[:: 2 if len(there) > 90 else 7], None, kind
    if kind == "update":
        return there[::4], rows(len(there[::4]), seed=generation), kind
    n = 8 + generation % 3 * 11
    return list(range(1000 * generation, 1000 * generation + n)), rows(n, seed=generation), kind


def step(index: Index) -> int:
    """Bring an open index to its next generation, and return its number."""
    generation = index.info()["generation"]
    ids, X, kind = _step(generation)
    if kind == "add":
        index.add(X, ids=ids, payload=payload_for(index.kind, X))
    elif kind == "remove":
        index.remove(ids)
    elif kind == "update":
        index.update(ids, X, payload=payload_for(index.kind, X))
    else:
        index.compact()
        if index.info()["generation"] == generation:  # there was nothing to compact
            first = index.ids[:1]
            index.update(first, index.get(first))
    return int(index.info()["generation"])


def save_next(kind: str, path: Path, *, in_pieces: bool = False) -> int:
    """Replace the index in a folder by one of the next generation."""
    generation = Index.open(path).info()["generation"] if (path / MANIFEST).exists() else 0
    now = planned(generation + 1)
    X, ids = np.array([*now.values()]), [*now]
    if in_pieces:
        with mock.patch.object(placing, "PIECE_BYTES", 500):
            build(kind, X, ids, payload=payload_for(kind, X), path=path)
    else:
        build(kind, X, ids, payload=payload_for(kind, X)).save(path)
    return int(generation) + 1


# --- killed -------------------------------------------------------------------------------------


class Deadly(Disk):
    """A disk that kills the process at one of its calls."""

    def __init__(self, at: int) -> None:
        super().__init__(at, instead=lambda: os.kill(os.getpid(), signal.SIGKILL))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Disk]:
        """As in Disk; removals count as calls, too."""
        remove = disk.remove

        def counted(path: Path) -> None:
            self.fails("remove")
            remove(path)

        disk.remove = counted
        with super().at_work():
            yield self


def change(kind: str, path: str, at: int, count: int, *, say: Say) -> None:
    """Change an index, and report its generation each time; call ``at`` of the disk kills."""
    index = Index.open(path)
    with Deadly(at).at_work():
        for _ in range(count):
            say(step(index))


def save(kind: str, path: str, at: int, count: int, *, say: Say) -> None:
    """Replace an index, and report its generation each time; call ``at`` of the disk kills."""
    with Deadly(at).at_work():
        for _ in range(count):
            say(save_next(kind, Path(path)))


def build_there(kind: str, path: str, at: int, count: int, *, say: Say) -> None:
    """The same with an index that is built in the folder, piece by piece."""
    with Deadly(at).at_work():
        for _ in range(count):
            say(save_next(kind, Path(path), in_pieces=True))


def learn(path: str, at: int, *, say: Say) -> None:
    """Add enough rows to an empty index that it learns; call ``at`` of the disk kills."""
    index = Index.open(path)
    X = rows(30, seed=1)
    beside = payload_for("grouped", X)
    with Deadly(at).at_work():
        index.upsert([*range(5), *range(100, 125)], X, payload=beside)
    say(index.sketch)


# --- together -----------------------------------------------------------------------------------

MOVED, STILL = 20, 60  # rows that the writer changes all at once, and others far away
ORIGIN = np.zeros((2, D), np.float32)


def moved(value: int) -> NDArray[np.float32]:
    """The changing rows, all with the same number."""
    X = np.zeros((MOVED, D), np.float32)
    X[:, 0], X[:, 1] = value, np.arange(MOVED)
    return X


def published(generation: int) -> list[float]:
    """Distances from the origin at a generation; every tenth change moves nothing."""
    value = generation - (generation % 10 == 0)
    squares = value**2 + np.arange(MOVED) ** 2
    found: list[float] = np.sqrt(squares).astype(np.float32).tolist()
    return found


def start_moving(kind: str, path: Path) -> Index:
    """The first generation."""
    X = np.concatenate([moved(1), rows(STILL) + 100_000])
    build(kind, X).save(path)
    return Index.open(path)


def move(index: Index) -> None:
    """The next generation."""
    generation = index.info()["generation"] + 1
    if generation % 10 == 0:
        index.compact()
    else:
        index.update(np.arange(MOVED), moved(generation))
    assert index.info()["generation"] == generation


def look(index: Index, **asked: Any) -> int:
    """Search, compare with what was published, and return the generation that was seen."""
    generation = int(index.info()["generation"])
    asked |= everywhere(index.kind)
    found = index.search(ORIGIN, MOVED, candidates=MOVED + STILL, **asked)
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        assert ids == list(range(MOVED)), (generation, ids)
        assert distances == published(generation), (generation, distances)
    return generation


def readers(kind: str, path: str, n: int, seconds: float, *, say: Say) -> None:
    """Run readers for some seconds beside a writer; reports what each reader has seen."""
    writer = start_moving(kind, Path(path))
    children = together(_read_until, path, time.monotonic() + seconds, n=n)
    next(children)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            move(writer)

    with ThreadPoolExecutor(1) as pool:  # after the children were forked, so that no thread is
        writing = pool.submit(write)
        try:
            for answer in children:
                say(answer)
        finally:
            done.set()
        writing.result()
    say(writer.info()["generation"])


def _read_until(number: int, path: str, end: float, *, say: Say) -> None:
    seen: list[int] = []
    index = Index.open(path)
    # On a busy machine there may be no time before the end: wait until two states were seen.
    while (now := time.monotonic()) < end or (len(set(seen)) < 2 and now < end + HANG):
        if number % 2:
            index.refresh()
        else:
            index = Index.open(path)
        seen.append(look(index))
        assert look(index) == seen[-1]  # a reader keeps its state
    assert seen == sorted(seen)
    for value in (len(seen), len(set(seen)), seen[-1]):
        say(value)


def writers(path: str, n: int, count: int, *, say: Say) -> None:
    """Run writers that add and remove at the same time; reports the ids that each got."""
    children = together(_write_some, path, count, n=n)
    next(children)
    for answer in children:
        say(answer)


def _write_some(number: int, path: str, count: int, *, say: Say) -> None:
    index = Index.open(path)
    given, won = [], []
    for at in range(count):
        given += index.add(rows(2, seed=number)).tolist()
        assert index.remove([number * count + at]) == 1  # one of the first rows
        with contextlib.suppress(DensehashError):  # an id that all of them add
            index.add(rows(1), ids=[10**6 - at])
            won.append(at)
    say(given)
    say(won)


def answers(index: Index, asked: NDArray[Any], report: Any) -> None:
    """For a child that got an index: report what it finds."""
    found = index.search(asked, 5, n_threads=2)
    index.search(asked, radius=3, rerank=None)
    report.put([part.tolist() for part in found])


TASKS: dict[str, Callable[..., None]] = {
    task.__name__: task
    for task in (
        *(change, save, build_there, learn, readers, writers),
        *(index_damage.mutate, index_damage.lie),
    )
}

if __name__ == "__main__":
    serve()
