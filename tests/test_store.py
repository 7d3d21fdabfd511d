"""The store: what is published comes back, and only what is new is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from store_cases import assert_equal, entries, files_of, rows, signed, small

from densehash import disk, file_locks
from densehash.errors import FileError, InputError
from densehash.source import Source
from densehash.store import Store, changing, verify
from densehash.store.arrays import header_of


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes most of the time, and no test here cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    content = small()
    store = Store.create(tmp_path / "a", content)
    assert_equal(store.content, content)
    opened = Store.open(tmp_path / "a")
    assert_equal(opened.content, content)
    assert (store.generation, opened.generation) == (1, 1)
    assert opened.path == tmp_path / "a"
    assert opened.n_bytes == sum(map(len, files_of(tmp_path / "a").values()))
    verify(tmp_path / "a")
    opened.verify(verbose=True)


def test_every_file_is_a_plain_npy(tmp_path: Path) -> None:
    content = small()
    Store.create(tmp_path / "a", content)
    found = sorted(path.name.partition("-")[2] for path in (tmp_path / "a").glob("*.npy"))
    assert found[:2] == ["hasher.arrays.hasher_.planes_.npy", "segments.0.bytes.npy"]
    for path in (tmp_path / "a").glob("*-segments.0.*.npy"):
        array = np.load(path, allow_pickle=False)
        name = path.name.split(".")[2]
        np.testing.assert_array_equal(array, content["segments"][0][name])


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5).filter(lambda key: key != "file"), inner, max_size=3)
    ),
    max_leaves=8,
)
arrays = hnp.arrays(
    dtype=st.sampled_from(["u1", "i1", "<u4", ">u4", "<i8", ">f8", "<f2", "<f4", "?", "S1", "S9"]),
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(plain=values, held=st.dictionaries(st.sampled_from("abc"), arrays), transposed=st.booleans())
def test_any_content_comes_back(
    tmp_path_factory: pytest.TempPathFactory, plain: Any, held: dict[str, Any], transposed: bool
) -> None:
    held = {key: array.T if transposed else array for key, array in held.items()}
    folder = tmp_path_factory.mktemp("any") / "a"
    store = Store.create(folder, {"plain": plain, "held": held})
    native = {key: array.astype(array.dtype.newbyteorder("=")) for key, array in held.items()}
    assert_equal(store.content, {"plain": plain, "held": native})
    assert_equal(Store.open(folder).content, {"plain": plain, "held": native})
    shutil.rmtree(folder)


@pytest.mark.parametrize("shape", [(1,), (10**6,), (2**40, 2**20), (2**40,) * 4, (0, 5, 0, 2**40)])
@pytest.mark.parametrize("dtype", ["|u1", "<f8", "|S1024"])
def test_numpy_reads_every_header(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    header = header_of(dtype, shape)
    assert len(header) == 128
    path = tmp_path / "a.npy"
    path.write_bytes(header)
    with path.open("rb") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        found = np.lib.format.read_array_header_1_0(file)
        assert file.tell() == 128
    assert found == (shape, False, np.dtype(dtype))


def test_large_arrays_are_written_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def write(file: Any, data: Any) -> None:
        sizes.append(len(data))
        file.write(data)

    monkeypatch.setattr(disk, "write", write)
    X = rows(300_000, width=8)
    store = Store.create(tmp_path / "a", {"x": X[::-1], "flipped": np.asfortranarray(X[:50_000])})
    assert max(sizes) <= 1 << 20
    np.testing.assert_array_equal(store.content["x"], X[::-1])
    np.testing.assert_array_equal(store.content["flipped"], X[:50_000])
    copy = Store.create(tmp_path / "b", store.content)
    np.testing.assert_array_equal(copy.content["x"], X[::-1])


class Counting(Source):
    """Rows that are made when they are asked for."""

    def __init__(self, n: int, d: int, short: int = 0) -> None:
        self.shape, self.dtype = (n, d), np.dtype(np.float32)
        self.short = short

    def __getitem__(self, asked: Any) -> Any:
        numbers = np.arange(asked.start, min(asked.stop, len(self)) - self.short)
        return np.repeat(numbers[:, np.newaxis], self.shape[1], axis=1).astype(np.float32)


def test_a_source_is_written_without_being_in_memory(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", {"vectors": Counting(300_000, 3)})
    assert store.content["vectors"].shape == (300_000, 3)
    np.testing.assert_array_equal(store.content["vectors"][:, 1], np.arange(300_000))
    with pytest.raises(InputError, match="its rows from 0 on came as"):
        Store.create(tmp_path / "b", {"vectors": Counting(10, 3, short=1)})
    assert not (tmp_path / "b").exists()


# --- changes ------------------------------------------------------------------------------


def test_a_change_writes_only_what_is_new(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*.npy")}
    with store.change() as change:
        assert change.generation == 1
        content = change.content
        gone = content["segments"].pop(0)
        content["segments"].append({"ids": np.arange(5), "codes": rows(5)})
        content["n"] = 7
        after = change.publish(content)
        assert change.generation == store.generation == 2
    expected = {**small(), "n": 7}
    expected["segments"] = [
        small()["segments"][1],
        {"ids": np.arange(5), "codes": rows(5)},
    ]
    for found in (after, store.content, Store.open(tmp_path / "a").content):
        assert_equal(found, expected)
    kept = {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "a").glob("*.npy")
        if path.name in before
    }
    assert len(kept) == 3
    assert kept.items() <= before.items()
    assert {entry.file for entry in entries(tmp_path / "a")} == {
        path.name for path in (tmp_path / "a").glob("*.npy")
    }
    assert_equal(gone, small()["segments"][0])  # it can still be read


def test_several_states_in_one_change(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", {"n": 0, "x": rows(3)})
    with store.change() as change:
        for n in range(1, 4):
            content = change.publish({**change.content, "n": n, f"x{n}": rows(n)})
            assert content["n"] == Store.open(tmp_path / "a").content["n"] == n
    assert store.generation == 4
    with pytest.raises(InputError, match="the change is over"):
        change.publish({})


def test_a_change_without_a_new_state_changes_nothing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    before = files_of(tmp_path / "a")
    with store.change():
        pass
    with pytest.raises(ZeroDivisionError), store.change():
        raise ZeroDivisionError
    assert files_of(tmp_path / "a") == before
    assert not store.refresh()


def test_the_largest_and_the_smallest_numbers_come_back(tmp_path: Path) -> None:
    content = {"largest": (1 << 63) - 1, "smallest": -(1 << 63), "tiny": 5e-324}
    Store.create(tmp_path / "a", content)
    assert Store.open(tmp_path / "a").content == content


def test_the_mark_is_the_checksum_of_the_manifest(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_bytes())
    assert store.mark == manifest["sha256"]
    assert re.fullmatch("[0-9a-f]{64}", store.mark)


def test_content_is_a_copy(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    store.content["segments"].clear()
    with store.change() as change:
        change.content["segments"].clear()
    assert_equal(store.content, small())


def test_an_array_stays_readable_when_its_file_is_gone(tmp_path: Path) -> None:
    X = rows(100_000)
    store = Store.create(tmp_path / "a", {"x": X})
    reader = Store.open(tmp_path / "a")
    with store.change() as change:
        change.publish({"x": rows(3)})
    shutil.rmtree(tmp_path / "a")
    np.testing.assert_array_equal(reader.content["x"], X)


def test_views_and_copies_become_new_files(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", {"x": rows(9), "y": rows(9, 1)})
    before = {entry.file for entry in entries(tmp_path / "a")}
    with store.change() as change:
        content = change.content
        change.publish({"x": content["x"][:], "y": content["y"], "z": content["x"].copy()})
    assert len(before & {entry.file for entry in entries(tmp_path / "a")}) == 1
    np.testing.assert_array_equal(store.content["x"], rows(9))
    with store.change() as change:
        kept = change.content["x"]
        with pytest.raises(InputError, match="names .*-x.npy more than once"):
            change.publish({"one": kept, "two": kept})


def test_two_stores_of_one_folder_take_turns(tmp_path: Path) -> None:
    one = Store.create(tmp_path / "a", {"n": 0, "x": rows(100_000)})
    two = Store.open(tmp_path / "a")
    old = two.content["x"]
    with one.change() as change:
        change.publish({**change.content, "n": 1, "y": rows(2)})
    assert two.content["n"] == 0
    with two.change() as change:
        assert change.content["n"] == two.content["n"] == 1
        assert change.content["x"] is old  # the file is the same, and so is the object
        change.publish({**change.content, "n": 2})
    assert one.refresh()
    assert not one.refresh()
    assert (one.content["n"], one.generation) == (2, 3)


def test_arrays_of_an_older_state_are_written_again(tmp_path: Path) -> None:
    one = Store.create(tmp_path / "a", {"x": rows(100_000)})
    two = Store.open(tmp_path / "a")
    old = one.content["x"]
    with two.change() as change:
        change.publish({"x": rows(2)})
    with one.change() as change:
        change.publish({"x": old})
    np.testing.assert_array_equal(Store.open(tmp_path / "a").content["x"], rows(100_000))
    verify(tmp_path / "a")


def test_leftovers_are_swept_and_other_files_stay(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    left = ["0123456789abcdef-x.npy", ".densehash-0123456789abcdef.part"]
    others = ["notes.txt", "vectors.npy", "0123-x.npy", ".densehash-x.part"]
    for name in [*left, *others]:
        (tmp_path / "a" / name).touch()
    (tmp_path / "a" / "fedcba9876543210-y.npy").mkdir()
    assert_equal(Store.open(tmp_path / "a").content, small())
    with store.change():
        assert not {path.name for path in (tmp_path / "a").iterdir()} & set(left)
    assert {path.name for path in (tmp_path / "a").iterdir()} >= set(others)


# --- small and checked --------------------------------------------------------------------


def test_which_arrays_are_checked(tmp_path: Path) -> None:
    content = {
        "hasher": {"planes": rows(20_000), "huge": np.zeros(17 << 20, np.uint8)},
        "large": rows(20_000),
        "small": rows(16_000),
    }
    store = Store.create(tmp_path / "a", content, checked=["hasher"])

    def marks() -> dict[str, bool]:
        return {entry.file.partition("-")[2]: entry.checked for entry in entries(tmp_path / "a")}

    expected = {
        "hasher.planes.npy": True,
        "hasher.huge.npy": False,
        "large.npy": False,
        "small.npy": True,
    }
    assert marks() == expected
    with store.change() as change:
        change.publish(change.content)
    assert marks() == expected


def test_what_is_checked_is_not_a_map(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", {"small": rows(9), "large": rows(100_000)})
    for path in (tmp_path / "a").glob("*.npy"):
        with path.open("r+b") as file:
            file.seek(128)
            file.write(b"\0" * 8)
    assert store.content["small"].tobytes() == rows(9).tobytes()
    with pytest.raises(FileError, match="small.npy is damaged: its checksum"):
        Store.open(tmp_path / "a")


def test_a_map_whose_header_lies_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    Store.create(tmp_path / "a", {"large": rows(100_000)})
    (path,) = (tmp_path / "a").glob("*-large.npy")
    with path.open("r+b") as file:  # Fortran order: the same bytes, another array
        header = file.read(128)
        file.seek(0)
        file.write(header.replace(b"False", b"True "))
    with pytest.raises(FileError, match="large.npy is damaged: it does not begin as an array"):
        Store.open(tmp_path / "a")


def test_an_array_is_held_by_its_entry_not_by_its_name(tmp_path: Path) -> None:
    """A folder restored from elsewhere may use a name again for other bytes."""
    Store.create(tmp_path / "a", {"x": rows(2)})
    Store.create(tmp_path / "b", {"x": rows(2, 1)})
    store = Store.open(tmp_path / "a")
    (mine,), (other,) = entries(tmp_path / "a"), entries(tmp_path / "b")
    shutil.copy(tmp_path / "b" / other.file, tmp_path / "a" / mine.file)
    manifest = (tmp_path / "b" / "manifest.json").read_bytes()
    tree = json.loads(manifest.replace(other.file.encode(), mine.file.encode()))
    del tree["sha256"]
    (tmp_path / "a" / "manifest.json").write_bytes(signed(tree))
    assert store.refresh()
    np.testing.assert_array_equal(store.content["x"], rows(2, 1))


# --- create -------------------------------------------------------------------------------


def test_create_replaces_an_index_as_one_change(tmp_path: Path) -> None:
    first = Store.create(tmp_path / "a", small())
    second = Store.create(tmp_path / "a", {"n": 2, "x": rows(2)})
    assert second.generation == 2
    assert_equal(Store.open(tmp_path / "a").content, {"n": 2, "x": rows(2)})
    assert_equal(first.content, small())
    assert first.refresh()
    assert len(list((tmp_path / "a").glob("*.npy"))) == 1


def test_a_folder_that_was_made_anew_is_another_state(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", {"x": rows(2)})
    mark = store.mark
    shutil.rmtree(tmp_path / "a")
    Store.create(tmp_path / "a", {"x": rows(2, 1)})
    with store.change() as change:
        assert change.generation == 1
        assert change.mark == store.mark != mark
        np.testing.assert_array_equal(change.content["x"], rows(2, 1))


def test_create_replaces_an_index_that_has_lost_a_file(tmp_path: Path) -> None:
    Store.create(tmp_path / "a", small())
    next((tmp_path / "a").glob("*.npy")).unlink()
    with pytest.raises(FileError, match="cannot be read: No such file"):
        Store.open(tmp_path / "a")
    Store.create(tmp_path / "a", {"n": 1})
    assert Store.open(tmp_path / "a").content == {"n": 1}


def test_create_takes_an_empty_folder_and_what_a_crash_has_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "writer.lock").write_bytes(b"densehash: nothing was published here yet\n")
    for name in ("0123456789abcdef-x.npy", ".densehash-0123456789abcdef.part"):
        (tmp_path / "a" / name).touch()
    with pytest.raises(FileError, match="a is no index: it has no manifest.json"):
        Store.open(tmp_path / "a")
    Store.create(tmp_path / "a", {"n": 1})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "manifest.json",
        "writer.lock",
    ]


@pytest.mark.parametrize("name", ["notes.txt", "vectors.npy", "folder"])
def test_create_refuses_a_folder_of_others(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    if name == "folder":
        (tmp_path / "a" / name).mkdir()
    else:
        (tmp_path / "a" / name).touch()
    with pytest.raises(FileError, match=f"a is no index, and not empty: it has '{name}'"):
        Store.create(tmp_path / "a", {})
    assert [path.name for path in (tmp_path / "a").iterdir()] == [name]


def test_create_refuses_files_and_folders_without_parents(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileError, match="a is no folder, expected one or nothing"):
        Store.create(tmp_path / "a", {})
    with pytest.raises(FileError, match="b cannot be written: No such file"):
        Store.create(tmp_path / "x" / "b", {})


def test_create_does_not_replace_a_damaged_or_newer_index(tmp_path: Path) -> None:
    Store.create(tmp_path / "a", small())
    (tmp_path / "a" / "manifest.json").write_bytes(b"{}")
    before = files_of(tmp_path / "a")
    with pytest.raises(FileError, match="manifest.json is damaged"):
        Store.create(tmp_path / "a", {})
    assert files_of(tmp_path / "a") == before


def test_open_says_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, message in (
        ("x", "x is not there"),
        ("file", "file is no folder"),
        (".", "no index"),
    ):
        for call in (Store.open, verify):
            with pytest.raises(FileError, match=message):
                call(tmp_path / name)


def test_relative_paths_do_not_follow_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.create("a", {"n": 1})
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with store.change() as change:
        change.publish({"n": 2})
    assert Store.open(tmp_path / "a").content == {"n": 2}


def test_creating_shows_nothing_until_it_is_published(tmp_path: Path) -> None:
    reader = Store.create(tmp_path / "a", small())
    with Store.creating(tmp_path / "a") as change:
        assert change.content == {}
        part = change.stage(rows(40_000), "x")
        assert_equal(Store.open(tmp_path / "a").content, small())
        assert not reader.refresh()
        with (
            pytest.raises(FileError, match="another process writes"),
            reader.change(timeout=0),
        ):
            pass
        with pytest.raises(InputError, match="nothing was published"):
            Store.made_by(change)
        content = change.publish({"n": 1, "x": part})
        assert_equal(content, {"n": 1, "x": rows(40_000)})
        assert_equal(change.content, content)
        change.publish({**change.content, "n": 2})
    made = Store.made_by(change)
    assert made.generation == 3
    assert_equal(reader.content, small())
    assert_equal(Store.open(tmp_path / "a").content, {"n": 2, "x": rows(40_000)})
    with made.change() as again:
        again.publish({"n": 3})
    assert reader.refresh()
    assert reader.content == {"n": 3}


@pytest.mark.parametrize("error", [None, OSError("of a file that was read"), KeyboardInterrupt()])
@pytest.mark.parametrize("there", ["nothing", "a folder", "an index"])
def test_creating_without_publishing_leaves_nothing(
    tmp_path: Path, error: BaseException | None, there: str
) -> None:
    if there == "a folder":
        (tmp_path / "a").mkdir()
    elif there == "an index":
        Store.create(tmp_path / "a", small())
    before = {path.relative_to(tmp_path): path.is_file() for path in tmp_path.rglob("*")}

    def create() -> None:
        with Store.creating(tmp_path / "a") as change:
            change.stage(rows(9), "x")
            change.stage(rows(40_000), "y")
            if error is not None:
                raise error

    if error is None:
        create()
    else:
        with pytest.raises(type(error)) as raised:
            create()
        assert raised.value is error  # it says what it said
    assert {path.relative_to(tmp_path): path.is_file() for path in tmp_path.rglob("*")} == before
    if there == "an index":
        assert_equal(Store.open(tmp_path / "a").content, small())
        verify(tmp_path / "a")


def test_an_error_after_publishing_takes_nothing_back(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), Store.creating(tmp_path / "a") as change:
        change.publish({"n": 1, "x": rows(3)})
        change.stage(rows(3), "y")
        raise ZeroDivisionError
    assert_equal(Store.open(tmp_path / "a").content, {"n": 1, "x": rows(3)})
    assert len(list((tmp_path / "a").glob("*.npy"))) == 1


# --- staged -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 3, 40_000])
def test_what_is_staged_is_published_as_it_is(
    tmp_path: Path, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "a", {"n": 0})
    with store.change() as change:
        staged = [change.stage(rows(n, seed), "part") for seed in range(3)]
        for seed, array in enumerate(staged):
            assert_equal(array, rows(n, seed))
        files = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*.npy")}
        assert len(files) == 3
        assert all(re.fullmatch("[0-9a-f]{16}-part.npy", name) for name in files)
        with monkeypatch.context() as patch:
            patch.setattr(changing, "write_array", lambda *_: pytest.fail("it was written again"))
            content = change.publish({"n": 1, "parts": staged})
        for one, two in zip(content["parts"], staged, strict=True):
            assert one is two
    found = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*.npy")}
    assert found == files
    assert [entry.checked for entry in entries(tmp_path / "a")] == [n < 40_000] * 3
    assert_equal(
        Store.open(tmp_path / "a").content, {"n": 1, "parts": [rows(n, s) for s in range(3)]}
    )
    verify(tmp_path / "a")
    with store.change() as change:  # from now on they are as any other
        change.publish({"one": change.content["parts"][1]})
    assert next(entry.file for entry in entries(tmp_path / "a")) in files


def test_a_source_is_staged(tmp_path: Path) -> None:
    with Store.creating(tmp_path / "a") as change:
        found = change.stage(Counting(300_000, 3), "x")
        np.testing.assert_array_equal(found[:, 1], np.arange(300_000))
        with pytest.raises(InputError, match="its rows from 0 on came as"):
            change.stage(Counting(10, 3, short=1), "y")
        assert len(list((tmp_path / "a").glob("*.npy"))) == 1
        change.publish({"x": found})
    verify(tmp_path / "a")


def test_what_is_staged_and_not_published_goes(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    before = files_of(tmp_path / "a")
    with store.change() as change:
        change.stage(rows(40_000), "x")
    assert files_of(tmp_path / "a") == before
    with suppress(ZeroDivisionError), store.change() as change:
        change.stage(rows(40_000), "x")
        raise ZeroDivisionError
    assert files_of(tmp_path / "a") == before
    with store.change() as change:
        left = change.stage(rows(40_000), "x")
        change.publish({"n": 1, "y": change.stage(rows(3), "y")})
        assert len(list((tmp_path / "a").glob("*.npy"))) == 1
        assert_equal(left, rows(40_000))  # its file is gone, and it can still be read
        change.publish({"x": left, **change.content})
    assert_equal(Store.open(tmp_path / "a").content, {"x": rows(40_000), "n": 1, "y": rows(3)})
    verify(tmp_path / "a")
    with pytest.raises(InputError, match="the change is over"):
        change.stage(rows(3), "x")


def test_staged_arrays_outlive_a_publishing_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "a", small())
    with store.change() as change:
        staged = change.stage(rows(40_000), "x")
        with pytest.raises(InputError, match="cannot be stored"):
            change.publish({"x": staged, "bad": {1, 2}})
        with monkeypatch.context() as patch:
            patch.setattr(disk, "rename", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
            with pytest.raises(FileError, match="broken"):
                change.publish({"x": staged, "y": rows(3)})
        assert_equal(Store.open(tmp_path / "a").content, small())
        assert change.publish({"x": staged})["x"] is staged
    assert len(list((tmp_path / "a").glob("*.npy"))) == 1
    verify(tmp_path / "a")


def test_what_cannot_be_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(tmp_path / "a", small())
    before = files_of(tmp_path / "a")
    with store.change() as change:
        for array, name, message in (
            (np.zeros(2, complex), "x", "complex128 cannot be stored"),
            (rows(2), "X", "the place of an array must be .*, got 'X'"),
            (rows(2), "a/b", "the place of an array must be"),
            (rows(2), "", "the place of an array must be"),
        ):
            with pytest.raises(InputError, match=message):
                change.stage(array, name)
        assert files_of(tmp_path / "a") == before
        twice = change.stage(rows(2), "x")
        with pytest.raises(InputError, match="names .*-x.npy more than once"):
            change.publish({"one": twice, "two": twice})
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        monkeypatch.setattr(disk, "write", lambda *_: pytest.fail("it was written"))
        with pytest.raises(FileError, match="1,000 bytes free, and 4,128 more are needed"):
            change.stage(rows(1000), "x")
        with pytest.raises(FileError, match="1,000 bytes free, and 1,001 more are needed"):
            change.check_room(1001)
        change.check_room(1000)
    assert files_of(tmp_path / "a") == before


# --- what cannot be stored ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (7, "content must be a mapping, got a int"),
        ({"x": np.int64(3)}, "content.x cannot be stored: it is a int64"),
        ({"x": {1: 2}}, "content.x has a key 1"),
        ({"x": {"file": 2}}, "content.x has a key 'file'"),
        ({"file": 2}, "content has a key 'file'"),
        ({"x": {1, 2}}, "content.x cannot be stored: it is a set"),
        ({"x": b"bytes"}, "content.x cannot be stored: it is a bytes"),
        ({"x": [float("nan")]}, "content.x.0 must be finite to be stored, got nan"),
        ({"x": 1 << 63}, "content.x does not fit 64 bits"),
        ({"x": -(1 << 63) - 1}, "content.x does not fit 64 bits"),
        ({"x": np.zeros(2, complex)}, "an array of complex128 cannot be stored"),
        ({"x": np.zeros(2, object)}, "an array of object cannot be stored"),
        ({"x": np.zeros(2, "U3")}, "an array of <U3 cannot be stored"),
        ({"x": np.zeros(2, "S1025")}, "an array of |S1025 cannot be stored"),
        ({"x": np.zeros(2, "S")[:, np.newaxis][:, :0].astype("i2")}, "int16 cannot be stored"),
        ({"x": np.zeros(2, [("a", "f4")])}, "cannot be stored"),
        ({"x": np.array(1.0)}, "must have 1 to 4 lengths"),
        ({"x": np.zeros((1,) * 5)}, "must have 1 to 4 lengths"),
        ({"X": np.zeros(2)}, "the place of an array must be .*, got 'X'"),
        ({"a/b": np.zeros(2)}, "the place of an array must be .*, got 'a/b'"),
        ({"a" * 129: np.zeros(2)}, "the place of an array must be 1 to 128"),
        ({"": np.zeros(2)}, "the place of an array must be"),
        ({"x": "y" * (1 << 24)}, "the manifest would have 16,777,3.. bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_content_that_cannot_be_stored(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("|S", r"\|S")):
        Store.create(tmp_path / "a", content)
    assert not (tmp_path / "a").exists()
    store = Store.create(tmp_path / "a", small())
    before = files_of(tmp_path / "a")
    with store.change() as change, pytest.raises(InputError):
        change.publish(content)
    assert files_of(tmp_path / "a") == before
    assert_equal(store.content, small())


def test_content_has_an_end(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(15):
        deep = {"x": [deep]} if isinstance(deep, int) else {"x": deep}
    store = Store.create(tmp_path / "a", deep)
    assert store.content == deep
    for _ in range(3000):
        deep = {"x": deep}
    with pytest.raises(InputError, match="content.x.* cannot be stored: it is a dict"):
        Store.create(tmp_path / "b", deep)


def test_a_disk_without_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "a", small())
    before = files_of(tmp_path / "a")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=400_000))
    monkeypatch.setattr(disk, "write", lambda *_: pytest.fail("it was written"))
    with (
        store.change() as change,
        pytest.raises(FileError, match="400,000 bytes free, and 40.,... more are needed"),
    ):
        change.publish({**change.content, "more": rows(100_000)})
    assert files_of(tmp_path / "a") == before


# --- several at once ----------------------------------------------------------------------


def test_writers_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_POLL", 0.001)
    Store.create(tmp_path / "a", {"n": 0, "x": np.zeros(1, np.uint8)})
    errors: list[BaseException] = []

    def work() -> None:
        try:
            store = Store.open(tmp_path / "a")
            for _ in range(10):
                with store.change(timeout=60) as change:
                    n = change.content["n"] + 1
                    change.publish({"n": n, "x": np.full(n, n, np.uint8)})
        except BaseException as error:  # noqa: BLE001  to be seen by the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    store = Store.open(tmp_path / "a")
    assert (store.generation, store.content["n"]) == (41, 40)
    np.testing.assert_array_equal(store.content["x"], np.full(40, 40))
    assert len(list((tmp_path / "a").glob("*.npy"))) == 1


def test_a_second_writer_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "_POLL", 0.01)
    store = Store.create(tmp_path / "a", {"n": 0})
    other = Store.open(tmp_path / "a")
    with store.change() as change:
        with (
            pytest.raises(FileError, match=r"another process writes: .*writer.lock .* than 0.05 s"),
            other.change(timeout=0.05),
        ):
            pass
        with pytest.raises(FileError, match="another process writes"):
            Store.create(tmp_path / "a", {}, timeout=0)
        assert Store.open(tmp_path / "a").content == {"n": 0}  # readers do not wait
        change.publish({"n": 1})
    with other.change(timeout=0) as change:
        assert change.content == {"n": 1}


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write all")
def test_a_folder_that_may_not_be_written_can_be_read(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", small())
    (tmp_path / "a" / "writer.lock").unlink()
    (tmp_path / "a").chmod(0o500)
    assert_equal(Store.open(tmp_path / "a").content, small())
    with pytest.raises(FileError, match="cannot be written: Permission denied"), store.change():
        pass
    (tmp_path / "a").chmod(0o700)


# --- the description of the format --------------------------------------------------------


def test_the_example_of_the_format_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "docs" / "format.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "import densehash" not in example
    Store.create(tmp_path / "photos.dh", small())
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(example, found)
    assert_equal_values(found["content"], small())


def assert_equal_values(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal_values(found[key], value)
    elif isinstance(expected, list):
        for one, two in zip(found, expected, strict=True):
            assert_equal_values(one, two)
    else:
        np.testing.assert_array_equal(found, expected)
