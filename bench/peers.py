"""Exact Hamming search by others, each called as its documentation says."""

from __future__ import annotations

import ctypes
import importlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from contest import Found

from densehash import hamming

Codes = npt.NDArray[np.uint8]
Search = Callable[[Codes], "Found | None"]
"""Takes queries (q, B), returns their distances (q, k); None if the peer does not select."""


class CannotTakePartError(Exception):
    """Why a peer is left out of a row."""


@dataclass(frozen=True)
class Peer:
    """A peer that can search; `prepare(codes, k, n_threads)` is not timed, its search is."""

    name: str
    prepare: Callable[[Codes, int, int], Search]
    one_in: int = 1
    """Slow peers get one in this many queries."""
    one_thread: bool = False
    """Whether it can use only one thread."""


def densehash_search(codes: Codes, k: int, n_threads: int) -> Search:
    return lambda queries: hamming.top_k(queries, codes, k, n_threads=n_threads)[0]


def faiss_search(codes: Codes, k: int, n_threads: int) -> Search:
    faiss = installed("faiss", "faiss-cpu")
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)

    def search(queries: Codes) -> Found:
        faiss.omp_set_num_threads(n_threads)
        found: Found = index.search(queries, k)[0]
        return found

    return search


def usearch_search(codes: Codes, k: int, n_threads: int) -> Search:
    usearch = installed("usearch.index", "usearch")
    metric, dtype = usearch.MetricKind.Hamming, usearch.ScalarKind.B1

    def search(queries: Codes) -> Found:
        matches = usearch.search(
            codes, queries, k, metric, exact=True, threads=n_threads, dtype=dtype
        )
        return np.asarray(matches.distances).reshape(len(queries), -1)

    return search


def numpy_search(codes: Codes, k: int, n_threads: int) -> Search:
    del n_threads
    if not hasattr(np, "bitwise_count"):
        raise CannotTakePartError("bitwise_count came with numpy 2")
    words = codes.view(np.uint64)

    def nearest(query: npt.NDArray[np.uint64]) -> Found:
        every = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)
        return np.sort(np.partition(every, k - 1)[:k])

    return lambda queries: np.stack([nearest(query) for query in queries.view(np.uint64)])


def limit_search(codes: Codes, k: int, n_threads: int) -> Search:
    """The bare loop of limit.cpp, which finds all distances and selects none."""
    del k, n_threads
    loop = limit_loop()
    n_groups, words = len(codes) // 16, codes.shape[1] // 8
    grouped = codes.view(np.uint64).reshape(n_groups, 16, words).transpose(0, 2, 1).copy()

    def xor_of_distances(queries: Codes) -> int:
        return loop(queries.ctypes.data, len(queries), grouped.ctypes.data, n_groups, words)

    some = codes[:2]
    if xor_of_distances(some) != np.bitwise_xor.reduce(hamming.distances(some, codes).ravel()):
        raise SystemExit("limit.cpp counts wrongly")

    def search(queries: Codes) -> None:
        xor_of_distances(queries)

    return search


OURS = Peer("densehash", densehash_search)
LIMIT = Peer("limit", limit_search, one_thread=True)
FAISS = Peer("faiss", faiss_search)
PEERS = (
    LIMIT,
    FAISS,
    Peer("usearch", usearch_search, one_in=16),
    Peer("numpy", numpy_search, one_in=64, one_thread=True),
)


def installed(module: str, distribution: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CannotTakePartError(f"{distribution} cannot be imported: {error}") from error


@lru_cache(maxsize=1)
def limit_loop() -> Callable[[int, int, int, int, int], int]:
    """limit.cpp, compiled for this machine."""
    source = Path(__file__).with_name("limit.cpp")
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "limit.so"
        options = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
        command = [*compiler, *options, str(source), "-o", str(library)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or error
            raise CannotTakePartError(f"limit.cpp does not compile: {reason}") from error
        function = ctypes.CDLL(str(library)).limit
    address, size = ctypes.c_void_p, ctypes.c_size_t
    function.argtypes = [address, size, address, size, size]
    function.restype = ctypes.c_uint64
    loop: Callable[[int, int, int, int, int], int] = function
    return loop
