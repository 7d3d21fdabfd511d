"""What the tests of the index run in processes of their own, which may be killed, or crash.

``python tests/index_children.py NAME ARGUMENTS`` runs one of the functions at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from index_cases import D, Disk, build, everywhere, rows
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import DensehashError, FileError
from densehash.index import Index
from densehash.index.store import verify
from densehash.index.store.manifest import MANIFEST

# --- a plan: what an index holds at each generation ---------------------------------------------

Rows = dict[int, Any]  # vectors by id


@cache
def planned(generation: int) -> Rows:
    """The rows at a generation; nobody changes them."""
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
    """From a generation to the next: ids, their new vectors, and by which change."""
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
    """Take an opened index to its next generation, and say which that is."""
    generation = index.info()["generation"]
    ids, X, kind = _step(generation)
    if kind == "add":
        index.add(X, ids=ids)
    elif kind == "remove":
        index.remove(ids)
    elif kind == "update":
        index.update(ids, X)
    else:
        index.compact()
        if index.info()["generation"] == generation:  # there was nothing to compact
            first = index.ids[:1]
            index.update(first, index.get(first))
    return int(index.info()["generation"])


def save_next(kind: str, path: Path) -> int:
    """Replace what is in a folder by an index of the next generation."""
    generation = Index.open(path).info()["generation"] if (path / MANIFEST).exists() else 0
    now = planned(generation + 1)
    build(kind, np.array([*now.values()]), [*now]).save(path)
    return int(generation) + 1


# --- killed -------------------------------------------------------------------------------------


class Deadly(Disk):
    """A disk at one of whose calls the process is killed."""

    def __init__(self, at: int) -> None:
        super().__init__(at, instead=lambda: os.kill(os.getpid(), signal.SIGKILL))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Disk]:
        """Removals are calls, too."""
        remove = disk.remove

        def counted(path: Path) -> None:
            self.fails("remove")
            remove(path)

        disk.remove = counted
        with super().at_work():
            yield self


def serve() -> None:
    """Fork a child for each line ``WHAT KIND PATH N`` that comes in, and say how it ended.

    ``changes`` and ``saves`` go on until the child is killed, or N calls of the disk later kill
    themselves; N = 0 is never. ``change`` and ``save`` end after one.
    """
    for line in sys.stdin:
        what, kind, path, at = line.split()
        child = os.fork()
        if child == 0:
            _live(what, kind, Path(path), int(at))
        os.write(1, f"pid {child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(1, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


def _live(what: str, kind: str, path: Path, at: int) -> None:
    try:
        index = None if what.startswith("save") else Index.open(path)
        with Deadly(at).at_work():
            while True:
                generation = save_next(kind, path) if index is None else step(index)
                os.write(1, f"done {generation}\n".encode())
                if not what.endswith("s"):
                    os._exit(0)
    except BaseException:  # noqa: BLE001  it must not go back to serve
        traceback.print_exc()
        os._exit(1)


# --- damaged ------------------------------------------------------------------------------------

QUERIES = rows(3, seed=5)


def ask_everything(index: Index) -> None:
    """Whatever an index can be asked; only a FileError may come of it."""
    names = index._state.id_type == "string"
    calls: list[Callable[[], object]] = [
        lambda: index.search(QUERIES, 5),
        lambda: index.search(QUERIES, 5, metric="cosine", candidates=3),
        lambda: index.search(QUERIES.astype(np.uint8), 5, metric="ip"),
        lambda: index.search(QUERIES, 5, rerank="asymmetric"),
        lambda: index.search(QUERIES, 5, rerank=None),
        lambda: index.search(QUERIES, 200, rerank=None, exclude_self=True),
        lambda: index.search(QUERIES, radius=8.0),
        lambda: index.search(QUERIES, radius=5, rerank=None, exclude_self=True),
        lambda: index.search(QUERIES, 5, filter=lambda ids: np.arange(len(ids)) % 2 == 0),
        lambda: index.search(QUERIES, 5, filter=["a", "row 3"] if names else [3, 4]),
        lambda: index.search(QUERIES, 5, filter=np.ones(len(index), np.bool_)),
        lambda: index.near_duplicates(3),
        lambda: index.near_duplicates(3.0, rerank="exact"),
        lambda: index.ids,
        lambda: ("row 3" if names else 3) in index,
        lambda: [repr(index), index.info()],
    ]
    if index.kind != "flat":
        calls.append(lambda: index.search(QUERIES, 5, probes=1))
    for call in calls:
        with contextlib.suppress(FileError):
            call()
    with contextlib.suppress(DensehashError):  # ids that nobody could have given
        index.get(index.ids[:4])
    if len(index) > 3:
        with contextlib.suppress(FileError):
            index.neighbors_graph(3)


def change_everything(index: Index) -> None:
    """Whatever can be changed; an error of ours may come of it."""
    names = index._state.id_type == "string"
    for call in (
        lambda: index.remove(["a", "row 3"] if names else [3, 4]),
        lambda: index.add(rows(2), ids=["new", "newer"] if names else [10**6, 10**6 + 1]),
        lambda: index.update(["newer"] if names else [10**6], rows(1)),
        index.compact,
        lambda: index.tune(QUERIES, recall=0.1, k=1),
    ):
        with contextlib.suppress(DensehashError):
            call()


class Damage:
    """A folder of which one file after the other is damaged, and made whole again."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.whole = {
            file: file.read_bytes() for file in sorted(path.iterdir()) if file.suffix != ".lock"
        }

    def mutated(self, raw: bytes) -> tuple[str, bytes]:
        """Bytes with something wrong, and what it is."""
        chance = self.random
        data, n = bytearray(raw), len(raw)
        at = chance.randrange(n)
        if chance.random() < 0.7 and n > 128:
            at = chance.randrange(128, n)  # behind the header
        what = chance.choice(["flip", "number", "truncate", "extend", "swap", "zero", "copy"])
        if what == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif what == "number":  # as large, or as small, as can be
            size = chance.choice([1, 4, 8])
            at -= at % size
            worst = [b"\0" * size, b"\xff" * size, b"\xff" * (size - 1) + b"\x7f"]
            data[at : at + size] = chance.choice([*worst, chance.randbytes(size)])[: n - at]
        elif what == "truncate":
            del data[at:]
        elif what == "extend":
            data += chance.randbytes(chance.choice([1, 8, 128, 4096]))
        elif what == "swap":
            other, size = chance.randrange(n), chance.choice([1, 8, 64])
            low, high = min(at, other), max(at, other)
            size = min(size, high - low, n - high)
            data[low : low + size], data[high : high + size] = (
                data[high : high + size],
                data[low : low + size],
            )
        elif what == "zero":
            size = min(chance.choice([1, 8, 64, 512]), n - at)
            data[at : at + size] = bytes(size)
        else:  # the content of another file
            data = bytearray(chance.choice([*self.whole.values()]))
        return f"{what} at {at}", bytes(data)

    def rounds(self, count: int) -> Iterator[tuple[str, bool]]:
        """Damage, ``count`` times: what was done, and whether anything differs at all."""
        files = [*self.whole]
        for _ in range(count):
            file = self.random.choice(files)
            what, data = self.mutated(self.whole[file])
            file.write_bytes(data)
            yield f"{file.name}: {what}", data != self.whole[file]
            file.write_bytes(self.whole[file])


def mutate(path: str, seed: str, count: str, diary: str) -> None:
    """Damage the files of an index in many ways; nothing but a FileError may come of it."""
    folder, scratch = Path(path), Path(path + "-scratch")
    _bound_memory()
    damage = Damage(folder, int(seed))
    found = {"opened": 0, "refused": 0, "same": 0}
    with Path(diary).open("w") as log:
        for number, (what, differs) in enumerate(damage.rounds(int(count))):
            log.seek(0)
            log.write(f"{number} {what}".ljust(200))  # for whoever finds us dead
            log.flush()
            try:
                index = Index.open(folder)
                found["opened"] += 1
            except FileError:
                found["refused"] += 1
            else:
                ask_everything(index)
                if number % 10 == 0:
                    shutil.copytree(folder, scratch)
                    change_everything(Index.open(scratch))
                    shutil.rmtree(scratch)
            try:
                verify(folder)
            except FileError:
                assert differs, what
            else:
                assert not differs, what
                found["same"] += 1
    sys.stdout.write(json.dumps(found))


def lie(path: str, diary: str) -> None:
    """Manifests with a right checksum that say what cannot be."""
    folder = Path(path)
    _bound_memory()
    whole = (folder / MANIFEST).read_bytes()
    found = {"opened": 0, "refused": 0}
    with Path(diary).open("w") as log:
        for number, (what, tree) in enumerate(_lies(json.loads(whole))):
            log.seek(0)
            log.write(f"{number} {what}".ljust(300))
            log.flush()
            (folder / MANIFEST).write_bytes(signed(tree))
            try:
                index = Index.open(folder)
                found["opened"] += 1
            except FileError:
                found["refused"] += 1
            else:
                ask_everything(index)
    (folder / MANIFEST).write_bytes(whole)
    sys.stdout.write(json.dumps(found))


def signed(tree: dict[str, Any]) -> bytes:
    """The bytes of a manifest, with the checksum that belongs to them."""
    rest = json.dumps({key: tree[key] for key in tree if key != "sha256"}, indent=1)
    data = rest.encode("ascii")[2:] + b"\n"
    return b'{"sha256": "' + hashlib.sha256(data).hexdigest().encode() + b'",\n' + data


_NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 2**31, 2**53, 2**62, -(2**63), 0.5, 1e308, "", "flat", "grouped",
    "multi", "int64", "string", "float32", "float16", "uint8", "../x.npy", "/etc/passwd",
    "0123456789abcdef-x.npy", [], {}, [1], [0, 6], {"a": 1},
)  # fmt: skip


def _lies(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tree with one value, or part, replaced, removed, or put in the place of another."""
    places = [*_places(tree)]
    parts = [value for _, value in places if isinstance(value, dict) and "file" in value]
    for place, value in places:
        for nasty in _NASTY + (tuple(parts[:6]) if isinstance(value, dict) else ()):
            changed = json.loads(json.dumps(tree))
            _at(changed, place[:-1])[place[-1]] = nasty
            yield f"{place} = {nasty!r}", changed
        changed = json.loads(json.dumps(tree))
        del _at(changed, place[:-1])[place[-1]]
        yield f"no {place}", changed
    for place, value in places:
        if isinstance(value, list) and value:
            changed = json.loads(json.dumps(tree))
            _at(changed, place).append(value[0])
            yield f"{place} with a part twice", changed


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if place:
        yield place, tree
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        if place or key != "sha256":
            yield from _places(tree[key], (*place, key))


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def _bound_memory() -> None:
    """Nothing damaged may ask for much: a MemoryError is a failure."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + (512 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


# --- together -----------------------------------------------------------------------------------

MOVED, STILL = 20, 60  # rows that the writer changes all at once, and others far away
ORIGIN = np.zeros((2, D), np.float32)


def moved(value: int) -> NDArray[np.float32]:
    """The changing rows of which each says the same number."""
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
    """Search, and compare with what was published; the generation that was seen."""
    generation = int(index.info()["generation"])
    asked |= everywhere(index.kind)
    found = index.search(ORIGIN, MOVED, candidates=MOVED + STILL, **asked)
    for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True):
        assert ids == list(range(MOVED)), (generation, ids)
        assert distances == published(generation), (generation, distances)
    return generation


def readers(kind: str, path: str, n: str, seconds: str) -> None:
    """Readers and a writer for some seconds; prints what each reader has seen."""
    folder, end = Path(path), time.monotonic() + float(seconds)
    writer = start_moving(kind, folder)
    children = []
    for number in range(int(n)):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _read_until(folder, end, number, write)
        os.close(write)
        children.append((child, read))
    while time.monotonic() < end:
        move(writer)
    seen = []
    for child, read in children:
        with os.fdopen(read) as answer:
            seen.append(json.loads(answer.read() or "null"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sys.stdout.write(json.dumps({"seen": seen, "published": writer.info()["generation"]}))


def _read_until(folder: Path, end: float, number: int, write: int) -> None:
    try:
        seen: list[int] = []
        index = Index.open(folder)
        while time.monotonic() < end:
            if number % 2:
                index.refresh()
            else:
                index = Index.open(folder)
            seen.append(look(index))
            assert look(index) == seen[-1]  # a reader keeps what it has
        assert seen == sorted(seen)
        os.write(write, json.dumps([len(seen), len(set(seen)), seen[-1]]).encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001  it must not go back to readers
        traceback.print_exc()
        os._exit(1)


def writers(path: str, n: str, count: str) -> None:
    """Writers that add and remove at the same time; prints the ids that each was given."""
    children = []
    for number in range(int(n)):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _write_some(Path(path), number, int(count), write)
        os.close(write)
        children.append((child, read))
    given = []
    for child, read in children:
        with os.fdopen(read) as answer:
            given.append(json.loads(answer.read() or "null"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sys.stdout.write(json.dumps(given))


def _write_some(folder: Path, number: int, count: int, write: int) -> None:
    try:
        index = Index.open(folder)
        given, won = [], []
        for at in range(count):
            given += index.add(rows(2, seed=number)).tolist()
            assert index.remove([number * count + at]) == 1  # one of those that were there
            with contextlib.suppress(DensehashError):  # one that all of them want
                index.add(rows(1), ids=[10**6 + at])
                won.append(at)
        os.write(write, json.dumps([given, won]).encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001  it must not go back to writers
        traceback.print_exc()
        os._exit(1)


def answers(index: Index, asked: NDArray[Any], report: Any) -> None:
    """For a child that was given an index: what it finds."""
    found = index.search(asked, 5, n_threads=2)
    index.search(asked, radius=3, rerank=None)
    report.put([part.tolist() for part in found])


if __name__ == "__main__":
    tasks: tuple[Callable[..., None], ...] = (serve, mutate, lie, readers, writers)
    {task.__name__: task for task in tasks}[sys.argv[1]](*sys.argv[2:])
