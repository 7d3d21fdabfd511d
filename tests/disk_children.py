"""Changes of an index on a watched disk: every call fails in turn, or the power is cut.

They run in children of a server that has ``tests/native/watched_disk.c`` preloaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import index_children
import pytest
from index_cases import build, leftovers, rows
from index_children import Say, Server
from power_cuts import Drive, Tree, calls_of, put

from densehash import disk
from densehash.errors import FileError
from densehash.index import Index, placing, tuning
from densehash.store import Store, changing, verify
from densehash.store.manifest import MANIFEST

SOURCE = Path(__file__).parent / "native" / "watched_disk.c"
HANG = 60  # seconds that one change may take

ONCE, SAME_CALL, ALL_CALLS = range(3)  # what fails after the first failure
LASTING = ("once", "this call for good", "all for good")


class WatchedServer(Server):
    """A server whose children see all system calls of Python, and can make them fail."""

    def __init__(self, scratch: Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if sys.platform != "linux" or compiler is None:
            pytest.skip("needs Linux, for LD_PRELOAD, and a C compiler")
        library = scratch / "watched_disk.so"
        options = ["-std=gnu11", "-O1", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, "-o", library, SOURCE, "-ldl"], check=True)
        preload = " ".join([str(library), os.environ.get("LD_PRELOAD", "")]).strip()
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": preload, "OPENBLAS_NUM_THREADS": "1"},
        )
        (seen,), _ = self.run("see", scratch / "seen")
        if not {"open", "write", "fsync", "rename", "stat", "close"} <= set(seen):
            self.close()
            pytest.skip("a preloaded library does not see the calls of this Python")


class Watched:
    """The watched disk, in a process that has the library."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        for function in (self.library.watched_calls, self.library.watched_changes):
            function.restype = ctypes.c_void_p

    @contextlib.contextmanager
    def watch(
        self, folder: Path, at: int = 0, error: int = 0, lasting: int = ONCE, only: str = ""
    ) -> Iterator[None]:
        """Watch calls in a folder; call number ``at`` fails, of all or of those named ``only``."""
        self.library.watched_begin(str(folder).encode(), at, error, lasting, only.encode())
        try:
            yield
        finally:
            self.n_calls = self.library.watched_end()

    @property
    def calls(self) -> list[str]:
        """The names of all calls."""
        return self._text(self.library.watched_calls).decode().split()

    @property
    def changes(self) -> bytes:
        """The calls that have changed the disk."""
        return self._text(self.library.watched_changes)

    def _text(self, function: Any) -> bytes:
        size = ctypes.c_size_t()
        start = function(ctypes.byref(size))
        return ctypes.string_at(start, size.value) if size.value else b""


def see(path: str, *, say: Say) -> None:
    """Say which calls the library has seen."""
    watched = Watched()
    with watched.watch(Path(path)):
        Store.create(path, {"x": rows(3)})
    say(watched.calls)


# --- operations ---------------------------------------------------------------------------

FROM_NOTHING = ("save", "build")
CHANGES = ("add", "add many", "remove", "update", "compact", "tune", "save over", "build over")
READS = ("open", "refresh", "verify")
NOTES = b"of the user"


class Case:
    """An index in a folder with files of the user beside it, and an operation to run."""

    def __init__(self, kind: str, operation: str, scratch: Path) -> None:
        self.kind, self.operation = kind, operation
        self.root, self.gold, self.trial = scratch / "disk", scratch / "gold", scratch / "trial"
        self.path = self.root / "a.dh"
        shutil.rmtree(scratch, ignore_errors=True)
        self.root.mkdir(parents=True)
        with mock.patch.object(changing, "_SMALL", 500):  # some are mapped, some are read
            index = build(kind, rows(60))
            index.save(self.path)
            index = Index.open(self.path)
            index.add(rows(20, seed=1))
            index.remove([3, 4, 61])
        if operation in FROM_NOTHING:
            shutil.rmtree(self.path)
        else:
            (self.path / "notes.txt").write_bytes(NOTES)
        (self.root / "notes.txt").write_bytes(NOTES)
        self.root.rename(self.gold)
        self.begin()
        self.old = self.state()
        self.run()
        self.new = self.state()
        assert (self.new == self.old) == (operation in READS)

    def begin(self) -> None:
        """Restore everything; the operation will use a new object."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.gold, self.root)
        self.index = None if self.operation in FROM_NOTHING else Index.open(self.path)
        if self.operation == "refresh":
            Index.open(self.path).add(rows(2))
        if self.operation.startswith("save"):
            self.other = build(self.kind, rows(30, seed=4))
        self.shown = None if self.index is None else _shown(self.index)

    def run(self) -> None:
        """The operation."""
        name, index, path = self.operation, self.index, self.path
        if name.startswith("save"):
            self.other.save(path)
        elif name.startswith("build"):
            with mock.patch.object(placing, "PIECE_BYTES", 500):
                build(self.kind, rows(30, seed=4), path=path)
        elif name == "open":
            Index.open(path)
        elif name == "verify":
            verify(path)
        else:
            assert index is not None
            changes: dict[str, Callable[[], object]] = {
                "add": lambda: index.add(rows(7, seed=1)),
                "add many": lambda: index.add(rows(90, seed=1)),  # merges
                "remove": lambda: index.remove([8, 9]),
                "update": lambda: index.update([8, 9], rows(2, seed=2)),
                "compact": index.compact,
                "tune": lambda: index.tune(rows(9, seed=3) + 0.5, recall=0.5, k=2),
                "refresh": index.refresh,
            }
            with mock.patch.object(tuning, "_speed", return_value=1.0):  # the same each time
                changes[name]()

    def state(self) -> dict[str, Any] | None:
        """What is in the folder, with every byte checked; None if there is no index."""
        assert (self.root / "notes.txt").read_bytes() == NOTES
        if self.operation not in FROM_NOTHING:
            assert (self.path / "notes.txt").read_bytes() == NOTES
        if self.operation in FROM_NOTHING and not (self.path / MANIFEST).exists():
            with pytest.raises(FileError):
                Index.open(self.path)
            return None
        verify(self.path)
        return _shown(Index.open(self.path))

    def check_nothing_is_left(self) -> None:
        """Check that no unnamed file is left."""
        assert leftovers(self.path) <= {"notes.txt"}


def _shown(index: Index) -> dict[str, Any]:
    """The state of an index; ``verify`` compares its bytes."""
    rows_of = {"ids": index.ids.tolist(), "vectors": index.get(index.ids).tolist()}
    return {**index.info(), **rows_of, "path": None}


def _told(error: Exception) -> str:
    """What went wrong, and where in the package."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "densehash" in Path(frame.filename).parts]
    where = [f"{Path(frame.filename).name}, {frame.name}: {frame.line}" for frame in ours[-1:]]
    return " ".join([type(error).__name__, str(error)[:300], *where])


# --- a call that fails ----------------------------------------------------------------------

# A signal interrupts only one call: Python repeats interrupted calls without end.
ERRORS = {
    name: (ONCE,) if name == "EINTR" else (ONCE, SAME_CALL, ALL_CALLS)
    for name in ("EIO", "ENOSPC", "ESTALE", "EINTR")
}


def fail(kind: str, operation: str, scratch: str, most: int, *, say: Say) -> None:
    """Let calls of an operation fail in each way, at most ``most`` calls of each name."""
    case, watched = Case(kind, operation, Path(scratch)), Watched()
    case.begin()
    with watched.watch(case.root):
        case.run()
    calls, chance = watched.calls, random.Random(f"{kind} {operation}")
    tried, wrong = 0, []
    for name in sorted(set(calls)):
        numbers = [at for at, call in enumerate(calls, 1) if call == name]
        ways = [
            (at, error, lasting)
            for at in numbers
            for error, how in ERRORS.items()
            for lasting in how
        ]
        for at, error, lasting in chance.sample(ways, min(most, len(ways))):
            what = f"{kind}, {operation}: {name}, call {at}: {error} {LASTING[lasting]}"
            say(what)
            signal.alarm(HANG)
            try:
                _fail_once(case, Watched(), at, error, lasting)
            except Exception as trouble:  # noqa: BLE001  all of them are told
                wrong.append(f"{what}: {_told(trouble)}")
            signal.alarm(0)
            tried += 1
    say({"tried": tried, "wrong": wrong})


def _fail_once(case: Case, watched: Watched, at: int, error: str, lasting: int) -> None:
    case.begin()
    old = case.state() if case.operation == "refresh" else case.old
    new = old if case.operation == "refresh" else case.new
    refused = None
    try:
        with watched.watch(case.root, at, getattr(errno, error), lasting):
            case.run()
    except FileError as trouble:
        refused = str(trouble)
    assert watched.n_calls >= at, "it did something else this time"
    now = case.state()
    if refused is None:
        assert now == new, "it said nothing, and the change is not there"
        return
    assert str(case.root) in refused, f"the error names no file: {refused}"
    if case.index is not None:
        assert _shown(case.index) == case.shown, "the object is another after an error"
    if lasting == ONCE:
        assert now == old, f"the change is there, but it said: {refused}"
        if case.operation in FROM_NOTHING:  # a lock that was not ours may belong to others
            left = {*case.path.iterdir()} if case.path.exists() else set()
            assert {file.name for file in left} <= {"writer.lock"}, left
        elif case.operation in CHANGES:
            case.check_nothing_is_left()
    assert now in (old, new), "neither the old state nor the new"
    if now == old:  # the disk works again
        case.run()
        assert case.state() == new
        if case.operation not in READS:
            case.check_nothing_is_left()


def refuse_locks(operation: str, scratch: str, *, say: Say) -> None:
    """Change an index on a system without locks; says what happened."""
    case, watched = Case("flat", operation, Path(scratch)), Watched()
    for error in ("ENOLCK", "ENOSYS", "ENOTSUP"):
        case.begin()
        refused = ""
        try:
            with watched.watch(case.root, 1, getattr(errno, error), SAME_CALL, "flock"):
                case.run()
        except FileError as trouble:
            refused = str(trouble)
        say([error, refused, case.state() == case.old])


# --- a power cut ----------------------------------------------------------------------------


class Cuts:
    """States after power cuts: how many were checked, and what was wrong with them.

    Parameters
    ----------
    samples : how many random choices of names and bytes to try at each moment
    share : the share of all states to check
    """

    def __init__(self, case: Case, samples: int, share: float) -> None:
        self.case, self.samples, self.share = case, samples, share
        self.watched = Watched()
        self.states = self.writers = 0
        self.wrong: list[str] = []

    def try_all(self, at: int = 0, lasting: int = ONCE) -> None:
        """Cut the power at each moment of the operation; flush ``at`` fails."""
        case, watched = self.case, self.watched
        case.begin()
        drive, old, new, is_done = Drive(case.root), _manifest(case.path), b"", True
        try:
            with watched.watch(case.root, at, errno.EIO, lasting, "fsync"):
                case.run()
        except FileError:
            is_done = False
        what = f"{case.kind}, {case.operation}"
        what += f", flush {at} fails {LASTING[lasting]}" if at else ""
        calls = list(calls_of(watched.changes))
        chance, seen = random.Random(what), set()
        for number, call in enumerate(calls, 1):
            drive.follow(call)
            if call.name == "rename" and call.other.endswith(MANIFEST) and not new:
                file = drive.names[call.other]
                assert file is not None
                new = file.data
            if call.name == "close" and number < len(calls):
                continue  # nothing has changed
            allowed = (new,) if is_done and number == len(calls) else (old, new)
            for tree in drive.after_a_cut(chance, self.samples):
                state = allowed, tuple(tree.items())
                if state not in seen and (len(allowed) == 1 or chance.random() < self.share):
                    self._try(f"{what}: cut after call {number} of {len(calls)}", tree, allowed)
                seen.add(state)

    def _try(self, what: str, tree: Tree, allowed: tuple[bytes, ...]) -> None:
        signal.alarm(HANG)
        shutil.rmtree(self.case.trial, ignore_errors=True)
        put(self.case.trial, tree)
        self.states += 1
        try:
            self._check(self.case.trial / self.case.path.name, allowed)
        except Exception as trouble:  # noqa: BLE001  all of them are told
            self.wrong.append(f"{what}: {_told(trouble)}")
        signal.alarm(0)

    def _check(self, path: Path, allowed: tuple[bytes, ...]) -> None:
        manifest = _manifest(path)
        assert manifest in allowed, "the manifest is not one that may be there"
        assert (path.parent / "notes.txt").read_bytes() == NOTES
        if manifest:
            verify(path)  # every byte is that of this manifest
            index = Index.open(path)
        else:
            with pytest.raises(FileError):
                Index.open(path)
        if manifest and self.states % 7 != 1:  # without a manifest, each folder must count as ours
            return
        self.writers += 1  # the next writer continues from there
        if manifest:
            given = index.add(rows(2))
            assert Index.open(path).get(given).tolist() == rows(2).tolist()
        else:
            build(self.case.kind, rows(9)).save(path)
        verify(path)
        assert leftovers(path) <= {"notes.txt"}


def cut(
    kind: str, operation: str, scratch: str, samples: int, flushes: int, share: float, *, say: Say
) -> None:
    """Cut the power in an operation, also if one of its flushes fails, at most ``flushes``."""
    cuts = Cuts(Case(kind, operation, Path(scratch)), samples, share)
    cuts.try_all()
    ways = [(at, how) for at in range(1, cuts.watched.n_calls + 1) for how in (ONCE, SAME_CALL)]
    # The last flush comes after the manifest is in place, so that everything must be undone.
    chosen = random.Random(operation).sample(ways[:-2], min(flushes, len(ways) - 2))
    for at, how in chosen + ways[-2:]:
        cuts.try_all(at, how)
    say({"states": cuts.states, "next writers": cuts.writers, "wrong": cuts.wrong[:20]})


def cut_unflushed(scratch: str, without: str, *, say: Say) -> None:
    """The same if the package forgets to flush: this must be found."""
    cuts = Cuts(Case("flat", "add", Path(scratch)), samples=1, share=0.3)
    nothing = {"sync": None, "syncing": contextlib.nullcontext(lambda: None)}[without]
    with mock.patch.object(disk, without, return_value=nothing):
        cuts.try_all()
    say(len(cuts.wrong))


def _manifest(path: Path) -> bytes:
    """The manifest of a folder; empty if there is none."""
    return (path / MANIFEST).read_bytes() if (path / MANIFEST).exists() else b""


index_children.TASKS.update(
    {task.__name__: task for task in (see, fail, refuse_locks, cut, cut_unflushed)}
)

if __name__ == "__main__":
    index_children.serve()
