"""Damages files of an index in many ways, and uses the index nevertheless."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from index_cases import payload_for, rows

from densehash.errors import DensehashError, FileError
from densehash.index import Index
from densehash.store import verify
from densehash.store.manifest import MANIFEST

QUERIES = rows(3, seed=5)


def ask(index: Index, number: int) -> None:
    """Call some methods of an index; only a FileError may be raised."""
    names = index._state.id_type == "string"
    some: list[Any] = ["a", "row 3"] if names else [3, 4]
    calls: list[Callable[[], object]] = [
        lambda: index.search(QUERIES, 5, n_threads=1),
        lambda: index.search(QUERIES, 5, metric="cosine", candidates=3, n_threads=1),
        lambda: index.search(QUERIES.astype(np.uint8), 5, metric="ip", n_threads=1),
        lambda: index.search(QUERIES, 5, rerank="asymmetric", n_threads=1),
        lambda: index.search(QUERIES, 5, rerank=None, n_threads=2),
        lambda: index.search(QUERIES, 200, rerank=None, exclude_self=True, n_threads=1),
        lambda: index.search(QUERIES, radius=8.0, n_threads=1),
        lambda: index.search(QUERIES, radius=5, rerank=None, exclude_self=True, n_threads=1),
        lambda: index.search(QUERIES, 5, filter=lambda ids: np.arange(len(ids)) % 2 == 0),
        lambda: index.search(QUERIES, 5, filter=some, n_threads=1),
        lambda: index.search(QUERIES, 5, filter=np.ones(len(index), np.bool_), n_threads=1),
        lambda: index.search(
            QUERIES, 5, probes=1 if index._state.kind.takes_probes else None, n_threads=1
        ),
        lambda: index.neighbors_graph(3, n_threads=1) if len(index) > 3 else None,
        lambda: index.near_duplicates(3, n_threads=1),
        lambda: index.near_duplicates(3.0, rerank="exact", n_threads=1),
        lambda: [index.ids, some[1] in index, repr(index), index.info()],
    ]
    if index._state.payload is not None and find_spec("pyarrow"):
        calls += [lambda: index.search(QUERIES, 5, n_threads=1).to_dicts()] * 8
    for call in calls[number % 8 :: 8]:
        with contextlib.suppress(FileError):
            call()
    with contextlib.suppress(DensehashError):  # ids that no user can have
        index.get(index.ids[:4])
    if index._state.payload is not None and find_spec("pyarrow"):
        with contextlib.suppress(DensehashError):
            index.payload(index.ids[::3]).to_pylist()
        with contextlib.suppress(DensehashError):  # columns that no longer exist
            index.search(QUERIES, 5, filter="word = 'odd' or sum > 20")


def change_everything(index: Index) -> None:
    """Call all methods that change an index; only errors of densehash may be raised."""
    names = index._state.id_type == "string"
    for call in (
        lambda: index.remove(["a", "row 3"] if names else [3, 4]),
        lambda: index.add(
            rows(2),
            ids=["new", "newer"] if names else [10**6, 10**6 + 1],
            payload=payload_for(index.kind, rows(2)) if index._state.payload else None,
        ),
        lambda: index.update(["newer"] if names else [10**6], rows(1)),
        index.compact,
        lambda: index.tune(QUERIES, recall=0.1, k=1),
    ):
        with contextlib.suppress(DensehashError):
            call()


class Damage:
    """A folder in which one file after another is damaged and restored."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.whole = {
            file: file.read_bytes() for file in sorted(path.iterdir()) if file.suffix != ".lock"
        }

    def mutated(self, raw: bytes) -> tuple[str, bytes]:
        """Damaged bytes, and a description of the damage."""
        chance = self.random
        data, n = bytearray(raw), len(raw)
        at = chance.randrange(n)
        if chance.random() < 0.7 and n > 128:
            at = chance.randrange(128, n)  # behind the header
        what = chance.choice(["flip", "number", "truncate", "extend", "swap", "zero", "copy"])
        if what == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif what == "number":  # as large or as small as possible
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
        """Damage files ``count`` times; yields what was done, and whether anything differs."""
        files = [*self.whole]
        rows_of = [file for file in files if "segments" in file.name]
        for _ in range(count):
            file = self.random.choice(rows_of if self.random.random() < 0.7 else files)
            what, data = self.mutated(self.whole[file])
            file.write_bytes(data)
            yield f"{file.name}: {what}", data != self.whole[file]
            file.write_bytes(self.whole[file])


def mutate(path: str, seed: int, count: int, *, say: Callable[[Any], None]) -> None:
    """Damage files of an index in many ways; only a FileError may be raised."""
    folder, scratch = Path(path), Path(path + "-scratch")
    _bound_memory()
    found = {"opened": 0, "refused": 0}
    for number, (what, differs) in enumerate(Damage(folder, seed).rounds(count)):
        say(f"{number} {what}")  # the last message, if the process dies
        try:
            index = Index.open(folder)
            found["opened"] += 1
        except FileError:
            found["refused"] += 1
        else:
            ask(index, number)
            if number % 20 == 0:
                shutil.copytree(folder, scratch)
                change_everything(Index.open(scratch))
                shutil.rmtree(scratch)
        if number % 2:
            continue
        try:
            verify(folder)
        except FileError:
            assert differs, what
        else:
            assert not differs, what
    say(found)


def lie(path: str, every: int, *, say: Callable[[Any], None]) -> None:
    """Try manifests with impossible content and a correct checksum: one in ``every``."""
    folder = Path(path)
    _bound_memory()
    whole = (folder / MANIFEST).read_bytes()
    found = {"opened": 0, "refused": 0}
    for number, (what, tree) in islice(enumerate(_lies(json.loads(whole))), 0, None, every):
        say(f"{number} {what}")
        (folder / MANIFEST).write_bytes(signed(tree))
        try:
            index = Index.open(folder)
            found["opened"] += 1
        except FileError:
            found["refused"] += 1
        else:
            ask(index, number)
    (folder / MANIFEST).write_bytes(whole)
    say(found)


def signed(tree: dict[str, Any]) -> bytes:
    """The bytes of a manifest, with their correct checksum."""
    rest = json.dumps({key: tree[key] for key in tree if key != "sha256"})
    data = rest.encode("ascii")[1:] + b"\n"
    return b'{"sha256": "' + hashlib.sha256(data).hexdigest().encode() + b'",\n' + data


_NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 2**31, 2**53, 2**62, -(2**63), 0.5, 1e308, "", "flat", "grouped",
    "multi", "int64", "string", "float32", "float16", "uint8", "../x.npy", "/etc/passwd",
    "0123456789abcdef-x.npy", [], {}, [1], [0, 6], {"a": 1},
)  # fmt: skip


def _lies(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tree with one value or part replaced, removed, or put in the place of another."""
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
    """Limit memory: damage must not cause large allocations, so a MemoryError is a failure."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (512 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
