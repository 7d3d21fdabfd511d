"""Indexes that are built and changed in a folder, piece by piece: the same answers, or nothing."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_cases import (
    ID_TYPES,
    KINDS,
    METRICS,
    D,
    Disk,
    asked_of,
    build,
    compare,
    every_kind,
    everywhere,
    fast_folder,
    leftovers,
    model_of,
    names,
    no_fsync,
    rows,
    same,
)
from index_children import Server, save_next
from numpy.typing import NDArray
from soak import SOAK
from test_index_crash import posix, whole

from densehash.errors import FileError, InputError
from densehash.hashers import LSH
from densehash.index import Index, placing
from densehash.index.gathering import Gathered
from densehash.index.placing import MEMORY, in_memory, piece_rows
from densehash.source import Source
from densehash.store import Store, changing, verify

ROW = 4 * D + 2 + 8  # bytes of a vector, a code and an id


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows at a time, each a segment that stays one."""
    monkeypatch.setattr(placing, "PIECE_BYTES", 10 * ROW)


@pytest.fixture
def in_shm() -> Iterator[Path]:
    """A folder that costs little."""
    with TemporaryDirectory(prefix="densehash-", dir=fast_folder()) as folder:
        yield Path(folder)


class Counted(Source):
    """Rows of an array that are counted as they are read; something may happen at one of them."""

    def __init__(
        self, X: NDArray[Any], at: int = -1, happens: Callable[[], object] | None = None
    ) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._X, self.at, self.happens = X, at, happens
        self.times = np.zeros(len(X), np.intp)

    def __getitem__(self, asked: Any) -> Any:
        self.times[asked] += 1
        if self.happens is not None and self.at >= 0 and self.times[self.at]:
            self.at = -1
            self.happens()
        return self._X[asked]


# --- the same answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_type", "metric"), [("int64", "l2"), ("string", "cosine"), (None, "ip"), ("string", "l2")]
)
@every_kind
def test_answers_are_those_of_an_index_in_memory(
    kind: str, id_type: str | None, metric: str, tmp_path: Path
) -> None:
    X, ids = rows(57), None if id_type is None else names(57, id_type)
    expected = build(kind, X, ids, metric=metric)
    with no_fsync():
        index = build(kind, X, ids, metric=metric, path=tmp_path / "a.dh")
    assert index.path == tmp_path / "a.dh"
    n_segments = len(index.info()["segments"])
    assert n_segments > 5
    assert len(expected.info()["segments"]) == 1
    for found in (index, Index.open(tmp_path / "a.dh")):
        assert asked_of(found) == asked_of(expected)
        assert (found.kind, found.reason, found.metric) == (kind, expected.reason, metric)
        for k in (1, 7, 60):
            for told in ({}, {"candidates": 9}, {"filter": expected.ids[::3]}):
                assert same(
                    found.search(X[:9] + 1, k, **told), expected.search(X[:9] + 1, k, **told)
                )
    model = model_of(index)
    model.put(range(57) if ids is None else ids, X)
    compare(index, model, rows(4, seed=5), 9, **everywhere(kind))
    verify(tmp_path / "a.dh")
    assert leftovers(tmp_path / "a.dh") == set()
    with no_fsync():
        index.compact()
    assert len(index.info()["segments"]) == 1
    assert asked_of(index) == asked_of(Index.open(tmp_path / "a.dh")) == asked_of(expected)


@settings(max_examples=12 * SOAK, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_rows_in_any_pieces(in_shm: Path, monkeypatch: Any, data: st.DataObject) -> None:
    draw = data.draw
    kind, n = draw(st.sampled_from([*KINDS])), draw(st.integers(2, 70))
    dtype, kept = draw(
        st.sampled_from(
            [("f4", True), ("f8", True), ("u1", True), ("i8", "uint8"), ("f4", "f2"), ("f4", False)]
        )
    )
    kept = "float16" if kept == "f2" else kept
    options: dict[str, Any] = {"keep_vectors": kept, "metric": draw(st.sampled_from(METRICS))}
    monkeypatch.setattr(placing, "PIECE_BYTES", draw(st.integers(1, 30 * ROW)))
    id_type = draw(st.sampled_from([None, *ID_TYPES]))
    ids = None if id_type is None else names(n + 40, id_type, seed=n)
    X, more = rows(n, dtype=dtype), rows(draw(st.integers(1, 40)), seed=1, dtype=dtype)
    given_ids = [None, None] if ids is None else [ids[:n], ids[n : n + len(more)]]
    expected = build(kind, X, given_ids[0], **options)
    form = draw(st.sampled_from(["array", "map", "source", "transposed"]))

    def as_given(array: NDArray[Any]) -> Any:
        if form == "source":
            return Counted(array)
        if form == "transposed":
            return np.asfortranarray(array)
        if form == "array":
            return array.copy()
        np.save(in_shm / "x.npy", array)
        return np.load(in_shm / "x.npy", mmap_mode="r")

    path = in_shm / "a.dh"
    with no_fsync():
        rows_given = as_given(X)
        index = build(kind, rows_given, given_ids[0], path=path, **options)
        if form in ("array", "transposed"):
            rows_given[:] = 99  # it is the caller's
        assert asked_of(index) == asked_of(expected)
        gone = draw(st.lists(st.sampled_from(expected.ids.tolist()), max_size=20))
        assert index.remove(gone) == expected.remove(gone)
        generation = index.info()["generation"]
        added = index.add(as_given(more), ids=given_ids[1])
        assert added.tolist() == expected.add(more, ids=given_ids[1]).tolist()
        assert index.info()["generation"] == generation + 1
        added[:] = added[::-1].copy()  # the caller's, too
        assert asked_of(index) == asked_of(expected)
        changed = draw(st.lists(st.sampled_from(expected.ids.tolist()), unique=True, max_size=30))
        if changed:
            new = rows(len(changed), seed=2, dtype=dtype)
            index.update(changed, as_given(new))
            expected.update(changed, new)
        assert asked_of(index) == asked_of(Index.open(path)) == asked_of(expected)
        index.compact()
    assert asked_of(index) == asked_of(Index.open(path)) == asked_of(expected)
    assert index.info()["segments"] == [len(expected)]
    verify(path)
    assert leftovers(path) == set()
    shutil.rmtree(path)


@every_kind
def test_every_row_is_read_once(kind: str, tmp_path: Path) -> None:
    X = rows(57)
    made = build(kind, X)
    with no_fsync():
        made.save(tmp_path / "a.dh")
        index = Index.open(tmp_path / "a.dh")
        more = Counted(X.astype(np.float64))
        index.add(more)
        assert more.times.tolist() == [1] * 57
        more = Counted(X)
        made.add(more)
        assert more.times.tolist() == [1] * 57
        if kind != "grouped":  # groups are learnt from a sample
            read = Counted(X)
            build(kind, read, path=tmp_path / "b.dh")
            assert read.times.tolist() == [1] * 57


def test_a_whole_block_is_hashed_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a block of rows, groups in two levels: all as in memory, to the bit."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 8)).astype(np.float32)
    options: dict[str, Any] = {"n_bits": 32, "kind": "grouped", "n_groups": 300, "random_state": 0}
    options["sketch"] = "codes"
    monkeypatch.setattr(placing, "PIECE_BYTES", 10_000 * 44)
    expected = Index.build(X, **options)
    with no_fsync():
        index = Index.build(X, path=tmp_path / "a.dh", **options)
    assert index.info()["segments"] == [8192, 8192, 8192, 5424]
    Q = rng.standard_normal((50, 8)).astype(np.float32)
    for told in ({}, {"rerank": None}, {"probes": 3}, {"rerank": "asymmetric"}):
        assert same(index.search(Q, 20, **told), expected.search(Q, 20, **told))


# --- whole, or nothing ----------------------------------------------------------------------


def held(folder: Path) -> dict[str, bytes]:
    """All files under a folder but locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def calls_of(kind: str) -> range:
    """Which calls of the disk fail; kinds differ in what they write, not how."""
    return range(1, 301, 1 if kind == "flat" else 4)


@every_kind
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("there", ["nothing", "an index"])
def test_a_disk_that_fails(kind: str, error: int, there: str, in_shm: Path) -> None:
    path = in_shm / "a.dh"
    if there == "an index":
        build(kind, rows(30, seed=3)).save(path)
    before = held(in_shm)
    reader = Index.open(path) if before else None
    answers = asked_of(reader) if reader else None
    for at in calls_of(kind):
        failing = Disk(at, error)
        try:
            with failing.at_work():
                build(kind, rows(25), path=path)
        except FileError:
            assert failing.failed
            assert held(in_shm) == before, failing.calls
            assert path.exists() == bool(before)
        else:
            assert not failing.failed
            break
    else:
        pytest.fail("it never succeeded")
    assert {*failing.calls} == {"write", "fsync", "rename"}
    assert at > 25
    assert asked_of(Index.open(path)) == asked_of(build(kind, rows(25)))
    assert leftovers(path) == set()
    if reader is not None:
        assert asked_of(reader) == answers


@every_kind
@pytest.mark.parametrize("change", ["add", "update", "compact"])
def test_a_disk_that_fails_in_a_change(kind: str, change: str, in_shm: Path) -> None:
    path = in_shm / "a.dh"
    build(kind, rows(25), path=path).remove([3])
    calls: dict[str, Callable[[Index], object]] = {
        "add": lambda index: index.add(rows(25, seed=1)),
        "update": lambda index: index.update(range(4, 24), rows(20, seed=1)),
        "compact": lambda index: index.compact(),
    }
    expected = build(kind, rows(25))
    expected.remove([3])
    before, answers = held(in_shm), asked_of(expected)
    for at in calls_of(kind):
        failing = Disk(at, errno.EIO)
        index = Index.open(path)
        try:
            with failing.at_work():
                calls[change](index)
        except FileError:
            assert held(in_shm) == before
            assert asked_of(index) == answers
        else:
            break
    assert at > 10
    calls[change](expected)
    assert asked_of(index) == asked_of(Index.open(path)) == asked_of(expected)
    assert leftovers(path) == set()


@pytest.mark.parametrize("there", ["nothing", "an index"])
def test_ctrl_c(there: str, in_shm: Path) -> None:
    path = in_shm / "a.dh"
    if there == "an index":
        build("flat", rows(30, seed=3)).save(path)
    before = held(in_shm)

    def interrupt() -> None:
        raise KeyboardInterrupt

    for row in (0, 24):
        with pytest.raises(KeyboardInterrupt):
            build("flat", Counted(rows(25), row, interrupt), path=path)
        assert held(in_shm) == before
        assert path.exists() == bool(before)
    for at in range(1, 301):
        failing = Disk(at, instead=interrupt)
        try:
            with failing.at_work():
                build("flat", rows(25), path=path)
        except KeyboardInterrupt:
            assert held(in_shm) == before
        else:
            break
    assert at > 25
    assert asked_of(Index.open(path)) == asked_of(build("flat", rows(25)))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@posix
@every_kind
def test_killed_at_a_call_of_the_disk(kind: str, server: Server, in_shm: Path) -> None:
    path, chance = in_shm / "a.dh", random.Random(kind)
    step = max((16 if kind == "flat" else 36) // SOAK, 1)
    there, at, status = [], 0, -1
    while status != 0:  # where nothing was
        at += chance.randint(1, step)
        shutil.rmtree(path, ignore_errors=True)
        _, status = server.run("build_there", kind, path, at, 1)
        there.append((path / "manifest.json").exists())
        if there[-1]:
            whole(path, (1,))
            continue
        with pytest.raises(FileError):
            Index.open(path)
        if at % 3 == 0:
            save_next(kind, path, in_pieces=True)
            whole(path, (1,))
            assert leftovers(path) == set()
    assert there == sorted(there)
    assert {*there} == {False, True}
    assert at > 40
    generation, at, dirty, status = 1, 0, 0, -1
    while status != 0:  # over another one
        at += chance.randint(1, 2 * step)
        said, status = server.run("build_there", kind, path, at, 1)
        assert said == ([] if status else [generation + 1])
        generation = whole(path, (generation, generation + 1))
        dirty += bool(leftovers(path))
    assert at > 40
    assert dirty > 0
    assert leftovers(path) == set()


# --- refused --------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("there", ["nothing", "an index"])
def test_a_bad_row_in_a_late_piece_is_named(
    kind: Any, metric: str, there: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.dh"
    with no_fsync():
        if there == "an index":
            build(kind, rows(9)).save(path)
        before = held(tmp_path)
        X = rows(57)
        X[51, 4] = np.nan
        hasher = build(kind, rows(57), metric=metric).hasher
        options: dict[str, Any] = {"hasher": hasher, "metric": metric, "path": path}
        for bad in (X, Counted(X), X.astype(np.float64)):
            with pytest.raises(InputError, match="NaN in row 51, column 4"):
                Index.build(bad, kind="multi" if kind == "grouped" else kind, **options)
        X = rows(57).astype(np.float64)
        X[51, 4] = 0.5
        for bad in (X, Counted(X)):
            with pytest.raises(InputError, match="X has 0.5 in row 51, column 4, which uint8"):
                build(kind, bad, keep_vectors="uint8", metric=metric, path=path)
        X[7, 3] = np.nan  # comes first, although it would be found last
        with pytest.raises(InputError, match="NaN in row 7, column 3"):
            build("flat", X, keep_vectors="uint8", metric=metric, path=path)
        assert held(tmp_path) == before
        assert path.exists() == bool(before)
        if before:
            index = Index.open(path)
            X = rows(57)
            X[51, 4] = np.inf
            with pytest.raises(InputError, match="(infinity|NaN) in row 51, column 4"):
                index.add(Counted(X))
            assert held(tmp_path) == before


def test_what_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.dh"
    never = Counted(rows(20), 0, lambda: pytest.fail("a row was read"))
    never.times[0] = 1  # whatever is read
    for ids, message in (
        ([*range(19), 3], "3 is there twice"),
        ([*map(str, range(19)), "7"], "'7' is there twice"),
        ([1, 2], "20 rows but there are 2 ids"),
    ):
        with pytest.raises(InputError, match=message):
            build("flat", never, ids, path=path)
    with pytest.raises(InputError, match="kind must be"):
        Index.build(rows(20), kind="flut", path=path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="n_bits"):
        Index.build(rows(20), n_bits=-1, path=path)
    with pytest.raises(InputError, match="at least 2 rows"):
        Index.build(rows(1), path=path)
    with pytest.raises(FileError, match="No such file"):
        build("flat", never, path=tmp_path / "x" / "a.dh")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=479))
        with pytest.raises(FileError, match="479 bytes free, and 480 more are needed"):
            build("flat", never, path=path)
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=679))
        patch.setattr(changing, "write_array", lambda *_: pytest.fail("it was written"))
        with pytest.raises(FileError, match="679 bytes free, and 680 more are needed"):
            build("flat", never, path=path)  # codes and ids, too
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    with pytest.raises(FileError, match="is no index, and not empty: it has 'todo.txt'"):
        build("flat", never, path=tmp_path / "notes")
    LSH(8).fit(rows(9)).save(tmp_path / "model.dh")
    before = held(tmp_path)
    with pytest.raises(FileError, match="model.dh holds a hasher, not an index"):
        build("flat", never, path=tmp_path / "model.dh")
    assert held(tmp_path) == before


def test_others_go_on_while_an_index_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.dh"
    with no_fsync():
        build("flat", rows(30, seed=3)).save(path)
        reader = Index.open(path)
        old = asked_of(reader)
        looked = []

        def look() -> None:
            looked.append(len(list(path.glob("*.npy"))))
            assert asked_of(reader) == asked_of(Index.open(path)) == old
            assert not reader.refresh()
            verify(path)
            with (
                pytest.raises(FileError, match="another process writes"),
                Store.open(path).change(timeout=0),
            ):
                pass

        index = build("flat", Counted(rows(57), 56, look), path=path)
    assert looked[0] > 12  # segments of the new one were there
    assert asked_of(reader) == old
    assert asked_of(index) == asked_of(build("flat", rows(57))) != old
    assert reader.refresh()
    assert asked_of(reader) == asked_of(index)
    assert index.info()["generation"] == 2


def test_an_index_that_was_built_in_its_folder_goes_on(tmp_path: Path) -> None:
    with no_fsync():
        index = build("grouped", rows(25), path=tmp_path / "a.dh")
        assert index.add(rows(3)).tolist() == [25, 26, 27]
        assert index.remove([4]) == 1
        index.tune(rows(9, seed=3) + 0.5, recall=0.5, k=2)
    opened = Index.open(tmp_path / "a.dh")
    assert asked_of(opened) == asked_of(index)
    assert opened.info() == index.info()


# --- the parts ------------------------------------------------------------------------------


@given(
    n=st.integers(1, 10**8), bytes_a_row=st.integers(1, 10**5), piece_bytes=st.integers(1, 2**30)
)
def test_pieces_cover_all_rows(n: int, bytes_a_row: int, piece_bytes: int) -> None:
    piece_bytes = max(piece_bytes, n * bytes_a_row // 1000)  # not too many of them
    pieces = list(MEMORY._replace(piece_bytes=piece_bytes).pieces(n, bytes_a_row))
    starts, stops = zip(*pieces, strict=True)
    assert (0, *stops[:-1]) == starts
    assert stops[-1] == n
    most = max(piece_bytes // bytes_a_row, 1)
    lengths = [stop - start for start, stop in pieces]
    assert max(lengths) <= most
    assert all(2 * length >= piece_rows(bytes_a_row, piece_bytes) for length in lengths[:-1])
    if most >= 8192:
        assert all(start % 8192 == 0 for start in starts)


@settings(deadline=None)
@given(data=st.data())
def test_gathered_rows(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    whole_array = np.arange(3 * sum(lengths)).reshape(-1, 3)
    parts: list[Any] = np.split(whole_array, np.cumsum(lengths)[:-1])
    parts = [Counted(part) if data.draw(st.booleans()) else part for part in parts]
    expected, found = whole_array, Gathered(parts)
    for _ in range(data.draw(st.integers(0, 2))):
        order = np.array(data.draw(st.permutations(range(len(expected)))), np.uint32)
        order = order[: data.draw(st.integers(0, len(order)))]
        expected, found = expected[order], Gathered([found], order)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    at = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=0, max_size=len(expected))))
    np.testing.assert_array_equal(found[start:stop], expected[start:stop])
    np.testing.assert_array_equal(found[:], expected)
    np.testing.assert_array_equal(found[at], expected[at])
    read = in_memory(found, "vectors")
    read[:] = -1  # a copy
    np.testing.assert_array_equal(found[:], expected)


# --- memory ---------------------------------------------------------------------------------

MEMORY_OF = textwrap.dedent("""
    import json, sys
    import numpy as np
    from densehash.hashers import LSH
    from densehash.index import Index, placing
    from densehash import mapped

    placing.PIECE_BYTES = 1 << 24
    mapped._MOST_HELD = 1 << 22

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10

    X = np.load(sys.argv[1], mmap_mode="r")
    told = {"hasher": LSH(16, random_state=0).fit(X[:100]), "kind": sys.argv[3]}
    told |= {"n_groups": 8} if told["kind"] == "grouped" else {}
    Index.build(X[:5000], path=sys.argv[2], **told)  # all is loaded
    peaks = [peak()]
    index = Index.build(X, path=sys.argv[2], **told)
    peaks.append(peak())
    index.remove(range(0, len(index), 3))
    index.compact()
    peaks.append(peak())
    held = np.array(X)  # or peaks are not what they seem
    peaks.append(peak())
    print(json.dumps(peaks))
""")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
@pytest.mark.parametrize("kind", ["flat", "grouped"])
def test_memory_does_not_grow_with_the_rows(kind: str, in_shm: Path) -> None:
    X = np.lib.format.open_memmap(in_shm / "x.npy", "w+", np.float32, (30_000, 1024))
    X[:, :8] = np.random.default_rng(0).standard_normal((30_000, 8))
    del X  # 117 MB
    told = [sys.executable, "-c", MEMORY_OF, str(in_shm / "x.npy"), str(in_shm / "a.dh"), kind]
    answer = subprocess.run(told, capture_output=True, text=True, check=True, timeout=300)
    start, *peaks, held_all = json.loads(answer.stdout)
    assert max(peaks) - start < 60
    assert held_all - start > 80
