"""Runs one contestant in a separate process, so that its memory can be measured."""

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
from hashers import anonymous_memory, best_of, peak_growth
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, Engine, Ids, Setting
from index_sets import SETS, Rows, VectorSet
from peers import CannotTakePartError
from threadpoolctl import threadpool_limits

TURNS = 3
QUICK_S = 10.0  # faster builds are made three times; ours at least twice, see below
ENOUGH_S = 3.0  # a search that takes this long is not repeated
N_WARM = 4096  # rows of a first build that does not count: imports, stacks and buffers
N_ONE = 1000  # queries that are searched one per call
MEGABYTE = 2**20


@dataclass(frozen=True)
class Cost:
    """What an index costs; bytes include its vectors.

    `peak` is the most memory that a build takes beyond its input, `resident` what stays after the
    input is released. `disk` and `open_s` are None if the index cannot be saved.
    """

    n_rows: int
    n_features: int
    build_s: float
    peak: int
    resident: int
    disk: int | None
    open_s: float | None


class Answer(NamedTuple):
    """Seconds of the fastest turn, and what was found, integers (q, K)."""

    seconds: float
    found: Ids


class Answers(NamedTuple):
    """For queries one per call: seconds of each, float64 (q,), and what was found, (q, K)."""

    seconds: npt.NDArray[np.float64]
    found: Ids


class Worker:
    """The process of a contestant. Errors there are raised here."""

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

    def build(self, set_name: str, n_rows: int, n_queries: int) -> Cost:
        return self._pool.submit(_build, self.contestant.name, set_name, n_rows, n_queries).result()

    def ask(self, setting: Setting, turns: int = TURNS) -> Answer:
        """Search for all queries in one call, `turns` times."""
        return self._pool.submit(_ask, setting, turns).result()

    def ask_one_by_one(self, setting: Setting) -> Answers:
        """Search for the first queries, one per call."""
        return self._pool.submit(_ask_one_by_one, setting).result()


# Inside the process


class _Here:
    engine: Engine
    queries: Rows


def _build(name: str, set_name: str, n_rows: int, n_queries: int) -> Cost:
    contestant, vectors = CONTESTANTS[name], SETS[set_name]
    _Here.queries = vectors.queries(
        min(n_queries, contestant.n_queries or n_queries), contestant.form
    )
    best, peak, held = float("inf"), 0, 0
    released: list[int] = []
    with threadpool_limits(BUILD_THREADS):
        _made(contestant, vectors).build(vectors.rows(N_WARM, contestant.form))
        for turn in range(TURNS):
            _Here.engine = _made(contestant, vectors)
            before = _settled_memory()
            if held:
                released.append(held - before)
            # The array has no name here, so that only the engine can hold it afterwards.
            took, grown = _timed_build(_Here.engine, vectors.rows(n_rows, contestant.form))
            held = _settled_memory()
            best, peak = min(best, took), max(peak, grown)
            if took > QUICK_S and (turn or not contestant.is_ours):
                break
    # Buffers of libraries grow with each build: what is freed with an index is a better measure.
    resident = min(released, default=held - before)
    asked = contestant.is_saved and (contestant.default or contestant.ladders)
    disk, open_s = _saved(contestant, _Here.engine) if asked else (None, None)
    return Cost(n_rows, _Here.queries.shape[1], best, peak, resident, disk, open_s)


def _made(contestant: Contestant, vectors: VectorSet) -> Engine:
    engine = contestant.make()
    engine.metric = vectors.metric
    return engine


def _timed_build(engine: Engine, rows: Rows) -> tuple[float, int]:
    """Seconds of a build, and by how many bytes the process grew at most."""
    took = 0.0

    def timed() -> None:
        nonlocal took
        took = best_of(1, partial(engine.build, rows))

    grown = peak_growth(timed)
    return took, int(MEGABYTE * grown)


def _saved(contestant: Contestant, engine: Engine) -> tuple[int, float]:
    """Bytes on disk, and seconds to open them. The opened index must answer as before."""
    few = _Here.queries[:100]
    ladders = contestant.ladders
    setting = ladders[0].setting(ladders[0].steps[-1]) if ladders else {}
    opened = copy(engine)  # the curve is measured on the index as it was built
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "index"
        engine.save(path)
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        size = sum(each.stat().st_size for each in files)
        took = best_of(5, partial(opened.open, path))
        for each in (opened, engine):
            each.use(setting)
        if not np.array_equal(opened.search(few), engine.search(few)):
            raise CannotTakePartError("what it saved and opened answers otherwise")
    return size, took


def _ask(setting: Setting, turns: int) -> Answer:
    engine, queries = _Here.engine, _Here.queries
    best, spent = float("inf"), 0.0
    with threadpool_limits(1):
        engine.use(setting)
        engine.search(queries[:100])
        for _ in range(turns):
            start = time.perf_counter()
            found = engine.search(queries)
            took = time.perf_counter() - start
            best, spent = min(best, took), spent + took
            if spent > ENOUGH_S:
                break
    return Answer(best, found)


def _ask_one_by_one(setting: Setting) -> Answers:
    engine, queries = _Here.engine, _Here.queries[:N_ONE]
    times: list[float] = []
    found = []
    with threadpool_limits(1):
        engine.use(setting)
        engine.search(queries[:1])
        begun = time.perf_counter()
        for number in range(len(queries)):
            start = time.perf_counter()
            found.append(engine.search(queries[number : number + 1]))
            end = time.perf_counter()
            times.append(end - start)
            if end - begun > ENOUGH_S:
                break
    return Answers(np.array(times), np.concatenate(found))


def _settled_memory() -> int:
    """Bytes of this process, after the allocator has released what it can."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return int(MEGABYTE * anonymous_memory())
