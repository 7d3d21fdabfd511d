"""Types of the native module; its sources are in native/."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def top_k(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], k: int, n_threads: int, simd: str
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def within(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], radius: int, n_threads: int, simd: str
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...
def distances(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], n_threads: int, simd: str
) -> NDArray[np.uint16]: ...
def histogram(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], n_threads: int, simd: str
) -> NDArray[np.int64]: ...
def histograms(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    limits: NDArray[np.int64],
    positions: NDArray[np.int64],
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def lookup_histogram(
    lookups: NDArray[np.uint16],
    codes: NDArray[np.uint8],
    n_levels: int,
    shift: int,
    n_threads: int,
) -> NDArray[np.int64]: ...
def lookup_histograms(
    lookups: NDArray[np.uint16],
    codes: NDArray[np.uint8],
    limits: NDArray[np.int64],
    positions: NDArray[np.int64],
    n_levels: int,
    shift: int,
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def nearest_groups(scores: NDArray[np.float32], p: int, n_threads: int) -> NDArray[np.int32]: ...
def top_k_in_groups(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    limits: NDArray[np.int64],
    probes: NDArray[np.int32],
    ranks: NDArray[np.uint32] | None,
    allowed: NDArray[np.uint8] | None,
    k: int,
    ordered: bool,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def top_products_in_groups(
    queries: NDArray[np.uint8],
    factors: NDArray[np.float32],
    codes: NDArray[np.uint8],
    lengths: NDArray[np.float32],
    zero: float,
    limits: NDArray[np.int64],
    probes: NDArray[np.int32],
    ranks: NDArray[np.uint32] | None,
    allowed: NDArray[np.uint8] | None,
    k: int,
    ordered: bool,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
def rerank(
    queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
    vectors: NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint8] | NDArray[np.int8],
    positions: NDArray[np.int64],
    ranks: NDArray[np.uint32] | None,
    k: int,
    metric: str,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
def rerank_codes(
    margins: NDArray[np.float32],
    codes: NDArray[np.uint8],
    positions: NDArray[np.int64],
    ranks: NDArray[np.uint32] | None,
    k: int,
    n_threads: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
def build_tables(
    codes: NDArray[np.uint8], n_bits: int, n_tables: int, n_threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]: ...
def multi_top_k(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: NDArray[np.bool_] | None,
    k: int,
    patience: float,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def multi_within(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: NDArray[np.bool_] | None,
    radius: int,
    patience: float,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]: ...
def multi_probe(
    queries: NDArray[np.uint8],
    margins: NDArray[np.float32],
    codes: NDArray[np.uint8],
    n_bits: int,
    starts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    allowed: NDArray[np.bool_] | None,
    n_probes: int,
    k: int,
    n_threads: int,
    simd: str,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def multiply(rows: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]: ...
def encode_signs(
    rows: NDArray[np.float32],
    labels: NDArray[np.uint32],
    centers: NDArray[np.float32],
    products: NDArray[np.float32],
    matrix: NDArray[np.int8],
    steps: NDArray[np.float32],
    gram: NDArray[np.float32],
    sweeps: int,
    n_threads: int,
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]: ...
def second_groups(
    rows: NDArray[np.float32],
    labels: NDArray[np.uint32],
    centers: NDArray[np.float32],
    near: NDArray[np.uint32],
    products: NDArray[np.float32],
    squares: NDArray[np.float32],
    n_threads: int,
) -> NDArray[np.uint32]: ...

class Centers:
    def __init__(self, centers: NDArray[np.float32]) -> None: ...
    def nearest(self, rows: NDArray[np.float32], n_threads: int) -> NDArray[np.uint32]: ...

def pack_signs(codes: NDArray[np.uint8], factors: NDArray[np.int16]) -> NDArray[np.uint8]: ...
def unpack_signs(
    blocks: NDArray[np.uint8], count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int16]]: ...

class Signs:
    def __init__(
        self,
        metric: str,
        shift: NDArray[np.float32],
        centers: NDArray[np.float32],
        matrix: NDArray[np.int8],
        steps: NDArray[np.float32],
        alpha: float,
        beta: float,
    ) -> None: ...
    def set_lengths(self, squares: NDArray[np.float32], longest: float) -> None: ...
    def set_second(
        self,
        directions: NDArray[np.float32],
        numbers: NDArray[np.uint32],
        halves: NDArray[np.float32],
    ) -> None: ...
    def add(
        self,
        blocks: NDArray[np.uint8],
        limits: NDArray[np.int64],
        rows: NDArray[np.uint32],
        vectors: NDArray[np.float32]
        | NDArray[np.float16]
        | NDArray[np.uint8]
        | NDArray[np.int8]
        | None,
        ranks: NDArray[np.uint32] | None,
        n_rows: int,
        first: int,
        scales: NDArray[np.float32] | None = None,
        second: NDArray[np.uint8] | None = None,
        second_factors: NDArray[np.uint32] | None = None,
    ) -> None: ...
    def search(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        k: int,
        probes: int,
        spread: float,
        stop: float,
        allowed: list[NDArray[np.uint8]] | None,
        n_threads: int,
        simd: str,
        chosen: NDArray[np.uint8] | None = None,
        entries: list[NDArray[np.uint32]] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]: ...
    def groups_of(self, allowed: list[NDArray[np.uint8]]) -> NDArray[np.uint8]: ...
    def entries_of(self, allowed: list[NDArray[np.uint8]]) -> list[NDArray[np.uint32]]: ...
    def compare(
        self,
        queries: NDArray[np.float32] | NDArray[np.uint8] | NDArray[np.int8],
        k: int,
        rows: list[NDArray[np.uint32]],
        n_threads: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32]]: ...
    def set_ids(self, ids: list[NDArray[np.int64] | NDArray[np.uint8]]) -> None: ...
    @property
    def ids_rise(self) -> bool: ...
    def plain(
        self,
        queries: NDArray[Any],
        k: int,
        probes: int,
        spread: float,
        stop: float,
        n_threads: int,
        n_allowed: int,
        allowed: list[NDArray[np.uint8]] | None,
        chosen: NDArray[np.uint8] | None,
        entries: list[NDArray[np.uint32]] | None,
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.int32]] | None: ...
    def among(
        self,
        queries: NDArray[Any],
        k: int,
        vectors: NDArray[Any],
        scales: NDArray[np.float32] | None,
        ids: NDArray[np.int64] | NDArray[np.uint8],
        n_threads: int,
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.int32]] | None: ...

def instruction_sets() -> tuple[str, ...]: ...

class Map:
    """A file in memory, read-only; it has the buffer protocol."""

    def __init__(self, descriptor: int, size: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def give_back(self) -> None: ...

class Filling:
    n_pieces: int

    def __init__(
        self, source: NDArray[np.uint8], buffers: NDArray[np.uint8], first: int
    ) -> None: ...
    def work(self) -> None: ...
    def allow(self, n_pieces: int) -> None: ...
    def wait_for(self, piece: int) -> None: ...
    def stop(self) -> None: ...
