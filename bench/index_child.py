"""One contestant in a process of its own, so that its memory is its own; asked from outside."""

from __future__ import annotations

import ctypes
import gc
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from data import data_folder
from hashers import anonymous_memory, best_of, peak_growth
from index_peers import (
    BUILD_THREADS,
    CONTESTANTS,
    Contestant,
    Densehash,
    Engine,
    Ids,
    Rows,
    Setting,
)
from threadpoolctl import threadpool_limits

N_QUERIES = 10_000
TURNS = 3
QUICK_S = 10.0  # what is built faster is built three times
ENOUGH_S = 6.0  # a search that has taken so long is not repeated
N_WARM = 4096  # rows of a first build that is forgotten: imports, stacks and buffers
MEGABYTE = 2**20


@dataclass(frozen=True)
class Cost:
    """What an index costs; bytes are counted with its vectors.

    `peak` is what a build takes at most beyond its input, `resident` what stays when the input is
    released. `disk` and `open_s` are None of one that is not saved.
    """

    n_rows: int
    n_features: int
    build_s: float
    peak: int
    resident: int
    disk: int | None
    open_s: float | None


class Answer(NamedTuple):
    """Seconds of the fastest turn, and what was found, int64 (q, K)."""

    seconds: float
    found: Ids


class Worker:
    """The process of a contestant. What it raises is raised here."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def build(self, n_rows: int, n_queries: int) -> Cost:
        return self._pool.submit(_build, self.contestant.name, n_rows, n_queries).result()

    def ask(self, setting: Setting, turns: int = TURNS) -> Answer:
        """All queries, in so many turns."""
        return self._pool.submit(_ask, setting, turns).result()

    def tune(self, n_queries: int, recall: float) -> None:
        """With some of the queries; only ours can do that. InputError if the recall is too high."""
        self._pool.submit(_tune, n_queries, recall).result()


def sift(n_rows: int, n_queries: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Of the last 10,000 rows the first are queries; the rows before them are searched."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("there is no sift.npy in the folder DENSEHASH_DATA, nor in ../shared/data")
    vectors = np.load(folder / "sift.npy", mmap_mode="r")
    base, queries = vectors[:-N_QUERIES], vectors[-N_QUERIES:]
    return base[-n_rows:], np.array(queries[:n_queries])


# Inside the process


class _Here:
    engine: Engine
    queries: Rows


def _build(name: str, n_rows: int, n_queries: int) -> Cost:
    contestant = CONTESTANTS[name]
    base, queries = sift(n_rows, n_queries)
    _Here.queries = contestant.prepared(queries[: contestant.n_queries])
    best, peak, held = float("inf"), 0, 0
    released: list[int] = []
    with threadpool_limits(BUILD_THREADS):
        contestant.make().build(contestant.prepared(np.array(base[:N_WARM])))
        for _ in range(TURNS):
            _Here.engine = contestant.make()
            before = _settled_memory()
            if held:
                released.append(held - before)
            # The array has no name here, so that only the engine may hold it afterwards.
            took, grown = _timed_build(_Here.engine, contestant.prepared(np.array(base)))
            held = _settled_memory()
            best, peak = min(best, took), max(peak, grown)
            if took > QUICK_S:
                break
    # Buffers of libraries grow with each build: what goes with an index tells its size better.
    resident = min(released, default=held - before)
    disk, open_s = _saved(contestant, _Here.engine) if contestant.is_saved else (None, None)
    return Cost(len(base), base.shape[1], best, peak, resident, disk, open_s)


def _timed_build(engine: Engine, rows: Rows) -> tuple[float, int]:
    """Seconds of a build, and by how many bytes the process grew meanwhile at most."""
    took = 0.0

    def timed() -> None:
        nonlocal took
        took = best_of(1, partial(engine.build, rows))

    grown = peak_growth(timed)
    return took, int(MEGABYTE * grown)


def _saved(contestant: Contestant, engine: Engine) -> tuple[int, float]:
    """Bytes on disk, and seconds to open them. What was opened must answer as before."""
    few, setting = _Here.queries[:100], contestant.settings[-1]
    opened = copy(engine)  # the curve is that of the index as it was built
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "index"
        engine.save(path)
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        size = sum(each.stat().st_size for each in files)
        took = best_of(5, partial(opened.open, path))
        if not np.array_equal(opened.search(few, setting), engine.search(few, setting)):
            raise SystemExit(f"{contestant.title}: what was opened answers otherwise")
    return size, took


def _ask(setting: Setting, turns: int) -> Answer:
    engine, queries = _Here.engine, _Here.queries
    best, spent = float("inf"), 0.0
    with threadpool_limits(1):
        engine.search(queries[:100], setting)
        for _ in range(turns):
            start = time.perf_counter()
            found = engine.search(queries, setting)
            took = time.perf_counter() - start
            best, spent = min(best, took), spent + took
            if spent > ENOUGH_S:
                break
    return Answer(best, found)


def _tune(n_queries: int, recall: float) -> None:
    if not isinstance(_Here.engine, Densehash):
        raise TypeError("only ours can be tuned")
    _Here.engine.tune(_Here.queries[:n_queries], recall)


def _settled_memory() -> int:
    """Bytes of this process, once the allocator has given back what it can."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return int(MEGABYTE * anonymous_memory())
