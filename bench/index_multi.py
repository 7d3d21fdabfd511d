"""Radius 2 in 64-bit codes: tables of substrings against a scan of all codes, one thread each."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
from data import noisy_rows
from hashers import best_of
from index_sets import SETS
from peers import Codes

from densehash import DSH, hamming
from densehash.index.multi_tables import build_tables, multi_within, n_tables_for

N_CODES = 10_000_000
N_BITS = 64
RADIUS = 2
N_ASKED = 1000
TURNS = 3


@dataclass(frozen=True)
class MultiResult:
    """Seconds for all queries by tables and by a scan; both found the same `n_found` codes."""

    codes: str
    n_codes: int
    n_tables: int
    build_s: float
    tables_s: float
    scan_s: float
    n_found: int

    @property
    def ratio(self) -> float:
        return self.scan_s / self.tables_s


def multi_results(n_codes: int) -> list[MultiResult]:
    """Measure in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, n_codes).result()


def measure(n_codes: int) -> list[MultiResult]:
    return [contest(*each) for each in (uniform(n_codes), learned(n_codes))]


def contest(name: str, queries: Codes, codes: Codes) -> MultiResult:
    n_tables = n_tables_for(N_BITS, len(codes))
    start = time.perf_counter()
    starts, rows = build_tables(codes, N_BITS, n_tables)
    build_s = time.perf_counter() - start
    found: dict[str, tuple[npt.NDArray[np.generic], ...]] = {}

    def look_up() -> None:
        found["tables"] = multi_within(
            queries, codes, N_BITS, starts, rows, None, RADIUS, n_threads=1
        )

    def scan() -> None:
        found["scan"] = hamming.within(queries, codes, RADIUS, n_threads=1)

    tables_s = scan_s = float("inf")
    for _ in range(TURNS):
        tables_s = min(tables_s, best_of(1, look_up))
        scan_s = min(scan_s, best_of(1, scan))
    if not all(map(np.array_equal, found["tables"], found["scan"])):
        raise SystemExit(f"{name} codes: tables and scan found different codes")
    n_found = len(found["scan"][2])
    return MultiResult(name, len(codes), n_tables, build_s, tables_s, scan_s, n_found)


def uniform(n: int) -> tuple[str, Codes, Codes]:
    """Random codes. Half of the queries are some of them, with up to 4 bits changed."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n, N_BITS // 8), dtype=np.uint8)
    queries = rng.integers(0, 256, (N_ASKED, N_BITS // 8), dtype=np.uint8)
    near = np.unpackbits(codes[rng.integers(0, n, N_ASKED // 2)], axis=1)
    for bits in near:
        bits[rng.choice(N_BITS, rng.integers(0, 5), replace=False)] ^= 1
    queries[: len(near)] = np.packbits(near, axis=1)
    return "uniform", queries, codes


def learned(n: int) -> tuple[str, Codes, Codes]:
    """Codes of SIFT rows, repeated with noise; queries are other rows."""
    vectors = SETS["sift"]
    base, queries = vectors.rows(n, "uint8"), vectors.queries(N_ASKED, "uint8")
    hasher = DSH(N_BITS, random_state=0).fit(base[:100_000])
    return "DSH of SIFT", hasher.transform(queries), hasher.transform(noisy_rows(base, n))
