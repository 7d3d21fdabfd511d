"""A disk whose power is cut: from recorded calls, all states in which it may be found.

It assumes only what POSIX promises: bytes are safe after their file was flushed, names after their
folder was. Until then, any of the bytes and any of the names may be missing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Set
from pathlib import Path
from typing import NamedTuple

_SECTOR = 512  # bytes that a disk writes all or not at all


class Call(NamedTuple):
    """A call that has changed the disk."""

    name: str
    one: int  # the open file
    two: int  # flags, a size, or a status
    path: str
    other: str
    data: bytes


def calls_of(raw: bytes) -> Iterator[Call]:
    """The calls that the watched disk has recorded."""
    at = 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        name, one, two, size, path, other = raw[at:end].decode().split("\t")
        at = end + 1 + int(size)
        yield Call(name, int(one), int(two), path, other, raw[end + 1 : at])


class File:
    """The bytes of a file, whatever its names."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = self.flushed = data
        self.is_lost = False  # a flush has failed: later ones do not restore what was lost

    def write(self, at: int, data: bytes) -> None:
        self.data = self.data[:at].ljust(at, b"\0") + data + self.data[at + len(data) :]

    def flush(self, *, works: bool) -> None:
        self.is_lost |= not works and self.data != self.flushed
        if not self.is_lost:
            self.flushed = self.data

    def found(self, how: str, chance: random.Random) -> bytes:
        """What may be left of it after a power cut."""
        if self.data == self.flushed or how == "whole":
            return self.data
        if how == "as flushed":
            return self.flushed
        if how == "cut":
            return self.data[: chance.randrange(len(self.data) + 1)]
        if how == "zeros":
            return bytes(len(self.data))
        parts = [self.data[at : at + _SECTOR] for at in range(0, len(self.data), _SECTOR)]
        return b"".join(chance.choice([part, bytes(len(part))]) for part in parts)


_WAYS = ("whole", "as flushed", "cut", "zeros", "holes")

Names = dict[str, "File | None"]  # absolute; None is a folder
Tree = dict[str, "bytes | None"]


class Drive:
    """Follows calls, from the content of a folder, all of which was flushed."""

    def __init__(self, root: Path) -> None:
        self.names: Names = {str(root): None}
        for path in sorted(root.rglob("*")):
            self.names[str(path)] = None if path.is_dir() else File(path.read_bytes())
        self._durable = dict(self.names)
        # Changes of names that were not flushed: the folder, new names, and removed names.
        self._pending: list[tuple[str, Names, Set[str]]] = []
        self._open: dict[int, tuple[str, File | None, int]] = {}  # path, file, position

    def follow(self, call: Call) -> None:
        """Apply a call."""
        path = call.path
        if call.name == "open":
            if call.two & os.O_CREAT and path not in self.names:
                self._rename({path: File()})
            file = self.names[path]
            if call.two & os.O_TRUNC and file is not None:
                file.data = b""
            self._open[call.one] = path, file, 0
        elif call.name == "mkdir":
            self._rename({path: None})
        elif call.name in ("unlink", "rmdir"):
            self._rename({}, {path})
        elif call.name == "link":
            self._rename({call.other: self.names[path]})
        elif call.name == "rename":
            self._rename({call.other: self.names[path]}, {path})
        else:
            self._follow_open(call)

    def _follow_open(self, call: Call) -> None:
        folder, file, at = self._open[call.one]
        if call.name == "close":
            del self._open[call.one]
        elif call.name == "fsync" and file is None:
            if call.two == 0:
                self._durable = self._after([one for one in self._pending if one[0] == folder])
                self._pending = [one for one in self._pending if one[0] != folder]
        elif file is None:
            raise AssertionError(call)
        elif call.name == "fsync":
            file.flush(works=call.two == 0)
        elif call.name == "write":
            file.write(at, call.data)
            self._open[call.one] = folder, file, at + len(call.data)
        elif call.name == "ftruncate":
            file.data = file.data[: call.two].ljust(call.two, b"\0")
        else:
            raise AssertionError(call)

    def _rename(self, new: Names, gone: Set[str] = frozenset()) -> None:
        folders = {os.path.dirname(path) for path in (*new, *gone)}  # noqa: PTH120
        assert len(folders) == 1, "files stay in their folder"
        self._pending.append((folders.pop(), new, gone))
        self.names = {**{name: f for name, f in self.names.items() if name not in gone}, **new}

    def _after(self, changes: list[tuple[str, Names, Set[str]]]) -> Names:
        names = dict(self._durable)
        for _, new, gone in changes:
            for name in gone:
                names.pop(name, None)
            names |= new
        return names

    def after_a_cut(self, chance: random.Random, samples: int) -> Iterator[Tree]:
        """States that may be found: names up to each change, or after any; bytes in every way."""
        pending = self._pending
        choices = [pending[:n] for n in range(len(pending) + 1)]
        if len(pending) > 1:
            choices += [[p for p in pending if chance.random() < 0.5] for _ in range(samples)]
        for chosen in choices:
            names = self._after(chosen)
            files = [file for file in names.values() if file is not None]
            ways = [_WAYS[:1] * len(files)]
            if any(file.data != file.flushed for file in files):
                ways += [(way,) * len(files) for way in _WAYS[1:]]
                ways += [tuple(chance.choices(_WAYS, k=len(files))) for _ in range(samples)]
            for way in ways:
                hows = iter(way)
                tree: Tree = {
                    name: file if file is None else file.found(next(hows), chance)
                    for name, file in sorted(names.items())
                }
                yield {name: data for name, data in tree.items() if _is_reached(name, tree)}


def _is_reached(name: str, tree: Tree) -> bool:
    """Whether the folder of a file exists."""
    return min(tree) == name or os.path.dirname(name) in tree  # noqa: PTH120


def put(root: Path, tree: Tree) -> None:
    """Write a tree from another folder into a new one."""
    old = min(tree)
    for name, data in sorted(tree.items()):
        path = root / os.path.relpath(name, old)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
