"""Files that appear whole, and locks that end with their process."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from densehash import disk, file_locks
from densehash.errors import FileError

posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes, links and signals of POSIX")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("where", ["write", "sync", "rename"])
def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = tmp_path / "a.txt"
    disk.write_file(path, b"old")
    monkeypatch.setattr(disk, where, failing(errno.EIO))
    with pytest.raises(FileError, match="a.txt cannot be written: .*[Ii]nput/output error"):
        disk.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_is_flushed_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def fsync(descriptor: int) -> None:
        events.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112

    def rename(part: Path, target: Path) -> None:
        events.append("rename")
        part.replace(target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(disk, "rename", rename)
    disk.write_file(tmp_path / "a", b"whole")
    if Path("/proc/self/fd").exists():
        assert events == ["file", "rename", "folder"]
    assert len(events) == 3
    disk.write_file(tmp_path / "a", b"other", durable=False)
    assert events[3:] == ["rename"]
    assert (tmp_path / "a").read_bytes() == b"other"


def test_a_folder_that_cannot_be_flushed_is_passed_over_and_a_broken_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    disk.sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="[Ii]nput/output"):
        disk.sync_folder(tmp_path)


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), disk.replacing(tmp_path / "a") as part:  # noqa: PT012
        part.write_bytes(b"half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize("free", [9, 10])
def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    if free == 10:
        disk.check_room(tmp_path / "not" / "there", 10)
        return
    with pytest.raises(FileError, match="9 bytes free, and 10 more are needed"):
        disk.check_room(tmp_path / "not" / "there", 10)


# --- locks --------------------------------------------------------------------------------


def test_a_lock_is_waited_for_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_POLL", 0.01)
    with file_locks.locked(tmp_path / "set"):
        for timeout in (0, 0.05):
            with (
                pytest.raises(
                    FileError, match=f"another process writes: .*set.lock .* than {timeout} s"
                ),
                file_locks.locked(tmp_path / "set", timeout=timeout),
            ):
                pass
    with file_locks.locked(tmp_path / "set", timeout=0):
        assert names(tmp_path) == ["set.lock"]


def test_a_lock_comes_within_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_POLL", 0.01)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with file_locks.locked(tmp_path / "set", keep=True):
            held.set()
            over.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    threading.Timer(0.05, over.set).start()
    with file_locks.locked(tmp_path / "set", timeout=30, keep=True):
        assert over.is_set()
    thread.join()
    assert names(tmp_path) == ["set.lock"]


@posix
def test_a_lock_is_a_file_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (tmp_path / "link.lock").symlink_to(outside)
    with pytest.raises(OSError), file_locks.locked(tmp_path / "link", timeout=0):  # noqa: PT011
        pass
    assert not outside.exists()
    os.mkfifo(tmp_path / "pipe.lock")
    with (
        pytest.raises(FileError, match="pipe.lock is not a regular file"),
        file_locks.locked(tmp_path / "pipe", timeout=0),
    ):
        pass


@posix
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_children_of_a_dead_process_hold_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, time, pathlib\n"
        "from densehash.file_locks import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        print(child, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "set")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert file_locks._take(tmp_path / "set.lock") is None
            process.kill()
            process.wait()
            os.kill(child, 0)  # it lives
            with file_locks.locked(tmp_path / "set", timeout=5):
                pass
        finally:
            os.kill(child, 9)


def test_waiting_ends_with_the_timeout_and_not_much_later(tmp_path: Path) -> None:
    begun = time.monotonic()
    with file_locks.locked(tmp_path / "set"):
        with pytest.raises(FileError), file_locks.locked(tmp_path / "set", timeout=0.2):
            pass
        assert time.monotonic() - begun >= 0.2
