"""The store under faults: a full or broken disk, Ctrl-C, kill: the old state or the new, whole."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np
import pytest
from soak import SOAK
from store_cases import assert_equal, entries, files_of, rows, small

from densehash import disk, file_locks
from densehash.errors import FileError
from densehash.store import Change, Store, arrays, changing, folder, lockfile, reading, verify
from densehash.store.arrays import open_array
from densehash.store.manifest import MANIFEST


def changed(content: dict[str, Any]) -> dict[str, Any]:
    """Some arrays stay, some go, some come."""
    content["n"] = 7
    content["segments"].pop(0)
    content["segments"].append({"ids": np.arange(40_000), "codes": rows(40_000)})
    return content


def do_change(folder: Path) -> None:
    with Store.open(folder).change() as change:
        change.publish(changed(change.content))


def do_create(folder: Path) -> None:
    Store.create(folder, changed(small()))


def do_staged_change(folder: Path) -> None:
    with Store.open(folder).change() as change:
        content = changed(change.content)
        content["segments"][-1] = staged(change, content["segments"][-1])
        change.publish(content)


def do_staged_create(folder: Path) -> None:
    with Store.creating(folder) as change:
        content = changed(small())
        content["segments"] = [staged(change, segment) for segment in content["segments"]]
        change.publish(content)


def staged(change: Change, segment: dict[str, Any]) -> dict[str, Any]:
    """Of each segment something that is not published, too."""
    change.stage(rows(3), "left")
    return {
        key: change.stage(value, key) if isinstance(value, np.ndarray) else value
        for key, value in segment.items()
    }


Operation = Callable[[Path], None]
OPERATIONS = {
    "change": do_change,
    "create over": do_create,
    "create": do_create,
    "staged change": do_staged_change,
    "staged create over": do_staged_create,
    "staged create": do_staged_create,
}
FROM_NOTHING = {"create", "staged create"}
every_operation = pytest.mark.parametrize("name", OPERATIONS)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


class Faults:
    """Counts what changes the disk, and lets the n-th call of a kind fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.at, self.seen, self.lasting = "", 0, 0, False
        self.error: BaseException = OSError()
        real_write, real_rename = disk.write, disk.rename

        def write(file: IO[bytes], data: Any) -> None:
            try:
                self.count("write")
            except BaseException:
                real_write(file, bytes(data)[: len(data) // 2])  # some bytes were written
                raise
            real_write(file, data)

        def rename(part: Path, target: Path) -> None:
            self.count("rename")
            real_rename(part, target)

        monkeypatch.setattr(disk, "write", write)
        monkeypatch.setattr(disk, "rename", rename)
        monkeypatch.setattr(os, "fsync", lambda _: self.count("fsync"))

    def arm(self, kind: str, at: int, error: BaseException, *, lasting: bool = False) -> None:
        self.kind, self.at, self.error, self.lasting = kind, at, error, lasting
        self.seen = 0

    def disarm(self) -> None:
        self.kind = ""

    def count(self, kind: str) -> None:
        if kind == self.kind:
            self.seen += 1
            if self.seen == self.at or (self.lasting and self.seen > self.at):
                raise self.error


class Before:
    """A folder in its old state, for an operation that must fail and change nothing."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self.parent, self.folder = tmp_path, tmp_path / "a"
        self.reader = None if name in FROM_NOTHING else Store.create(self.folder, small())
        self.files = files_of(self.folder) if self.reader else {}

    def check(self) -> None:
        """Nothing has changed."""
        if self.reader is None:
            assert not list(self.parent.iterdir())
            return
        assert files_of(self.folder) == self.files
        assert_equal(self.reader.content, small())
        assert_equal(Store.open(self.folder).content, small())
        verify(self.folder)


@every_operation
@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_fault_leaves_the_old_state(
    tmp_path: Path, calls: Faults, name: str, kind: str, number: int
) -> None:
    failed = 0
    for at in range(1, 51):
        before = Before(tmp_path, name)
        folder = before.folder
        calls.arm(kind, at, OSError(number, os.strerror(number)))
        try:
            OPERATIONS[name](folder)
        except FileError as error:
            assert os.strerror(number) in str(error)  # noqa: PT017
        else:
            break  # there is no n-th call
        failed += 1
        calls.disarm()
        before.check()
        if name not in FROM_NOTHING:
            OPERATIONS[name](folder)  # the disk is well again
            assert_equal(Store.open(folder).content, changed(small()))
    assert failed == calls.seen > 0
    assert_equal(Store.open(folder).content, changed(small()))
    verify(folder)
    assert len(files_of(folder)) == 1 + len(entries(folder))


@every_operation
@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_a_disk_that_stays_broken(tmp_path: Path, calls: Faults, name: str, kind: str) -> None:
    for at in range(1, 51):
        folder = tmp_path / str(at)
        calls.disarm()
        if name not in FROM_NOTHING:
            Store.create(folder, small())
        calls.arm(kind, at, OSError(errno.EIO, os.strerror(errno.EIO)), lasting=True)
        try:
            OPERATIONS[name](folder)
        except FileError:
            calls.disarm()
        else:
            return
        if name in FROM_NOTHING:
            assert not (folder / MANIFEST).exists()
        else:
            assert_equal(Store.open(folder).content, small())
        OPERATIONS[name](folder)
        assert_equal(Store.open(folder).content, changed(small()))
        assert len(files_of(folder)) == 1 + len(entries(folder))
    pytest.fail("it never succeeded")


@every_operation
@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_ctrl_c_leaves_the_old_state(tmp_path: Path, calls: Faults, name: str, kind: str) -> None:
    for at in range(1, 51):
        before = Before(tmp_path, name)
        calls.arm(kind, at, KeyboardInterrupt())
        try:
            OPERATIONS[name](before.folder)
        except KeyboardInterrupt:
            calls.disarm()
            before.check()
        else:
            break
    assert calls.seen == at - 1 > 0


def to_seven(name: str, path: Path) -> None:
    """From state 6, or nothing, to state 7."""
    if name == "change":
        with Store.open(path).change() as change:
            change.publish({"n": 7, "x": change.content["x"], "z": rows(7)})
    elif name == "staged change":
        with Store.open(path).change() as change:
            z = change.stage(rows(7), "z")
            change.publish({"n": 7, "x": change.content["x"], "z": z})
    elif name.startswith("staged"):
        with Store.creating(path) as change:
            new = {"x": change.stage(rows(6), "x"), "z": change.stage(rows(7), "z")}
            change.publish({"n": 7, **new})
    else:
        Store.create(path, {"n": 7, "x": rows(6), "z": rows(7)})


@pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a file that was about to be closed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@every_operation
def test_ctrl_c_at_any_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """After it: the old state or the new one, whole, and a folder that goes on working."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    left = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        code = frame.f_code
        # Only those that change something: there are many lines in the others.
        if code.co_filename not in LOWEST and code.co_name not in TRACED:
            return None
        if event == "line" and code.co_filename in FILES:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    hit, at, states = True, 0, set()
    while hit:
        at += max(1, (4 if name == "change" else 7) // SOAK)  # most lines are the same
        path = tmp_path / str(at)
        if name not in FROM_NOTHING:
            Store.create(path, {"n": 6, "x": rows(6), "y": rows(6)})
        left, hit = at, False
        sys.settrace(trace)
        try:
            to_seven(name, path)
        except KeyboardInterrupt:
            hit = True
        finally:
            sys.settrace(None)
        if name in FROM_NOTHING and not (path / MANIFEST).exists():
            states.add(0)
        else:
            content = Store.open(path).content
            states.add(content["n"])
            old, new = {"x": rows(6), "y": rows(6)}, {"x": rows(6), "z": rows(7)}
            assert_equal(content, {"n": 6, **old} if content["n"] == 6 else {"n": 7, **new})
            verify(path)
        try:
            Store.create(path, small(2), timeout=0)
        except FileError:
            gc.collect()  # a lock that was about to be given back
            Store.create(path, small(2), timeout=0)
        assert_equal(Store.open(path).content, small(2))
        assert len(files_of(path)) == 1 + len(entries(path))
        shutil.rmtree(path)
    assert states == ({0, 7} if name in FROM_NOTHING else {6, 7})
    assert at > 100


LOWEST = {disk.__file__, file_locks.__file__}
FILES = {module.__file__ for module in (disk, file_locks, folder, changing, lockfile, arrays)}
TRACED = {
    *("change", "create", "creating", "stage", "publish", "_end", "write_array", "lock"),
    *("making", "_make_folder", "_mark_new", "settle", "sweep", "remove_files", "take", "leave"),
}


def test_a_fault_in_sweeping_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "a", small())

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "as on Windows", str(path))

    monkeypatch.setattr(disk, "remove", refuse)
    do_change(tmp_path / "a")
    assert len(files_of(tmp_path / "a")) > 1 + len(entries(tmp_path / "a"))
    monkeypatch.undo()
    with store.change():
        pass
    assert len(files_of(tmp_path / "a")) == 1 + len(entries(tmp_path / "a"))
    assert_equal(store.content, changed(small()))


def test_a_source_that_fails_leaves_the_old_state(tmp_path: Path, calls: Faults) -> None:
    from densehash.source import Source

    class Broken(Source):
        shape, dtype = (300_000, 4), np.dtype(np.float32)

        def __getitem__(self, asked: Any) -> Any:
            if asked.start > 0:
                raise ZeroDivisionError
            return np.zeros((asked.stop, 4), np.float32)

    before = Before(tmp_path, "change")
    with Store.open(before.folder).change() as change, pytest.raises(ZeroDivisionError):
        change.publish({"first": rows(9), "x": Broken()})
    before.check()


# --- another process ----------------------------------------------------------------------

WRITER = textwrap.dedent("""
    # Forks a writer for each line that comes in, so that each begins without imports.
    import os, sys
    import numpy as np
    from densehash.store import Store

    def numbered(n):
        size = 20_000 if n % 2 else 50
        return {"n": n, "x": np.full(size, n), "parts": []}

    os.fsync = lambda _: None  # more changes in less time: nobody cuts the power

    def work(folder):
        store, first = Store.open(folder), True
        while True:
            with store.change(timeout=60) as change:
                content = change.content
                content["n"] += 1
                content["x"] = numbered(content["n"])["x"]
                content["parts"].append({"n": content["n"], "y": np.full(30, content["n"])})
                content["parts"] = content["parts"][-5:]
                change.publish(content)
            if store.generation % 7 == 0:
                Store.create(folder, {**numbered(content["n"] + 1)})
            if first:
                print(os.getpid(), flush=True)
                first = False

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            work(line.strip())
        os.waitpid(child, 0)
        print("over", flush=True)
""")


@pytest.fixture(scope="module")
def writers() -> Iterator[subprocess.Popen[str]]:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def start(writers: subprocess.Popen[str], folder: Path) -> int:
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{folder}\n")
    writers.stdin.flush()
    return int(writers.stdout.readline())


def stop(writers: subprocess.Popen[str], pid: int) -> None:
    os.kill(pid, 9)
    assert writers.stdout is not None
    assert writers.stdout.readline() == "over\n"


def check_numbered(content: dict[str, Any]) -> int:
    """Every state of the writer says of itself which one it is."""
    n: int = content["n"]
    assert len(content["x"]) == (20_000 if n % 2 else 50)
    assert (content["x"] == n).all()
    numbers = [part["n"] for part in content["parts"]]
    assert numbers == list(range(n - len(numbers) + 1, n + 1))
    for part in content["parts"]:
        assert (part["y"] == part["n"]).all()
    return n


def first_state(folder: Path) -> Store:
    return Store.create(folder, {"n": 0, "x": np.zeros(50, np.int64), "parts": []})


def test_kill(tmp_path: Path, writers: subprocess.Popen[str]) -> None:
    store = first_state(tmp_path / "a")
    chance = random.Random(0)
    swept = 0
    for _ in range(20):
        pid = start(writers, tmp_path / "a")
        time.sleep(chance.uniform(0, 0.02))
        stop(writers, pid)
        before = store.content["n"]
        opened = Store.open(tmp_path / "a")
        assert check_numbered(opened.content) >= before
        verify(tmp_path / "a")
        swept += len(files_of(tmp_path / "a")) > 1 + len(entries(tmp_path / "a"))
        with store.change(timeout=5):
            check_numbered(store.content)
        assert len(files_of(tmp_path / "a")) == 1 + len(entries(tmp_path / "a"))
    assert store.content["n"] >= 20
    assert swept > 0, "no writer was killed in the middle"


def test_readers_while_another_process_writes(
    tmp_path: Path, writers: subprocess.Popen[str]
) -> None:
    first_state(tmp_path / "a")
    pid = start(writers, tmp_path / "a")
    errors: list[BaseException] = []
    seen: list[set[int]] = [set() for _ in range(4)]
    end = time.monotonic() + 1.5

    def read(numbers: set[int], again: bool) -> None:
        try:
            store = Store.open(tmp_path / "a")
            held = store.content
            while time.monotonic() < end:
                if again:
                    store = Store.open(tmp_path / "a")
                else:
                    store.refresh()
                numbers.add(check_numbered(store.content))
            check_numbered(held)  # what it had at first is still there
            verify(tmp_path / "a")
        except BaseException as error:  # noqa: BLE001  to be seen by the test
            errors.append(error)

    threads = [
        threading.Thread(target=read, args=(numbers, at % 2 == 0))
        for at, numbers in enumerate(seen)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop(writers, pid)
    assert not errors, errors
    assert min(map(len, seen)) > 1


def test_a_reader_gives_up_where_a_file_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path / "a", small())
    (tmp_path / "a" / entries(tmp_path / "a")[3].file).unlink()
    with pytest.raises(FileError, match="cannot be read: No such file"):
        Store.open(tmp_path / "a")


def test_a_reader_reads_again_where_a_writer_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "a", {"n": 0, "x": rows(3)})
    real, n_published = open_array, 0

    def slow(where: Path, entry: Any, *, mapped: bool) -> Any:
        nonlocal n_published
        if n_published < 3 and threading.current_thread() is threading.main_thread():
            n_published += 1
            # In another thread, so that the writer opens its own files undisturbed.
            thread = threading.Thread(target=publish)
            thread.start()
            thread.join()
        return real(where, entry, mapped=mapped)

    def publish() -> None:
        with store.change() as change:
            change.publish({"n": n_published, "x": rows(3, n_published)})

    monkeypatch.setattr(reading, "open_array", slow)
    content = Store.open(tmp_path / "a").content
    assert content["n"] == n_published == 3
    np.testing.assert_array_equal(content["x"], rows(3, 3))
