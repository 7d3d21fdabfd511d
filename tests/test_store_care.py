"""What a writer must not believe: a failed look, a lock that is none, a file that was damaged."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from index_cases import build as build_index
from index_cases import every_kind
from index_cases import rows as vectors
from store_cases import assert_equal, edit, entries, failing_looks, files_of, rows, small

from densehash import disk, file_locks
from densehash.errors import FileError
from densehash.index import Index
from densehash.store import Store, changing, folder, lets_go, lockfile, verify
from densehash.store.manifest import MANIFEST

NEW = {"n": 7, "x": rows(7)}


def publish_new(path: Path) -> None:
    with Store.open(path).change() as change:
        change.publish(NEW)


def create_new(path: Path) -> None:
    Store.create(path, NEW)


WRITERS = {"change": publish_new, "create": create_new}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


# --- a failed look is no answer -----------------------------------------------------------------


@every_writer
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_look_that_fails_does_not_mean_that_nothing_is_there(
    tmp_path: Path, write: Callable[[Path], None], number: int, lasting: bool
) -> None:
    path, failed = tmp_path / "a", 0
    for at in range(1, 50):
        shutil.rmtree(path, ignore_errors=True)
        Store.create(path, small())
        before = files_of(path)
        with failing_looks(MANIFEST, number, at, lasting=lasting) as looks:
            try:
                write(path)
            except FileError as error:
                failed += 1
                assert os.strerror(number) in str(error)  # noqa: PT017
                assert str(path) in str(error)  # noqa: PT017
        verify(path)
        content = Store.open(path).content
        if content["n"] == 7:
            assert_equal(content, NEW)
        else:
            assert before.items() <= files_of(path).items()
        if len(looks) < at:
            break
    assert failed > 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_disk_that_cannot_be_read_is_named(tmp_path: Path, number: int) -> None:
    store = Store.create(tmp_path / "a", small())
    for file in (MANIFEST, entries(tmp_path / "a")[2].file):
        with failing_looks(file, number, 1, lasting=True):
            for call in (Store.open, verify):
                with pytest.raises(
                    FileError, match=rf"{file} cannot be read: {os.strerror(number)}"
                ):
                    call(tmp_path / "a")
    with failing_looks(MANIFEST, number, 1, lasting=True), pytest.raises(FileError, match=MANIFEST):
        store.refresh()
    assert_equal(store.content, small())


# --- whose a folder is --------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [None, b"", b"mine"])
def test_files_of_others_stay_whatever_they_are_called(tmp_path: Path, lock: bytes | None) -> None:
    path = tmp_path / "a"
    path.mkdir()
    (path / "00aa11bb22cc33dd-embeddings.npy").write_bytes(b"years of work")
    if lock is not None:
        (path / "writer.lock").write_bytes(lock)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(FileError, match="is no index, and not empty: .* choose another folder"):
        Store.create(path, small())
    index = build_index("flat", vectors(20), None, metric="l2")
    with pytest.raises(FileError, match="not empty"):
        index.save(path)
    with pytest.raises(FileError, match="not empty"):
        Index.build(vectors(20), path=path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize("lock", [b"", b"densehash: not", b"\0" * 30])
def test_a_mark_that_a_power_cut_has_torn_is_written_again(tmp_path: Path, lock: bytes) -> None:
    path = tmp_path / "a"
    path.mkdir()
    (path / "writer.lock").write_bytes(lock)
    Store.create(path, NEW)
    assert_equal(Store.open(path).content, NEW)
    assert (path / "writer.lock").read_bytes() == b""


def test_an_index_that_has_lost_its_manifest_is_not_swept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    Store.create(path, small())
    (path / MANIFEST).unlink()
    before = files_of(path)
    with pytest.raises(FileError, match="is no index, and not empty"):
        Store.create(path, NEW)
    assert files_of(path) == before


def test_a_first_writer_that_was_killed_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    nothing = mock.patch.object(changing, "remove_files")  # as if it was killed
    with suppress(KeyboardInterrupt), nothing, Store.creating(path) as change:
        change.stage(rows(9), "x")
        raise KeyboardInterrupt
    assert len(files_of(path)) == 1
    assert (path / "writer.lock").read_bytes()
    Store.create(path, NEW)
    assert len(files_of(path)) == 2
    assert (path / "writer.lock").read_bytes() == b""
    assert_equal(Store.open(path).content, NEW)


# --- locks --------------------------------------------------------------------------------------


@every_writer
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_nobody_writes_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], number: int
) -> None:
    path = tmp_path / "a"
    Store.create(path, small())
    before = files_of(path)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FileError, match=r"a is on a file system without locks .* Reading works"):
        write(path)
    assert files_of(path) == before
    assert_equal(Store.open(path).content, small())
    verify(path)
    with pytest.raises(FileError, match="without locks"):
        create_new(tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("staged", [False, True])
def test_a_lock_file_that_is_removed_lets_nobody_write_over_another(
    tmp_path: Path, staged: bool
) -> None:
    path = tmp_path / "a"
    store = Store.create(path, small())
    with store.change() as first:
        x = first.stage(rows(7), "x") if staged else rows(7)
        (path / "writer.lock").unlink()
        with Store.open(path).change() as second:
            second.publish({"n": 8, "y": rows(8)})
        with pytest.raises(FileError, match="writer.lock was removed while this process held it"):
            first.publish({"n": 7, "x": x})
    assert_equal(Store.open(path).content, {"n": 8, "y": rows(8)})
    verify(path)
    assert len(files_of(path)) == 2
    publish_new(path)
    assert_equal(Store.open(path).content, NEW)


def test_one_who_lost_its_lock_removes_no_files_of_another(tmp_path: Path) -> None:
    path = tmp_path / "a"
    store = Store.create(path, small())
    with Store.open(path).change() as first:
        first.stage(rows(7), "x")
        (path / "writer.lock").unlink()
        second = store.change()
        change = second.__enter__()
        y = change.stage(rows(8), "y")
    change.publish({"n": 8, "y": y})
    second.__exit__(None, None, None)
    assert_equal(Store.open(path).content, {"n": 8, "y": rows(8)})


def test_a_manifest_that_somebody_has_replaced_is_not_replaced_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    store = Store.create(path, small())
    Store.create(tmp_path / "b", {"n": 9})
    with store.change() as change:
        shutil.copy(tmp_path / "b" / MANIFEST, path / MANIFEST)
        with pytest.raises(FileError, match="a was changed while this process held writer.lock"):
            change.publish(NEW)
    assert Store.open(path).content == {"n": 9}


def test_a_staged_file_that_is_gone_is_not_published(tmp_path: Path) -> None:
    path = tmp_path / "a"
    store = Store.create(path, small())
    with store.change() as change:
        x = change.stage(rows(7), "x")
        next(path.glob("*-x.npy")).unlink()
        with pytest.raises(FileError, match=r"-x\.npy was removed or cut while it was written"):
            change.publish({"n": 7, "x": x})
    assert_equal(Store.open(path).content, small())


def test_what_is_published_is_reported_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.FileIO):
        def close(self) -> None:
            was_closed = self.closed
            super().close()
            if not was_closed:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    build_index("flat", vectors(20), None, metric="l2").save(tmp_path / "a")
    index = Index.open(tmp_path / "a")
    monkeypatch.setattr(file_locks, "FileIO", Failing)
    index.add(vectors(3, seed=1))
    assert len(index) == len(Index.open(tmp_path / "a")) == 23


# --- Ctrl-C -------------------------------------------------------------------------------------

LINES = {module.__file__ for module in (disk, file_locks, changing, lockfile, folder)} | {
    contextmanager.__code__.co_filename
}


@pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ctrl_c_leaves_no_lock_even_while_its_traceback_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any line of the way out of a change, those of contextlib included."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "a"
    Store.create(path, {"n": 0})
    left, was_over = 0, False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        code = frame.f_code  # the last way out looks at every lock that a traceback keeps
        if code.co_filename not in LINES or code.co_name in {"_close", "<lambda>"}:
            return None
        if event == "line" and was_over:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    @lets_go
    def change(n: int) -> None:
        nonlocal was_over
        with Store.open(path).change() as change:
            change.publish({"n": n})
            was_over = True

    kept, hit, at = [], True, 0
    while hit:
        at, hit, was_over = at + 1, False, False
        left = at
        sys.settrace(trace)
        try:
            change(at)
        except KeyboardInterrupt as error:
            hit = True
            kept.append(error)  # as interactive shells do
        finally:
            sys.settrace(None)
        with Store.open(path).change(timeout=0) as after:
            assert after.content == {"n": at}
    assert at > 20


@pytest.mark.parametrize("method", ["build", "_change"])
def test_an_index_lets_go_of_its_lock(method: str) -> None:
    assert hasattr(getattr(Index, method), "__wrapped__")


# --- the manifest -------------------------------------------------------------------------------


def test_a_manifest_is_put_back_without_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut could tear what is written again; a renaming is whole or not at all."""
    path = tmp_path / "a"
    Store.create(path, small())
    before, plain = (path / MANIFEST).stat(), os.fsync
    renamed = False

    def rename(part: Path, target: Path) -> None:
        nonlocal renamed
        part.replace(target)
        renamed = True

    def fsync(descriptor: int) -> None:
        if renamed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(descriptor)

    monkeypatch.setattr(disk, "rename", rename)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(FileError, match=os.strerror(errno.EIO)):
        publish_new(path)
    assert (path / MANIFEST).stat().st_ino == before.st_ino
    monkeypatch.undo()
    assert_equal(Store.open(path).content, small())
    # The disk did not say which manifest will be there after a power cut: both are whole.
    assert any(b"-x.npy" in name.encode() for name in files_of(path))
    publish_new(path)
    assert_equal(Store.open(path).content, NEW)
    assert len(files_of(path)) == 1 + len(entries(path))


def test_where_files_have_one_name_only_the_old_manifest_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    Store.create(tmp_path / "a", small())
    publish_new(tmp_path / "a")
    assert_equal(Store.open(tmp_path / "a").content, NEW)
    assert len(files_of(tmp_path / "a")) == 2


def test_a_file_that_is_named_often_is_found_at_once(tmp_path: Path) -> None:
    Store.create(tmp_path / "a", {"x": rows(3)})

    def repeat(tree: dict[str, Any]) -> None:
        entry = tree["content"]["x"]
        others = [{**entry, "file": f"{at:016x}-x.npy"} for at in range(40_000)]
        tree["content"]["x"] = [*others, entry, entry]

    edit(tmp_path / "a", repeat)  # minutes, if every file were compared with every other
    with pytest.raises(FileError, match=r"names .*-x\.npy more than once"):
        Store.open(tmp_path / "a")


# --- damage -------------------------------------------------------------------------------------


def damaged(path: Path, name: str) -> Path:
    """Flip a bit in the middle of an array that is mapped."""
    file = next(path / one.file for one in entries(path) if one.file.endswith(name))
    data = bytearray(file.read_bytes())
    data[len(data) - 1] ^= 1
    file.unlink()
    file.write_bytes(data)
    return file


CHANGES: dict[str, Callable[[Index, Path], object]] = {
    "add": lambda index, _: index.add(vectors(60, seed=1)),
    "update": lambda index, _: index.update(index.ids[:25], vectors(25, seed=1)),
    "save": lambda index, path: index.save(path / "copy"),
    "compact": lambda index, _: index.compact(),
}


@every_kind
@pytest.mark.parametrize("name", ["ids.npy", "codes.npy", "vectors.npy"])
@pytest.mark.parametrize("change", CHANGES)
def test_damage_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, change: str
) -> None:
    """A copy has a checksum of its own: nobody would find the damage again."""
    monkeypatch.setattr(changing, "_SMALL", 0)  # all arrays are mapped
    path = tmp_path / "a"
    index = build_index(kind, vectors(50), None, metric="l2")
    index.save(path)
    index = Index.open(path)
    index.remove(index.ids[:1])
    file = damaged(path, name)
    before = files_of(path)
    index = Index.open(path)
    with pytest.raises(FileError, match=f"{file.name} is damaged: its checksum is not the one"):
        CHANGES[change](index, tmp_path)
    assert files_of(path) == before
    assert not (tmp_path / "copy").exists()


# --- saved where it is --------------------------------------------------------------------------


def test_an_index_is_saved_again_where_its_folder_is_gone(tmp_path: Path) -> None:
    path, X = tmp_path / "a", vectors(30)
    build_index("flat", X, None, metric="l2").save(path)
    index = Index.open(path)
    before = files_of(path)
    index.save(path)
    assert files_of(path) == before  # it is there already
    shutil.rmtree(path)
    index.save(path)
    assert len(Index.open(path)) == 30
    index.verify()
    index.add(X[:2])
    assert len(Index.open(path)) == 32


def test_an_index_is_saved_over_another_that_took_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    build_index("flat", vectors(30), None, metric="l2").save(path)
    index = Index.open(path)
    shutil.rmtree(path)
    build_index("flat", vectors(20), None, metric="l2").save(path)
    index.save(path)
    assert len(Index.open(path)) == len(index) == 30


def test_saving_does_not_undo_what_others_have_added(tmp_path: Path) -> None:
    path = tmp_path / "a"
    build_index("flat", vectors(30), None, metric="l2").save(path)
    index = Index.open(path)
    Index.open(path).add(vectors(2))
    with pytest.raises(FileError, match=r"was changed since it was read here.*refresh\(\)"):
        index.save(path)
    assert len(Index.open(path)) == 32
    index.refresh()
    index.save(path)
    assert len(Index.open(path)) == 32


# --- files that others may cut ------------------------------------------------------------------


def test_an_index_in_memory_does_not_mind_what_becomes_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "_SMALL", 0)
    path, X = tmp_path / "a", vectors(30)
    build_index("grouped", X, None, metric="l2").save(path)
    index = Index.open(path, mmap=False)
    index.add(X[:5])
    copy = pickle.loads(pickle.dumps(index))
    assert index.refresh() is False
    expected = index.search(X, 3)
    for file in path.glob("*.npy"):
        os.truncate(file, 0)  # a map would end the process
    for found in (index, copy):
        np.testing.assert_array_equal(found.search(X, 3).ids, expected.ids)


@every_kind
def test_an_index_in_memory_is_checked_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(changing, "_SMALL", 0)
    build_index(kind, vectors(50), None, metric="l2").save(tmp_path / "a")
    file = damaged(tmp_path / "a", "vectors.npy")
    Index.open(tmp_path / "a")
    with pytest.raises(FileError, match=f"{file.name} is damaged"):
        Index.open(tmp_path / "a", mmap=False)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc")
def test_maps_keep_no_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "_SMALL", 0)
    Store.create(tmp_path / "a", {f"x{at}": rows(3) for at in range(50)})
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    store = Store.open(tmp_path / "a")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert_equal(store.content["x49"], rows(3))
    with pytest.raises(ValueError, match="read-only|WRITEABLE"):
        store.content["x3"].flags.writeable = True
