"""Measures the overhead of one query, on an index with almost nothing to search."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from index_peers import SEED, K
from index_sets import SETS

from densehash import Index

N_ROWS = 1000
N_ASKED = 5000


def overhead_us() -> float:
    """Median microseconds of one query per call on 1,000 rows, measured in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure).result()


def _measure() -> float:
    vectors = SETS["sift"]
    index = Index.build(vectors.rows(N_ROWS), random_state=SEED)
    times = []
    for query in vectors.queries(N_ASKED)[:, np.newaxis]:
        start = time.perf_counter()
        index.search(query, k=K, n_threads=1)
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))
