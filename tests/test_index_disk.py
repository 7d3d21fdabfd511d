"""A disk that loses power, or any call to which fails: the old index, or the new one, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from disk_children import CHANGES, FROM_NOTHING, READS, WatchedServer
from index_cases import KINDS, every_kind, fast_folder
from soak import SOAK

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder that costs little."""
    with TemporaryDirectory(prefix="densehash-", dir=fast_folder()) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def server(scratch: Path) -> Iterator[WatchedServer]:
    running = WatchedServer(scratch)
    yield running
    running.close()


def some(operations: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Kinds differ in what they write, not how: a short run tries each operation with one."""
    return operations if SOAK > 1 else operations[[*KINDS].index(kind) :: len(KINDS)]


# --- power cuts ---------------------------------------------------------------------------


@pytest.mark.slow
@every_kind
def test_power_cuts(
    kind: str, server: WatchedServer, scratch: Path, record_property: Record
) -> None:
    samples, flushes, share = (1, 0, 0.1) if SOAK == 1 else (SOAK // 2, SOAK // 2, 1.0)
    states, wrong = 0, []
    for operation in some(CHANGES + FROM_NOTHING, kind):
        told = server.run("cut", kind, operation, scratch / "cut", samples, flushes, share)
        assert told.status == 0
        found = told.said[-1]
        assert found["next writers"] > 0
        states += found["states"]
        wrong += found["wrong"]
    record_property("states after power cuts", states)
    assert wrong == []


@pytest.mark.parametrize("without", ["sync", "syncing"])
def test_a_flush_that_is_forgotten_is_noticed(
    without: str, server: WatchedServer, scratch: Path
) -> None:
    (wrong,), status = server.run("cut_unflushed", scratch / "cut", without)
    assert status == 0
    assert wrong > 0


# --- calls that fail ----------------------------------------------------------------------


@pytest.mark.slow
@every_kind
def test_any_call_fails(
    kind: str, server: WatchedServer, scratch: Path, record_property: Record
) -> None:
    operations = some(CHANGES + FROM_NOTHING + READS, kind)
    most = 1 if SOAK == 1 else 2 * SOAK  # of each name
    faults, wrong = 0, []
    for operation in operations:
        said, status = server.run("fail", kind, operation, scratch / "fail", most)
        assert status == 0, f"died at {said[-1]}"
        faults += said[-1]["tried"]
        wrong += said[-1]["wrong"]
    record_property("calls that failed", faults)
    assert faults >= 5 * len(operations)
    assert wrong == []


@pytest.mark.parametrize("operation", ["add", "save over", "save"])
def test_without_locks_nothing_is_written(
    operation: str, server: WatchedServer, scratch: Path
) -> None:
    said, status = server.run("refuse_locks", operation, scratch / "locks")
    assert status == 0
    assert len(said) == 3
    for error, refused, unchanged in said:
        assert "lock" in refused, error
        assert unchanged, error


@pytest.mark.parametrize("operation", ["open", "verify"])
def test_without_locks_all_is_read(operation: str, server: WatchedServer, scratch: Path) -> None:
    said, status = server.run("refuse_locks", operation, scratch / "locks")
    assert status == 0
    assert [refused for _, refused, _ in said] == [""] * 3
