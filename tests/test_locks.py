"""Forked children find every lock open, whoever held it in the parent."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import build, rows

from densehash import parallel
from densehash.index import Index
from densehash.locks import cached_property, new_lock
from densehash.source import LockedRows, Source

HANG = 20.0

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # From Python 3.12 a fork beside living threads is a warning; here it is the point.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Stop:
    """A place where a thread of the parent waits; a child passes it."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._process = os.getpid()

    def wait(self) -> None:
        if os.getpid() == self._process:
            self.reached.set()
            assert self.go_on.wait(HANG)


@contextmanager
def halfway(work: Callable[[], Any], stop: Stop) -> Iterator[None]:
    """While a thread has come as far as its stop."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert stop.reached.wait(HANG)
        yield
    finally:
        stop.go_on.set()
        thread.join()


def passes_in_a_child(check: Callable[[], bool]) -> bool:
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(not check()))
    child.start()
    child.join(HANG)
    if child.exitcode is None:
        child.kill()
        child.join()
        pytest.fail("the child hangs")
    return child.exitcode == 0


class Slow(Source):
    """Rows that come when the stop is passed."""

    def __init__(self, X: Any, stop: Stop) -> None:
        self.shape, self.dtype, self._X, self._stop = X.shape, X.dtype, X, stop

    def __getitem__(self, which: Any) -> Any:
        self._stop.wait()
        return self._X[which]


@pytest.mark.parametrize("opened", [False, True], ids=["in memory", "opened"])
def test_an_index_that_another_thread_changes(opened: bool, tmp_path: Path) -> None:
    index, stop = build("flat", rows(60)), Stop()
    if opened:
        index.save(tmp_path / "a")
        index = Index.open(tmp_path / "a")

    def check() -> bool:
        index.refresh()
        if not opened:  # a folder is changed by one process at a time, and that is the parent
            index.add(rows(2))
        return len(index) == (60 if opened else 62) and len(index.search(rows(3), 2).ids) == 3

    with halfway(lambda: index.add(Slow(rows(5), stop)), stop):
        assert passes_in_a_child(check)
    assert len(index) == 65


def test_a_change_by_a_child_after_the_parent_has_ended_its_own(tmp_path: Path) -> None:
    build("flat", rows(60)).save(tmp_path / "a")
    index, stop = Index.open(tmp_path / "a"), Stop()
    ready, go = (multiprocessing.get_context("fork").Event() for _ in range(2))

    def check() -> bool:
        ready.set()
        return go.wait(HANG) and index.add(rows(1)).tolist() == [65]

    with halfway(lambda: index.add(Slow(rows(5), stop)), stop):
        child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(not check()))
        child.start()
        assert ready.wait(HANG)
    go.set()
    child.join(HANG)
    code = child.exitcode
    child.kill()
    assert code == 0
    assert index.refresh()
    assert len(index) == 66


def test_rows_that_another_thread_reads() -> None:
    stop = Stop()

    class Halting(LockedRows):
        shape, dtype = (9, 2), np.dtype(np.float32)

        def _read(self, start: int, stop_: int) -> Any:
            stop.wait()
            return np.full((stop_ - start, 2), start, np.float32)

    source = Halting()
    with halfway(lambda: source[:3], stop):
        assert passes_in_a_child(lambda: source[4:6].tolist() == [[4, 4], [4, 4]])


def test_the_number_of_threads_which_another_one_sets() -> None:
    stop, before = Stop(), parallel.n_threads()

    def hold() -> None:
        with parallel._Held.lock:
            stop.wait()

    def check() -> bool:
        with parallel.one_blas_thread():
            return parallel.n_threads() == before

    with halfway(hold, stop):
        assert passes_in_a_child(check)


def test_a_property_that_another_thread_computes() -> None:
    stop = Stop()

    class Thing:
        @cached_property
        def size(self) -> int:
            stop.wait()
            return 3

    first, second = Thing(), Thing()
    with halfway(lambda: first.size, stop):
        assert passes_in_a_child(lambda: first.size + second.size == 6)


def test_the_parent_keeps_its_locks() -> None:
    lock = new_lock()
    with lock:
        assert passes_in_a_child(lambda: not lock.locked())
        assert lock.locked()


def test_all_locks_are_made_in_one_place() -> None:
    source = Path(new_lock.__code__.co_filename).parent
    made = re.compile(
        r"threading\.(R?Lock|Condition|(Bounded)?Semaphore)\(|functools import.*cached_property"
    )
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if made.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"locks.py"}
